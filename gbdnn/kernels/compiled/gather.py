"""The product of a graph matrix A and a full matrix Y, one row of A at a time.

    Z[i, :] = min(max(start[i, :] + sum_e w[e] * Y[columns[e], :], low), high)

All edges of a row are processed for `lines` cache lines of features at a time, with the sums in
registers; a mask covers the valid part of the last line. Rows of Y are scattered in memory and
exceed the caches, so the rows of later edges are prefetched, across row ends too. Arrays need no
alignment. Every feature has its own vector lane and adds its edges in order, one fused multiply-add
each, so its result does not depend on its position or on the number of features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

from gbdnn.kernels.compiled.vectors import LINE, offset, pointer_to

if TYPE_CHECKING:
    from gbdnn.kernels.compiled.layer import Kinds

__all__ = ["make_gather"]

AHEAD = 8  # edges
MOST_LINES = 4  # cache lines of sums held in registers

_I1, _I8, _I32, _I64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))


@intrinsic(prefer_literal=True)
def row_part(
    typing, lines, tail, begin, end, final, columns, weights, step, Y, stride, start, low, high, Z
):
    """Compute some features of a row; return whether any sum is not finite.

    Parameters
    ----------
    lines : literal int
        Cache lines of features; the last may be partial.
    tail : literal int, or int
        Number of features in the last line if it is partial; literal 0 if it is whole.
    begin, end, final : int
        First edge of the row, its end, and the last edge whose row of Y may be prefetched.
    columns, weights : pointer to uint64, pointer to float
        Edges of all rows.
    step : int
        1, or 0 if all edges have the weight ``weights[0]``.
    Y : pointer to float
        The first of the features at node 0.
    stride : int
        Elements from one node to the next.
    start, Z : pointer to float
        Initial values of the sums, and the output; they may overlap exactly.
    low, high : float
        Limits of the output.
    """
    if not isinstance(lines, types.IntegerLiteral):
        raise TypingError("lines is a literal")
    is_whole = isinstance(tail, types.IntegerLiteral) and tail.literal_value == 0
    tail_type = tail if is_whole else types.intp
    signature = types.int64(
        *(lines, tail_type, types.intp, types.intp, types.intp, columns, weights, types.intp),
        *(Y, types.intp, start, Y.dtype, Y.dtype, Z),
    )

    def codegen(context, builder, signature, args):
        real = context.get_value_type(Y.dtype)
        last = None if is_whole else args[1]
        return _row_part(builder, lines.literal_value, last, real, *args[2:])

    return signature, codegen


def _row_part(
    builder, lines, tail, real, begin, end, final, columns, weights, step, Y, stride, start, low,
    high, Z,
):  # fmt: skip
    size = 4 if isinstance(real, ir.FloatType) else 8
    lanes = LINE // size
    vector, flags = ir.VectorType(real, lanes), ir.VectorType(_I1, lanes)
    kind = f"v{lanes}f{8 * size}"
    place_type = vector.as_pointer()

    def declared(name, result, *arguments):
        function = ir.FunctionType(result, arguments)
        return cgutils.get_or_insert_function(builder.module, function, name)

    fma = declared(f"llvm.fma.{kind}", vector, vector, vector, vector)
    fetch = declared("llvm.prefetch.p0", ir.VoidType(), _I8.as_pointer(), _I32, _I32, _I32)

    def splat(scalar, type_=vector):
        none = ir.Constant(type_, ir.Undefined)
        one = builder.insert_element(none, scalar, _I32(0))
        return builder.shuffle_vector(
            one, none, ir.Constant(ir.VectorType(_I32, lanes), [0] * lanes)
        )

    if tail is not None:
        numbers = ir.VectorType(_I64, lanes)
        lane = ir.Constant(numbers, list(range(lanes)))
        mask = builder.icmp_signed("<", lane, splat(tail, numbers))

    def at(pointer, line):
        return builder.bitcast(builder.gep(pointer, [_I64(line * lanes)]), place_type)

    def is_part(line):
        return tail is not None and line == lines - 1

    def load(pointer, line):
        if is_part(line):
            name = f"llvm.masked.load.{kind}.p0"
            masked = declared(name, vector, place_type, _I32, flags, vector)
            zeros = ir.Constant(vector, None)
            return builder.call(masked, [at(pointer, line), _I32(size), mask, zeros])
        loaded = builder.load(at(pointer, line))
        loaded.align = size
        return loaded

    def store(value, pointer, line):
        if is_part(line):
            name = f"llvm.masked.store.{kind}.p0"
            masked = declared(name, ir.VoidType(), vector, place_type, _I32, flags)
            builder.call(masked, [value, at(pointer, line), _I32(size), mask])
        else:
            builder.store(value, at(pointer, line)).align = size

    before = builder.block
    fresh = [load(start, line) for line in range(lines)]
    loop, body, done = (builder.append_basic_block(name) for name in ("edges", "edge", "done"))
    builder.branch(loop)

    builder.position_at_end(loop)
    e = builder.phi(_I64)
    e.add_incoming(begin, before)
    sums = [builder.phi(vector) for _ in range(lines)]
    for sum_, value in zip(sums, fresh, strict=True):
        sum_.add_incoming(value, before)
    builder.cbranch(builder.icmp_signed("<", e, end), body, done)

    # Sums += w[e] * Y[columns[e]].
    builder.position_at_end(body)

    def row_of(edge):
        column = builder.load(builder.gep(columns, [edge]))
        return builder.gep(Y, [builder.mul(column, stride)])

    ahead = builder.add(e, _I64(AHEAD))
    later = row_of(builder.select(builder.icmp_signed("<", ahead, final), ahead, final))
    for line in range(lines):
        place = builder.bitcast(at(later, line), _I8.as_pointer())
        builder.call(fetch, [place, _I32(0), _I32(3), _I32(1)])
    y, w = row_of(e), splat(builder.load(builder.gep(weights, [builder.mul(e, step)])))
    for line, sum_ in enumerate(sums):
        sum_.add_incoming(builder.call(fma, [w, load(y, line), sum_]), body)
    e.add_incoming(builder.add(e, _I64(1)), body)
    builder.branch(loop)

    builder.position_at_end(done)
    low, high, infinite = splat(low), splat(high), ir.Constant(flags, None)
    for line, z in enumerate(sums):
        nothing = builder.fsub(z, z)  # 0, or NaN
        infinite = builder.or_(infinite, builder.fcmp_unordered("uno", nothing, nothing))
        z = builder.select(builder.fcmp_ordered(">", z, low), z, low)
        z = builder.select(builder.fcmp_ordered("<", z, high), z, high)
        store(z, Z, line)
    whole = builder.bitcast(infinite, ir.IntType(lanes))
    return builder.zext(whole, _I64)


def make_gather(kind: Kinds):
    """Return the function ``gather`` and its signature."""
    real, lanes = kind.real, kind.lanes
    wide = MOST_LINES * lanes

    @njit(no_cpython_wrapper=True)
    def last_part(left, e0, e1, final, columns, weights, step, Y, stride, b, lo, hi, Z):
        """Compute fewer than `wide` features."""
        lines = -(-left // lanes)
        tail = left - (lines - 1) * lanes
        if lines == 1:
            return row_part(1, tail, e0, e1, final, columns, weights, step, Y, stride, b, lo, hi, Z)
        if lines == 2:
            return row_part(2, tail, e0, e1, final, columns, weights, step, Y, stride, b, lo, hi, Z)
        if lines == 3:
            return row_part(3, tail, e0, e1, final, columns, weights, step, Y, stride, b, lo, hi, Z)
        return row_part(4, tail, e0, e1, final, columns, weights, step, Y, stride, b, lo, hi, Z)

    def gather(
        first, last, indptr, places, columns, weights, step, Y, stride, features, start,
        start_stride, low, high, Z, z_stride,
    ):  # fmt: skip
        """Compute rows `first` to `last` (exclusive) of the product; return 1 for overflow.

        Parameters
        ----------
        indptr, columns : pointer to int64, pointer to uint64
            A in CSR format.
        places : pointer to int64, or null
            Row of `start` and of Z for each row of A; null if they are equal.
        weights, step
            As for `row_part`.
        Y : pointer to float
        stride, features : int
            Elements from one row of Y to the next, and the number of features.
        start, start_stride : pointer to float, int
            Initial values of the sums; a stride of 0 if they are the same for all rows.
        low, high : float
            Limits of the output.
        Z, z_stride : pointer to float, int
            The output.
        """
        infinite = 0
        final = indptr[last] - 1
        where = pointer_to(places, types.int64)
        for r in range(first, last):
            place = where[r] if places != 0 else r
            begin, end = indptr[r], indptr[r + 1]
            from_, to = offset(start, place * start_stride), offset(Z, place * z_stride)
            f = 0
            while f + wide <= features:
                infinite |= row_part(
                    4, 0, begin, end, final, columns, weights, step, offset(Y, f), stride,
                    offset(from_, f), real(low), real(high), offset(to, f),
                )  # fmt: skip
                f += wide
            if f < features:
                infinite |= last_part(
                    features - f, begin, end, final, columns, weights, step, offset(Y, f), stride,
                    offset(from_, f), real(low), real(high), offset(to, f),
                )  # fmt: skip
        return int(infinite != 0)

    p, i64, f64 = types.CPointer, types.int64, types.float64
    numbers = p(real)
    return gather, i64(
        *(i64, i64, p(i64), i64, p(types.uint64), numbers, i64, numbers, i64, i64),
        *(numbers, i64, f64, f64, numbers, i64),
    )
