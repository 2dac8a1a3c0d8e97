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

    For single inputs the arrays hold the rows of W, in fours: ``rows`` (uint16 or uint32) are
    column numbers. One weight for all edges is stored four times.
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
        return _layer(info, _dense(rows, b, info), width=info.ncols)
    width = _single_width(info.ncols, info.dtype, 1)
    given = rows.indptr.astype(np.int64), rows.columns, None if rows.is_iso else rows.values
    arrays = _in_fours(*given, width, info.ncols)
    if rows.is_iso:
        arrays["weights"] = rows.values[:1].repeat(4)
    bias = np.atleast_1d(np.asarray(b, info.dtype))
    numbers = {"width": width, "weight_step": int(not rows.is_iso)}
    return _layer(info, arrays | {"bias": bias}, **numbers)


def _single_width(ncols: int, dtype: np.dtype, count: int) -> int:
    """Return how many sums a single input needs in `count` shares.

    No two shares have sums in the same cache line, which threads would take from each other at
    every row. A line for each share follows, for the products that fill up fours.
    """
    line = 64 // dtype.itemsize
    return (-(-ncols // line) + count) * line


def _in_fours(
    indptr: np.ndarray, columns: np.ndarray, weights: np.ndarray | None, width: int, unused: int
) -> dict[str, np.ndarray]:
    """Return rows whose numbers of edges are multiples of four, which are computed together.

    They are filled up with edges to the four columns from ``unused`` on. One weight for all edges
    is None.
    """
    degrees = np.diff(indptr)
    new_indptr = np.zeros(len(indptr), np.int64)
    np.cumsum(-(-degrees // 4) * 4, out=new_indptr[1:])
    at = np.arange(len(columns)) + np.repeat(new_indptr[:-1] - indptr[:-1], degrees)
    rows = (np.arange(new_indptr[-1]) % 4 + unused).astype(
        np.uint16 if width <= NEAR else np.uint32
    )
    rows[at] = columns
    arrays = {"indptr": new_indptr, "rows": rows}
    if weights is not None:
        arrays["weights"] = np.zeros(len(rows), weights.dtype)
        arrays["weights"][at] = weights
    return arrays


def single_shares(layer: FusedLayer, count: int) -> Record:
    """Return `count` shares of a layer from `prepare_rows`, with about equally many edges.

    Each has a copy of its edges: threads read them faster than parts of whole rows.
    """
    if count == 1:
        return layer.record
    arrays, dtype = layer.arrays, layer.arrays["weights"].dtype
    line = 64 // dtype.itemsize
    ends: Any
    parts, dense = np.arange(count + 1) / count, "rows" not in layer.arrays
    if dense:
        ends = parts * layer.ncols
    else:
        edges = np.cumsum(np.bincount(arrays["rows"], minlength=layer.ncols)[: layer.ncols])
        ends = np.searchsorted(edges, parts * layer.record.first.edges)
    ends = np.minimum(np.rint(ends / line).astype(np.int64) * line, layer.ncols)
    ends[0], ends[-1] = 0, layer.ncols
    found, width = [], _single_width(layer.ncols, dtype, count)
    for k, (first, last) in enumerate(pairwise(ends.tolist())):
        members: dict[str, Any] = {"first": first, "ncols": last - first}
        if not dense:
            inside = np.flatnonzero((arrays["rows"] >= first) & (arrays["rows"] < last))
            is_iso = not layer.record.first.weight_step
            members |= {"width": width} | _in_fours(
                np.searchsorted(inside, arrays["indptr"]), arrays["rows"][inside],
                None if is_iso else arrays["weights"][inside], width, width + (k - count) * line,
            )  # fmt: skip
        found.append(layer.record.copy(**members))
    return Record.joined(found)


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
    table = Record.joined([none if layer is None else layer.record for layer in layers])
    table.set_each(counted=droppable, checked=checked)
    return table
