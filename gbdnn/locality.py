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
    weights, places = [], []
    arrays = _csc(net[0])
    order = _order(*arrays, net[0].shape)
    for k, layer in enumerate(net):
        if k + 1 < len(net):
            following = _csc(net[k + 1])
            columns = _order(*following, net[k + 1].shape)
        else:
            columns = np.arange(layer.ncols)
        places.append(_inverse(order))
        weights.append(_renumbered(*arrays, layer, places[k], columns))
        order = columns
        if k + 1 < len(net):
            arrays = following
    places.append(order)
    return Renumbered(weights, places)


def _csc(layer: Layer) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return starts of the columns, rows and values."""
    found = layer._W.ss.export("csc", sort=True)
    rows = found["row_indices"].view(np.int64)
    values = np.broadcast_to(found["values"], rows.shape)
    return found["indptr"].view(np.int64), rows, values


def _order(
    starts: np.ndarray, rows: np.ndarray, values: np.ndarray, shape: tuple[int, int]
) -> np.ndarray:
    """Return the rows sorted by the mean of their columns, rows of one pattern together."""
    nrows, ncols = shape
    columns = np.repeat(np.arange(ncols), np.diff(starts))
    degree = np.bincount(rows, minlength=nrows)
    mean = np.bincount(rows, columns, minlength=nrows) / np.maximum(degree, 1)
    # Equal patterns have equal sums of any numbers given to the columns; others hardly ever.
    golden = np.arange(1, ncols + 1) * 0.6180339887498949 % 1.0
    mark = np.bincount(rows, golden[columns], minlength=nrows)
    return np.lexsort((mark, mean))


def _inverse(order: np.ndarray) -> np.ndarray:
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return place


def _renumbered(
    starts: np.ndarray,
    rows: np.ndarray,
    values: np.ndarray,
    layer: Layer,
    place: np.ndarray,
    column_order: np.ndarray,
) -> FullWeights:
    """Return the weights with row i at ``place[i]`` and the columns in a new order, not iso."""
    nrows, ncols = layer.shape
    # The columns one after the other in their new order: where each entry is in the old arrays.
    degree = np.diff(starts)[column_order]
    new_starts = np.concatenate(([0], np.cumsum(degree)))
    entry = np.repeat(starts[:-1][column_order] - new_starts[:-1], degree)
    entry += np.arange(len(entry))
    # Within each column, rows ascend again; values follow, unless all are one.
    column = np.repeat(np.arange(ncols) * nrows, degree)
    key = column + place[rows[entry]]
    if values.strides == (0,):
        key.sort()
        values = np.array(values)
    else:
        ascending = np.argsort(key)
        key, values = key[ascending], values[entry[ascending]]
    W = gb.Matrix.ss.import_csc(
        nrows=nrows,
        ncols=ncols,
        indptr=new_starts.astype(np.uint64),
        row_indices=(key - column).view(np.uint64),
        values=values,
        sorted_rows=True,
        take_ownership=True,
    )
    b = layer.bias if isinstance(layer.bias, float) else layer.bias[column_order]
    return FullWeights(W, b, layer.edges)
