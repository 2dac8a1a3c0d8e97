"""Rows of an array into blocks and out of them: the transposing copies of dense features.

A block has a row per neuron, a caller's array a row per input. Both are read and written in squares
that are transposed in registers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba import njit, types

from gbdnn.kernels.compiled.tile import bits_of, offset, pointer_to
from gbdnn.kernels.compiled.transpose import SQUARE, transpose

if TYPE_CHECKING:
    from gbdnn.kernels.compiled.layer import Kinds

__all__ = ["make_from_dense", "make_to_dense"]


def make_from_dense(kind: Kinds):
    """Return ``from_dense``: rows of an array become a block."""
    real, lanes, size = kind.real, kind.lanes, SQUARE[kind.real.name]

    bits = kind.bits
    any_but_sign = bits((1 << (31 if lanes == 16 else 63)) - 1)

    @njit(no_cpython_wrapper=True)
    def largest(row, count):
        """Return the largest absolute value, as its bits: they are ordered, NaN is beyond inf."""
        found = bits(0)
        for r in range(count):
            found = max(found, row[r] & any_but_sign)
        return found

    def from_dense(X, row_stride, column_stride, count, positions, natural, Y, stride, nrows):
        """Y[positions[c], r] = X[r, c] for `count` rows; return the largest absolute value's bits.

        Strides are in elements, so that any order will do; ``natural`` is 0, 1, 2, ... Inputs up to
        the next whole line become 0.
        """
        whole = -(-count // lanes) * lanes
        squares = count // size * size if column_stride == 1 else 0
        found = bits(0)
        for c0 in range(0, nrows, size):
            c1 = min(c0 + size, nrows)
            done = 0
            if c1 - c0 == size:
                for r in range(0, squares, size):
                    source = offset(X, r * row_stride + c0)
                    target = offset(Y, r)
                    transpose(source, natural, row_stride, target, offset(positions, c0), stride)
                done = squares
            for c in range(c0, c1):
                row = offset(Y, positions[c] * stride)
                if row_stride == 1:
                    column = offset(X, c * column_stride)
                    for r in range(done, count):
                        row[r] = column[r]
                else:
                    for r in range(done, count):
                        row[r] = X[r * row_stride + c * column_stride]
                for r in range(count, whole):
                    row[r] = 0
                found = max(found, largest(bits_of(row), count))
        return types.int64(found)

    p, i64 = types.CPointer, types.int64
    return from_dense, i64(p(real), i64, i64, i64, p(i64), p(i64), p(real), i64, i64)


def make_to_dense(kind: Kinds):
    """Return ``to_dense``: a block becomes rows of an array."""
    real, size = kind.real, SQUARE[kind.real.name]

    def to_dense(Y, stride, ncols, ids, natural, count, X, row_stride, present):
        """X[ids[r], c] = Y[c, r] for `count` inputs; return how many are not 0.

        `present`, of the shape of X and without gaps, becomes 1 where the value is not 0, else 0;
        it may be null.
        """
        squares = count // size * size
        for c0 in range(0, ncols, size):
            c1 = min(c0 + size, ncols)
            done = 0
            if c1 - c0 == size:
                for r in range(0, squares, size):
                    source, target = offset(Y, r), offset(X, c0)
                    transpose(
                        source, offset(natural, c0), stride, target, offset(ids, r), row_stride
                    )
                done = squares
            for r in range(done, count):
                for c in range(c0, c1):
                    X[ids[r] * row_stride + c] = Y[c * stride + r]
        entries = types.int64(0)
        for r in range(count):
            row = offset(X, ids[r] * row_stride)
            found = types.int64(0)
            if present != 0:
                marks = offset(pointer_to(present, types.uint8), ids[r] * ncols)
                for c in range(ncols):
                    marks[c] = row[c] != 0
            for c in range(ncols):
                found += row[c] != 0
            entries += found
        return entries

    p, i64 = types.CPointer, types.int64
    return to_dense, i64(p(real), i64, i64, p(i64), p(i64), i64, p(real), i64, i64)
