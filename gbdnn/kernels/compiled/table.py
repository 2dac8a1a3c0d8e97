"""A network's layers for compiled code: one record per layer.

Layers of any size, with one bias or one per neuron and iso-valued or distinct weights, form one
table. Columns of a layer are sorted by their rows if most have those of another one, so that a tile
computes them in pairs; else by degree. Panels and dense layers keep their order. The position of a
neuron in the block does not depend on it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbdnn.kernels import costs
from gbdnn.kernels.compiled.loading import required
from gbdnn.kernels.compiled.record import Record, constant

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gbdnn.arrays.sparse_rows import SparseRows
    from gbdnn.model.layer_info import LayerInfo

__all__ = ["FusedLayer", "layer_table", "prepare", "shares", "single_shares"]

DENSE_GROUP, NEAR = constant("DENSE_GROUP"), constant("NEAR")


class FusedLayer(NamedTuple):
    """A layer for the fused kernel, with its columns in the order of computation.

    ``arrays`` maps names of the record's fields to arrays: ``indptr`` (int64), ``rows`` (uint32)
    and ``weights`` (one per edge, or one for all) are the columns; ``bias`` has one value or one
    per column; ``places`` (uint32) is the neuron of each column; ``pairs`` is 1 where a column and
    the next have the same rows and are computed together; ``limits`` are the least and greatest
    activation. A dense layer stores all weights by column and has no ``rows``.

    For single inputs the arrays hold the rows of W: ``rows`` (uint16 or uint32) are column numbers.
    One weight for all edges is stored four times.
    """

    ncols: int
    arrays: dict[str, np.ndarray]
    record: Record


def prepare(columns: SparseRows, b: float | np.ndarray, info: LayerInfo) -> FusedLayer:
    """Return a layer from its columns; an iso value remains a single value."""
    order, paired = _order(columns, info)
    if not paired:
        order = np.argsort(columns.degrees, kind="stable")
    pairs = np.empty(columns.nrows, np.uint8)
    arrays = _arranged("arrange", columns, 1, info, order, columns.nrows, pairs)
    bias = np.atleast_1d(np.asarray(b, info.dtype))
    arrays |= {
        "bias": np.ascontiguousarray(bias[order] if len(bias) > 1 else bias),
        "places": order.astype(np.uint32),
        "pairs": pairs,
    }
    return _layer(info, arrays, paired=paired)


def prepare_panels(
    columns: SparseRows, b: float | np.ndarray, info: LayerInfo
) -> FusedLayer | None:
    """Return a layer with its edges sorted by panels; None if columns are computed in pairs."""
    if _order(columns, info)[1]:
        return None
    size = costs.panel_rows(info.edges, *info.shape)
    ncols, panels = columns.nrows, -(-info.nrows // size)
    cursors = np.empty(ncols, np.int64)
    arrays = _arranged("panels", columns, panels, info, ncols, size, panels, cursors)
    arrays |= {
        "bias": np.atleast_1d(np.asarray(b, info.dtype)),
        "places": np.arange(ncols, dtype=np.uint32),
        "pairs": np.zeros(ncols, np.uint8),
    }
    return _layer(info, arrays, panels=panels)


def _order(columns: SparseRows, info: LayerInfo) -> tuple[np.ndarray, bool]:
    """Return the order of columns by pattern, and whether most columns equal a neighbour."""
    ncols, mean = columns.nrows, np.empty(columns.nrows)
    mark = np.empty(ncols, np.uint64)
    required(info.dtype).patterns(columns.indptr, columns.columns, ncols, mean, mark)
    order = np.lexsort((mark, mean))
    marks = mark[order]
    return order, 2 * int(np.count_nonzero(marks[1:] == marks[:-1])) >= ncols


def _arranged(
    name: str, columns: SparseRows, panels: int, info: LayerInfo, *how: int | np.ndarray
) -> dict[str, np.ndarray]:
    """Return the edges in the order that a compiled function computes."""
    weights = columns.values[:1].copy() if columns.is_iso else np.ascontiguousarray(columns.values)
    made: dict[str, np.ndarray] = {
        "indptr": np.empty(panels * columns.nrows + 1, np.int64),
        "rows": np.empty(columns.nvals, np.uint32),
        "weights": weights if columns.is_iso else np.empty(columns.nvals, info.dtype),
    }
    given = columns.indptr, columns.columns, None if columns.is_iso else weights
    getattr(required(info.dtype), name)(*given, *how, *made.values())
    return made


def prepare_dense(columns: SparseRows, b: float | np.ndarray, info: LayerInfo) -> FusedLayer:
    """Return a dense layer, which stores zeros too, from its columns."""
    places = np.arange(info.ncols, dtype=np.uint32)
    return _layer(info, _dense(columns, b, info) | {"places": places})


def prepare_rows(
    rows: SparseRows, b: float | np.ndarray, info: LayerInfo, *, dense: bool
) -> FusedLayer:
    """Return a layer for single inputs from its rows; a dense layer stores zeros, too."""
    if dense:
        arrays = _dense(rows, b, info)
    else:
        weights = rows.values[:1].repeat(4) if rows.is_iso else rows.values  # four per load
        arrays = {
            "indptr": rows.indptr.astype(np.int64),
            "rows": rows.columns.astype(np.uint16 if rows.ncols <= NEAR else np.uint32),
            "weights": np.ascontiguousarray(weights),
            "bias": np.atleast_1d(np.asarray(b, info.dtype)),
        }
    return _layer(info, arrays, width=info.ncols, weight_step=int(not rows.is_iso))


def single_shares(layer: FusedLayer, count: int) -> Record:
    """Return `count` shares of a layer from `prepare_rows`, with about equally many edges.

    They refer to the same edges: those of a row are cut between columns. No two shares have sums in
    the same cache line, which threads would take from each other at every row.
    """
    arrays, parts = layer.arrays, np.arange(count + 1) / count
    line = 64 // arrays["weights"].itemsize
    cuts: Any = [None] * (count + 1)
    ends: Any
    if layer.record.first.dense:
        ends = parts * layer.ncols
    else:
        columns, indptr = arrays["rows"], arrays["indptr"]
        edges = np.cumsum(np.bincount(columns, minlength=layer.ncols))
        ends = np.searchsorted(edges, parts * len(columns))
    ends = np.minimum(np.rint(ends / line).astype(np.int64) * line, layer.ncols)
    ends[0], ends[-1] = 0, layer.ncols
    if not layer.record.first.dense:
        cuts = np.empty((count + 1, len(indptr) - 1), np.int64)
        before = np.zeros(len(columns) + 1, np.int64)
        for cut, end in zip(cuts, ends, strict=True):
            np.cumsum(columns < end, out=before[1:])
            cut[:] = indptr[:-1] + before[indptr[1:]] - before[indptr[:-1]]
    return Record.joined([
        layer.record.copy(first=first, ncols=last - first, indptr=begin, ends=end)
        for (first, last), begin, end in zip(pairwise(ends.tolist()), cuts, cuts[1:], strict=False)
    ])  # fmt: skip


def _dense(rows: SparseRows, b: float | np.ndarray, info: LayerInfo) -> dict[str, np.ndarray]:
    weights = np.zeros((rows.nrows, rows.ncols), info.dtype)
    at = np.repeat(np.arange(rows.nrows), rows.degrees)
    weights[at, rows.columns.view(np.int64)] = rows.values
    return {"weights": weights, "bias": np.atleast_1d(np.asarray(b, info.dtype))}


def _layer(info: LayerInfo, arrays: dict[str, np.ndarray], **numbers: int) -> FusedLayer:
    """Return the arrays with their record."""
    low = 0 if info.activation == "relu" else -np.inf
    high = np.inf if info.clip is None else info.clip
    arrays = arrays | {"limits": np.array([low, high], info.dtype)}
    numbers = {
        "nrows": info.nrows,
        "ncols": info.ncols,
        "edges": info.edges,
        "weight_step": arrays["weights"].size > 1,
        "bias_step": len(arrays["bias"]) > 1,
        "dense": "rows" not in arrays,
        "panels": 1,
        **numbers,
    }
    return FusedLayer(info.ncols, arrays, Record("layer", info.dtype, **arrays, **numbers))


def shares(layer: FusedLayer, count: int) -> Record:
    """Return records of `count` shares of a layer's columns, with about equally many edges.

    A layer in panels cannot be divided.
    """
    arrays, parts, is_dense = layer.arrays, np.arange(count + 1) / count, "rows" not in layer.arrays
    if is_dense:
        indptr = arrays["weights"].shape[1] * np.arange(layer.ncols + 1)
        ends = np.rint(parts * layer.ncols / DENSE_GROUP).astype(np.int64) * DENSE_GROUP
        ends = np.minimum(ends, layer.ncols)
    else:
        indptr = arrays["indptr"]
        ends = np.searchsorted(indptr, parts * indptr[-1])
        ends -= (arrays["pairs"][ends - 1] != 0) & (ends > 0)  # a pair is in one share
    ends[-1] = layer.ncols
    names = ["places", *(["weights"] if is_dense else ["indptr", "pairs"])]
    names += ["bias"] if len(arrays["bias"]) > 1 else []
    return Record.joined([
        layer.record.copy(
            ncols=last - first, edges=int(indptr[last] - indptr[first]),
            **{name: arrays[name][first:] for name in names},
        )
        for first, last in pairwise(ends.tolist())
    ])  # fmt: skip


def layer_table(
    layers: Iterable[FusedLayer | None], droppable: Iterable[bool], checked: Iterable[bool],
    dtype: np.dtype,
) -> Record:  # fmt: skip
    """Return the records of consecutive layers.

    Parameters
    ----------
    layers : sequence of FusedLayer or None
        None for a layer that is not computed.
    droppable : sequence of bool
        For each layer, whether inputs without activations after it may be dropped.
    checked : sequence of bool
        For each layer, whether to check that its sums are finite.
    dtype : dtype
    """
    none = Record("layer", dtype)
    found = Record.joined([none if layer is None else layer.record for layer in layers])
    found.set_each(counted=droppable, checked=checked)
    return found
