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

import inspect
from functools import partial, wraps
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
    "load", "load_first", "mark", "note", "offset", "operation", "pointer_to", "record_at",
    "row", "splat", "store", "store_first", "sum_of", "sums_of_four", "take", "ticks", "transposed",
]  # fmt: skip

LINE = 64  # bytes of a cache line


class Kinds(NamedTuple):
    """Types and sizes of the compiled functions for one dtype."""

    real: types.Type
    bits: types.Type  # unsigned integer of the same size
    lanes: int  # inputs per cache line

    def type_of(self, name: str) -> types.Type:
        """Return "real" or a type of numba by its name; a pointer to it if "*" is appended."""
        kind = self.real if name.startswith("real") else getattr(types, name.rstrip("*"))
        return types.CPointer(kind) if name.endswith("*") else kind


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
        self.fields = {name: kinds.type_of(kind) for name, kind in layout.kinds.items()}
        super().__init__(f"record({self.fields})")


@register_model(Record)
class _RecordModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, ir.ArrayType(_I64, len(kind.fields)).as_pointer())


@infer_getattr
class _RecordAttribute(AttributeTemplate):
    key = Record

    def generic_resolve(self, kind, name):
        return kind.fields.get(name)


@lower_getattr_generic(Record)
def _read_field(context, builder, kind, value, name):
    at = builder.gep(value, [_I64(0), _I64(list(kind.fields).index(name))])
    found = context.get_value_type(kind.fields[name])
    return builder.load(builder.bitcast(at, found.as_pointer()))


def operation(result, *, whole_tuples=False):
    """Return a decorator that makes an operation for compiled code.

    It takes ``emit(builder, kind, *values)``, which emits LLVM IR for one element of each tuple and
    returns that of the result. ``result(*types)`` is the type of this element, given those of the
    values, and `kind` is this type in LLVM. Integers arrive with 64 bits.

    With `whole_tuples`, tuples arrive as lists, and a list that `emit` returns becomes a tuple.
    """

    def decorate(emit):
        @wraps(emit)
        def define(typing, *given):
            n = 0 if whole_tuples else max((x.count for x in given if _is_tuple(x)), default=0)
            kind = result(*(one(x) if n else x for x in given))
            whole = types.UniTuple(kind, n) if n and kind is not types.void else kind

            def generate(context, builder, signature, values):
                values = [_wide(context, builder, *x) for x in zip(given, values, strict=True)]
                emitted = partial(emit, builder, context.get_value_type(one(kind)))
                if n:
                    columns = [x if isinstance(x, list) else [x] * n for x in values]
                    found = [emitted(*row) for row in zip(*columns, strict=True)]
                else:
                    found = emitted(*values)
                if kind is types.void:
                    return context.get_dummy_value()
                return context.make_tuple(builder, whole, found) if _is_tuple(whole) else found

            # numba finds `generate` again by this signature, so it has all that the code depends
            # on, the values of literals too.
            return whole(*given), generate

        define.__signature__ = inspect.signature(partial(emit, None))
        return intrinsic(prefer_literal=True)(define)

    return decorate


def _is_tuple(kind):
    return isinstance(kind, types.BaseTuple)


def one(kind):
    """Return the type of a tuple's elements, or a type that is not a tuple."""
    return types.unliteral(kind.types[0]) if _is_tuple(kind) else kind


def _wide(context, builder, kind, value):
    """Return a value with integers of 64 bits, or those of a tuple as a list."""
    if _is_tuple(kind):
        some = (builder.extract_value(value, k) for k in range(kind.count))
        return [_wide(context, builder, *x) for x in zip(kind.types, some, strict=True)]
    if isinstance(kind, types.IntegerLiteral):
        return _I64(kind.literal_value)
    is_integer = isinstance(kind, types.Integer)
    return context.cast(builder, value, kind, types.intp) if is_integer else value


def call(builder, name, result, *values):
    """Call a function of LLVM or C by its name."""
    signature = ir.FunctionType(result, [value.type for value in values])
    function = cgutils.get_or_insert_function(builder.module, signature, name)
    return builder.call(function, values)


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


def update(builder, pointer, kind, change):
    """Replace a vector of integers in memory by what `change` returns for it."""
    place, size = as_pointer(builder, pointer, kind)
    builder.store(change(builder.load(place, align=size)), place, align=size)


def nothing(*_):
    """Return the type of an operation without a result."""
    return types.void


def like_last(*kinds):
    """Return the type of the last argument, for a result of this type."""
    return kinds[-1]


@operation(lambda x, count, step: types.UniTuple(x.dtype, count.literal_value), whole_tuples=True)
def take(builder, kind, pointer, count, step):
    """Return the tuple ``(pointer[0], pointer[step], ...)`` of `count` numbers.

    Four consecutive ones take one load or two, which makes single inputs 1.04 times as fast.
    """
    bits, n = getattr(kind, "width", 0), count.constant
    if n != 4 or getattr(step, "constant", 0) != 1:
        steps = [builder.mul(step, _I64(k)) for k in range(n)]
        return [builder.load(builder.gep(pointer, [k])) for k in steps]
    if not bits:
        place, size = as_pointer(builder, pointer, ir.VectorType(kind, 4))
        vector = builder.load(place, align=size)
        return [builder.extract_element(vector, _I32(k)) for k in range(4)]
    found = []
    for k in range(0, 4, 64 // bits):
        place = builder.bitcast(builder.gep(pointer, [_I64(k)]), _I64.as_pointer())
        whole = builder.load(place, align=bits // 8)
        found += [builder.trunc(builder.lshr(whole, _I64(b)), kind) for b in range(0, 64, bits)]
    return found


def _vector_type(x, width, *_):
    return Vec(getattr(x, "dtype", x), width.literal_value)


@operation(_vector_type)
def load(builder, kind, pointer, width):
    """Return `width` numbers."""
    place, size = as_pointer(builder, pointer, kind)
    return builder.load(place, align=size)


@operation(nothing)
def store(builder, _, pointer, vector):
    """Write the numbers of a vector."""
    place, size = as_pointer(builder, pointer, vector.type)
    builder.store(vector, place, align=size)


@operation(_vector_type)
def load_first(builder, kind, pointer, width, count):
    """Return a vector with the first `count` numbers at any address, and zeros."""
    place, size, mask = _masked(builder, pointer, kind, count)
    name = f"llvm.masked.load.v{kind.count}f{8 * size.constant}.p0"
    return call(builder, name, kind, place, size, mask, ir.Constant(kind, None))


@operation(nothing)
def store_first(builder, _, pointer, vector, count):
    """Write the first `count` numbers of a vector to any address."""
    place, size, mask = _masked(builder, pointer, vector.type, count)
    name = f"llvm.masked.store.v{vector.type.count}f{8 * size.constant}.p0"
    call(builder, name, ir.VoidType(), vector, place, size, mask)


def _masked(builder, pointer, vector, count):
    """Return a pointer to a vector, its alignment, and a mask of its first lanes."""
    place, size = as_pointer(builder, pointer, vector)
    numbers = ir.VectorType(_I64, vector.count)
    lane = ir.Constant(numbers, list(range(vector.count)))
    return place, _I32(size), builder.icmp_signed("<", lane, as_vector(builder, count, numbers))


@operation(nothing)
def fetch(builder, _, pointer):
    """Start to move a cache line to the caches."""
    place = builder.bitcast(pointer, ir.IntType(8).as_pointer())
    call(builder, "llvm.prefetch.p0", ir.VoidType(), place, _I32(0), _I32(3), _I32(1))


@operation(_vector_type)
def splat(builder, kind, x, width):
    """Return a vector of equal numbers."""
    return as_vector(builder, x, kind)


@operation(like_last)
def fma(builder, kind, w, y, s):
    """Return ``w y + s`` with one rounding; w may be a number for all lanes."""
    bits = 32 if ir.FloatType() in (kind, getattr(kind, "element", None)) else 64
    if not isinstance(kind, ir.VectorType):
        return call(builder, f"llvm.fma.f{bits}", kind, w, y, s)
    return call(builder, f"llvm.fma.v{kind.count}f{bits}", kind, as_vector(builder, w, kind), y, s)


@operation(lambda z, low, high: z)
def between(builder, kind, z, low, high):
    """Return ``min(max(z, low), high)``; NaN becomes `low`."""
    # This order of comparison and select compiles to one instruction.
    for sign, limit in ((">", low), ("<", high)):
        limit = as_vector(builder, limit, kind)
        z = builder.select(builder.fcmp_ordered(sign, z, limit), z, limit)
    return z


@operation(like_last)
def inside(builder, kind, y, low, high, s):
    """Return s where ``low < y < high``, else 0."""
    for sign, limit in ((">", low), ("<", high)):
        is_inside = builder.fcmp_ordered(sign, y, as_vector(builder, limit, kind))
        s = builder.select(is_inside, s, ir.Constant(kind, None))
    return s


@operation(nothing)
def count_nonzero(builder, _, pointer, z):
    """Add ``z != 0`` to integers as large as the numbers."""
    kind = integers_of(z.type)
    differs = builder.sext(builder.fcmp_unordered("!=", z, ir.Constant(z.type, None)), kind)
    update(builder, pointer, kind, lambda count: builder.sub(count, differs))  # true is -1


@operation(nothing)
def note(builder, _, pointer, s):
    """Set bits of integers as large as the numbers where s is not finite."""
    kind = integers_of(s.type)
    zero_or_nan = builder.bitcast(builder.fsub(s, s), kind)
    update(builder, pointer, kind, lambda bits: builder.or_(bits, zero_or_nan))


@operation(lambda vectors: types.boolean, whole_tuples=True)
def any_infinite(builder, _, vectors):
    """Return whether a number in a tuple of vectors is not finite."""
    found = ir.IntType(1)(0)
    for s in vectors:
        zero_or_nan = builder.fsub(s, s)
        flags = builder.fcmp_unordered("uno", zero_or_nan, zero_or_nan)
        flags = builder.bitcast(flags, ir.IntType(s.type.count))
        found = builder.or_(found, builder.icmp_unsigned("!=", flags, flags.type(0)))
    return found


@operation(like_last, whole_tuples=True)
def larger(builder, kind, vectors, most):
    """Return the numbers of the largest magnitude in each lane of a tuple of vectors and of `most`.

    NaN is larger than infinity. The result has no signs.
    """
    bits = integers_of(kind)
    any_but_sign = ir.Constant(bits, [(1 << (bits.element.width - 1)) - 1] * bits.count)
    found = [builder.and_(builder.bitcast(x, bits), any_but_sign) for x in vectors]
    found.append(builder.bitcast(most, bits))
    while len(found) > 1:  # a tree, since each step waits for the last one
        a, b = found.pop(0), found.pop(0)
        found.append(builder.select(builder.icmp_signed(">", a, b), a, b))
    return builder.bitcast(found[0], kind)


@operation(lambda vector: types.int64)
def highest(builder, _, vector):
    """Return the largest bits of the numbers in a vector, as an integer."""
    kind = integers_of(vector.type)
    name = f"llvm.vector.reduce.umax.v{kind.count}i{kind.element.width}"
    found = call(builder, name, kind.element, builder.bitcast(vector, kind))
    return builder.zext(found, _I64) if kind.element.width < 64 else found


@operation(nothing)
def mark(builder, _, pointer, z):
    """Write ``z != 0`` as bytes."""
    kind = ir.VectorType(ir.IntType(8), z.type.count)
    differs = builder.fcmp_unordered("!=", z, ir.Constant(z.type, None))
    place = builder.bitcast(pointer, kind.as_pointer())
    builder.store(builder.zext(differs, kind), place, align=1)


@operation(like_last, whole_tuples=True)
def transposed(builder, _, rows):
    """Return the columns of a square, given its rows as a tuple of vectors."""
    size, lane = len(rows), 4 if isinstance(rows[0].type.element, ir.FloatType) else 2
    step = 1
    while step < size:
        if step < lane:  # interleave within 16 bytes, which costs one instruction
            low = [
                start + k // (2 * step) * step + k % step + k // step % 2 * size
                for start in range(0, size, lane)
                for k in range(lane)
            ]
            high = [each + lane // 2 for each in low]
        else:  # exchange off-diagonal squares
            low = [k if not k & step else size + k - step for k in range(size)]
            high = [k + step if not k & step else size + k for k in range(size)]
        for k in range(size):
            if not k & step:
                pair = rows[k], rows[k + step]
                rows[k], rows[k + step] = (shuffled(builder, *pair, m) for m in (low, high))
        step *= 2
    if lane == 4:  # interleaving twice exchanges the second and the third of four rows
        rows = [rows[k ^ 3 if k % 4 in (1, 2) else k] for k in range(size)]
    return rows


def halved(builder, vector):
    """Add the upper half of a vector to the lower one."""
    half = vector.type.count // 2
    low, high = list(range(half)), list(range(half, 2 * half))
    return builder.fadd(*(shuffled(builder, vector, vector, lanes) for lanes in (low, high)))


@operation(lambda vector: vector.real)
def sum_of(builder, _, vector):
    """Return the sum of the numbers of a vector, by halves."""
    while vector.type.count > 2:
        vector = halved(builder, vector)
    return builder.fadd(*(builder.extract_element(vector, _I32(k)) for k in (0, 1)))


@operation(lambda vectors: Vec(one(vectors).real, 4), whole_tuples=True)
def sums_of_four(builder, kind, vectors):
    """Return one vector with the sums of four vectors.

    After halving to 32 bytes, neighbours are added pairwise; lanes cross 16-byte boundaries only in
    the last step, where that costs one instruction.
    """
    lanes = 8 if isinstance(kind.element, ir.FloatType) else 4
    while vectors[0].type.count > lanes:
        vectors = [halved(builder, vector) for vector in vectors]
    starts = [start + source for start in range(0, lanes, lanes // 2) for source in (0, lanes)]
    even = [first + k for first in starts for k in range(0, lanes // 2, 2)]
    odd = [lane + 1 for lane in even]
    while len(vectors) > 8 // lanes:
        vectors = [
            builder.fadd(shuffled(builder, a, b, even), shuffled(builder, a, b, odd))
            for a, b in zip(vectors[::2], vectors[1::2], strict=True)
        ]
    if len(vectors) == 1:
        return halved(builder, vectors[0])
    return builder.fadd(*(shuffled(builder, *vectors, k) for k in ([0, 1, 4, 5], [2, 3, 6, 7])))


@operation(lambda pointer, number, stride: pointer)
def row(builder, _, pointer, number, stride):
    """Return a pointer to row `number` of a matrix whose rows are `stride` elements apart."""
    return builder.gep(pointer, [builder.mul(number, stride)])


@operation(lambda pointer, count: pointer)
def offset(builder, _, pointer, count):
    """Return the pointer advanced by `count` elements."""
    return builder.gep(pointer, [count])


@operation(lambda address, real: types.CPointer(real.instance_type))
def pointer_to(builder, kind, address, real):
    """Return an address as a pointer to numbers of type `real`."""
    return builder.inttoptr(address, kind)


@operation(lambda pointer: types.int64)
def address_of(builder, kind, pointer):
    """Return a pointer as an integer; 0 for a null pointer."""
    return builder.ptrtoint(pointer, kind)


@operation(lambda address, record, number: record.instance_type)
def record_at(builder, kind, address, record, number):
    """Return record `number` of an array of records of type `record`."""
    return builder.gep(builder.inttoptr(address, kind), [number])


@operation(lambda pointer: types.CPointer(getattr(types, f"uint{pointer.dtype.bitwidth}")))
def bits_of(builder, kind, pointer):
    """Return a pointer to floats as a pointer to unsigned integers of the same size."""
    return builder.bitcast(pointer, kind)


@operation(lambda: types.int64)
def ticks(builder, kind):
    """Return the processor's cycle counter, or 0 if it has none."""
    return call(builder, "llvm.readcyclecounter", kind)
