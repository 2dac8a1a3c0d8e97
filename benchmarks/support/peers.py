"""Other programs on the same problem: SciPy, CuPy, PyTorch and MKL in their fastest configurations.

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

import sys
import warnings
from functools import lru_cache, partial
from operator import matmul
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
    first = lru_cache(_KEPT)(lambda inputs: X if inputs == X.nrows else X[:inputs, :].new())

    def run(nthreads: int, features: Any) -> np.ndarray:
        return gbdnn.categories(gbdnn.infer(net, features, nthreads=nthreads, **options))

    return Peer(lambda nthreads, _, inputs: partial(run, nthreads, first(inputs)), facts)


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


def scipy_csr(problem: Arrays, drop: bool, device: str = "cpu") -> Peer:
    """SciPy on one thread, or CuPy: CSR activations x CSR weights."""
    return _sparse_peer(problem, matmul, drop, device=device)


def scipy_dense(problem: Arrays, drop: bool, device: str = "cpu") -> Peer:
    """SciPy on one thread, or CuPy: CSR weights x dense activations."""
    return _dense_peer(problem, matmul, drop, device=device)


def mkl_csr(problem: Arrays, drop: bool) -> Peer:
    """MKL, CSR activations x CSR weights."""
    mkl = _mkl()
    return _sparse_peer(problem, mkl.dot_product_mkl, drop, mkl.mkl_set_num_threads)


def mkl_dense(problem: Arrays, drop: bool) -> Peer:
    """MKL, CSR weights x dense activations."""
    mkl = _mkl()
    return _dense_peer(problem, mkl.dot_product_mkl, drop, mkl.mkl_set_num_threads)


def torch_dense(problem: Arrays, drop: bool, device: str = "cpu", csr: bool = True) -> Peer:
    """PyTorch, CSR or dense weights x dense activations."""
    import torch

    warnings.filterwarnings("ignore", message=".*Sparse (CSR|invariant).*")

    def tensor(A: sp.csr_array) -> Any:
        arrays = map(torch.from_numpy, (A.indptr, A.indices, A.data))
        return torch.sparse_csr_tensor(*arrays, A.shape).to(device)

    def dense(X: Any) -> Any:
        return torch.from_numpy(X.toarray()) if device == "cpu" else X.to_dense()

    parts = _columns(problem, tensor if device != "cpu" else lambda X: X)
    weights = [tensor(W) if csr else tensor(W).to_dense() for W in _transposed(problem)]
    bias, clip = [float(b) for b in problem.bias], float(problem.clip)

    def one(X: Any, first: int) -> np.ndarray:
        Y = dense(X)
        alive = torch.arange(first, first + Y.shape[1], device=device)
        for W, b in zip(weights, bias, strict=True):
            Y = (W @ Y).add_(b).clamp_(0, clip)
            if drop:
                live = Y.amax(0).nonzero()[:, 0]
                if len(live) < len(alive):
                    Y, alive = Y.index_select(1, live), alive[live]
                if not len(alive):
                    break
        return (alive[Y.amax(0).nonzero()[:, 0]] if len(alive) else alive).cpu().numpy()

    def run(chosen: list[Any], batch: int) -> np.ndarray:
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
    device: str = "cpu",
) -> Peer:
    """Return a program of dense activations, with inputs in columns."""
    xp, held = _modules(device)
    parts, weights = _columns(problem, held), [*map(held, _transposed(problem))]

    def ready(nthreads: int, batch: int, inputs: int) -> Run:
        set_threads(nthreads)
        return partial(_dense, xp, problem, weights, parts(batch, inputs), multiply, drop)

    return Peer(ready)


def _sparse_peer(
    problem: Arrays,
    multiply: Callable[[sp.csr_array, sp.csr_array], sp.csr_array],
    drop: bool,
    set_threads: Callable[[int], object] = lambda _: None,
    device: str = "cpu",
) -> Peer:
    """Return a program of sparse activations, with inputs in rows."""
    xp, held = _modules(device)
    weights = [*map(held, problem.weights)]
    parts = lru_cache(_KEPT)(lambda *sizes: [held(X) for X in _rows(problem, *sizes)])

    def ready(nthreads: int, batch: int, inputs: int) -> Run:
        set_threads(nthreads)
        return partial(_sparse, xp, problem, weights, parts(batch, inputs), multiply, drop)

    return Peer(ready)


def _modules(device: str) -> tuple[Any, Callable[[sp.csr_array], Any]]:
    """Return NumPy or CuPy, and a function that copies a CSR matrix to the device."""
    if device == "cpu":
        return np, lambda A: A
    import cupy
    from cupyx.scipy import sparse

    return cupy, sparse.csr_matrix


def _dense(
    xp: Any,
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
        alive = xp.arange(first, first + Y.shape[1])
        first += Y.shape[1]
        for W, b in zip(weights, problem.bias, strict=True):
            Y = multiply(W, Y)
            Y += b
            Y.clip(0, problem.clip, out=Y)
            if drop:
                (live,) = Y.max(axis=0).nonzero()
                if len(live) < len(alive):
                    Y, alive = Y.take(live, axis=1), alive[live]
                if not len(alive):
                    break
        found.append(alive[Y.any(axis=0)] if len(alive) else alive)
    return _here(xp.concatenate(found))


def _sparse(
    xp: Any,
    problem: Arrays,
    weights: list[sp.csr_array],
    parts: list[sp.csr_array],
    multiply: Callable[[sp.csr_array, sp.csr_array], sp.csr_array],
    drop: bool,
) -> np.ndarray:
    """Return the categories by ``multiply(Y, W)``, Y sparse."""
    found, first = [], 0
    for X in parts:
        Y, alive = X, xp.arange(first, first + X.shape[0])
        first += X.shape[0]
        for W, b in zip(weights, problem.bias, strict=True):
            Y = multiply(Y, W)
            Y.data += b
            Y.data.clip(0, problem.clip, out=Y.data)
            Y.eliminate_zeros()
            if drop:
                (live,) = xp.diff(Y.indptr).nonzero()
                if len(live) < len(alive):
                    Y, alive = Y[live], alive[live]
                if not len(alive):
                    break
        found.append(alive[xp.diff(Y.indptr) > 0])
    return _here(xp.concatenate(found))


def _here(array: Any) -> np.ndarray:
    """Return an array of NumPy or CuPy as NumPy's."""
    return array.get() if hasattr(array, "get") else array


def _rows(problem: Arrays, batch: int, inputs: int) -> list[sp.csr_array]:
    """Return batches of the first `inputs` inputs."""
    X = problem.features[:inputs]
    return [X[at : at + batch] for at in range(0, X.shape[0], batch)]


def _columns(
    problem: Arrays, held: Callable[[sp.csr_array], Any]
) -> Callable[[int, int], list[Any]]:
    """Return a function that returns transposed batches, neurons x inputs, on a device."""

    @lru_cache(_KEPT)
    def parts(batch: int, inputs: int) -> list[Any]:
        return [held(X.T.tocsr()) for X in _rows(problem, batch, inputs)]

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
        FUSED.code(dtype).required()
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
