"""Copies between dense feature arrays and blocks.

A block has one row per neuron, a feature array one row per input. The copies transpose squares in
registers, along the rows of the feature array, which are read or written as streams. A square has
as many rows as a register holds numbers, or half as many: for fewer inputs or neurons, and to write
rows a power of two apart, which compete for the same cache sets. The last square of a row or of a
block begins so early that it ends with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba import njit, types

from gbdnn.kernels.compiled.vectors import (
    COMPILED,
    LINE,
    address_of,
    bits_of,
    highest,
    larger,
    load,
    mark,
    offset,
    pointer_to,
    row,
    splat,
    store,
    take,
    transposed,
)

if TYPE_CHECKING:
    from gbdnn.kernels.compiled.vectors import Kinds

__all__ = ["make_from_dense", "make_to_dense"]

PAGE = 4096  # bytes; rows as far apart are in the same set of an L1 cache


def make_from_dense(kind: Kinds, pair_lines: int):
    """Return ``from_dense``, which copies rows of an array into a block."""
    bits, lanes, int64 = kind.bits, kind.lanes, types.int64
    any_but_sign = bits((1 << (8 * LINE // lanes - 1)) - 1)
    size = lanes * pair_lines // 4
    half = size // 2
    whole_squares, half_squares = _make_read(kind, size), _make_read(kind, half)

    def from_dense(X, row_stride, column_stride, ids, count, positions, Y, stride, nrows):
        """Y[positions[c], r] = X[ids[r], c] for `count` inputs; return bits of the largest |X|.

        Bits of magnitudes sort as the values, NaN last. Strides are in elements. `ids` and
        `positions` are addresses of int64 numbers, or 0 for 0, 1, 2, ... Inputs that pad the last
        cache line are set to 0.
        """
        rows, where, values = pointer_to(ids, int64), pointer_to(positions, int64), bits_of(X)
        most, left = int64(0), 0
        if column_stride != 1 or min(count, nrows) < half:
            left = count
        elif min(count, nrows) < size:
            most = half_squares(X, row_stride, ids, count, positions, Y, stride, nrows)
        else:
            most = whole_squares(X, row_stride, ids, count, positions, Y, stride, nrows)
        whole = -(-count // lanes) * lanes
        for c in range(nrows if left or whole > count else 0):
            target, found = offset(Y, (where[c] if positions != 0 else c) * stride), bits(0)
            for r in range(left):
                at = (rows[r] if ids != 0 else r) * row_stride + c * column_stride
                target[r] = X[at]
                found = max(found, values[at] & any_but_sign)
            most = max(most, int64(found))
            for r in range(count, whole):
                target[r] = 0
        return most

    return from_dense


def _make_read(kind: Kinds, size: int):
    """Return a function that copies by squares of `size` inputs."""
    numbers, int64, zero = tuple(range(size)), types.int64, kind.real(0)

    @njit(**COMPILED)
    def read(X, row_stride, ids, count, positions, Y, stride, nrows):
        rows, where = pointer_to(ids, int64), pointer_to(positions, int64)
        most = splat(zero, size)
        for r0 in range(0, count, size):
            r = min(r0, count - size)
            if ids != 0:
                sources = row(X, take(offset(rows, r), size, 1), row_stride)
            else:
                sources = row(offset(X, r * row_stride), numbers, row_stride)
            for c0 in range(0, nrows, size):
                c = min(c0, nrows - size)
                inputs = load(offset(sources, c), size)
                if positions != 0:
                    targets = row(offset(Y, r), take(offset(where, c), size, 1), stride)
                else:
                    targets = row(offset(Y, c * stride + r), numbers, stride)
                store(targets, transposed(inputs))
                most = larger(inputs, most)
        return highest(most)

    return read


def make_to_dense(kind: Kinds, pair_lines: int):
    """Return ``to_dense``, which copies a block to rows of an array."""
    size, page = kind.lanes * pair_lines // 4, PAGE * kind.lanes // LINE
    half = size // 2
    whole_squares, half_squares = _make_write(size), _make_write(half)

    def to_dense(Y, stride, ncols, ids, count, X, row_stride, present):
        """X[ids[r], c] = Y[c, r] for `count` inputs; return the number of nonzero values.

        `present`, contiguous and of the shape of X, is set to 1 where the value is not 0, else to
        0. It may be null; nothing is counted then.
        """
        marks, entries = pointer_to(present, types.uint8), types.int64(0)
        is_apart = min(count, ncols) < half
        if not is_apart:
            if min(count, ncols) < size or (size > 8 and row_stride % page == 0):
                half_squares(Y, stride, ncols, ids, count, X, row_stride, marks)
            else:
                whole_squares(Y, stride, ncols, ids, count, X, row_stride, marks)
        for r in range(count if present != 0 or is_apart else 0):
            target, flag = offset(X, ids[r] * row_stride), offset(marks, ids[r] * ncols)
            for c in range(ncols if is_apart else 0):
                target[c] = Y[c * stride + r]
                if present != 0:
                    flag[c] = target[c] != 0
            if present != 0:
                entries += _sum_of_flags(flag, ncols)
        return entries

    return to_dense


def _make_write(size: int):
    """Return a function that copies by squares of `size` inputs."""
    numbers = tuple(range(size))

    @njit(**COMPILED)
    def write(Y, stride, ncols, ids, count, X, row_stride, marks):
        for r0 in range(0, count, size):
            r = min(r0, count - size)
            inputs = take(offset(ids, r), size, 1)
            targets, flags = row(X, inputs, row_stride), row(marks, inputs, ncols)
            for c0 in range(0, ncols, size):
                c = min(c0, ncols - size)
                values = transposed(load(row(offset(Y, c * stride + r), numbers, stride), size))
                store(offset(targets, c), values)
                if address_of(marks) != 0:
                    mark(offset(flags, c), values)

    return write


@njit(**COMPILED)
def _sum_of_flags(flags, count):
    """Return the sum of bytes that are 0 or 1, adding eight at a time."""
    words, total = pointer_to(address_of(flags), types.uint64), types.uint64(0)
    pairs, ones = types.uint64(0x00FF00FF00FF00FF), types.uint64(0x0001000100010001)
    for first in range(0, count // 8, 255):  # a byte holds as many
        some = types.uint64(0)
        for k in range(first, min(first + 255, count // 8)):
            some += words[k]
        some = (some & pairs) + (some >> types.uint64(8) & pairs)
        total += some * ones >> types.uint64(48)
    for k in range(count // 8 * 8, count):
        total += flags[k]
    return types.int64(total)
