"""The programs of the side-by-side comparison, in their fastest configurations.

Each function prepares its matrices and returns ``ready(nthreads, batch, inputs)``, which prepares a
run on the first `inputs` inputs, `batch` at a time, and returns the timed function ``run()``, which
returns categories. Batches are reused by later runs. Activations are dense (neurons x inputs of a
batch):

    Z  = W' Y + b
    Y' = min(max(Z, 0), clip)

Weights are CSR in FP32 with 32-bit indices. Inputs without activations are removed from their batch
after each layer. Biases are <= 0, as in the challenge, so adding them everywhere and adding them to
entries give the same result.
"""

from __future__ import annotations

import os
import sys
import warnings
from functools import lru_cache, partial
from itertools import pairwise
from operator import matmul
from pathlib import Path
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
    Layers = list[tuple[Any, np.float32]]

# Divisions into batches that a program keeps, one for each number of threads.
_KEPT = 2


def gbdnn(problem: Problem, **options: Any) -> Ready:
    """Run an engine of gbdnn."""
    import gbdnn

    net, X = problem.network, problem.features
    first = lru_cache(_KEPT)(lambda inputs: X if inputs == X.nrows else X[:inputs, :].new())

    def run(nthreads: int, features: Any) -> np.ndarray:
        return gbdnn.categories(gbdnn.infer(net, features, nthreads=nthreads, **options))

    def ready(nthreads: int, _batch: int, inputs: int) -> Run:
        return partial(run, nthreads, first(inputs))

    return ready


def lagraph(problem: Problem) -> Ready:
    """The LAGraph loop, on the same GraphBLAS as gbdnn."""
    import gbdnn

    net, X = problem.network, problem.features
    parts = lru_cache(_KEPT)(lambda batch, inputs: loops.batches(X[:inputs, :].new(), batch))

    def infer(X: Any) -> np.ndarray:
        return loops.living(gbdnn.infer(net, X, engine="lagraph"))

    def ready(nthreads: int, batch: int, inputs: int) -> Run:
        return partial(loops.categories, infer, parts(batch, inputs), nthreads)

    return ready


def torch_csr(problem: Problem) -> Ready:
    """PyTorch, CSR weights x dense activations."""
    import torch

    warnings.filterwarnings("ignore", message=".*Sparse (CSR|invariant).*")
    clip = float(problem.network[0].clip)

    def tensor(A: sp.csr_array) -> Any:
        arrays = map(torch.from_numpy, (A.indptr, A.indices, A.data))
        return torch.sparse_csr_tensor(*arrays, A.shape)

    def through(X: np.ndarray, ids: np.ndarray, layers: Layers) -> Any:
        return loops.through(
            *map(torch.from_numpy, (X, ids)), layers,
            lambda Y, at: (at[0] @ Y).add_(at[1]).clamp_(0, clip),
            lambda Y: Y.amax(0).nonzero()[:, 0],
            True,
            lambda Y, at: Y.index_select(1, at),
        )  # fmt: skip

    ready = _peer(problem, tensor, through, torch.set_num_threads)
    return lambda *sizes: torch.inference_mode()(ready(*sizes))


def mkl(problem: Problem) -> Ready:
    """MKL, CSR weights x dense activations."""
    if "MKL_RT" not in os.environ:  # look for MKL in this environment
        for file in sorted(Path(sys.prefix, "lib").glob("libmkl_rt.*")):
            os.environ["MKL_RT"] = str(file)
    import sparse_dot_mkl

    return arrays(problem, sparse_dot_mkl.dot_product_mkl, sparse_dot_mkl.mkl_set_num_threads)


def arrays(
    problem: Problem,
    multiply: Callable[[Any, Any], Any] = matmul,
    *threads: Callable[[int], object],
) -> Ready:
    """SciPy on one thread, or the product of another library."""
    clip = np.float32(problem.network[0].clip)

    def step(Y: np.ndarray, at: tuple[sp.csr_array, np.float32]) -> np.ndarray:
        Y = multiply(at[0], Y)
        Y += at[1]
        return Y.clip(0, clip, out=Y)

    def through(X: np.ndarray, ids: np.ndarray, layers: Layers) -> np.ndarray:
        return loops.through(
            X, ids, layers, step,
            lambda Y: Y.max(axis=0).nonzero()[0],
            True,
            lambda Y, at: Y.take(at, axis=1),
        )  # fmt: skip

    return _peer(problem, lambda A: A, through, *threads)


def _peer(
    problem: Problem,
    held: Callable[[sp.csr_array], Any],
    through: Callable[[np.ndarray, np.ndarray, Layers], Any],
    threads: Callable[[int], object] = lambda _: None,
) -> Ready:
    """Return a program that takes batches through all layers; `held` copies weights."""
    layers = [
        (held(problems.csr(layer.weights).T.tocsr()), np.float32(layer.bias))
        for layer in problem.network
    ]
    features = problems.csr(problem.features)

    @lru_cache(_KEPT)
    def parts(batch: int, inputs: int) -> list[tuple[Any, np.ndarray]]:
        cuts = [*range(0, inputs, batch), inputs]
        return [(features[at:to].T.tocsr(), np.arange(at, to)) for at, to in pairwise(cuts)]

    def run(chosen: list[tuple[Any, np.ndarray]]) -> np.ndarray:
        return np.concatenate(
            [np.asarray(through(X.toarray(), *ids, layers)) for X, *ids in chosen]
        )

    def ready(nthreads: int, batch: int, inputs: int) -> Run:
        threads(nthreads)
        return partial(run, parts(batch, inputs))

    return ready


def _engine(engine: str, deduplicate: bool = False) -> Program:
    title = f"gbdnn {engine}" + ("" if deduplicate else ", deduplicate=False")
    return Program(title, gbdnn, "own", engine=engine, **problems.merging(deduplicate))


# Every input computed, as in the other programs; and with the default options.
DISTINCT, DEFAULT = "gbdnn-distinct", "gbdnn"

# Programs are "own", or "at once": all inputs in one batch are tried, too.
PROGRAMS = Programs(__file__)
PROGRAMS |= {
    DISTINCT: _engine("auto"),
    DEFAULT: _engine("auto", deduplicate=True),
    **{f"gbdnn-{name}": _engine(name) for name in ("fused", "graphblas", "full", "sparse")},
    "lagraph": Program("LAGraph loop", lagraph, "at once"),
    "torch+drop": Program("PyTorch CSR x dense + drop", torch_csr),
    "mkl-dense+drop": Program("MKL CSR x dense + drop", mkl),
    "scipy-dense+drop": Program("SciPy CSR x dense + drop", arrays),
}

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

    return run


if __name__ == "__main__":
    serve(_prepared)
