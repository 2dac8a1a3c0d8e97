"""The programs of the side-by-side comparison, in their fastest configurations.

Each function prepares its matrices and returns ``ready(nthreads, batch, inputs)``, which prepares a
run on the first `inputs` inputs, `batch` at a time, and returns the timed function ``run()``, which
returns categories. Batches are reused by later runs. Activations are dense (neurons x inputs of a
batch) or sparse (inputs of a batch x neurons):

    Z  = W' Y + b     or     Z = Y W, Z += b on its entries
    Y' = min(max(Z, 0), clip)

Weights are CSR in FP32 with 32-bit indices. With `drop`, inputs without activations are removed
from their batch after each layer. Biases are <= 0, as in the challenge, so adding them everywhere
and adding them to entries give the same result.

With ``device="cuda"``, CuPy, which calls cuSPARSE, replaces SciPy, and PyTorch computes on the GPU.
Weights and features are copied to the GPU before a run, and the categories back at its end.
"""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import nullcontext
from functools import lru_cache, partial
from operator import matmul
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import loops
import numpy as np
import problems
from processes import Program, Programs, serve
from turns import timed

if TYPE_CHECKING:
    from collections.abc import Callable

    import scipy.sparse as sp

    from gbdnn.challenge import Problem

    Run = Callable[[], np.ndarray]
    Ready = Callable[[int, int, int], Run]

# Divisions into batches that a program keeps, one for each number of threads.
_KEPT = 2


def gbdnn(problem: Problem, **options: Any) -> Ready:
    """Run an engine of gbdnn; load or compile the fused kernel."""
    import gbdnn
    from gbdnn.errors import MissingPackageError
    from gbdnn.kernels.fused import FUSED

    facts: dict[str, Any] = {}
    if options["engine"] in ("auto", "fused"):
        began, facts["compiled"] = perf_counter(), True
        try:
            FUSED.code(np.dtype(np.float32)).required()
        except MissingPackageError:
            facts["compiled"] = False
        facts["code_seconds"] = perf_counter() - began
    net, X = problem.network, problem.features
    first = lru_cache(_KEPT)(lambda inputs: X if inputs == X.nrows else X[:inputs, :].new())

    def run(nthreads: int, features: Any) -> np.ndarray:
        return gbdnn.categories(gbdnn.infer(net, features, nthreads=nthreads, **options))

    def ready(nthreads: int, _batch: int, inputs: int) -> Run:
        return partial(run, nthreads, first(inputs))

    ready.facts = facts
    return ready


def lagraph(problem: Problem) -> Ready:
    """The LAGraph loop, on the same GraphBLAS as gbdnn."""
    import lagraph

    network, X = lagraph.prepare(problem.network), problem.features
    parts = lru_cache(_KEPT)(lambda batch, inputs: loops.batches(X[:inputs, :].new(), batch))

    def ready(nthreads: int, batch: int, inputs: int) -> Run:
        return partial(lagraph.categories, network, parts(batch, inputs), nthreads)

    return ready


def scipy_csr(problem: Problem, drop: bool, device: str = "cpu") -> Ready:
    """SciPy on one thread, or CuPy: CSR activations x CSR weights."""
    return _sparse(problem, matmul, drop, device=device)


def scipy_dense(problem: Problem, drop: bool, device: str = "cpu") -> Ready:
    """SciPy on one thread, or CuPy: CSR weights x dense activations."""
    return _dense(problem, matmul, drop, device=device)


def mkl_csr(problem: Problem, drop: bool) -> Ready:
    """MKL, CSR activations x CSR weights."""
    mkl = _mkl()
    return _sparse(problem, mkl.dot_product_mkl, drop, mkl.mkl_set_num_threads)


def mkl_dense(problem: Problem, drop: bool) -> Ready:
    """MKL, CSR weights x dense activations."""
    mkl = _mkl()
    return _dense(problem, mkl.dot_product_mkl, drop, mkl.mkl_set_num_threads)


def torch_dense(problem: Problem, drop: bool, device: str = "cpu", csr: bool = True) -> Ready:
    """PyTorch, CSR or dense weights x dense activations."""
    import torch

    warnings.filterwarnings("ignore", message=".*Sparse (CSR|invariant).*")
    clip = float(problem.network[0].clip)

    def tensor(A: sp.csr_array) -> Any:
        arrays = map(torch.from_numpy, (A.indptr, A.indices, A.data))
        return torch.sparse_csr_tensor(*arrays, A.shape).to(device)

    def weights(W: sp.csr_array) -> Any:
        return tensor(W.T.tocsr()) if csr else tensor(W.T.tocsr()).to_dense()

    return _peer(
        problem, drop, weights,
        held=lambda X: X.T.tocsr() if device == "cpu" else tensor(X.T.tocsr()),
        start=lambda X: torch.from_numpy(X.toarray()) if device == "cpu" else X.to_dense(),
        step=lambda Y, at: (at[0] @ Y).add_(at[1]).clamp_(0, clip),
        living=lambda Y: Y.amax(0).nonzero()[:, 0],
        take=lambda Y, at: Y.index_select(1, at),
        numbers=partial(torch.arange, device=device),
        set_threads=torch.set_num_threads,
        context=torch.inference_mode,
    )  # fmt: skip


def _dense(
    problem: Problem,
    multiply: Callable[[sp.csr_array, np.ndarray], np.ndarray],
    drop: bool,
    set_threads: Callable[[int], object] = lambda _: None,
    device: str = "cpu",
) -> Ready:
    """Return a program of dense activations, with inputs in columns."""
    xp, held = _modules(device)
    clip = np.float32(problem.network[0].clip)

    def step(Y: np.ndarray, at: tuple[sp.csr_array, np.float32]) -> np.ndarray:
        Y = multiply(at[0], Y)
        Y += at[1]
        return Y.clip(0, clip, out=Y)

    return _peer(
        problem, drop, weights=lambda W: held(W.T.tocsr()), held=lambda X: held(X.T.tocsr()),
        start=lambda X: X.toarray(), step=step, living=lambda Y: Y.max(axis=0).nonzero()[0],
        take=lambda Y, at: Y.take(at, axis=1), numbers=xp.arange, set_threads=set_threads,
    )  # fmt: skip


def _sparse(
    problem: Problem,
    multiply: Callable[[sp.csr_array, sp.csr_array], sp.csr_array],
    drop: bool,
    set_threads: Callable[[int], object] = lambda _: None,
    device: str = "cpu",
) -> Ready:
    """Return a program of sparse activations, with inputs in rows."""
    xp, held = _modules(device)
    clip = np.float32(problem.network[0].clip)

    def step(Y: sp.csr_array, at: tuple[sp.csr_array, np.float32]) -> sp.csr_array:
        Y = multiply(Y, at[0])
        Y.data += at[1]
        Y.data.clip(0, clip, out=Y.data)
        Y.eliminate_zeros()
        return Y

    return _peer(
        problem, drop, weights=held, held=held, start=lambda X: X, step=step,
        living=lambda Y: xp.diff(Y.indptr).nonzero()[0], take=lambda Y, at: Y[at],
        numbers=xp.arange, set_threads=set_threads,
    )  # fmt: skip


def _peer(
    problem: Problem, drop: bool, weights: Callable[[sp.csr_array], Any],
    held: Callable[[sp.csr_array], Any], start: Callable[[Any], Any], step: Any, living: Any,
    take: Any, numbers: Any, set_threads: Callable[[int], object], context: Any = nullcontext,
) -> Ready:  # fmt: skip
    """Return a program that takes batches through `loops.through`.

    `weights` and `held` convert weights and batches before a run, `start` the batches in it.
    """
    layers = [
        (weights(problems.csr(layer.weights)), np.float32(layer.bias)) for layer in problem.network
    ]
    features = problems.csr(problem.features)

    @lru_cache(_KEPT)
    def parts(batch: int, inputs: int) -> list[tuple[int, Any]]:
        return [
            (at, held(features[at : min(at + batch, inputs)])) for at in range(0, inputs, batch)
        ]

    def run(chosen: list[tuple[int, Any]], batch: int, inputs: int) -> np.ndarray:
        with context():
            return np.concatenate(
                [
                    _here(
                        loops.through(
                            start(X), numbers(at, min(at + batch, inputs)), layers, step, living,
                            take, drop,
                        )
                    )
                    for at, X in chosen
                ]
            )  # fmt: skip

    def ready(nthreads: int, batch: int, inputs: int) -> Run:
        set_threads(nthreads)
        return partial(run, parts(batch, inputs), batch, inputs)

    return ready


def _modules(device: str) -> tuple[Any, Callable[[sp.csr_array], Any]]:
    """Return NumPy or CuPy, and a function that copies a CSR matrix to the device."""
    if device == "cpu":
        return np, lambda A: A
    import cupy
    from cupyx.scipy import sparse

    return cupy, sparse.csr_matrix


def _here(array: Any) -> np.ndarray:
    """Return an array of NumPy, CuPy or PyTorch as NumPy's."""
    return (
        array.get() if hasattr(array, "get") else np.asarray(getattr(array, "cpu", lambda: array)())
    )


def _mkl() -> Any:
    """Return sparse_dot_mkl; if MKL_RT is not set, look for MKL in this environment."""
    if "MKL_RT" not in os.environ:
        for file in sorted(Path(sys.prefix, "lib").glob("libmkl_rt.*")):
            os.environ["MKL_RT"] = str(file)
    import sparse_dot_mkl

    return sparse_dot_mkl


def _engine(engine: str, *traits: str, deduplicate: bool = False) -> Program:
    title = f"gbdnn {engine}" + ("" if deduplicate else ", deduplicate=False")
    return Program(title, gbdnn, "own", *traits, engine=engine, **problems.merging(deduplicate))


# Every input computed, as in the other programs; and with the default options.
DISTINCT, DEFAULT = "gbdnn-distinct", "gbdnn"

# Programs are "own", "serial" (always on one thread), "at once" (all inputs in one batch are tried,
# too), and "slow" (run only if requested, or on the inputs of ``--slow-inputs``).
PROGRAMS = Programs(__file__)
PROGRAMS |= {
    DISTINCT: _engine("auto"),
    DEFAULT: _engine("auto", deduplicate=True),
    "gbdnn-full": _engine("full"),
    "gbdnn-graphblas": _engine("graphblas", "slow"),
    "gbdnn-fused": _engine("fused", "slow"),
    "gbdnn-sparse": _engine("sparse", "slow"),
    "lagraph": Program("LAGraph loop", lagraph, "at once"),
    "torch+drop": Program("PyTorch CSR x dense + drop", torch_dense, drop=True),
    "mkl-dense+drop": Program("MKL CSR x dense + drop", mkl_dense, drop=True),
    "scipy-dense+drop": Program("SciPy CSR x dense + drop", scipy_dense, "serial", drop=True),
    "torch": Program("PyTorch CSR x dense", torch_dense, "slow", drop=False),
    "mkl-dense": Program("MKL CSR x dense", mkl_dense, "slow", drop=False),
    "scipy-dense": Program("SciPy CSR x dense", scipy_dense, "serial", "slow", drop=False),
    "mkl-csr": Program("MKL CSR x CSR", mkl_csr, "slow", drop=False),
    "mkl-csr+drop": Program("MKL CSR x CSR + drop", mkl_csr, "slow", drop=True),
    "scipy-csr": Program("SciPy CSR x CSR", scipy_csr, "serial", "slow", drop=False),
    "scipy-csr+drop": Program("SciPy CSR x CSR + drop", scipy_csr, "serial", "slow", drop=True),
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


def _prepared(name: str, folder: str) -> Callable[..., dict[str, Any]]:
    program = PROGRAMS[name]
    ready = program.prepare(problems.load(Path(folder)), **program.options)

    def run(nthreads: int, batch: int, inputs: int) -> dict[str, Any]:
        call = ready(nthreads, batch or inputs, inputs)
        return timed(call, lambda found: {"categories": found.tolist()})()

    run.facts = getattr(ready, "facts", {})
    return run


if __name__ == "__main__":
    serve(_prepared)
