"""Copies between dense feature arrays and blocks.

A block has one row per neuron, a feature array one row per input. The copies transpose small
squares in registers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba import njit, types

from gbdnn.kernels.compiled.transpose import SQUARE, stacked_zeros, transpose
from gbdnn.kernels.compiled.vectors import bits_of, offset, pointer_to

if TYPE_CHECKING:
    from gbdnn.kernels.compiled.layer import Kinds

__all__ = ["make_from_dense", "make_to_dense"]


def make_from_dense(kind: Kinds):
    """Return ``from_dense``, which copies rows of an array into a block."""
    real, lanes, size = kind.real, kind.lanes, SQUARE[kind.real.name]

    bits = kind.bits
    any_but_sign = bits((1 << (31 if lanes == 16 else 63)) - 1)

    @njit(no_cpython_wrapper=True)
    def largest(row, count):
        """Return the bits of the largest absolute value; they sort as the values, NaN last."""
        found = bits(0)
        for r in range(count):
            found = max(found, row[r] & any_but_sign)
        return found

    def from_dense(X, row_stride, column_stride, count, positions, natural, Y, stride, nrows):
        """Y[positions[c], r] = X[r, c] for `count` rows; return the largest absolute value's bits.

        Strides are in elements; ``natural`` is 0, 1, 2, ... Inputs that pad the last cache line are
        set to 0.
        """
        squares = count // size * size if column_stride == 1 else 0
        across = nrows // size * size
        most = stacked_zeros(bits(0))
        # Rows of a square are read as streams, and whole half lines are read and written.
        for r in range(0, squares, size):
            source, target = offset(X, r * row_stride), offset(Y, r)
            for c in range(0, across, size):
                at = offset(positions, c)
                transpose(offset(source, c), natural, row_stride, target, at, stride, most)
            for c in range(across, nrows):
                row = offset(Y, positions[c] * stride)
                for k in range(r, r + size):
                    row[k] = X[k * row_stride + c]
        found = largest(most, size)
        for c in range(nrows):
            row = offset(Y, positions[c] * stride)
            for r in range(squares, count):
                row[r] = X[r * row_stride + c * column_stride]
            first = squares if c < across else 0
            found = max(found, largest(bits_of(offset(row, first)), count - first))
            for r in range(count, -(-count // lanes) * lanes):
                row[r] = 0
        return types.int64(found)

    p, i64 = types.CPointer, types.int64
    return from_dense, i64(p(real), i64, i64, i64, p(i64), p(i64), p(real), i64, i64)


def make_to_dense(kind: Kinds):
    """Return ``to_dense``, which copies a block to rows of an array."""
    real, size = kind.real, SQUARE[kind.real.name]
    group = 2 * size

    def to_dense(Y, stride, ncols, ids, natural, count, X, row_stride, present):
        """X[ids[r], c] = Y[c, r] for `count` inputs; return the number of nonzero values.

        `present`, contiguous and of the shape of X, is set to 1 where the value is not 0, else to
        0; it may be null.
        """
        squares, across = count // size * size, ncols // size * size
        entries = types.int64(0)
        for r0 in range(0, count, group):
            last = min(r0 + group, squares)
            for c0 in range(0, across, group):
                for r in range(r0, last, size):
                    source, at = offset(Y, r), offset(ids, r)
                    for c in range(c0, min(c0 + group, across), size):
                        start = offset(natural, c)
                        transpose(source, start, stride, offset(X, c), at, row_stride, None)
            for r in range(r0, min(r0 + group, count)):
                row = offset(X, ids[r] * row_stride)
                for c in range(across if r < squares else 0, ncols):
                    row[c] = Y[c * stride + r]
                if present != 0:
                    marks = offset(pointer_to(present, types.uint8), ids[r] * ncols)
                    for c in range(ncols):
                        marks[c] = row[c] != 0
                found = types.int64(0)
                for c in range(ncols):
                    found += row[c] != 0
                entries += found
        return entries

    p, i64 = types.CPointer, types.int64
    return to_dense, i64(p(real), i64, i64, p(i64), p(i64), i64, p(real), i64, i64)
