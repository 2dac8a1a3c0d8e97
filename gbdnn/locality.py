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

from gbdnn.forms.full import FullWeights

if TYPE_CHECKING:
    from gbdnn.layer import Layer
    from gbdnn.network import Network

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
    orders = [_order(layer._W) for layer in net]
    orders.append(np.arange(net.shape[1]))
    weights = [
        _renumbered(layer, orders[k], orders[k + 1])  # by its own readers, and by the next layer's
        for k, layer in enumerate(net)
    ]
    return Renumbered(weights, [_inverse(order) for order in orders])


def _order(W: gb.Matrix) -> np.ndarray:
    """Return the rows sorted by the mean of their columns, rows of one pattern together."""
    columns = np.arange(W.ncols)
    # Equal patterns have equal sums of any numbers given to the columns; others hardly ever.
    marks = columns.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    marks ^= marks >> np.uint64(29)
    degree = _sums(W, np.ones(W.ncols, np.int64))
    mean = _sums(W, columns) / np.maximum(degree, 1)
    return np.lexsort((_sums(W, marks), mean))


def _sums(W: gb.Matrix, numbers: np.ndarray) -> np.ndarray:
    """Return for each row the sum of the numbers of its columns: whole ones, in any order."""
    v = gb.Vector.from_dense(numbers)
    sums = gb.semiring.plus_second[v.dtype](W @ v).new()
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
