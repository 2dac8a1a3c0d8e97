"""Reorder neurons for the caches.

In a product, columns of W read columns of Y. If a neuron reads columns at large equal distances,
these compete for the same cache sets. Therefore neurons that are read by the same neurons are
placed next to each other, so that a column of W reads a contiguous range of Y. The order depends
only on the patterns of the layers. Rows of layer k and columns of layer k - 1 are reordered alike,
so nothing has to be moved between layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.runtime.first_use import gb
from gbdnn.runtime.ownership import owned

if TYPE_CHECKING:
    from gbdnn.model.layer import Layer
    from gbdnn.model.network import Network

__all__ = ["inverse", "orders", "reordered"]


def orders(net: Network) -> list[np.ndarray]:
    """Return the order of neurons before each layer, and after the last one (unchanged).

    ``orders[k][i]`` is the i-th neuron that layer k reads.
    """
    marks: dict[int, _Marks] = {}
    return [*(_order(layer.W, marks) for layer in net), np.arange(net.shape[1])]


def inverse(order: np.ndarray) -> np.ndarray:
    """Return the position of each neuron."""
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    return position


def reordered(
    layer: Layer, rows: np.ndarray, columns: np.ndarray
) -> tuple[SparseRows, float | np.ndarray]:
    """Return a layer's columns and bias, with rows and columns of the weights reordered."""
    W, nrows = layer.W.ss.export("csc"), layer.nrows
    starts, values = W["indptr"].view(np.int64), W["values"]
    degrees, indptr = np.diff(starts)[columns], np.zeros(layer.ncols + 1, np.int64)
    np.cumsum(degrees, out=indptr[1:])
    edges = np.arange(indptr[-1]) + np.repeat(starts[columns] - indptr[:-1], degrees)
    # Sorting whole numbers takes a fraction of the time of a product with permutations.
    base = np.repeat(nrows * np.arange(layer.ncols), degrees)
    keys = base + inverse(rows)[W["row_indices"].view(np.int64)[edges]]
    if len(values) == 1:
        keys.sort()
    else:
        order = np.argsort(keys)
        keys, values = keys[order], values[edges[order]]
    b = layer.bias if isinstance(layer.bias, float) else layer.bias[columns]
    return SparseRows(indptr.view(np.uint64), (keys - base).view(np.uint64), values, nrows), b


class _Marks(NamedTuple):
    """Whole numbers that mark columns; their sums do not depend on the order of addition."""

    ones: gb.Vector
    positions: gb.Vector
    random: gb.Vector

    @classmethod
    def of(cls, ncols: int) -> _Marks:
        positions = np.arange(ncols)
        random = positions.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        random ^= random >> np.uint64(29)
        marks = np.ones(ncols, np.int64), positions, random
        return cls(*(owned(gb.Vector.ss.import_full, values=values) for values in marks))


def _order(W: gb.Matrix, marks: dict[int, _Marks]) -> np.ndarray:
    """Return the rows sorted by the mean of their columns, with equal patterns together."""
    if W.ncols not in marks:
        marks[W.ncols] = _Marks.of(W.ncols)
    ones, positions, random = marks[W.ncols]
    mean = _sums(W, positions) / np.maximum(_sums(W, ones), 1)
    # Equal patterns have equal sums of any marks; different ones hardly ever do.
    return np.lexsort((_sums(W, random), mean))


def _sums(W: gb.Matrix, marks: gb.Vector) -> np.ndarray:
    """Return the sum of the marks of each row's columns."""
    sums = gb.semiring.plus_second[marks.dtype](W @ marks).new()
    dense: np.ndarray = sums.to_dense(fill_value=0)
    return dense
