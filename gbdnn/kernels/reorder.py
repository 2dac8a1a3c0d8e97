"""Neurons renumbered for the caches.

In a product the columns of W read columns of Y. Where a neuron reads others that stand far apart at
equal distances, those columns of Y fall on each other in the caches. Neurons that are read by the
same neurons are put side by side; then a column of W reads a stretch of Y. The patterns alone
decide, layer by layer, whatever network it is. Rows of layer k and columns of layer k - 1 are
renumbered alike, so that nothing has to be moved between layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import graphblas as gb
import numpy as np

from gbdnn.kernels.full import FullWeights

if TYPE_CHECKING:
    from gbdnn.model.layer import Layer
    from gbdnn.model.network import Network

__all__ = ["Renumbered", "renumber"]


class Renumbered(NamedTuple):
    """A network's weights in another order of the neurons.

    Neuron i of those that layer k reads stands at ``places[k][i]``. The last layer's neurons keep
    their order.
    """

    weights: list[FullWeights]
    places: list[np.ndarray]


def renumber(net: Network) -> Renumbered:
    """Return the network's weights, each layer's neurons in the order of their readers."""
    numbers: dict[int, _Numbers] = {}
    orders = [_order(layer._W, numbers) for layer in net]
    orders.append(np.arange(net.shape[1]))
    weights = [
        _renumbered(layer, orders[k], orders[k + 1])  # by its own readers, and by the next layer's
        for k, layer in enumerate(net)
    ]
    return Renumbered(weights, [_inverse(order) for order in orders])


class _Numbers(NamedTuple):
    """Numbers given to columns, whole ones: their sums are the same in any order."""

    ones: gb.Vector
    positions: gb.Vector
    marks: gb.Vector

    @classmethod
    def of(cls, ncols: int) -> _Numbers:
        positions = np.arange(ncols)
        marks = positions.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        marks ^= marks >> np.uint64(29)
        return cls(*map(gb.Vector.from_dense, (np.ones(ncols, np.int64), positions, marks)))


def _order(W: gb.Matrix, numbers: dict[int, _Numbers]) -> np.ndarray:
    """Return the rows sorted by the mean of their columns, rows of one pattern together."""
    if W.ncols not in numbers:
        numbers[W.ncols] = _Numbers.of(W.ncols)
    ones, positions, marks = numbers[W.ncols]
    mean = _sums(W, positions) / np.maximum(_sums(W, ones), 1)
    # Equal patterns have equal sums of any marks; others hardly ever.
    return np.lexsort((_sums(W, marks), mean))


def _sums(W: gb.Matrix, numbers: gb.Vector) -> np.ndarray:
    """Return for each row the sum of the numbers of its columns."""
    sums = gb.semiring.plus_second[numbers.dtype](W @ numbers).new()
    found: np.ndarray = sums.to_dense(fill_value=0)
    return found


def _inverse(order: np.ndarray) -> np.ndarray:
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return place


def _renumbered(layer: Layer, rows: np.ndarray, columns: np.ndarray) -> FullWeights:
    """Return the weights with rows and columns in a new order, not iso."""
    W = gb.Matrix(layer._W.dtype, *layer.shape, name="W")
    W.ss.config["format"] = "by_col"
    W << layer._W[rows, columns]
    arrays = W.ss.export("csc", give_ownership=True, sort=True)
    indices = arrays["row_indices"]
    W = gb.Matrix.ss.import_csc(
        nrows=layer.nrows,
        ncols=layer.ncols,
        indptr=arrays["indptr"],
        row_indices=indices,
        # The kernel is faster where each edge has a value of its own.
        values=np.array(np.broadcast_to(arrays["values"], indices.shape)),
        sorted_rows=True,
        take_ownership=True,
    )
    b = layer.bias if isinstance(layer.bias, float) else layer.bias[columns]
    return FullWeights(W, b, layer.edges)
