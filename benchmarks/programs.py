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
        Whether it is given a batch size too.
    serial : bool
        Whether it runs on one thread, whatever it is told.
    slow : bool
        Whether ``--slow-inputs`` is for it: it takes many times as long as gbdnn.
    """

    title: str
    prepare: str
    options: dict[str, Any] = field(default_factory=dict)
    batched: bool = True
    serial: bool = False
    slow: bool = False


def _peer(title: str, prepare: str, drop: bool, *, serial: bool = False, slow: bool) -> Program:
    return Program(
        title=title + (" + drop" if drop else ""),
        prepare=prepare,
        options={"drop": drop},
        serial=serial,
        slow=slow,
    )


def _gbdnn(engine: str, slow: bool = False) -> Program:
    return Program(
        title=f"gbdnn {engine}",
        prepare="gbdnn",
        options={"engine": engine},
        batched=False,
        slow=slow,
    )


REFERENCE = "gbdnn"

_TORCH = "PyTorch CSR x dense"
_MKL_DENSE, _MKL_CSR = "MKL CSR x dense", "MKL CSR x CSR"
_SCIPY_DENSE, _SCIPY_CSR = "SciPy CSR x dense", "SciPy CSR x CSR"

PROGRAMS = {
    REFERENCE: _gbdnn("auto"),
    "gbdnn-distinct": Program(
        title="gbdnn auto, compress=False",
        prepare="gbdnn",
        options={"engine": "auto", "compress": False},
        batched=False,
    ),
    "gbdnn-full": _gbdnn("full"),
    "gbdnn-sparse": _gbdnn("sparse", slow=True),
    "lagraph": Program(title="LAGraph form", prepare="lagraph", batched=False),
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
