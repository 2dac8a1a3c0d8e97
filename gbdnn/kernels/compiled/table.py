"""A network's layers as compiled code reads them: a row of integers per layer, mostly addresses.

Heterogeneous layers (sizes, one bias or one per neuron, iso weights) become one array of int64 that
goes into a compiled call as one address. Columns of each layer are sorted so that those with the
same rows come one after the other: the tile computes them in pairs, from activations in the first
cache. Where a neuron stands does not change with the order in which it is computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gbdnn.kernels.compiled.functions import functions
from gbdnn.kernels.compiled.record import FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gbdnn.arrays.sparse_rows import SparseRows
    from gbdnn.model.layer_info import LayerInfo

__all__ = ["FusedLayer", "LayerTable", "prepare"]


class FusedLayer(NamedTuple):
    """What the fused form needs of a layer: columns in the order in which they are computed.

    ``indptr`` (int64), ``rows`` (uint32) and ``weights`` (one per edge, or a single one for all)
    are the columns; ``bias`` has one value or one per column, ``places`` (uint32) says which neuron
    a column is. ``pairs[j]`` is 1 if columns j and j + 1 have the same rows and form a pair.
    """

    nrows: int
    indptr: np.ndarray
    rows: np.ndarray
    weights: np.ndarray
    bias: np.ndarray
    places: np.ndarray
    pairs: np.ndarray
    limits: np.ndarray

    @property
    def ncols(self) -> int:
        """Number of output neurons."""
        return len(self.places)

    @property
    def edges(self) -> int:
        """Number of edges."""
        return len(self.rows)


def prepare(columns: SparseRows, b: float | np.ndarray, info: LayerInfo) -> FusedLayer:
    """Return a layer from its columns; a single value for all edges stays one."""
    compiled = functions(info.dtype.name)
    indptr, rows = columns.indptr, columns.columns
    weights = columns.values[:1].copy() if columns.is_iso else np.ascontiguousarray(columns.values)
    ncols = columns.nrows
    mean, mark = np.empty(ncols), np.empty(ncols, np.uint64)
    compiled["patterns"](_address(indptr), _address(rows), ncols, _address(mean), _address(mark))
    order = np.lexsort((mark, mean))
    new_indptr, new_rows = np.empty(ncols + 1, np.int64), np.empty(len(rows), np.uint32)
    new_weights = weights if columns.is_iso else np.empty(len(rows), info.dtype)
    pairs = np.empty(ncols, np.uint8)
    compiled["arrange"](
        *map(_address, (indptr, rows, weights)), int(columns.is_iso), _address(order), ncols,
        *map(_address, (new_indptr, new_rows, new_weights, pairs)),
    )  # fmt: skip
    bias = np.atleast_1d(np.asarray(b, info.dtype))
    low = 0 if info.activation == "relu" else -np.inf
    return FusedLayer(
        info.nrows,
        new_indptr,
        new_rows,
        new_weights,
        np.ascontiguousarray(bias[order] if len(bias) > 1 else bias),
        order.astype(np.uint32),
        pairs,
        np.array([low, np.inf if info.clip is None else info.clip], info.dtype),
    )


def _address(array: np.ndarray) -> int:
    return array.ctypes.data


class LayerTable:
    """Layers in a row, as one array; keeps what it points to.

    Parameters
    ----------
    layers : sequence of FusedLayer
    droppable : sequence of bool
        For each layer whether inputs without an activation after it may be dropped.

    Attributes
    ----------
    address : int
        Of the table.
    """

    def __init__(self, layers: Iterable[FusedLayer], droppable: Iterable[bool]) -> None:
        self.layers = list(layers)
        self.array = np.array(
            [_record(layer, drop) for layer, drop in zip(self.layers, droppable, strict=True)],
            np.int64,
        ).reshape(len(self.layers), len(FIELDS))
        self.address = _address(self.array)

    def __len__(self) -> int:
        return len(self.layers)


def _record(layer: FusedLayer, droppable: bool) -> tuple[int, ...]:
    paired = 4 * int(layer.pairs.sum()) >= layer.ncols  # half of the neurons
    return (
        layer.nrows, layer.ncols, layer.edges, _address(layer.indptr), _address(layer.rows),
        _address(layer.weights), int(len(layer.weights) > 1), _address(layer.bias),
        int(len(layer.bias) > 1), _address(layer.places), _address(layer.pairs), int(paired),
        _address(layer.limits), int(droppable),
    )  # fmt: skip
