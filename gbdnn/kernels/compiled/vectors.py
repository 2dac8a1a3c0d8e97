"""Vectors for compiled code: a numba type and a few operations, so that a kernel is a plain loop.

    s = splat(bias[j], width)                      width numbers in registers
    for e in range(first, last):
        s = fma(weights[e], load(row(Y, rows[e], stride), width), s)
    store(row(Z, j, stride), between(s, low, high))

`Vec(real, width)` is an LLVM vector, which LLVM splits into registers: one of 64 bytes with
AVX-512, two with AVX2, four with NEON.

**Tuples.** Operations on numbers, pointers and vectors apply to tuples, too, element by element;
arguments that are not tuples are the same for all elements. `take` returns a tuple of numbers,
`row` of these a tuple of pointers, and `load` a tuple of vectors: the loop above computes several
neurons if it takes their weights, and their rows unless these are the same.

Addresses need not be multiples of a vector's size; those of blocks are, which costs less time.
"""

from __future__ import annotations

from typing import NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, register_model

__all__ = [
    "COMPILED", "INLINED", "LINE", "Kinds", "Record", "Vec", "address_of", "any_infinite",
    "between", "bits_of", "count_nonzero", "fetch", "fma", "highest", "inside", "kinds", "larger",
    "load", "load_first", "mark", "note", "offset", "pointer_to", "record_at", "row", "splat",
    "store", "store_first", "sum_of", "sums_of_four", "take", "ticks", "transposed",
]  # fmt: skip

LINE = 64  # bytes of a cache line


class Kinds(NamedTuple):
    """Types and sizes of the compiled functions for one dtype."""

    real: types.Type
    bits: types.Type  # unsigned integer of the same size
    lanes: int  # inputs per cache line


def kinds(dtype: str) -> Kinds:
    """Return the kinds of "float32" or "float64"."""
    if dtype == "float32":
        return Kinds(types.float32, types.uint32, LINE // 4)
    return Kinds(types.float64, types.uint64, LINE // 8)


COMPILED = {"no_cpython_wrapper": True}  # options of functions that compiled code calls
INLINED = COMPILED | {"forceinline": True}

_I32, _I64 = ir.IntType(32), ir.IntType(64)


class Vec(types.Type):
    """A vector of `width` numbers of type `real`."""

    def __init__(self, real, width):
        self.real, self.width = real, width
        super().__init__(f"vec({real}, {width})")


@register_model(Vec)
class _Model(models.PrimitiveModel):
    def __init__(self, manager, kind):
        real = manager.lookup(kind.real).get_value_type()
        super().__init__(manager, kind, ir.VectorType(real, kind.width))


class Record(types.Type):
    """A pointer to the fields of a `Layout`, with pointers to numbers for addresses."""

    def __init__(self, layout, kinds):
        known = {"real": kinds.real}
        self.fields = {}
        for name, kind in layout.kinds.items():
            number = known.get(kind.rstrip("*")) or getattr(types, kind.rstrip("*"))
            self.fields[name] = types.CPointer(number) if kind.endswith("*") else number
        super().__init__(f"record({self.fields})")


@register_model(Record)
class _RecordModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, _I64.as_pointer())


@infer_getattr
class _RecordAttribute(AttributeTemplate):
    key = Record

    def generic_resolve(self, kind, name):
        return kind.fields.get(name)


@lower_getattr_generic(Record)
def _read_field(context, builder, kind, value, name):
    at = builder.gep(value, [_I64(list(kind.fields).index(name))])
    found = context.get_value_type(kind.fields[name])
    return builder.load(builder.bitcast(at, found.as_pointer()))


def each(result, arguments, emit):
    """Return what an intrinsic returns, for an operation on each element of tuples.

    ``emit(context, builder, *values)`` returns the value for one element, of type `result`.
    """
    counts = [kind.count for kind in arguments if isinstance(kind, types.BaseTuple)]
    is_tuple, n = bool(counts), counts[0] if counts else 1
    whole = types.UniTuple(result, n) if is_tuple and result is not types.void else result

    def generate(context, builder, signature, values):
        found = []
        for k in range(n):
            some = [
                builder.extract_value(value, k) if isinstance(kind, types.BaseTuple) else value
                for kind, value in zip(arguments, values, strict=True)
            ]
            found.append(emit(context, builder, *some))
        if result is types.void:
            return context.get_dummy_value()
        return context.make_tuple(builder, whole, found) if is_tuple else found[0]

    return whole(*arguments), generate


def one(kind):
    """Return the type of a tuple's elements, or a type that is not a tuple."""
    return kind.dtype if isinstance(kind, types.BaseTuple) else kind


def as_vector(builder, x, vector):
    """Return a vector with a number in all lanes; vectors are returned unchanged."""
    if isinstance(x.type, ir.VectorType):
        return x
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), x, _I32(0))
    zeros = ir.Constant(ir.VectorType(_I32, vector.count), [0] * vector.count)
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), zeros)


def as_pointer(builder, pointer, vector):
    """Return a pointer to a vector, and the size of its numbers in bytes, which aligns it."""
    size = 4 if vector.element in (ir.FloatType(), _I32) else 8
    return builder.bitcast(pointer, vector.as_pointer()), size


def shuffled(builder, a, b, lanes):
    """Return a vector of some lanes of two others."""
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_I32, len(lanes)), lanes))


def integers_of(vector):
    """Return the type of a vector of integers as large as the numbers of `vector`."""
    bits = 32 if isinstance(vector.element, ir.FloatType) else 64
    return ir.VectorType(ir.IntType(bits), vector.count)


@intrinsic(prefer_literal=True)
def take(typing, pointer, count, step):
    """Return the tuple ``(pointer[0], pointer[step], ...)`` of `count` numbers.

    Four consecutive ones take one load or two, which makes single inputs 1.04 times as fast.
    """
    result, bits = types.UniTuple(pointer.dtype, count.literal_value), pointer.dtype.bitwidth
    is_next = isinstance(step, types.IntegerLiteral) and step.literal_value == 1

    def generate(context, builder, signature, values):
        one, found = context.get_value_type(pointer.dtype), []
        if is_next and result.count == 4 and isinstance(one, ir.IntType):
            for n in range(0, 4, 64 // bits):
                place = builder.bitcast(builder.gep(values[0], [_I64(n)]), _I64.as_pointer())
                whole = builder.load(place, align=bits // 8)
                found += [
                    builder.trunc(builder.lshr(whole, _I64(k)), one) for k in range(0, 64, bits)
                ]
        elif is_next and result.count == 4:
            place = builder.bitcast(values[0], ir.VectorType(one, 4).as_pointer())
            whole = builder.load(place, align=bits // 8)
            found = [builder.extract_element(whole, _I32(n)) for n in range(4)]
        else:
            steps = [builder.mul(values[2], _I64(n)) for n in range(result.count)]
            found = [builder.load(builder.gep(values[0], [k])) for k in steps]
        return context.make_tuple(builder, result, found)

    # numba finds `generate` again by this signature, so it has a literal step as such.
    return result(pointer, count, step if is_next else types.intp), generate


@intrinsic(prefer_literal=True)
def load(typing, pointer, width):
    """Return `width` numbers."""
    kind = Vec(one(pointer).dtype, width.literal_value)

    def emit(context, builder, pointer, _):
        place, size = as_pointer(builder, pointer, context.get_value_type(kind))
        return builder.load(place, align=size)

    return each(kind, (pointer, width), emit)


@intrinsic
def store(typing, pointer, vector):
    """Write the numbers of a vector."""

    def emit(context, builder, pointer, vector):
        place, size = as_pointer(builder, pointer, vector.type)
        builder.store(vector, place, align=size)

    return each(types.void, (pointer, vector), emit)


@intrinsic(prefer_literal=True)
def load_first(typing, pointer, width, count):
    """Return a vector with the first `count` numbers at any address, and zeros."""
    kind = Vec(one(pointer).dtype, width.literal_value)

    def emit(context, builder, pointer, _, count):
        vector = context.get_value_type(kind)
        return _masked(builder, "load", pointer, vector, count, ir.Constant(vector, None))

    return each(kind, (pointer, width, types.intp), emit)


@intrinsic
def store_first(typing, pointer, vector, count):
    """Write the first `count` numbers of a vector to any address."""

    def emit(context, builder, pointer, vector, count):
        _masked(builder, "store", pointer, vector.type, count, vector)

    return each(types.void, (pointer, vector, types.intp), emit)


def _masked(builder, verb, pointer, vector, count, value):
    place, size = as_pointer(builder, pointer, vector)
    numbers = ir.VectorType(_I64, vector.count)
    lane = ir.Constant(numbers, list(range(vector.count)))
    mask = builder.icmp_signed("<", lane, as_vector(builder, count, numbers))
    arguments = place, _I32(size), mask
    arguments = (*arguments, value) if verb == "load" else (value, *arguments)
    name = f"llvm.masked.{verb}.v{vector.count}f{8 * size}.p0"
    result = vector if verb == "load" else ir.VoidType()
    signature = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, signature, name), arguments)


@intrinsic
def fetch(typing, pointer):
    """Start to move a cache line to the caches."""

    def emit(context, builder, pointer):
        place = builder.bitcast(pointer, ir.IntType(8).as_pointer())
        signature = ir.FunctionType(ir.VoidType(), [place.type, _I32, _I32, _I32])
        function = cgutils.get_or_insert_function(builder.module, signature, "llvm.prefetch.p0")
        builder.call(function, [place, _I32(0), _I32(3), _I32(1)])

    return each(types.void, (pointer,), emit)


@intrinsic(prefer_literal=True)
def splat(typing, x, width):
    """Return a vector of equal numbers."""
    kind = Vec(one(x), width.literal_value)

    def emit(context, builder, x, _):
        return as_vector(builder, x, context.get_value_type(kind))

    return each(kind, (x, width), emit)


@intrinsic
def fma(typing, w, y, s):
    """Return ``w y + s`` with one rounding; w may be a number for all lanes."""

    def emit(context, builder, w, y, s):
        kind = s.type
        bits = 32 if ir.FloatType() in (kind, getattr(kind, "element", None)) else 64
        name = f"f{bits}"
        if isinstance(kind, ir.VectorType):
            w, name = as_vector(builder, w, kind), f"v{kind.count}f{bits}"
        signature = ir.FunctionType(kind, [kind] * 3)
        function = cgutils.get_or_insert_function(builder.module, signature, f"llvm.fma.{name}")
        return builder.call(function, [w, y, s])

    return each(one(s), (w, y, s), emit)


@intrinsic
def between(typing, z, low, high):
    """Return ``min(max(z, low), high)``; NaN becomes `low`."""

    def emit(context, builder, z, low, high):
        # This order of comparison and select compiles to one instruction.
        for sign, limit in ((">", low), ("<", high)):
            limit = as_vector(builder, limit, z.type)
            z = builder.select(builder.fcmp_ordered(sign, z, limit), z, limit)
        return z

    return each(one(z), (z, low, high), emit)


@intrinsic
def inside(typing, y, low, high, s):
    """Return s where ``low < y < high``, else 0."""

    def emit(context, builder, y, low, high, s):
        for sign, limit in ((">", low), ("<", high)):
            is_inside = builder.fcmp_ordered(sign, y, as_vector(builder, limit, y.type))
            s = builder.select(is_inside, s, ir.Constant(s.type, None))
        return s

    return each(one(s), (y, low, high, s), emit)


@intrinsic
def count_nonzero(typing, pointer, z):
    """Add ``z != 0`` to integers as large as the numbers."""

    def emit(context, builder, pointer, z):
        kind = integers_of(z.type)
        place, size = as_pointer(builder, pointer, kind)
        differs = builder.fcmp_unordered("!=", z, ir.Constant(z.type, None))
        # A true comparison is -1 when sign-extended.
        found = builder.sub(builder.load(place, align=size), builder.sext(differs, kind))
        builder.store(found, place, align=size)

    return each(types.void, (pointer, z), emit)


@intrinsic
def note(typing, pointer, s):
    """Set bits of integers as large as the numbers where s is not finite."""

    def emit(context, builder, pointer, s):
        kind = integers_of(s.type)
        place, size = as_pointer(builder, pointer, kind)
        nothing = builder.bitcast(builder.fsub(s, s), kind)  # 0, or NaN
        found = builder.or_(builder.load(place, align=size), nothing)
        builder.store(found, place, align=size)

    return each(types.void, (pointer, s), emit)


@intrinsic
def any_infinite(typing, vectors):
    """Return whether a number in a tuple of vectors is not finite."""

    def generate(context, builder, signature, values):
        found = ir.IntType(1)(0)
        for k in range(vectors.count):
            s = builder.extract_value(values[0], k)
            nothing = builder.fsub(s, s)  # 0, or NaN
            flags = builder.fcmp_unordered("uno", nothing, nothing)
            flags = builder.bitcast(flags, ir.IntType(s.type.count))
            found = builder.or_(found, builder.icmp_unsigned("!=", flags, flags.type(0)))
        return found

    return types.boolean(vectors), generate


@intrinsic
def larger(typing, vectors, most):
    """Return the numbers of the largest magnitude in each lane of a tuple of vectors and of `most`.

    NaN is larger than infinity. The result has no signs.
    """

    def generate(context, builder, signature, values):
        kind = integers_of(values[1].type)
        any_but_sign = ir.Constant(kind, [(1 << (kind.element.width - 1)) - 1] * kind.count)
        found = [builder.extract_value(values[0], k) for k in range(vectors.count)]
        found = [builder.and_(builder.bitcast(x, kind), any_but_sign) for x in found]
        found.append(builder.bitcast(values[1], kind))
        while len(found) > 1:  # a tree, since each step waits for the last one
            a, b = found.pop(0), found.pop(0)
            found.append(builder.select(builder.icmp_signed(">", a, b), a, b))
        return builder.bitcast(found[0], values[1].type)

    return most(vectors, most), generate


@intrinsic
def highest(typing, vector):
    """Return the largest bits of the numbers in a vector, as an integer."""

    def generate(context, builder, signature, values):
        kind = integers_of(values[0].type)
        name = f"llvm.vector.reduce.umax.v{kind.count}i{kind.element.width}"
        signature = ir.FunctionType(kind.element, [kind])
        function = cgutils.get_or_insert_function(builder.module, signature, name)
        found = builder.call(function, [builder.bitcast(values[0], kind)])
        return builder.zext(found, _I64) if kind.element.width < 64 else found

    return types.int64(vector), generate


@intrinsic
def mark(typing, pointer, z):
    """Write ``z != 0`` as bytes."""

    def emit(context, builder, pointer, z):
        kind = ir.VectorType(ir.IntType(8), z.type.count)
        differs = builder.fcmp_unordered("!=", z, ir.Constant(z.type, None))
        place = builder.bitcast(pointer, kind.as_pointer())
        builder.store(builder.zext(differs, kind), place, align=1)

    return each(types.void, (pointer, z), emit)


@intrinsic
def transposed(typing, vectors):
    """Return the columns of a square, given its rows as a tuple of vectors."""

    def generate(context, builder, signature, values):
        size, step = vectors.count, 1
        rows = [builder.extract_value(values[0], k) for k in range(size)]
        while step < size:  # exchange off-diagonal squares of 1, 2, 4, ... numbers
            low = [lane if not lane & step else size + lane - step for lane in range(size)]
            high = [lane + step if not lane & step else size + lane for lane in range(size)]
            for k in range(size):
                if not k & step:
                    pair = rows[k], rows[k + step]
                    rows[k], rows[k + step] = (shuffled(builder, *pair, m) for m in (low, high))
            step *= 2
        return context.make_tuple(builder, vectors, rows)

    return vectors(vectors), generate


def halved(builder, vector):
    """Add the upper half of a vector to the lower one."""
    half = vector.type.count // 2
    low, high = list(range(half)), list(range(half, 2 * half))
    return builder.fadd(*(shuffled(builder, vector, vector, lanes) for lanes in (low, high)))


@intrinsic
def sum_of(typing, vector):
    """Return the sum of the numbers of a vector, by halves."""

    def emit(context, builder, vector):
        while vector.type.count > 2:
            vector = halved(builder, vector)
        return builder.fadd(*(builder.extract_element(vector, _I32(k)) for k in (0, 1)))

    return each(one(vector).real, (vector,), emit)


@intrinsic
def sums_of_four(typing, vectors):
    """Return one vector with the sums of four vectors.

    After halving to 32 bytes, neighbours are added pairwise; lanes cross 16-byte boundaries only in
    the last step, where that costs one instruction.
    """
    lanes = 32 // (vectors.dtype.real.bitwidth // 8)

    def generate(context, builder, signature, values):
        found = [builder.extract_value(values[0], k) for k in range(4)]
        while found[0].type.count > lanes:
            found = [halved(builder, vector) for vector in found]
        starts = [start + source for start in range(0, lanes, lanes // 2) for source in (0, lanes)]
        even = [first + k for first in starts for k in range(0, lanes // 2, 2)]
        odd = [lane + 1 for lane in even]
        while len(found) > 8 // lanes:
            found = [
                builder.fadd(shuffled(builder, a, b, even), shuffled(builder, a, b, odd))
                for a, b in zip(found[::2], found[1::2], strict=True)
            ]
        if len(found) == 1:
            return halved(builder, found[0])
        return builder.fadd(*(shuffled(builder, *found, k) for k in ([0, 1, 4, 5], [2, 3, 6, 7])))

    return Vec(vectors.dtype.real, 4)(vectors), generate


@intrinsic
def row(typing, pointer, number, stride):
    """Return a pointer to row `number` of a matrix whose rows are `stride` elements apart."""
    kind = one(number)

    def emit(context, builder, pointer, number, stride):
        number = context.cast(builder, number, kind, types.intp)
        return builder.gep(pointer, [builder.mul(number, stride)])

    return each(one(pointer), (pointer, number, types.intp), emit)


@intrinsic
def offset(typing, pointer, count):
    """Return the pointer advanced by `count` elements."""
    count = count if isinstance(count, types.BaseTuple) else types.intp

    def emit(context, builder, pointer, count):
        return builder.gep(pointer, [count])

    return each(one(pointer), (pointer, count), emit)


@intrinsic
def pointer_to(typing, address, kind):
    """Return an address as a pointer to numbers of type `kind`."""
    result = types.CPointer(kind.instance_type if hasattr(kind, "instance_type") else kind.dtype)

    def generate(context, builder, signature, values):
        return builder.inttoptr(values[0], context.get_value_type(result))

    return result(types.intp, kind), generate


@intrinsic
def address_of(typing, pointer):
    """Return a pointer as an integer; 0 for a null pointer."""

    def generate(context, builder, signature, values):
        return builder.ptrtoint(values[0], _I64)

    return types.int64(pointer), generate


@intrinsic
def record_at(typing, address, kind, number):
    """Return record `number` of an array of records of type `kind`."""
    result = kind.instance_type

    def generate(context, builder, signature, values):
        at = builder.add(values[0], builder.mul(values[2], _I64(8 * len(result.fields))))
        return builder.inttoptr(at, context.get_value_type(result))

    return result(types.intp, kind, types.intp), generate


@intrinsic
def bits_of(typing, pointer):
    """Return a pointer to floats as a pointer to unsigned integers of the same size."""
    result = types.CPointer(types.uint32 if pointer.dtype == types.float32 else types.uint64)

    def generate(context, builder, signature, values):
        return builder.bitcast(values[0], context.get_value_type(result))

    return result(pointer), generate


@intrinsic
def ticks(typing):
    """Return the processor's cycle counter, or 0 if it has none."""

    def generate(context, builder, signature, values):
        function = ir.FunctionType(_I64, [])
        name = "llvm.readcyclecounter"
        return builder.call(cgutils.get_or_insert_function(builder.module, function, name), [])

    return types.int64(), generate
