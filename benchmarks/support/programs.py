"""The programs of the side-by-side run: what each is called, and how it is prepared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program to compare.

    Attributes
    ----------
    title : str
        For people.
    prepare : str
        A function of `peers`.
    options : dict
        Its keyword arguments, beside the problem.
    batched : bool
        Whether it works in batches, whose size is to be found.
    serial : bool
        Whether it runs on one thread, whatever it is told.
    slow : bool
        Whether it takes many times as long as the others: it runs only if it is asked for, or on
        the inputs of ``--slow-inputs``.
    at_once : bool
        Whether all inputs in one batch are tried, too.
    own : bool
        Whether it is gbdnn.
    """

    title: str
    prepare: str
    options: dict[str, Any] = field(default_factory=dict)
    batched: bool = True
    serial: bool = False
    slow: bool = False
    at_once: bool = False
    own: bool = False


def _peer(title: str, prepare: str, drop: bool, *, serial: bool = False, slow: bool) -> Program:
    return Program(
        title=title + (" + drop" if drop else ""),
        prepare=prepare,
        options={"drop": drop},
        serial=serial,
        slow=slow,
    )


def _gbdnn(engine: str, *, compress: bool, slow: bool = False) -> Program:
    return Program(
        title=f"gbdnn {engine}" + ("" if compress else ", compress=False"),
        prepare="gbdnn",
        options={"engine": engine} | ({} if compress else {"compress": False}),
        batched=False,
        slow=slow,
        own=True,
    )


# Every input computed, which is what the others do; and as a user calls it.
DISTINCT, DEFAULT = "gbdnn-distinct", "gbdnn"

_TORCH = "PyTorch CSR x dense"
_MKL_DENSE, _MKL_CSR = "MKL CSR x dense", "MKL CSR x CSR"
_SCIPY_DENSE, _SCIPY_CSR = "SciPy CSR x dense", "SciPy CSR x CSR"

PROGRAMS = {
    DISTINCT: _gbdnn("auto", compress=False),
    DEFAULT: _gbdnn("auto", compress=True),
    "gbdnn-full": _gbdnn("full", compress=False),
    "gbdnn-sparse": _gbdnn("sparse", compress=False, slow=True),
    "lagraph": Program(title="LAGraph form", prepare="lagraph", at_once=True),
    "torch+drop": _peer(_TORCH, "torch_dense", True, slow=False),
    "mkl-dense+drop": _peer(_MKL_DENSE, "mkl_dense", True, slow=False),
    "scipy-dense+drop": _peer(_SCIPY_DENSE, "scipy_dense", True, serial=True, slow=False),
    "torch": _peer(_TORCH, "torch_dense", False, slow=True),
    "mkl-dense": _peer(_MKL_DENSE, "mkl_dense", False, slow=True),
    "scipy-dense": _peer(_SCIPY_DENSE, "scipy_dense", False, serial=True, slow=True),
    "mkl-csr": _peer(_MKL_CSR, "mkl_csr", False, slow=True),
    "mkl-csr+drop": _peer(_MKL_CSR, "mkl_csr", True, slow=True),
    "scipy-csr": _peer(_SCIPY_CSR, "scipy_csr", False, serial=True, slow=True),
    "scipy-csr+drop": _peer(_SCIPY_CSR, "scipy_csr", True, serial=True, slow=True),
}
