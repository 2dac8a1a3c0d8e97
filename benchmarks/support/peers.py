"""Other programs on the same problem: SciPy, PyTorch and MKL in their fastest configurations.

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

import sys
import warnings
from functools import lru_cache, partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import scipy.sparse as sp
    from problems import Arrays

    Run = Callable[[], np.ndarray]
    Ready = Callable[[int, int, int], Run]

# Divisions into batches that a program keeps, one for each number of threads.
_KEPT = 2


class Peer(NamedTuple):
    """A program with the problem in its own format.

    ``facts`` are details for the report.
    """

    ready: Ready
    facts: dict[str, Any] = {}  # noqa: RUF012 -- never changed


def gbdnn(problem: Arrays, **options: Any) -> Peer:
    """Run an engine of gbdnn; load or compile the fused kernel."""
    import gbdnn

    facts: dict[str, Any] = {}
    if options["engine"] in ("auto", "fused"):
        began = perf_counter()
        facts = {"compiled": _compiled(np.dtype(np.float32))}
        facts["code_seconds"] = perf_counter() - began
    net, X = network(problem)

    def run(nthreads: int) -> np.ndarray:
        return gbdnn.categories(gbdnn.infer(net, X, nthreads=nthreads, **options))

    return Peer(lambda nthreads, *_: partial(run, nthreads), facts)


def network(problem: Arrays) -> tuple[Any, Any]:
    """Return the problem as a Network and a Matrix."""
    import gbdnn

    layers = [
        gbdnn.Layer(_matrix(W), b, bias_rule="entries", clip=problem.clip, copy=False)
        for W, b in zip(problem.weights, problem.bias, strict=True)
    ]
    return gbdnn.Network(layers), _matrix(problem.features)


def lagraph(problem: Arrays) -> Peer:
    """The LAGraph loop, on the same GraphBLAS as gbdnn."""
    import lagraph

    network = lagraph.prepare(map(_matrix, problem.weights), problem.bias, problem.clip)
    X = _matrix(problem.features)

    @lru_cache(_KEPT)
    def parts(batch: int, inputs: int) -> list[Any]:
        return lagraph.batches(X[:inputs, :].new(), batch)

    def ready(nthreads: int, batch: int, inputs: int) -> Run:
        return partial(lagraph.categories, network, parts(batch, inputs), nthreads)

    return Peer(ready)


def scipy_csr(problem: Arrays, drop: bool) -> Peer:
    """SciPy, CSR activations x CSR weights, on one thread."""

    def multiply(Y: sp.csr_array, W: sp.csr_array) -> sp.csr_array:
        return Y @ W

    return _sparse_peer(problem, multiply, drop)


def scipy_dense(problem: Arrays, drop: bool) -> Peer:
    """SciPy, CSR weights x dense activations, on one thread."""

    def multiply(W: sp.csr_array, Y: np.ndarray) -> np.ndarray:
        return W @ Y

    return _dense_peer(problem, multiply, drop)


def mkl_csr(problem: Arrays, drop: bool) -> Peer:
    """MKL, CSR activations x CSR weights."""
    mkl = _mkl()
    return _sparse_peer(problem, mkl.dot_product_mkl, drop, mkl.mkl_set_num_threads)


def mkl_dense(problem: Arrays, drop: bool) -> Peer:
    """MKL, CSR weights x dense activations."""
    mkl = _mkl()
    return _dense_peer(problem, mkl.dot_product_mkl, drop, mkl.mkl_set_num_threads)


def torch_dense(problem: Arrays, drop: bool) -> Peer:
    """PyTorch, CSR weights x dense activations."""
    import torch

    warnings.filterwarnings("ignore", message=".*Sparse (CSR|invariant).*")
    parts = _columns(problem)
    weights = [
        torch.sparse_csr_tensor(*map(torch.from_numpy, (W.indptr, W.indices, W.data)), W.shape)
        for W in _transposed(problem)
    ]
    bias, clip = [float(b) for b in problem.bias], float(problem.clip)

    def one(X: sp.csr_array, first: int) -> np.ndarray:
        Y = torch.from_numpy(X.toarray())
        alive = torch.arange(first, first + Y.shape[1])
        for W, b in zip(weights, bias, strict=True):
            Y = (W @ Y).add_(b).clamp_(0, clip)
            if drop:
                live = Y.amax(0).nonzero()[:, 0]
                if len(live) < len(alive):
                    Y, alive = Y.index_select(1, live), alive[live]
                if not len(alive):
                    break
        return alive[Y.amax(0).nonzero()[:, 0]].numpy() if len(alive) else alive.numpy()

    def run(chosen: list[sp.csr_array], batch: int) -> np.ndarray:
        with torch.inference_mode():
            return np.concatenate([one(X, k * batch) for k, X in enumerate(chosen)])

    def ready(nthreads: int, batch: int, inputs: int) -> Run:
        torch.set_num_threads(nthreads)
        return partial(run, parts(batch, inputs), batch)

    return Peer(ready)


def _dense_peer(
    problem: Arrays,
    multiply: Callable[[sp.csr_array, np.ndarray], np.ndarray],
    drop: bool,
    set_threads: Callable[[int], object] = lambda _: None,
) -> Peer:
    """Return a program of dense activations, with inputs in columns."""
    parts, weights = _columns(problem), _transposed(problem)

    def ready(nthreads: int, batch: int, inputs: int) -> Run:
        set_threads(nthreads)
        return partial(_dense, problem, weights, parts(batch, inputs), multiply, drop)

    return Peer(ready)


def _sparse_peer(
    problem: Arrays,
    multiply: Callable[[sp.csr_array, sp.csr_array], sp.csr_array],
    drop: bool,
    set_threads: Callable[[int], object] = lambda _: None,
) -> Peer:
    """Return a program of sparse activations, with inputs in rows."""
    parts = lru_cache(_KEPT)(partial(_rows, problem))

    def ready(nthreads: int, batch: int, inputs: int) -> Run:
        set_threads(nthreads)
        return partial(_sparse, problem, parts(batch, inputs), multiply, drop)

    return Peer(ready)


def _dense(
    problem: Arrays,
    weights: list[sp.csr_array],
    parts: list[sp.csr_array],
    multiply: Callable[[sp.csr_array, np.ndarray], np.ndarray],
    drop: bool,
) -> np.ndarray:
    """Return the categories by ``multiply(W', Y)``, Y dense."""
    found, first = [], 0
    for X in parts:
        Y = X.toarray()
        alive = np.arange(first, first + Y.shape[1])
        first += Y.shape[1]
        for W, b in zip(weights, problem.bias, strict=True):
            Y = multiply(W, Y)
            Y += b
            np.clip(Y, 0, problem.clip, out=Y)
            if drop:
                live = np.flatnonzero(Y.max(axis=0))
                if len(live) < len(alive):
                    Y, alive = np.take(Y, live, axis=1), alive[live]
                if not len(alive):
                    break
        found.append(alive[Y.any(axis=0)] if len(alive) else alive)
    return np.concatenate(found)


def _sparse(
    problem: Arrays,
    parts: list[sp.csr_array],
    multiply: Callable[[sp.csr_array, sp.csr_array], sp.csr_array],
    drop: bool,
) -> np.ndarray:
    """Return the categories by ``multiply(Y, W)``, Y sparse."""
    found, first = [], 0
    for X in parts:
        Y, alive = X, np.arange(first, first + X.shape[0])
        first += X.shape[0]
        for W, b in zip(problem.weights, problem.bias, strict=True):
            Y = multiply(Y, W)
            Y.data += b
            np.clip(Y.data, 0, problem.clip, out=Y.data)
            Y.eliminate_zeros()
            if drop:
                live = np.flatnonzero(np.diff(Y.indptr))
                if len(live) < len(alive):
                    Y, alive = Y[live], alive[live]
                if not len(alive):
                    break
        found.append(alive[np.diff(Y.indptr) > 0])
    return np.concatenate(found)


def _rows(problem: Arrays, batch: int, inputs: int) -> list[sp.csr_array]:
    """Return batches of the first `inputs` inputs."""
    X = problem.features[:inputs]
    return [X[at : at + batch] for at in range(0, X.shape[0], batch)]


def _columns(problem: Arrays) -> Callable[[int, int], list[sp.csr_array]]:
    """Return a function that returns transposed batches, neurons x inputs."""

    @lru_cache(_KEPT)
    def parts(batch: int, inputs: int) -> list[sp.csr_array]:
        return [X.T.tocsr() for X in _rows(problem, batch, inputs)]

    return parts


def _transposed(problem: Arrays) -> list[sp.csr_array]:
    return [W.T.tocsr() for W in problem.weights]


def _matrix(A: sp.csr_array) -> object:
    """Return a GraphBLAS matrix, iso-valued if all values are equal."""
    import graphblas as gb

    is_iso = bool(A.nnz) and bool((A.data == A.data[0]).all())
    return gb.Matrix.ss.import_csr(
        nrows=A.shape[0],
        ncols=A.shape[1],
        indptr=A.indptr.astype(np.uint64),
        col_indices=A.indices.astype(np.uint64),
        values=A.data[:1].copy() if is_iso else A.data.copy(),
        is_iso=is_iso,
        sorted_cols=True,
        take_ownership=True,
    )


def _compiled(dtype: np.dtype) -> bool:
    """Load or compile the fused kernel; return whether it is available."""
    from gbdnn.errors import MissingPackageError
    from gbdnn.kernels.fused import FUSED

    try:
        FUSED.load(dtype)
    except MissingPackageError:
        return False
    return True


def _mkl() -> Any:
    """Return sparse_dot_mkl; if MKL_RT is not set, look for MKL in this environment."""
    import os

    if "MKL_RT" not in os.environ:
        for file in sorted(Path(sys.prefix, "lib").glob("libmkl_rt.*")):
            os.environ["MKL_RT"] = str(file)
    import sparse_dot_mkl

    return sparse_dot_mkl
