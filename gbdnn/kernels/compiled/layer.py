"""A block of inputs through one layer, in one pass over its memory.

    Y' = min(max(Y W + b, 0), clip)

Blocks are C-ordered, a row per neuron, `stride` elements apart: aligned to cache lines, and an odd
number of them, or rows that stand a power of two apart fall on each other in the caches. Inputs go
through in tiles, each through all neurons: what a tile reads and writes fits the caches.

Neurons that read the same rows are computed one after the other, and two at a time: their rows come
from the first cache, and each is read once for two multiply-adds. Where there are few such neurons,
those with equally many edges are, several at a time in narrow tiles: a sum waits for itself only.

Rows at random come from the second cache. Where neurons have some edges in each panel of a few
hundred rows, which the first cache holds for one tile, edges are sorted by panels: all neurons meet
the edges of the first panel, then of the next; sums are stored in between, and have the same bits.
Where they have few edges, rows are fetched some edges before they are read.

A dense layer reads no row numbers. Six neurons at a time take it to the speed of a BLAS, with the
same bits as the same weights in a sparse layer.
"""

from __future__ import annotations

from typing import NamedTuple

from numba import njit, types

from gbdnn.kernels.compiled.record import (
    AHEAD,
    BIAS,
    BIAS_STEP,
    CHECKED,
    DENSE,
    DROPPABLE,
    EDGES,
    FETCHED,
    INDPTR,
    LIMITS,
    NCOLS,
    NROWS,
    PAIRED,
    PAIRS,
    PANELS,
    PLACES,
    ROWS,
    WEIGHT_STEP,
    WEIGHTS,
)
from gbdnn.kernels.compiled.tile import ALL, LINE, OWN, SAME, offset, pointer_to, tile

__all__ = ["Kinds", "kinds", "make_layer"]


class Kinds(NamedTuple):
    """What the compiled functions are made of, for one dtype."""

    real: types.Type
    bits: types.Type  # unsigned, of the same size
    lanes: int  # inputs in a cache line


def kinds(dtype: str) -> Kinds:
    """Return the kinds of "float32" or "float64"."""
    if dtype == "float32":
        return Kinds(types.float32, types.uint32, LINE // 4)
    return Kinds(types.float64, types.uint64, LINE // 8)


def make_layer(kind: Kinds, pair_lines: int, masked: int = 0):
    """Return ``layer(record, Y, Z, stride, inputs, live, overflow, mask)`` for one dtype.

    If it is `masked`, sums are stored where the block `mask` is between the record's limits.
    """
    lanes = kind.lanes
    widest_in_pairs = pair_lines * lanes
    sweep4, sweep2, sweep1 = (_make_sweep(kind, n, pair_lines, masked, 0) for n in (4, 2, 1))
    fetching4 = _make_sweep(kind, 4, pair_lines, masked, AHEAD)
    dense = _make_dense(kind, pair_lines, masked)
    # Rows that the first cache doesn't hold, and edges that make up for a second start.
    far_rows, many_edges = 256, 20

    @njit(no_cpython_wrapper=True)
    def layer(record, Y, Z, stride, inputs, live, overflow, mask):
        """Compute all neurons of a layer for the first `inputs` inputs, and whole lines.

        ``live[q]`` is how many activations input q has, where the layer's record says that this
        matters, else `live` is null; ``overflow[q]``, likewise, is not 0 if one of its sums was not
        finite.
        """
        whole = -(-inputs // lanes) * lanes
        if record[DROPPABLE]:
            for q in range(whole):
                live[q] = 0
        if record[CHECKED]:
            for q in range(whole):
                overflow[q] = 0
        if record[DENSE]:
            dense(record, Y, Z, stride, whole, live, overflow, mask)
            return
        most = 4 * lanes
        many = record[EDGES] >= many_edges * record[NCOLS] and record[NROWS] > far_rows
        if record[PAIRED] or (many and record[PANELS] == 1 and not record[FETCHED]):
            most = widest_in_pairs
        t = 0
        while t < whole:
            y, z = offset(Y, t), offset(Z, t)
            a = offset(live, t if record[DROPPABLE] else 0)
            o = offset(overflow, t if record[CHECKED] else 0)
            m = offset(mask, t if masked else 0)
            width = min(most, whole - t)
            lines = 4 if width >= 4 * lanes else 2 if width >= 2 * lanes else 1
            for panel in range(record[PANELS]):
                if lines == 4 and record[FETCHED]:
                    fetching4(record, panel, y, z, stride, a, o, m)
                elif lines == 4:
                    sweep4(record, panel, y, z, stride, a, o, m)
                elif lines == 2:
                    sweep2(record, panel, y, z, stride, a, o, m)
                else:
                    sweep1(record, panel, y, z, stride, a, o, m)
            t += lines * lanes

    return layer


def _make_sweep(kind: Kinds, lines: int, pair_lines: int, masked: int, ahead: int):
    """Return a function that takes one tile of inputs through a panel of a layer's rows."""
    real, uint32, int64, uint8 = kind.real, types.uint32, types.int64, types.uint8
    in_pairs, several = lines <= pair_lines, max(1, 2 * pair_lines // lines)

    @njit(no_cpython_wrapper=True)
    def sweep(record, panel, Y, Z, stride, live, overflow, mask):
        ncols = record[NCOLS]
        indptr = offset(pointer_to(record[INDPTR], int64), panel * ncols)
        rows = pointer_to(record[ROWS], uint32)
        weights, step = pointer_to(record[WEIGHTS], real), record[WEIGHT_STEP]
        bias, bias_step = pointer_to(record[BIAS], real), record[BIAS_STEP]
        places, pairs = pointer_to(record[PLACES], uint32), pointer_to(record[PAIRS], uint8)
        limits = pointer_to(record[LIMITS], real)
        low, high = limits[0], limits[1]
        begins, ends = int64(panel == 0), int64(panel == record[PANELS] - 1)
        by_degree = record[PAIRED] == 0 and record[PANELS] == 1
        j = 0
        while j < ncols:
            first = indptr[j]
            edges = indptr[j + 1] - first
            last = j + several
            if in_pairs and pairs[j]:
                tile(
                    lines, 2, SAME, masked, ahead, begins, ends, Y, stride, offset(rows, first),
                    offset(weights, first * step), step, edges, offset(bias, j * bias_step),
                    bias_step, low, high, Z, live, overflow, offset(places, j), mask,
                )  # fmt: skip
                j += 2
            elif (
                several > 1
                and by_degree
                and last <= ncols
                and indptr[last] - indptr[last - 1] == edges
            ):
                tile(
                    lines, several, OWN, masked, ahead, begins, ends, Y, stride,
                    offset(rows, first), offset(weights, first * step), step, edges,
                    offset(bias, j * bias_step), bias_step, low, high, Z, live, overflow,
                    offset(places, j), mask,
                )  # fmt: skip
                j += several
            else:
                if edges or begins or ends:
                    tile(
                        lines, 1, SAME, masked, ahead, begins, ends, Y, stride,
                        offset(rows, first), offset(weights, first * step), step, edges,
                        offset(bias, j * bias_step), bias_step, low, high, Z, live, overflow,
                        offset(places, j), mask,
                    )  # fmt: skip
                j += 1

    return sweep


def _make_dense(kind: Kinds, pair_lines: int, masked: int):
    """Return a function that takes a block through a dense layer.

    Weights are read in groups that stay in the second cache for all tiles of the block.
    """
    lanes = kind.lanes
    # Sums for the registers: of each 12 with AVX2, 24 with AVX-512.
    sweep1 = _make_dense_sweep(kind, 1, 3 * pair_lines, masked)
    sweep4 = _make_dense_sweep(kind, 4, 6, masked) if pair_lines == 4 else sweep1
    widest = 4 * lanes if pair_lines == 4 else lanes
    group_bytes, size = 1 << 17, LINE // lanes

    @njit(no_cpython_wrapper=True)
    def dense(record, Y, Z, stride, whole, live, overflow, mask):
        ncols = record[NCOLS]
        group = max(1, group_bytes // (24 * size * max(1, record[NROWS]))) * 24
        for first in range(0, ncols, group):
            last = min(ncols, first + group)
            t = 0
            while t < whole:
                y, z = offset(Y, t), offset(Z, t)
                a = offset(live, t if record[DROPPABLE] else 0)
                o = offset(overflow, t if record[CHECKED] else 0)
                m = offset(mask, t if masked else 0)
                if whole - t >= widest:
                    sweep4(record, first, last, y, z, stride, a, o, m)
                    t += widest
                else:
                    sweep1(record, first, last, y, z, stride, a, o, m)
                    t += lanes

    return dense


def _make_dense_sweep(kind: Kinds, lines: int, several: int, masked: int):
    """Return a function that takes one tile of inputs through some neurons of a dense layer."""
    real, uint32 = kind.real, types.uint32

    @njit(no_cpython_wrapper=True)
    def sweep(record, first, last, Y, Z, stride, live, overflow, mask):
        rows, places = pointer_to(record[ROWS], uint32), pointer_to(record[PLACES], uint32)
        weights = pointer_to(record[WEIGHTS], real)
        bias, bias_step = pointer_to(record[BIAS], real), record[BIAS_STEP]
        limits = pointer_to(record[LIMITS], real)
        low, high, nrows = limits[0], limits[1], record[NROWS]
        j = first
        while j < last:
            w, b, place = (
                offset(weights, j * nrows),
                offset(bias, j * bias_step),
                offset(places, j),
            )
            if last - j >= several:
                tile(
                    lines, several, ALL, masked, 0, 1, 1, Y, stride, rows, w, 1, nrows, b,
                    bias_step, low, high, Z, live, overflow, place, mask,
                )  # fmt: skip
                j += several
            elif last - j >= 2:
                tile(
                    lines, 2, ALL, masked, 0, 1, 1, Y, stride, rows, w, 1, nrows, b,
                    bias_step, low, high, Z, live, overflow, place, mask,
                )  # fmt: skip
                j += 2
            else:
                tile(
                    lines, 1, ALL, masked, 0, 1, 1, Y, stride, rows, w, 1, nrows, b,
                    bias_step, low, high, Z, live, overflow, place, mask,
                )  # fmt: skip
                j += 1

    return sweep
