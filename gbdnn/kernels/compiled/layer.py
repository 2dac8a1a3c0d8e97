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

Rows read in random order come from the L2 cache. If neurons have enough edges in each panel of rows
(`costs.panel_rows`; 2048 in training), the edges are sorted by panel, so that a tile's part of a
panel stays in the L1 cache (L2 in training). All neurons process the edges of one panel before the
next, and sums are stored in between, which does not change their bits.

A dense layer needs no row numbers. Computing six or twelve neurons together reaches the speed of a
BLAS, and the result has the same bits as a sparse layer with the same weights.
"""

from __future__ import annotations

from functools import cache

from numba import njit, types

from gbdnn.kernels.compiled.record import DENSE_GROUP
from gbdnn.kernels.compiled.tiles import Columns, Strip, make_tile
from gbdnn.kernels.compiled.vectors import COMPILED, INLINED, LINE, Kinds, offset

__all__ = ["make_layer"]


@cache  # several functions of a library call it
def make_layer(kind: Kinds, pair_lines: int):
    """Return ``layer(record, block, inputs)`` for one dtype.

    `pair_lines` is the width of the widest tile for a pair, in cache lines (`library.pair_lines`).
    If the record is masked, a sum is stored where the block `mask` lies between the record's
    limits, and 0 elsewhere: for gradients.
    """
    lanes = kind.lanes
    widest_in_pairs = pair_lines * lanes
    sweep4, sweep2, sweep1 = (_make_sweep(kind, n, pair_lines) for n in (4, 2, 1))
    dense = _make_dense(kind, pair_lines)
    # Without AVX-512, tiles of two lines are faster for pairs, and for layers of more rows than the
    # L1 cache holds with many edges per neuron.
    far_rows, many_edges = 256, 20

    @njit(**COMPILED)
    def layer(record, block, inputs):
        """Compute all neurons of a layer for `inputs` inputs, rounded up to whole cache lines.

        `block` is a `Strip`. Its `live` and `overflow` are set to 0 first, if the record asks for
        them, and not read otherwise.
        """
        whole = -(-inputs // lanes) * lanes
        if record.counted:
            for q in range(whole):
                block.live[q] = 0
        if record.checked:
            for q in range(whole):
                block.overflow[q] = 0
        if record.dense:
            dense(record, block, whole)
            return
        most = 4 * lanes
        many = record.edges >= many_edges * record.ncols and record.nrows > far_rows
        if record.paired or (many and record.panels == 1):
            most = widest_in_pairs
        t = types.int64(0)
        while t < whole:
            strip = _strip(block, t)
            width = min(most, whole - t)
            lines = 4 if width >= 4 * lanes else 2 if width >= 2 * lanes else 1
            if lines == 4:
                sweep4(record, strip)
            elif lines == 2:
                sweep2(record, strip)
            else:
                sweep1(record, strip)
            t += lines * lanes

    return layer


@njit(**INLINED)
def _strip(block, t):
    """Return the inputs of a block from t on."""
    return Strip(
        offset(block.Y, t), offset(block.Z, t), block.stride, offset(block.live, t),
        offset(block.overflow, t), offset(block.mask, t),
    )  # fmt: skip


@njit(**INLINED)
def _columns(record, begins, ends):
    """Return the pointers and numbers of a layer, or of a panel where sums begin or end."""
    return Columns(
        record.rows, record.weights, record.weight_step, record.bias, record.bias_step,
        record.places, record.limits[0], record.limits[1], begins, ends, record.counted,
        record.checked, record.masked,
    )  # fmt: skip


def _make_sweep(kind: Kinds, lines: int, pair_lines: int):
    """Return a function that computes one tile of inputs."""
    # Neurons of tiles of 4, 2, 1 lines: 1, 2, 4 with AVX2; 2, 4, 8 with AVX-512.
    in_pairs, several = lines <= pair_lines, max(1, 2 * pair_lines // lines)
    pair = make_tile(kind, lines, 2, "same")
    some = make_tile(kind, lines, several, "own")
    single = make_tile(kind, lines, 1, "own")

    @njit(**COMPILED)
    def sweep_panel(record, panel, strip):
        begins, ends = panel == 0, panel == record.panels - 1
        columns, indptr = (
            _columns(record, begins, ends),
            offset(record.indptr, panel * record.ncols),
        )
        first = indptr[0]
        for j in range(record.ncols):
            last = indptr[j + 1]
            if last > first or begins or ends:
                single(columns, strip, j, first, last - first)
            first = last

    @njit(**COMPILED)
    def sweep(record, strip):
        if record.panels > 1:
            for panel in range(record.panels):
                sweep_panel(record, panel, strip)
            return
        columns, indptr, pairs = _columns(record, True, True), record.indptr, record.pairs
        by_degree = several > 1 and record.paired == 0
        j, ncols = types.int64(0), record.ncols
        while j < ncols:
            first, last = indptr[j], j + several
            edges = indptr[j + 1] - first
            if in_pairs and pairs[j]:
                pair(columns, strip, j, first, edges)
                j += 2
            # Columns ascend by degree: the first and the last show whether all have as many edges.
            elif by_degree and last <= ncols and indptr[last] - indptr[last - 1] == edges:
                some(columns, strip, j, first, edges)
                j += several
            else:
                single(columns, strip, j, first, edges)
                j += 1

    return sweep


def _make_dense(kind: Kinds, pair_lines: int):
    """Return a function that computes a dense layer for a block.

    Weights are read in groups that stay in the L2 cache for all tiles of the block.
    """
    lanes = kind.lanes
    # Tiles of one line have 6 neurons with AVX2, 12 with AVX-512; wide ones have 6 neurons.
    narrow = wide = _make_dense_sweep(kind, 1, 3 * pair_lines)
    widest = lanes
    if pair_lines == 4:
        wide, widest = _make_dense_sweep(kind, 4, 6), 4 * lanes
    group_bytes, size = 1 << 17, LINE // lanes

    @njit(**COMPILED)
    def dense(record, block, whole):
        ncols = record.ncols
        group = group_bytes // (DENSE_GROUP * size * max(1, record.nrows))
        group = max(1, group) * DENSE_GROUP
        for first in range(0, ncols, group):
            last = min(ncols, first + group)
            t = types.int64(0)
            while t < whole:
                if whole - t >= widest:
                    wide(record, first, last, _strip(block, t))
                    t += widest
                else:
                    narrow(record, first, last, _strip(block, t))
                    t += lanes

    return dense


def _make_dense_sweep(kind: Kinds, lines: int, several: int):
    """Return a function that computes some neurons of a dense layer for one tile of inputs."""
    some, pair, single = (make_tile(kind, lines, n, "all") for n in (several, 2, 1))

    @njit(**COMPILED)
    def sweep(record, first, last, strip):
        columns, nrows = _columns(record, True, True), record.nrows
        j = first
        while j < last:
            if last - j >= several:
                some(columns, strip, j, j * nrows, nrows)
                j += several
            elif last - j >= 2:
                pair(columns, strip, j, j * nrows, nrows)
                j += 2
            else:
                single(columns, strip, j, j * nrows, nrows)
                j += 1

    return sweep
