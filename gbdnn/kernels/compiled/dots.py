"""The inner loop of the weight gradient: one dot product over the inputs per edge.

    g[e] = sum over inputs q of Y[rows[e], q] * D[j, q]           dW<W.S> = Y^T D

The sums of several edges stay in registers for all inputs of a block, so each value of D is loaded
once for all of them. Finally the sums of four edges are reduced together. A sparse layer is
processed one neuron at a time; neurons of a dense layer share their rows.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

from gbdnn.kernels.compiled.vectors import LINE

__all__ = ["dots", "row_sum"]

_I32, _I64 = ir.IntType(32), ir.IntType(64)


@intrinsic(prefer_literal=True)
def dots(typing, edges, neurons, halves, Y, stride, rows, D, places, lines, gradient, step, add):
    """Compute the gradient of a few edges of each of a few neurons.

    Parameters
    ----------
    edges : literal int
        Edges per neuron: 4, 2 or 1.
    neurons : literal int
        Number of neurons. If it exceeds 1, `rows` is ignored and all read rows 0 to ``edges - 1``.
    halves : literal int
        Vector width in half cache lines, 1 or 2. It determines the order of additions.
    Y, D : pointer to float32 or float64
        Activations before the layer and gradients after it; one row per neuron, aligned.
    stride : int
        Elements from one neuron to the next, in Y and D.
    rows : pointer to uint32
        Rows of Y that the edges read.
    places : pointer to uint32
        Rows of the neurons in D.
    lines : int
        Cache lines of inputs.
    gradient : pointer to float
        Output for the first edge of the first neuron.
    step : int
        Elements from there to the first edge of the next neuron.
    add : int
        1 to add to `gradient`, 0 to replace it.
    """
    literals = (edges, neurons, halves)
    if not all(isinstance(each, types.IntegerLiteral) for each in literals):
        raise TypingError("edges, neurons and halves are literals")
    numbers = tuple(each.literal_value for each in literals)
    signature = types.void(
        *(*literals, Y, types.intp, rows, D, places, types.intp, gradient, types.intp, types.intp)
    )

    def codegen(context, builder, signature, args):
        real = context.get_value_type(Y.dtype)
        _dots(builder, *numbers, real, *args[3:])
        return context.get_dummy_value()

    return signature, codegen


def _dots(
    builder, edges, neurons, halves, real, Y, stride, rows, D, places, lines, gradient, step, add
):
    bits = 32 if isinstance(real, ir.FloatType) else 64
    lanes = halves * LINE * 8 // bits // 2
    vector = ir.VectorType(real, lanes)
    fma = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(vector, [vector] * 3), f"llvm.fma.v{lanes}f{bits}"
    )

    def row_of(base, number):
        return builder.gep(base, [builder.mul(number, stride)])

    def load(row, at):
        loaded = builder.load(builder.bitcast(builder.gep(row, [at]), vector.as_pointer()))
        loaded.align = LINE * halves // 2
        return loaded

    def number(pointer, k):
        return builder.zext(builder.load(builder.gep(pointer, [_I64(k)])), _I64)

    activations = [row_of(Y, _I64(e) if neurons > 1 else number(rows, e)) for e in range(edges)]
    gradients = [row_of(D, number(places, n)) for n in range(neurons)]
    inputs = builder.mul(lines, _I64(LINE * 8 // bits))

    before = builder.block
    loop, body, done = (builder.append_basic_block(name) for name in ("dots", "dot", "done"))
    builder.branch(loop)

    builder.position_at_end(loop)
    at = builder.phi(_I64)
    at.add_incoming(_I64(0), before)
    zero = ir.Constant(vector, [real(0)] * lanes)
    sums = [[builder.phi(vector) for _ in range(edges)] for _ in range(neurons)]
    for each in sums:
        for sum_ in each:
            sum_.add_incoming(zero, before)
    builder.cbranch(builder.icmp_signed("<", at, inputs), body, done)

    builder.position_at_end(body)
    y = [load(row, at) for row in activations]
    for n in range(neurons):
        d = load(gradients[n], at)
        for e in range(edges):
            sums[n][e].add_incoming(builder.call(fma, [y[e], d, sums[n][e]]), body)
    at.add_incoming(builder.add(at, _I64(lanes)), body)
    builder.branch(loop)

    builder.position_at_end(done)
    adds = builder.icmp_signed("!=", add, _I64(0))
    for n in range(neurons):
        target = builder.gep(gradient, [builder.mul(step, _I64(n))])
        if edges == 4:
            place = builder.bitcast(target, ir.VectorType(real, 4).as_pointer())
            _store(builder, _sum_of_four(builder, sums[n]), place, adds, bits // 8)
            continue
        for e in range(edges):
            total = _sum(builder, sums[n][e])
            _store(builder, total, builder.gep(target, [_I64(e)]), adds, bits // 8)


def _store(builder, total, place, adds, align):
    """Add to the stored value if `adds` is set, else replace it."""
    old = builder.load(place)
    old.align = align
    builder.store(builder.select(adds, builder.fadd(old, total), total), place).align = align


def _lanes(builder, a, b, mask):
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_I32, len(mask)), mask))


def _halved(builder, a):
    """Add the upper half of a vector to the lower one."""
    half = a.type.count // 2
    low, high = range(half), range(half, 2 * half)
    return builder.fadd(_lanes(builder, a, a, list(low)), _lanes(builder, a, a, list(high)))


def _sum_of_four(builder, sums):
    """Return one vector with the sums of four vectors, by pairwise horizontal additions.

    Lanes cross 16-byte boundaries only in the last step, where that costs one instruction.
    """
    element = sums[0].type.element
    lanes = 8 if isinstance(element, ir.FloatType) else 4
    while sums[0].type.count > lanes:
        sums = [_halved(builder, each) for each in sums]
    group = lanes // 2  # numbers in 16 bytes
    while len(sums) > 1 and group > 1:
        pairs = []
        for a, b in zip(sums[::2], sums[1::2], strict=True):
            even, odd = [], []
            for start in range(0, lanes, lanes // 2):
                for source in (0, lanes):
                    for k in range(0, lanes // 2, 2):
                        even.append(source + start + k)
                        odd.append(source + start + k + 1)
            pairs.append(builder.fadd(_lanes(builder, a, b, even), _lanes(builder, a, b, odd)))
        sums, group = pairs, group // 2
    if len(sums) == 1:
        return _halved(builder, sums[0])
    a, b = sums
    low, high = [0, 1, 4, 5], [2, 3, 6, 7]
    return builder.fadd(_lanes(builder, a, b, low), _lanes(builder, a, b, high))


def _sum(builder, a):
    while a.type.count > 1:
        half = a.type.count // 2
        if half == 1:
            first, second = (builder.extract_element(a, _I32(k)) for k in (0, 1))
            return builder.fadd(first, second)
        a = _halved(builder, a)
    return builder.extract_element(a, _I32(0))


@intrinsic
def row_sum(typing, row, lines):
    """Return the sum of `lines` cache lines of numbers."""

    def codegen(context, builder, signature, args):
        row, lines = args
        real = context.get_value_type(signature.args[0].dtype)
        bits = 32 if isinstance(real, ir.FloatType) else 64
        lanes = LINE * 8 // bits
        vector = ir.VectorType(real, lanes)
        before = builder.block
        loop, body, done = (builder.append_basic_block(name) for name in ("sum", "line", "done"))
        builder.branch(loop)
        builder.position_at_end(loop)
        line, total = builder.phi(_I64), builder.phi(vector)
        line.add_incoming(_I64(0), before)
        total.add_incoming(ir.Constant(vector, [real(0)] * lanes), before)
        builder.cbranch(builder.icmp_signed("<", line, lines), body, done)
        builder.position_at_end(body)
        place = builder.gep(row, [builder.mul(line, _I64(lanes))])
        loaded = builder.load(builder.bitcast(place, vector.as_pointer()))
        loaded.align = LINE
        total.add_incoming(builder.fadd(total, loaded), body)
        line.add_incoming(builder.add(line, _I64(1)), body)
        builder.branch(loop)
        builder.position_at_end(done)
        return _sum(builder, total)

    return row.dtype(row, types.intp), codegen
