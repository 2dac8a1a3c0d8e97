"""Loops over the layers of a challenge network, for what gbdnn is compared with.

`through` is the loop; a library provides the step of a layer. With `drop`, inputs without
activations leave the batch after each layer, as in the filter of Wang et al.

`sparse` and `full` are loops of single GraphBLAS calls, with Y as a sparse or a full matrix:

    Z  = Y W                mxm, plus_times
    Z  = Z + b              apply: on the entries
    Y' = min(max(Z, 0), clip)

`sparse` can keep the zeros of the ReLU until their fraction of the entries reaches a threshold, as
in KK-SpDNN.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import graphblas as gb
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gbdnn import Network

OPERATIONS = ("mxm", "select", "apply, bias", "apply, clip")  # of `sparse` without trimming

# Maximum entries of a batch's activations; two such matrices take about 4 GiB. With 1024 and 4096
# neurons, 60,000 inputs are one batch.
MOST_ENTRIES = 1 << 28
FEW_ENTRIES = 1 << 24  # of the loops with variants from papers


def through(
    Y: Any,
    ids: Any,
    layers: Iterable[Any],
    step: Callable[[Any, Any], Any],
    living: Callable[[Any], Any],
    drop: bool,
    take: Callable[[Any, Any], Any] = lambda Y, at: Y[at],
) -> Any:
    """Return the numbers (`ids`) of the inputs that are alive after the last layer.

    ``step(Y, layer)`` returns the next activations, ``living(Y)`` the positions of the inputs with
    activations, and ``take(Y, positions)`` the activations of these.
    """
    for layer in layers:
        Y = step(Y, layer)
        if drop:
            rows = living(Y)
            if len(rows) < len(ids):
                Y, ids = take(Y, rows), ids[rows]
            if not len(ids):
                return ids
    return ids[living(Y)]


def batches(X: gb.Matrix, size: int | None = None, entries: int = MOST_ENTRIES) -> list[gb.Matrix]:
    """Return row-wise features in batches of `size` inputs, or in as few as memory allows."""
    rows = max(1, entries // max(X.ncols, 1))
    rows = rows if size is None else min(rows, size)
    return [rowwise(X[at : at + rows, :].new()) for at in range(0, X.nrows, rows)]


def categories(
    infer: Callable[[gb.Matrix], np.ndarray], parts: Sequence[gb.Matrix], nthreads: int
) -> np.ndarray:
    """Return the categories of all batches; `infer` returns those of one."""
    found, first = [], 0
    with gb.ss.Context(engage=False, nthreads=nthreads):
        for X in parts:
            found.append(infer(X) + first)
            first += X.nrows
    return np.concatenate(found)


def sparse(
    network: Network,
    Y: gb.Matrix,
    *,
    drop: bool = False,
    trim: float = 0.0,
    lap: Callable[[], Any] = lambda: None,
) -> np.ndarray:
    """Return the categories; zeros are removed if their fraction of the entries reaches `trim`.

    `lap` is called before the first operation of a layer and after each of `OPERATIONS`.
    """
    from graphblas import binary, select, semiring

    zero, count = np.float32(0), Y.nrows

    def step(Y: gb.Matrix, layer: Any) -> gb.Matrix:
        bias = np.float32(layer.bias)
        lap()
        Z = semiring.plus_times(Y @ layer.weights).new()
        lap()
        if trim:
            Z << binary.plus(Z, bias)
            Z << binary.max(Z, zero)
            zeros = Z.nvals - int(select.valuegt(Z, zero).new().nvals)
            if zeros and zeros >= trim * Z.nvals:
                Z << select.valuegt(Z, zero)
        else:
            Z << select.valuegt(Z, -bias)
            lap()
            Z << binary.plus(Z, bias)
            lap()
        Z << binary.min(Z, np.float32(layer.clip))
        lap()
        return Z

    def alive(Y: gb.Matrix) -> np.ndarray:
        return living(select.valuegt(Y, zero).new() if trim else Y)

    return through(Y, np.arange(count), network, step, alive, drop, lambda Y, at: Y[at, :].new())


def timed(network: Network, X: gb.Matrix, nthreads: int) -> tuple[np.ndarray, np.ndarray]:
    """Return seconds, of shape (layers, operations), and the categories.

    Each call is timed until it returns, without ``wait``; work that GraphBLAS postpones, such as
    sorting the rows of a product, counts for the operation that executes it.
    """
    laps: list[float] = []
    step = partial(sparse, network, lap=lambda: laps.append(perf_counter()))
    found = categories(step, batches(X), nthreads)
    each = np.diff(np.reshape(laps, (-1, len(network), 1 + len(OPERATIONS))))
    return each.sum(axis=0), found


def columnwise(network: Network) -> list[gb.Matrix]:
    """Return the weights in the format of SuiteSparse's fast product with a full matrix."""
    found = []
    for layer in network:
        arrays = layer.weights.ss.export("csc", sort=True)
        found.append(gb.Matrix.ss.import_any(take_ownership=True, **arrays))
    return found


def full(
    network: Network, X: gb.Matrix, *, weights: list[gb.Matrix], drop: bool = False
) -> np.ndarray:
    """Return the categories; Z is initialised with the bias, which is <= 0, and adds Y W."""
    from graphblas import binary, semiring

    def step(Y: np.ndarray, at: tuple[Any, gb.Matrix]) -> np.ndarray:
        layer, W = at
        Z = _full(np.full((len(Y), layer.ncols), layer.bias, np.float32, order="F"))
        Z(binary.plus) << semiring.plus_times(_full(Y) @ W)
        Y = Z.ss.export("fullc", raw=True)["values"].reshape(Z.shape, order="F")
        return np.clip(Y, 0, layer.clip, out=Y)

    layers, Y = zip(network, weights, strict=True), X.to_dense(np.float32(0))
    return through(Y, np.arange(len(Y)), layers, step, lambda Y: Y.any(axis=1).nonzero()[0], drop)


def _full(A: np.ndarray) -> gb.Matrix:
    values = A.ravel(order="F")
    return gb.Matrix.ss.import_fullc(values, nrows=A.shape[0], ncols=A.shape[1])


def living(Y: gb.Matrix) -> np.ndarray:
    """Return the rows with entries."""
    rows, _ = Y.reduce_rowwise(gb.monoid.any).new().to_coo(values=False)
    return np.asarray(rows.astype(np.int64))


def rowwise(A: gb.Matrix) -> gb.Matrix:
    """Return a row-wise copy; iso values are kept."""
    arrays = A.ss.export("csr")
    del arrays["format"]
    return gb.Matrix.ss.import_csr(take_ownership=True, **arrays)
