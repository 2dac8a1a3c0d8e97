"""Copies between dense feature arrays and blocks.

A block has one row per neuron, a feature array one row per input. The copies transpose squares of
half a cache line in registers, along the rows of the feature array, which are read or written as
streams. The last square of a row or of a block begins so early that it ends with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba import njit, types

from gbdnn.kernels.compiled.vectors import (
    COMPILED,
    LINE,
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

__all__ = ["make_from_dense", "make_read", "make_to_dense", "square_size"]


def square_size(kind: Kinds) -> int:
    """Return the number of rows and columns of a square."""
    return kind.lanes // 2


def make_read(kind: Kinds):
    """Return ``read``, which copies as many inputs as a square has rows into a block."""
    size, int64 = square_size(kind), types.int64
    numbers = tuple(range(size))

    @njit(**COMPILED)
    def read(sources, positions, Y, stride, nrows, most):
        """Y[positions[c], r] = sources[r][c]; return the larger of `most` and the magnitudes.

        `positions` is the address of int64 numbers, or 0 for ``positions[c] = c``.
        """
        for c0 in range(0, nrows, size):
            c = min(c0, nrows - size)
            inputs = load(offset(sources, c), size)
            if positions != 0:
                places = take(offset(pointer_to(positions, int64), c), size, 1)
                store(row(Y, places, stride), transposed(inputs))
            else:
                store(row(offset(Y, c * stride), numbers, stride), transposed(inputs))
            most = larger(inputs, most)
        return most

    return read


def make_from_dense(kind: Kinds):
    """Return ``from_dense``, which copies rows of an array into a block."""
    real, bits, lanes, size = kind.real, kind.bits, kind.lanes, square_size(kind)
    any_but_sign = bits((1 << (8 * LINE // lanes - 1)) - 1)
    numbers, read = tuple(range(size)), make_read(kind)

    def from_dense(X, row_stride, column_stride, count, positions, Y, stride, nrows):
        """Y[positions[c], r] = X[r, c] for `count` rows; return the largest magnitude's bits.

        Bits of magnitudes sort as the values, NaN last. Strides are in elements. `positions` is as
        for `read`. Inputs that pad the last cache line are set to 0.
        """
        where, values = pointer_to(positions, types.int64), bits_of(X)
        found, most = bits(0), splat(real(0), size)
        in_squares = column_stride == 1 and count >= size and nrows >= size
        if in_squares:
            for r0 in range(0, count, size):
                r = min(r0, count - size)
                sources = row(offset(X, r * row_stride), numbers, row_stride)
                most = read(sources, positions, offset(Y, r), stride, nrows, most)
        whole = -(-count // lanes) * lanes
        if not in_squares or whole > count:
            for c in range(nrows):
                target = offset(Y, (where[c] if positions != 0 else c) * stride)
                for r in range(0 if not in_squares else count, count):
                    at = r * row_stride + c * column_stride
                    target[r] = X[at]
                    found = max(found, values[at] & any_but_sign)
                for r in range(count, whole):
                    target[r] = 0
        return max(types.int64(found), highest(most))

    return from_dense


def make_to_dense(kind: Kinds):
    """Return ``to_dense``, which copies a block to rows of an array."""
    size, int64 = square_size(kind), types.int64
    numbers = tuple(range(size))

    def to_dense(Y, stride, ncols, ids, count, X, row_stride, present):
        """X[ids[r], c] = Y[c, r] for `count` inputs; return the number of nonzero values.

        `present`, contiguous and of the shape of X, is set to 1 where the value is not 0, else to
        0. It may be null; nothing is counted then.
        """
        marks = pointer_to(present, types.uint8)
        in_squares = count >= size and ncols >= size
        for r0 in range(0, count if in_squares else 0, size):
            r = min(r0, count - size)
            inputs = take(offset(ids, r), size, 1)
            targets, flags = row(X, inputs, row_stride), row(marks, inputs, ncols)
            for c0 in range(0, ncols, size):
                c = min(c0, ncols - size)
                neurons = row(offset(Y, c * stride + r), numbers, stride)
                values = transposed(load(neurons, size))
                store(offset(targets, c), values)
                if present != 0:
                    mark(offset(flags, c), values)
        entries = int64(0)
        for r in range(count if present != 0 or not in_squares else 0):
            target, flag = offset(X, ids[r] * row_stride), offset(marks, ids[r] * ncols)
            for c in range(0 if in_squares else ncols):
                target[c] = Y[c * stride + r]
                if present != 0:
                    flag[c] = target[c] != 0
            for c in range(ncols if present != 0 else 0):
                entries += flag[c]
        return entries

    return to_dense
