"""Transposition of a small square of a matrix in registers."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["SQUARE", "stacked_zeros", "transpose"]

SQUARE = {"float32": 8, "float64": 4}  # rows and columns of a square: half a cache line

_I32, _I64 = ir.IntType(32), ir.IntType(64)


@intrinsic
def transpose(typing, X, row, row_stride, Y, place, place_stride, largest):
    """Y[place[c] * place_stride + r] = X[row[r] * row_stride + c], for one square.

    Parameters
    ----------
    X, Y : pointer to float
        Source and target; they need the alignment of a single number only.
    row, place : pointer to int64
        Row numbers of the square in X, and in Y.
    row_stride, place_stride : int
        Elements from one row to the next.
    largest : pointer to unsigned int, or None
        For each column of the square, updated to the bits of the largest absolute value so far.
    """

    def codegen(context, builder, signature, args):
        X, row, row_stride, Y, place, place_stride, largest = args
        real = context.get_value_type(signature.args[0].dtype)
        size = SQUARE["float32" if isinstance(real, ir.FloatType) else "float64"]
        vector = ir.VectorType(real, size)

        def at(base, index, stride, k):
            index = builder.load(builder.gep(index, [_I64(k)]))
            address = builder.gep(base, [builder.mul(index, stride)])
            return builder.bitcast(address, vector.as_pointer())

        lines = []
        for k in range(size):
            line = builder.load(at(X, row, row_stride, k))
            line.align = 32 // size
            lines.append(line)
        if isinstance(signature.args[-1], types.CPointer):
            _note(builder, lines, largest)
        # Exchange off-diagonal blocks of 1, 2, and 4 numbers.
        step = 1
        while step < size:
            for k in range(size):
                if k & step:
                    continue
                pair = lines[k], lines[k + step]
                low = [lane if not lane & step else size + lane - step for lane in range(size)]
                high = [lane + step if not lane & step else size + lane for lane in range(size)]
                lines[k], lines[k + step] = (
                    builder.shuffle_vector(*pair, ir.Constant(ir.VectorType(_I32, size), mask))
                    for mask in (low, high)
                )
            step *= 2
        for k, line in enumerate(lines):
            builder.store(line, at(Y, place, place_stride, k)).align = 32 // size
        return context.get_dummy_value()

    return types.void(X, row, types.intp, Y, place, types.intp, largest), codegen


def _note(builder, lines, largest):
    """Update ``largest`` to max(largest, |lines|) by bits, which sort as the values, NaN last."""
    size = lines[0].type.count
    bits = 256 // size
    integers = ir.VectorType(ir.IntType(bits), size)
    any_but_sign = ir.Constant(integers, [(1 << (bits - 1)) - 1] * size)
    place = builder.bitcast(largest, integers.as_pointer())
    found = builder.load(place)
    found.align = bits // 8
    for line in lines:
        absolute = builder.and_(builder.bitcast(line, integers), any_but_sign)
        found = builder.select(builder.icmp_unsigned(">", absolute, found), absolute, found)
    builder.store(found, place).align = bits // 8


@intrinsic
def stacked_zeros(typing, like):
    """Return a stack array of zeros of the type of `like`, one for each column of a square."""
    size = 256 // like.bitwidth

    def codegen(context, builder, signature, args):
        kind = context.get_value_type(like)
        line = cgutils.alloca_once(builder, ir.ArrayType(kind, size))
        builder.store(ir.Constant(ir.ArrayType(kind, size), [0] * size), line)
        return builder.bitcast(line, kind.as_pointer())

    return types.CPointer(like)(like), codegen
