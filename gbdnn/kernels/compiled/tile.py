"""The inner loop of the fused kernel: a few output neurons for a few cache lines of inputs.

    z[0 : T] = min(max(b + sum_e w[e] * Y[rows[e], 0 : T], low), high)

T inputs fill `lines` cache lines of 64 bytes, with 16 inputs per line in FP32 and 8 in FP64. The
sums stay in registers for all edges of a neuron. Each edge needs one load and one multiply-add per
vector. At the end, the activation is applied and stored, nonzero activations are counted, and
non-finite sums are recorded.

In LLVM IR a vector is always a cache line, which LLVM splits into registers (two with AVX2, four
with NEON). Every input has its own lane and adds its edges in order, one fused multiply-add each.
Its result therefore does not depend on the tile's width, its position, its neighbours, or the
register size.

The loop is written in LLVM IR because LLVM does not vectorise plain loops reliably in large
functions.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

__all__ = ["ALL", "LINE", "OWN", "SAME", "bits_of", "offset", "pointer_to", "tile"]

LINE = 64  # bytes of a cache line and of a vector
OWN, SAME, ALL = range(3)  # rows that the neurons of a tile read

_I32, _I64 = (ir.IntType(bits) for bits in (32, 64))


@intrinsic(prefer_literal=True)
def tile(
    typing,
    lines,
    neurons,
    shared,
    masked,
    begins,
    ends,
    Y,
    stride,
    rows,
    weights,
    step,
    edges,
    bias,
    bias_step,
    low,
    high,
    Z,
    live,
    overflow,
    places,
    mask,
):
    """Compute `neurons` consecutive output neurons for `lines` cache lines of inputs.

    Parameters
    ----------
    lines, neurons : literal int
        Size of the tile; `lines` x `neurons` sums are held in registers.
    shared : literal int
        `OWN` if each neuron has its own rows; `SAME` if all have the same rows, which are then
        loaded once; `ALL` if the rows are 0 to ``edges - 1`` and `rows` is not read.
    masked : literal int
        1 if the limits apply to `mask` instead of the sums, else 0.
    begins, ends : int
        If `begins`, sums start at the bias, else at the values in Z. If `ends`, the activation is
        applied, else the sums are stored.
    Y, Z : pointer to float32 or float64
        First input of the tile at neuron 0; aligned.
    stride : int
        Elements from one neuron to the next, in Y and Z.
    rows, weights : pointer to uint32, pointer to float
        Edges of the first neuron, followed by those of the next.
    step : int
        1, or 0 if all edges have the weight ``weights[0]``.
    edges : int
        Number of edges of each neuron.
    bias : pointer to float
    bias_step : int
        1, or 0 if all neurons have the bias ``bias[0]``.
    low, high : float
        Limits of the activations: 0 and the clip, or -inf and inf.
    live, overflow : pointer to uint32 or uint64, or null
        For each input, the number of nonzero activations is added to `live`, and nonzero bits are
        OR-ed into `overflow` if a sum is not finite. Null pointers are ignored.
    places : pointer to uint32
        Row of each neuron in Z.
    mask : pointer to float
        Block that the limits apply to, with the layout of Z; read only if `masked`.
    """
    literals = (lines, neurons, shared, masked)
    if not all(isinstance(each, types.IntegerLiteral) for each in literals):
        raise TypingError("lines, neurons, shared and masked are literals")
    known = [each.literal_value for each in literals]
    real = Y.dtype
    signature = types.void(
        *(*literals, types.intp, types.intp),
        *(Y, types.intp, rows, weights, types.intp, types.intp),
        *(bias, types.intp, real, real, Z, live, overflow, places, mask),
    )

    def codegen(context, builder, signature, args):
        _tile(builder, *known, context.get_value_type(real), *args[len(literals) :])
        return context.get_dummy_value()

    return signature, codegen


def _tile(
    builder, lines, neurons, shared, masked, real, begins, ends, Y, stride, rows, weights,
    step, edges, bias, bias_step, low, high, Z, live, overflow, places, mask,
):  # fmt: skip
    bits = 32 if isinstance(real, ir.FloatType) else 64
    lanes = LINE * 8 // bits
    vector, integers = ir.VectorType(real, lanes), ir.VectorType(ir.IntType(bits), lanes)
    fma = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(vector, [vector] * 3), f"llvm.fma.v{lanes}f{bits}"
    )

    def splat(scalar):
        one = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, _I32(0))
        mask = ir.Constant(ir.VectorType(_I32, lanes), [0] * lanes)
        return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), mask)

    def at(pointer, line, kind):
        return builder.bitcast(builder.gep(pointer, [_I64(line * lanes)]), kind.as_pointer())

    def load(pointer, line, kind):
        loaded = builder.load(at(pointer, line, kind))
        loaded.align = LINE
        return loaded

    def store(value, pointer, line):
        builder.store(value, at(pointer, line, value.type)).align = LINE

    def merge(values, pointer, line):
        """OR values into flags."""
        flags = load(pointer, line, integers)
        for value in values:
            flags = builder.or_(flags, builder.bitcast(value, integers))
        store(flags, pointer, line)

    def count(values, pointer, line):
        """Add ``values != 0`` to counts; a true comparison is -1 when sign-extended."""
        counts = load(pointer, line, integers)
        for value in values:
            differs = builder.fcmp_unordered("!=", value, ir.Constant(vector, None))
            counts = builder.sub(counts, builder.sext(differs, integers))
        store(counts, pointer, line)

    def is_there(pointer):
        return builder.icmp_unsigned("!=", builder.ptrtoint(pointer, _I64), _I64(0))

    def far(pointer, index, stride):
        return builder.gep(pointer, [builder.mul(index, stride)])

    def is_set(flag):
        return builder.icmp_signed("!=", flag, _I64(0))

    # Sums start at the biases or at the stored sums.
    each = range(neurons)
    own_rows = [rows if shared else far(rows, _I64(n), edges) for n in each]
    own_weights = [far(weights, builder.mul(_I64(n), edges), step) for n in each]
    places = [builder.zext(builder.load(builder.gep(places, [_I64(n)])), _I64) for n in each]
    targets = [far(Z, place, stride) for place in places]
    new, old, loop, body, done, activate, keep, end = (
        builder.append_basic_block(name)
        for name in ("new", "old", "edges", "edge", "done", "activate", "keep", "end")
    )
    builder.cbranch(is_set(begins), new, old)
    builder.position_at_end(new)
    fresh = [[splat(builder.load(far(bias, _I64(n), bias_step)))] * lines for n in each]
    builder.branch(loop)
    builder.position_at_end(old)
    held = [[load(targets[n], k, vector) for k in range(lines)] for n in each]
    builder.branch(loop)

    builder.position_at_end(loop)
    e = builder.phi(_I64)
    e.add_incoming(_I64(0), new)
    e.add_incoming(_I64(0), old)
    sums = [[builder.phi(vector) for _ in range(lines)] for _ in each]
    for n in each:
        for k in range(lines):
            sums[n][k].add_incoming(fresh[n][k], new)
            sums[n][k].add_incoming(held[n][k], old)
    builder.cbranch(builder.icmp_signed("<", e, edges), body, done)

    # Sums += w[e] * Y[rows[e]].
    builder.position_at_end(body)
    place = None
    added = []
    for n in each:
        if place is None or not shared:
            row = e
            if shared != ALL:
                row = builder.zext(builder.load(builder.gep(own_rows[n], [e])), _I64)
            place = far(Y, row, stride)
            y = [load(place, line, vector) for line in range(lines)]
        w = splat(builder.load(far(own_weights[n], e, step)))
        added.append([builder.call(fma, [w, y[k], sums[n][k]]) for k in range(lines)])
    e.add_incoming(builder.add(e, _I64(1)), body)
    for n in each:
        for sum_, new in zip(sums[n], added[n], strict=True):
            sum_.add_incoming(new, body)
    builder.branch(loop)

    builder.position_at_end(done)
    builder.cbranch(is_set(ends), activate, keep)
    builder.position_at_end(keep)
    for n in each:
        for k in range(lines):
            store(sums[n][k], targets[n], k)
    builder.branch(end)

    # The activation: this order of comparison and select compiles to one instruction.
    builder.position_at_end(activate)
    low, high = splat(low), splat(high)
    if masked:
        zero = ir.Constant(vector, [real(0)] * lanes)
        for n in each:
            activations = far(mask, places[n], stride)
            for k in range(lines):
                y = load(activations, k, vector)
                above = builder.fcmp_ordered(">", y, low)
                z = builder.select(above, sums[n][k], zero)
                z = builder.select(builder.fcmp_ordered("<", y, high), z, zero)
                store(z, targets[n], k)
        builder.branch(end)
        builder.position_at_end(end)
        return
    stored = []
    for n in each:
        stored.append([])
        for k in range(lines):
            z = sums[n][k]
            z = builder.select(builder.fcmp_ordered(">", z, low), z, low)
            z = builder.select(builder.fcmp_ordered("<", z, high), z, high)
            store(z, targets[n], k)
            stored[n].append(z)
    with builder.if_then(is_there(live)):
        for k in range(lines):
            count([stored[n][k] for n in each], live, k)
    with builder.if_then(is_there(overflow)):
        for k in range(lines):
            merge([builder.fsub(sums[n][k], sums[n][k]) for n in each], overflow, k)  # 0s, or NaN
    builder.branch(end)
    builder.position_at_end(end)


@intrinsic
def pointer_to(typing, address, kind):
    """Return an address as a pointer to numbers of type `kind`."""
    result = types.CPointer(kind.instance_type if hasattr(kind, "instance_type") else kind.dtype)

    def codegen(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_value_type(result))

    return result(types.intp, kind), codegen


@intrinsic
def offset(typing, pointer, count):
    """Return the pointer advanced by `count` elements."""

    def codegen(context, builder, signature, args):
        return builder.gep(args[0], [args[1]])

    return pointer(pointer, types.intp), codegen


@intrinsic
def bits_of(typing, pointer):
    """Return a pointer to floats as a pointer to unsigned integers of the same size."""
    single = pointer.dtype == types.float32
    result = types.CPointer(types.uint32 if single else types.uint64)

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], context.get_value_type(result))

    return result(pointer), codegen
