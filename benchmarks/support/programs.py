"""The programs of the side-by-side comparison: titles, preparation and processes.

The script runs one program: it prepares the problem once, and runs it on request.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from processes import Process, serve
from turns import timed


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program to compare.

    Attributes
    ----------
    title : str
        Name in tables.
    prepare : str
        A function of `peers`.
    options : dict
        Its keyword arguments besides the problem.
    batched : bool
        Whether it works in batches, whose size is searched.
    serial : bool
        Whether it always runs on one thread.
    slow : bool
        Whether it is much slower than the others, so that it runs only if requested, or on the
        inputs of ``--slow-inputs``.
    at_once : bool
        Whether to try all inputs in one batch too.
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


def _gbdnn(engine: str, *, deduplicate: bool, slow: bool = False) -> Program:
    return Program(
        title=f"gbdnn {engine}" + ("" if deduplicate else ", deduplicate=False"),
        prepare="gbdnn",
        options={"engine": engine} | ({} if deduplicate else {"deduplicate": False}),
        batched=False,
        slow=slow,
        own=True,
    )


# Every input computed, as in the other programs; and with the default options.
DISTINCT, DEFAULT = "gbdnn-distinct", "gbdnn"

_TORCH = "PyTorch CSR x dense"
_MKL_DENSE, _MKL_CSR = "MKL CSR x dense", "MKL CSR x CSR"
_SCIPY_DENSE, _SCIPY_CSR = "SciPy CSR x dense", "SciPy CSR x CSR"

PROGRAMS = {
    DISTINCT: _gbdnn("auto", deduplicate=False),
    DEFAULT: _gbdnn("auto", deduplicate=True),
    "gbdnn-full": _gbdnn("full", deduplicate=False),
    "gbdnn-graphblas": _gbdnn("graphblas", deduplicate=False, slow=True),
    "gbdnn-fused": _gbdnn("fused", deduplicate=False, slow=True),
    "gbdnn-sparse": _gbdnn("sparse", deduplicate=False, slow=True),
    "lagraph": Program(title="LAGraph loop", prepare="lagraph", at_once=True),
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

# The programs of the table in the README.
ENGINES = (
    "gbdnn-fused", DEFAULT, "gbdnn-graphblas", "gbdnn-full", "gbdnn-sparse", "torch+drop",
    "mkl-dense+drop", "lagraph",
)  # fmt: skip

# Programs of the measurements by threads, with their names.
KERNELS = {
    "lagraph": "LAGraph's calls from Python",
    "gbdnn-sparse": "sparse",
    "gbdnn-full": "full",
    "gbdnn-fused": "fused",
}


class Worker(Process):
    """The client of a program's process.

    Parameters
    ----------
    name : str
        A key of `PROGRAMS`.
    folder : Path
        Folder written by `problems.save`.
    inputs : int
        Number of inputs.
    **environment : str
        Environment variables to set.
    """

    def __init__(self, name: str, folder: Path, inputs: int, **environment: str) -> None:
        super().__init__(name, __file__, name, folder, inputs, **environment)
        self.inputs = inputs

    def run(self, nthreads: int, batch: int, inputs: int | None = None) -> dict[str, Any]:
        """Return seconds, CPU seconds and categories of a run on all or the first inputs."""
        return self.ask(nthreads=nthreads, batch=batch, inputs=inputs or self.inputs)


def _prepared(name: str, folder: str, inputs: str) -> Any:
    """Return the function that serves requests."""
    import peers
    import problems

    arrays = problems.load(Path(folder), int(inputs))
    peer = getattr(peers, PROGRAMS[name].prepare)(arrays, **PROGRAMS[name].options)

    def run(nthreads: int, batch: int, inputs: int) -> dict[str, Any]:
        ready = peer.ready(nthreads, batch, inputs)
        return timed(ready, lambda found: {"categories": found.tolist()})()

    run.facts = peer.facts
    return run


if __name__ == "__main__":
    serve(lambda: _prepared(*sys.argv[1:]))
