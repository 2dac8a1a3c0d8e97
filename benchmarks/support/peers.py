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
"""

from __future__ import annotations

import os
import sys
import warnings
from functools import lru_cache, partial
from itertools import pairwise
from operator import matmul
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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
    """Run an engine of gbdnn."""
    import gbdnn
    from gbdnn.kernels.compiled.loading import available

    facts: dict[str, Any] = {}
    if options["engine"] in ("auto", "fused"):
        facts["compiled"] = available("float32")
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


def torch_csr(problem: Problem, drop: bool) -> Ready:
    """PyTorch, CSR weights x dense activations."""
    import torch

    warnings.filterwarnings("ignore", message=".*Sparse (CSR|invariant).*")
    clip = float(problem.network[0].clip)

    def tensor(A: sp.csr_array) -> Any:
        arrays = map(torch.from_numpy, (A.indptr, A.indices, A.data))
        return torch.sparse_csr_tensor(*arrays, A.shape)

    library = Library(torch.arange, tensor, set=torch.set_num_threads)
    kernel = Kernel(
        lambda X: torch.from_numpy(X.toarray()),
        lambda Y, at: (at[0] @ Y).add_(at[1]).clamp_(0, clip),
        lambda Y: Y.amax(0).nonzero()[:, 0],
        lambda Y, at: Y.index_select(1, at),
    )
    ready = _peer(problem, drop, library, kernel, transposed=True)
    return lambda *sizes: torch.inference_mode()(ready(*sizes))


def dense(problem: Problem, drop: bool, library: str = "scipy") -> Ready:
    """SciPy on one thread, or MKL: CSR weights x dense activations, inputs in columns."""
    found = _library(library)
    clip = np.float32(problem.network[0].clip)

    def step(Y: np.ndarray, at: tuple[sp.csr_array, np.float32]) -> np.ndarray:
        Y = found.multiply(at[0], Y)
        Y += at[1]
        return Y.clip(0, clip, out=Y)

    kernel = Kernel(
        lambda X: X.toarray(),
        step,
        lambda Y: Y.max(axis=0).nonzero()[0],
        lambda Y, at: Y.take(at, axis=1),
    )
    return _peer(problem, drop, found, kernel, transposed=True)


def sparse(problem: Problem, drop: bool, library: str = "scipy") -> Ready:
    """SciPy on one thread, or MKL: CSR activations x CSR weights, inputs in rows."""
    found = _library(library)
    clip = np.float32(problem.network[0].clip)

    def step(Y: sp.csr_array, at: tuple[sp.csr_array, np.float32]) -> sp.csr_array:
        Y = found.multiply(Y, at[0])
        Y.data += at[1]
        Y.data.clip(0, clip, out=Y.data)
        Y.eliminate_zeros()
        return Y

    kernel = Kernel(lambda X: X, step, lambda Y: (Y.indptr[1:] > Y.indptr[:-1]).nonzero()[0])
    return _peer(problem, drop, found, kernel, transposed=False)


class Library(NamedTuple):
    """Functions: a range of numbers, copying weights, product, threads."""

    numbers: Callable[[int, int], Any] = np.arange
    held: Callable[[sp.csr_array], Any] = lambda A: A
    multiply: Callable[[Any, Any], Any] = matmul
    set: Callable[[int], object] = lambda _: None


class Kernel(NamedTuple):
    """Functions of `loops.through`, and how a batch becomes activations."""

    start: Callable[[Any], Any]
    step: Callable[[Any, Any], Any]
    living: Callable[[Any], Any]
    take: Callable[[Any, Any], Any] = lambda Y, at: Y[at]


def _library(name: str) -> Library:
    """Return SciPy or MKL."""
    if name == "scipy":
        return Library()
    if "MKL_RT" not in os.environ:  # look for MKL in this environment
        for file in sorted(Path(sys.prefix, "lib").glob("libmkl_rt.*")):
            os.environ["MKL_RT"] = str(file)
    import sparse_dot_mkl as mkl

    return Library(multiply=mkl.dot_product_mkl, set=mkl.mkl_set_num_threads)


def _peer(
    problem: Problem, drop: bool, library: Library, kernel: Kernel, *, transposed: bool
) -> Ready:
    """Return a program that takes batches through `loops.through`; matrices may be transposed."""

    def turned(A: sp.csr_array) -> sp.csr_array:
        return A.T.tocsr() if transposed else A

    start, step, living, take = kernel
    weights = [library.held(turned(problems.csr(layer.weights))) for layer in problem.network]
    biases = [np.float32(layer.bias) for layer in problem.network]
    layers, features = list(zip(weights, biases, strict=True)), problems.csr(problem.features)

    @lru_cache(_KEPT)
    def parts(batch: int, inputs: int) -> list[tuple[int, int, Any]]:
        cuts = [*range(0, inputs, batch), inputs]
        return [(at, to, turned(features[at:to])) for at, to in pairwise(cuts)]

    def one(at: int, to: int, X: Any) -> np.ndarray:
        ids = loops.through(start(X), library.numbers(at, to), layers, step, living, drop, take)
        return np.asarray(ids)

    def run(chosen: list[tuple[int, int, Any]]) -> np.ndarray:
        return np.concatenate([one(*each) for each in chosen])

    def ready(nthreads: int, batch: int, inputs: int) -> Run:
        library.set(nthreads)
        return partial(run, parts(batch, inputs))

    return ready


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
    "torch+drop": Program("PyTorch CSR x dense + drop", torch_csr, drop=True),
    "mkl-dense+drop": Program("MKL CSR x dense + drop", dense, drop=True, library="mkl"),
    "scipy-dense+drop": Program("SciPy CSR x dense + drop", dense, "serial", drop=True),
    "torch": Program("PyTorch CSR x dense", torch_csr, "slow", drop=False),
    "mkl-dense": Program("MKL CSR x dense", dense, "slow", drop=False, library="mkl"),
    "scipy-dense": Program("SciPy CSR x dense", dense, "serial", "slow", drop=False),
    "mkl-csr": Program("MKL CSR x CSR", sparse, "slow", drop=False, library="mkl"),
    "mkl-csr+drop": Program("MKL CSR x CSR + drop", sparse, "slow", drop=True, library="mkl"),
    "scipy-csr": Program("SciPy CSR x CSR", sparse, "serial", "slow", drop=False),
    "scipy-csr+drop": Program("SciPy CSR x CSR + drop", sparse, "serial", "slow", drop=True),
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
    ready = PROGRAMS.prepared(name, problems.load(Path(folder)))

    def run(nthreads: int, batch: int, inputs: int) -> dict[str, Any]:
        call = ready(nthreads, batch or inputs, inputs)
        return timed(call, lambda found: {"categories": found.tolist()})()

    run.facts = getattr(ready, "facts", {})
    return run


if __name__ == "__main__":
    serve(_prepared)
