"""Loops of single GraphBLAS calls over a challenge network, with variants from papers.

    Z  = Y W                mxm, plus_times
    Z  = Z + b              apply: on the entries
    Y' = min(max(Z, 0), clip)

`sparse` stores Y as a sparse matrix, `full` as a full one. Both can drop the rows without values
after each layer, as in the filter of Wang et al., and `sparse` can keep the zeros of the ReLU until
their fraction reaches a threshold, as in KK-SpDNN.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import graphblas as gb
import lagraph
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from gbdnn import Network

OPERATIONS = ("mxm", "select", "apply, bias", "apply, clip")  # of `sparse` without trimming

_ENTRIES = 1 << 24  # maximum of a batch's activations


def in_batches(
    step: Callable[..., np.ndarray], X: gb.Matrix, nthreads: int, size: int | None = None
) -> np.ndarray:
    """Return the categories that `step` computes in batches of `size` inputs."""
    size = size or max(1, _ENTRIES // X.ncols)
    found = []
    with gb.ss.Context(engage=False, nthreads=nthreads):
        for start in range(0, X.nrows, size):
            found.append(start + step(X[start : start + size, :].new()))
    return np.concatenate(found)


def in_parts(network: Network, X: gb.Matrix, nthreads: int) -> np.ndarray:
    """Return the categories; each thread takes a part of the rows through all layers.

    Each has a GraphBLAS Context of one thread, so that threads do not wait for each other.
    """
    cuts = np.linspace(0, X.nrows, nthreads + 1).astype(int)

    def part(k: int) -> np.ndarray:
        with gb.ss.Context(engage=False, nthreads=1):
            return cuts[k] + sparse(network, X[cuts[k] : cuts[k + 1], :].new())

    with ThreadPoolExecutor(nthreads) as pool:
        return np.concatenate(list(pool.map(part, range(nthreads))))


def sparse(
    network: Network,
    Y: gb.Matrix,
    *,
    drops: bool = False,
    trim: float = 0.0,
    told: Callable[[int], Any] = lambda _: None,
    lap: Callable[[], Any] = lambda: None,
) -> np.ndarray:
    """Return the categories; zeros are removed if their fraction of the entries reaches `trim`.

    `told` is called with the number of entries after each layer; `lap` before the first operation
    of a layer and after each of `OPERATIONS`.
    """
    from graphblas import binary, select, semiring

    zero, ids = np.float32(0), np.arange(Y.nrows)
    for layer in network:
        lap()
        Z = semiring.plus_times(Y @ layer.weights).new()
        lap()
        if trim:
            Z << binary.plus(Z, np.float32(layer.bias))
            Z << binary.max(Z, zero)
            zeros = Z.nvals - int(select.valuegt(Z, zero).new().nvals)
            if zeros and zeros >= trim * Z.nvals:
                Z << select.valuegt(Z, zero)
        else:
            Z << select.valuegt(Z, -np.float32(layer.bias))
            lap()
            Z << binary.plus(Z, np.float32(layer.bias))
            lap()
        Z << binary.min(Z, np.float32(layer.clip))
        lap()
        told(int(Z.nvals))
        Y = Z
        if drops:
            rows = _living(Y)
            if len(rows) < Y.nrows:
                Y, ids = Y[rows, :].new(), ids[rows]
        if not Y.nrows:
            break
    if trim:
        Y = select.valuegt(Y, zero).new()
    return np.asarray(ids[_living(Y)])


def timed(network: Network, X: gb.Matrix, nthreads: int) -> tuple[np.ndarray, np.ndarray]:
    """Return seconds, of shape (layers, operations), and the categories.

    Each call is timed until it returns, without ``wait``; work that GraphBLAS postpones, such as
    sorting the rows of a product, counts for the operation that executes it.
    """
    laps: list[float] = []
    step = partial(sparse, network, lap=lambda: laps.append(perf_counter()))
    found = in_batches(step, X, nthreads, lagraph.rows_at_once(X))
    each = np.diff(np.reshape(laps, (-1, len(network), 1 + len(OPERATIONS))))
    return each.sum(axis=0), found


def _living(Y: gb.Matrix) -> np.ndarray:
    rows, _ = Y.reduce_rowwise(gb.monoid.any).new().to_coo(values=False)
    return np.asarray(rows.astype(np.int64))


def columnwise(network: Network) -> list[gb.Matrix]:
    """Return the weights in the format of SuiteSparse's fast product with a full matrix."""
    found = []
    for layer in network:
        arrays = layer.weights.ss.export("csc", sort=True)
        found.append(gb.Matrix.ss.import_any(take_ownership=True, **arrays))
    return found


def full(
    network: Network, X: gb.Matrix, *, weights: list[gb.Matrix], drops: bool = False
) -> np.ndarray:
    """Return the categories; Z is initialised with the bias, which is <= 0, and adds Y W."""
    from graphblas import binary, semiring

    Y, ids = X.to_dense(np.float32(0)), np.arange(X.nrows)
    for layer, W in zip(network, weights, strict=True):
        Z = _full(np.full((len(Y), layer.ncols), layer.bias, np.float32, order="F"))
        Z(binary.plus) << semiring.plus_times(_full(Y) @ W)
        Y = Z.ss.export("fullc", raw=True)["values"].reshape(Z.shape, order="F")
        np.clip(Y, 0, layer.clip, out=Y)
        if drops:
            lives = Y.any(axis=1)
            if not lives.all():
                Y, ids = Y[lives], ids[lives]
        if not len(Y):
            break
    return np.asarray(ids[Y.any(axis=1)])


def _full(A: np.ndarray) -> gb.Matrix:
    values = A.ravel(order="F")
    return gb.Matrix.ss.import_fullc(values, nrows=A.shape[0], ncols=A.shape[1])
