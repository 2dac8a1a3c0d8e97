"""Compute one layer for a block of inputs.

    Y' = min(max(Y W + b, 0), clip)

A block is C-ordered with one row per neuron. Rows are aligned to cache lines, and `stride` is an
odd number of lines, since rows a power of two apart would map to the same cache sets. A tile, a few
cache lines of inputs, passes through all neurons before the next one, so that its activations stay
in the caches.

Neurons that read the same rows are computed consecutively and in pairs: the rows come from the L1
cache, and each is loaded once for two multiply-adds. If few neurons share their rows, several with
the same number of edges are computed together in narrow tiles, which hides the latency of the
multiply-adds.

Rows read in random order come from the L2 cache. If neurons have enough edges in each panel (a few
hundred rows, which fit the L1 cache for one tile), the edges are sorted by panel. All neurons
process the edges of one panel before the next, and sums are stored in between, which does not
change their bits.

A dense layer needs no row numbers. Computing six neurons together reaches the speed of a BLAS, and
the result has the same bits as a sparse layer with the same weights.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from numba import njit, types

from gbdnn.kernels.compiled.record import (
    BIAS,
    BIAS_STEP,
    CHECKED,
    DENSE,
    DROPPABLE,
    EDGES,
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
    """Types and sizes of the compiled functions for one dtype."""

    real: types.Type
    bits: types.Type  # unsigned integer of the same size
    lanes: int  # inputs per cache line


def kinds(dtype: str) -> Kinds:
    """Return the kinds of "float32" or "float64"."""
    if dtype == "float32":
        return Kinds(types.float32, types.uint32, LINE // 4)
    return Kinds(types.float64, types.uint64, LINE // 8)


@cache  # block kernels and training steps share it
def make_layer(kind: Kinds, pair_lines: int, masked: int = 0):
    """Return ``layer(record, Y, Z, stride, inputs, live, overflow, mask)`` for one dtype.

    If `masked` is 1, a sum is stored where the block `mask` lies between the record's limits, and 0
    elsewhere.
    """
    lanes = kind.lanes
    widest_in_pairs = pair_lines * lanes
    sweep4, sweep2, sweep1 = (_make_sweep(kind, n, pair_lines, masked) for n in (4, 2, 1))
    dense = _make_dense(kind, pair_lines, masked)
    # Rows that exceed the L1 cache, and edges per neuron that amortize another pass over them.
    far_rows, many_edges = 256, 20

    @njit(no_cpython_wrapper=True)
    def layer(record, Y, Z, stride, inputs, live, overflow, mask):
        """Compute all neurons of a layer for `inputs` inputs, rounded up to whole cache lines.

        ``live[q]`` becomes the number of nonzero activations of input q if the record's DROPPABLE
        is set. ``overflow[q]`` becomes nonzero if a sum of input q is not finite and CHECKED is
        set. Either may be null if its flag is not set.
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
        if record[PAIRED] or (many and record[PANELS] == 1):
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
                if lines == 4:
                    sweep4(record, panel, y, z, stride, a, o, m)
                elif lines == 2:
                    sweep2(record, panel, y, z, stride, a, o, m)
                else:
                    sweep1(record, panel, y, z, stride, a, o, m)
            t += lines * lanes

    return layer


def _make_sweep(kind: Kinds, lines: int, pair_lines: int, masked: int):
    """Return a function that computes one tile of inputs for one panel of a layer's rows."""
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
                    lines, 2, SAME, masked, begins, ends, Y, stride, offset(rows, first),
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
                    lines, several, OWN, masked, begins, ends, Y, stride,
                    offset(rows, first), offset(weights, first * step), step, edges,
                    offset(bias, j * bias_step), bias_step, low, high, Z, live, overflow,
                    offset(places, j), mask,
                )  # fmt: skip
                j += several
            else:
                if edges or begins or ends:
                    tile(
                        lines, 1, SAME, masked, begins, ends, Y, stride,
                        offset(rows, first), offset(weights, first * step), step, edges,
                        offset(bias, j * bias_step), bias_step, low, high, Z, live, overflow,
                        offset(places, j), mask,
                    )  # fmt: skip
                j += 1

    return sweep


def _make_dense(kind: Kinds, pair_lines: int, masked: int):
    """Return a function that computes a dense layer for a block.

    Weights are read in groups that stay in the L2 cache for all tiles of the block.
    """
    lanes = kind.lanes
    # Sums held in registers: 12 with AVX2, 24 with AVX-512.
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
    """Return a function that computes some neurons of a dense layer for one tile of inputs."""
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
                    lines, several, ALL, masked, 1, 1, Y, stride, rows, w, 1, nrows, b,
                    bias_step, low, high, Z, live, overflow, place, mask,
                )  # fmt: skip
                j += several
            elif last - j >= 2:
                tile(
                    lines, 2, ALL, masked, 1, 1, Y, stride, rows, w, 1, nrows, b,
                    bias_step, low, high, Z, live, overflow, place, mask,
                )  # fmt: skip
                j += 2
            else:
                tile(
                    lines, 1, ALL, masked, 1, 1, Y, stride, rows, w, 1, nrows, b,
                    bias_step, low, high, Z, live, overflow, place, mask,
                )  # fmt: skip
                j += 1

    return sweep
