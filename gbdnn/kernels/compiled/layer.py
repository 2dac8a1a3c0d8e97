"""A block of inputs through one layer, in one pass over its memory.

    Y' = min(max(Y W + b, 0), clip)

Blocks are C-ordered, a row per neuron, `stride` elements apart: aligned to cache lines, and an odd
number of them, or rows that stand a power of two apart fall on each other in the caches. Inputs go
through in tiles, each through all neurons: what a tile reads and writes fits the caches.

Neurons that read the same rows are computed one after the other, and two at a time: their rows come
from the first cache, and each is read once for two multiply-adds.
"""

from __future__ import annotations

from typing import NamedTuple

from numba import njit, types

from gbdnn.kernels.compiled.record import (
    BIAS,
    BIAS_STEP,
    INDPTR,
    LIMITS,
    NCOLS,
    PAIRED,
    PAIRS,
    PLACES,
    ROWS,
    WEIGHT_STEP,
    WEIGHTS,
)
from gbdnn.kernels.compiled.tile import LINE, offset, pointer_to, tile

__all__ = ["Kinds", "kinds", "make_layer", "pair_lines"]


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


def pair_lines() -> int:
    """Return the cache lines of a tile for two neurons at a time: 2, or 4 with AVX-512.

    Eight sums or so hide what a multiply-add takes. They and the activations that two neurons share
    are to fit the registers: 16 of half a line with AVX2, 32 of a line with AVX-512.
    """
    import llvmlite.binding as llvm

    return 4 if llvm.get_host_cpu_features().get("avx512f") else 2


def make_layer(kind: Kinds, pair_lines: int):
    """Return ``layer(record, Y, Z, stride, inputs, live, overflow)`` for one dtype."""
    lanes = kind.lanes
    widest, widest_in_pairs = 4 * lanes, pair_lines * lanes
    sweep4, sweep2, sweep1 = (_make_sweep(kind, n, n <= pair_lines) for n in (4, 2, 1))

    @njit(no_cpython_wrapper=True)
    def layer(record, Y, Z, stride, inputs, live, overflow):
        """Compute all neurons of a layer for the first `inputs` inputs, and whole lines.

        ``live[q]`` is not 0 if input q has an activation (or -0.0), ``overflow[q]`` if one of its
        sums was not finite.
        """
        whole = -(-inputs // lanes) * lanes
        for q in range(whole):
            live[q] = 0
            overflow[q] = 0
        most = widest_in_pairs if record[PAIRED] else widest
        t = 0
        while t < whole:
            y, z, a, o = offset(Y, t), offset(Z, t), offset(live, t), offset(overflow, t)
            width = min(most, whole - t)
            if width >= 4 * lanes:
                sweep4(record, y, z, stride, a, o)
                t += 4 * lanes
            elif width >= 2 * lanes:
                sweep2(record, y, z, stride, a, o)
                t += 2 * lanes
            else:
                sweep1(record, y, z, stride, a, o)
                t += lanes

    return layer


def _make_sweep(kind: Kinds, lines: int, in_pairs: bool):
    """Return a function that takes one tile of inputs through all neurons of a layer."""
    real, uint32, int64, uint8 = kind.real, types.uint32, types.int64, types.uint8

    @njit(no_cpython_wrapper=True)
    def sweep(record, Y, Z, stride, live, overflow):
        indptr, rows = pointer_to(record[INDPTR], int64), pointer_to(record[ROWS], uint32)
        weights, step = pointer_to(record[WEIGHTS], real), record[WEIGHT_STEP]
        bias, bias_step = pointer_to(record[BIAS], real), record[BIAS_STEP]
        places, pairs = pointer_to(record[PLACES], uint32), pointer_to(record[PAIRS], uint8)
        limits = pointer_to(record[LIMITS], real)
        low, high = limits[0], limits[1]
        j, ncols = 0, record[NCOLS]
        while j < ncols:
            first = indptr[j]
            edges = indptr[j + 1] - first
            if in_pairs and pairs[j]:
                tile(
                    lines, 2, 1, Y, stride, offset(rows, first), offset(weights, first * step),
                    step, edges, offset(bias, j * bias_step), bias_step, low, high, Z, live,
                    overflow, offset(places, j),
                )  # fmt: skip
                j += 2
            else:
                tile(
                    lines, 1, 1, Y, stride, offset(rows, first), offset(weights, first * step),
                    step, edges, offset(bias, j * bias_step), bias_step, low, high, Z, live,
                    overflow, offset(places, j),
                )  # fmt: skip
                j += 1

    return sweep
