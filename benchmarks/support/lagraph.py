"""LAGraph's loop of SpDNN inference, in four GraphBLAS calls per layer.

    Z  = Y W                plus_times
    Z  = Z D                min_plus, D diagonal: adds the bias to the entries of Z
    Z  = Z(Z > 0)           select
    Y' = min(Z, clip)

All matrices are sparse and row-wise; inputs are rows. gbdnn is compared with this loop, so do not
change it.

T. Davis, M. Aznaveh, S. Kolodziej, "Write Quick, Run Fast: Sparse Deep Neural Network in 20 Minutes
of Development Time via SuiteSparse:GraphBLAS", HPEC 2019.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import graphblas as gb
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

# Maximum entries of a batch's activations; two such matrices take about 4 GiB. With 1024 and 4096
# neurons, 60,000 inputs are one batch.
_ENTRIES = 1 << 28


class Prepared(NamedTuple):
    """Row-wise weights, a diagonal bias matrix for each layer, and the upper limit."""

    weights: Sequence[gb.Matrix]
    biases: Sequence[gb.Matrix]
    clip: np.float32


def prepare(
    weights: Iterable[gb.Matrix], biases: Iterable[float | np.ndarray], clip: float
) -> Prepared:
    """Return a network for `infer`: FP32 weights, and one bias or vector per layer."""
    diagonals: dict[bytes, gb.Matrix] = {}
    Ws, Ds = [], []
    for W, b in zip(weights, biases, strict=True):
        dense = np.broadcast_to(np.asarray(b, np.float32), (W.ncols,))
        if dense.tobytes() not in diagonals:
            diagonals[dense.tobytes()] = gb.Vector.from_dense(dense).diag(name="D")
        Ds.append(diagonals[dense.tobytes()])
        Ws.append(_rowwise(W))
    return Prepared(Ws, Ds, np.float32(clip))


def rows_at_once(X: gb.Matrix) -> int:
    """Return the maximum number of inputs of a batch."""
    return max(1, _ENTRIES // max(X.ncols, 1))


def batches(X: gb.Matrix, batch: int | None = None) -> list[gb.Matrix]:
    """Return the features in batches of `batch` inputs, or in as few as memory allows."""
    rows = rows_at_once(X)
    rows = rows if batch is None else min(rows, batch)
    if X.nrows <= rows:
        return [_rowwise(X)]
    return [_rowwise(X[at : at + rows, :].new()) for at in range(0, X.nrows, rows)]


def infer(network: Prepared, X: gb.Matrix) -> gb.Matrix:
    """Return the activations after the last layer, using the engaged Context's threads."""
    from graphblas import binary, select, semiring

    zero = np.float32(0)
    Y = X
    for W, D in zip(network.weights, network.biases, strict=True):
        Z = semiring.plus_times(Y @ W).new()
        Z << semiring.min_plus(Z @ D)
        Z << select.valuegt(Z, zero)
        Z << binary.min(Z, network.clip)
        Y = Z
    Y.wait()
    return Y


def infer_masked(network: Prepared, X: gb.Matrix) -> gb.Matrix:
    """Return the same with a Boolean mask: M = Z > 0, and Y'<M> = min(Z, clip)."""
    from graphblas import binary, semiring

    Y = X
    for W, D in zip(network.weights, network.biases, strict=True):
        Z = semiring.plus_times(Y @ W).new()
        Z << semiring.min_plus(Z @ D)
        M = binary.gt(Z, np.float32(0)).new()
        Y = gb.Matrix(Z.dtype, *Z.shape)
        Y(M.V) << binary.min(Z, network.clip)
    Y.wait()
    return Y


def categories(
    network: Prepared,
    parts: Sequence[gb.Matrix],
    nthreads: int,
    infer: Callable[[Prepared, gb.Matrix], gb.Matrix] = infer,
) -> np.ndarray:
    """Return the categories of all batches, the inputs with an entry after the last layer."""
    found, first = [], 0
    with gb.ss.Context(engage=False, nthreads=nthreads):
        for X in parts:
            rows, _ = infer(network, X).reduce_rowwise(gb.monoid.any).new().to_coo(values=False)
            found.append(rows.astype(np.int64) + first)
            first += X.nrows
    return np.concatenate(found)


def _rowwise(A: gb.Matrix) -> gb.Matrix:
    """Return a row-wise copy; iso values are kept."""
    return gb.Matrix.ss.import_csr(take_ownership=True, **_without_format(A.ss.export("csr")))


def _without_format(found: dict) -> dict:
    return {key: value for key, value in found.items() if key != "format"}
