"""Damage in protobuf messages: fields doubled, moved, retyped, of other numbers and wire types.

A message is parsed into a tree without its schema: a length-delimited field whose bytes are fields
themselves is taken for a message.
"""

import contextlib
import struct

import fuzz_mutations as mutate

VARINT, FIXED64, BYTES, START, END, FIXED32 = range(6)
NUMBERS = [
    0, 1, 2, 3, 6, 7, 9, 10, 11, 13, 16, 127, 128, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63,
    2**64 - 1,
]  # fmt: skip
LONGEST = 400  # bytes that are looked at as a message


class Field:
    """A field of a message: its number, its wire type, its value; an int, bytes or fields."""

    def __init__(self, number, kind, value):
        self.number, self.kind, self.value = number, kind, value

    def copy(self):
        value = self.value
        return Field(
            self.number,
            self.kind,
            [each.copy() for each in value] if isinstance(value, list) else value,
        )


def varint(n):
    found = bytearray()
    while n > 127:
        found.append(n & 127 | 128)
        n >>= 7
    return bytes([*found, n])


def read_varint(data, at):
    found = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError
        byte = data[at]
        found |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return found, at


def parsed(data, depth=0):
    """The fields of a message; a ValueError if these bytes are none."""
    fields, at = [], 0
    while at < len(data):
        tag, at = read_varint(data, at)
        number, kind = tag >> 3, tag & 7
        if not 0 < number < 2**12 or kind not in (VARINT, FIXED64, BYTES, FIXED32):
            raise ValueError
        if kind == VARINT:
            value, at = read_varint(data, at)
        else:
            size = {FIXED64: 8, FIXED32: 4}.get(kind)
            if size is None:
                size, at = read_varint(data, at)
            value, at = data[at : at + size], at + size
            if at > len(data):
                raise ValueError
            if kind == BYTES and value and depth < 8 and (depth < 2 or len(value) < LONGEST):
                with contextlib.suppress(ValueError):
                    value = parsed(value, depth + 1)
        fields.append(Field(number, kind, value))
    return fields


def written(fields):
    parts = []
    for field in fields:
        value = written(field.value) if isinstance(field.value, list) else field.value
        parts.append(varint(field.number << 3 | field.kind))
        if field.kind == BYTES:
            parts.append(varint(len(value)))
        parts.append(varint(value) if isinstance(value, int) else value)
    return b"".join(parts)


def messages(fields):
    """All lists of fields in a tree."""
    yield fields
    for field in fields:
        if isinstance(field.value, list):
            yield from messages(field.value)


def _doubled(fields, rng, everywhere):
    """A field comes twice, the second time as it is, changed, or as a part of itself."""
    del everywhere
    again = rng.choice(fields).copy()
    how = rng.randrange(3)
    if how == 1:
        _valued([again], rng, None)
    elif how == 2 and isinstance(again.value, list) and again.value:
        del again.value[rng.randrange(len(again.value))]
    fields.insert(rng.randrange(len(fields) + 1), again)


def _gone(fields, rng, everywhere):
    del everywhere
    del fields[rng.randrange(len(fields))]


def _moved(fields, rng, everywhere):
    """A field stands elsewhere in its message, or in another one."""
    field = fields.pop(rng.randrange(len(fields)))
    if rng.random() < 0.5 and not isinstance(field.value, list):
        fields = rng.choice(everywhere)
    fields.insert(rng.randrange(len(fields) + 1), field)


def _swapped(fields, rng, everywhere):
    """Two fields exchange their values."""
    a, b = rng.choice(fields), rng.choice(rng.choice(everywhere) or fields)
    if not isinstance(a.value, list) and not isinstance(b.value, list):
        a.value, b.value, a.kind, b.kind = b.value, a.value, b.kind, a.kind


def _renumbered(fields, rng, everywhere):
    del everywhere
    field = rng.choice(fields)
    near = field.number + rng.choice([-2, -1, 1, 2])
    field.number = max(1, rng.choice([near, near, rng.randint(1, 26), 2**29 - 1]))


def _retyped(fields, rng, everywhere):
    """The same number in another wire type."""
    del everywhere
    field = rng.choice(fields)
    value = written(field.value) if isinstance(field.value, list) else field.value
    number = value if isinstance(value, int) else int.from_bytes(value[:8], "little")
    field.kind = kind = rng.choice([VARINT, FIXED64, BYTES, FIXED32])
    field.value = {
        VARINT: number,
        FIXED64: struct.pack("<Q", number % 2**64),
        FIXED32: struct.pack("<I", number % 2**32),
        BYTES: varint(number) if isinstance(value, int) else value,
    }[kind]


def _valued(fields, rng, everywhere):
    """A field has another value."""
    del everywhere
    field = rng.choice(fields)
    if isinstance(field.value, int):
        near = max(0, field.value + rng.choice([-1, 1, 2]))
        field.value = rng.choice([near, near, *NUMBERS])
    elif isinstance(field.value, bytes):
        size = len(field.value)
        found = mutate.damaged(field.value, rng, mutate.BINARY) if size else b"0"
        fits = field.kind == BYTES
        field.value = found if fits else found.ljust(size, b"\0")[:size]


def _packed(fields, rng, everywhere):
    """Repeated numbers in one field, or one field for each of them."""
    del everywhere
    field = rng.choice(fields)
    if field.kind == VARINT:
        run = [each for each in fields if each.number == field.number and each.kind == VARINT]
        at = fields.index(run[0])
        fields[:] = [each for each in fields if each not in run]
        fields.insert(at, Field(field.number, BYTES, b"".join(varint(x.value) for x in run)))
    elif field.kind == BYTES and isinstance(field.value, bytes) and len(field.value) % 4 == 0:
        at, size = fields.index(field), rng.choice([4, 8])
        parts = [field.value[k : k + size] for k in range(0, len(field.value), size)]
        if all(len(part) == size for part in parts):
            kind = FIXED32 if size == 4 else FIXED64
            fields[at : at + 1] = [Field(field.number, kind, part) for part in parts]


def _split(fields, rng, everywhere):
    """A message, or bytes, comes in two parts, which a reader merges, or takes the last one of."""
    del everywhere
    found = [each for each in fields if each.kind == BYTES and len(each.value) > 1]
    if found:
        field = rng.choice(found)
        at, middle = fields.index(field), rng.randrange(1, len(field.value))
        parts = field.value[:middle], field.value[middle:]
        fields[at : at + 1] = [Field(field.number, BYTES, part) for part in parts]


def _added(fields, rng, everywhere):
    """A field that was not there."""
    del everywhere
    kind = rng.choice([VARINT, FIXED64, BYTES, FIXED32])
    value = {
        VARINT: rng.choice(NUMBERS),
        FIXED64: struct.pack("<d", rng.choice([0.0, 1.0, -2.5, 1e308])),
        FIXED32: struct.pack("<f", rng.choice([0.0, 1.0, 0.5, -2.5])),
        BYTES: rng.choice([b"", b"0", b"inputs", b"weights0", b"\0" * 8, b"Relu", b"ai.onnx"]),
    }[kind]
    field = Field(rng.randint(1, 26), kind, value)
    fields.insert(rng.randrange(len(fields) + 1), field)


KINDS = [
    _doubled, _doubled, _gone, _moved, _swapped, _renumbered, _retyped, _valued, _valued, _packed,
    _split, _added,
]  # fmt: skip


def other_message(data, rng):
    """The bytes of a message in which one to three fields are not as they were."""
    tree = parsed(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        everywhere = list(messages(tree))
        fields = rng.choice(everywhere)
        if fields:
            rng.choice(KINDS)(fields, rng, everywhere)
    data = written(tree)
    if rng.random() < 0.05:  # a varint longer than it has to be
        at = rng.randrange(len(data))
        if data[at] < 128:
            data = data[:at] + bytes([data[at] | 128, 0]) + data[at + 1 :]
    return data
