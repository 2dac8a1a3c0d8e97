"""Damage: bytes, text, JSON and zip archives that are changed a little, as a seed says."""

import copy
import gzip
import io
import json
import re
import zipfile

EXTREMES = [
    b"0", b"-1", b"1", b"2147483647", b"-2147483648", b"4294967296", b"9223372036854775808",
    b"18446744073709551616", b"1e400", b"-1e400", b"1e-400", b"nan", b"inf", b"1e", b"0x10", b"",
    b"1.5", b"1_0", b"+3", b"-0.0", b"1" * 400,
]  # fmt: skip
PIECES = [b"\0", b"\r", b"\n", b"\t", b" ", b"e", b".", b"-", b"%", b"\xff", b"\n\n", b"9", b"0"]
ODD = [
    None, True, False, -1, 0, 1, 1.5, 2**31, 2**63, 2**70, 1e308, -1e-300, "", "3", "x", [], {},
    [3], "ab", [None, 3], [3, 3], "float64", "iso[float32]", "all", "identity", {"lowest": 0},
]  # fmt: skip


def flip(data, rng):
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def cut(data, rng):
    return data[: rng.randrange(len(data))]


def insert(data, rng):
    at = rng.randrange(len(data) + 1)
    piece = rng.choice(PIECES) if rng.random() < 0.7 else rng.randbytes(rng.randint(1, 4))
    return data[:at] + piece + data[at:]


def delete(data, rng):
    at = rng.randrange(len(data))
    return data[:at] + data[at + rng.randint(1, 4) :]


def replace(data, rng):
    at = rng.randrange(len(data))
    return data[:at] + rng.choice(PIECES) + data[at + 1 :]


def repeat(data, rng):
    start = rng.randrange(len(data))
    stop = start + rng.randint(1, 40)
    return data[:stop] + data[start:stop] + data[stop:]


def number(data, rng):
    """Another number in place of one, in text."""
    found = list(re.finditer(rb"[-+.0-9eE]+", data))
    if not found:
        return flip(data, rng)
    one = rng.choice(found)
    return data[: one.start()] + rng.choice(EXTREMES) + data[one.end() :]


def digit(data, rng):
    found = [k for k, byte in enumerate(data) if 48 <= byte < 58]
    if not found:
        return flip(data, rng)
    at = rng.choice(found)
    return data[:at] + b"%d" % rng.randrange(10) + data[at + 1 :]


def lines(data, rng):
    """A line is missing, comes twice, or changes places with another."""
    each = data.splitlines(keepends=True)
    a, b = rng.randrange(len(each)), rng.randrange(len(each))
    how = rng.randrange(3)
    if how == 0:
        del each[a]
    elif how == 1:
        each.insert(b, each[a])
    else:
        each[a], each[b] = each[b], each[a]
    return b"".join(each)


def header(data, rng):
    """Damage in the first bytes."""
    return (
        replace(data[:64], rng) + data[64:]
        if rng.random() < 0.5
        else flip(data[:64], rng) + data[64:]
    )


BINARY = [flip, cut, insert, delete, replace, repeat, header]
TEXT = [*BINARY, number, number, digit, lines]


def damaged(data, rng, kinds):
    """Bytes with one to three faults."""
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if data:
            data = rng.choice(kinds)(data, rng)
    return data


def packed_or_plain(data, rng, kinds):
    """Damaged bytes, in a third of the cases gzipped, before or after the damage."""
    how = rng.randrange(6)
    if how == 0:
        return damaged(gzip.compress(data, mtime=0), rng, BINARY)
    if how == 1:
        return gzip.compress(damaged(data, rng, kinds), mtime=0)
    return damaged(data, rng, kinds)


def places(tree, at=()):
    """The places of all values in a tree of JSON."""
    yield at
    if isinstance(tree, dict):
        for name in tree:
            yield from places(tree[name], (*at, name))
    elif isinstance(tree, list):
        for k, item in enumerate(tree):
            yield from places(item, (*at, k))


def other_json(tree, rng):
    """A tree of JSON in which a value is missing, another one, or of another kind."""
    tree = json.loads(json.dumps(tree))
    for _ in range(rng.choice([1, 1, 2])):
        *way, last = rng.choice([at for at in places(tree) if at] or [("kind",)])
        here = tree
        for name in way:
            here = here[name]
        old, how = here[last], rng.randrange(5)
        if how == 0:
            del here[last]
        elif how == 1 and isinstance(old, int | float) and not isinstance(old, bool):
            here[last] = rng.choice(
                [old + 1, old - 1, float(old), str(old), -old, old / 2, old * 2]
            )
        elif how == 2:
            here[last] = [old]
        else:
            here[last] = copy.deepcopy(rng.choice(ODD))
    return tree


NPY = {
    b"descr": [
        b"'<f4'", b"'<f8'", b"'>f8'", b"'|f8'", b"'=i4'", b"'f8'", b"'<i8'", b"'|b1'", b"'|u1'",
        b"'<f2'", b"'<f16'", b"'|O'", b"'<c8'", b"'<U2'", b"'|S8'", b"'|V8'", b"'<M8[s]'", b"'4f8'",
        b"'<f0'", b"'<f99999999'", b"[('a', '<f8')]", b"3", b"None", b"''", b"'<f8,<f8'",
    ],
    b"fortran_order": [b"True", b"False", b"1", b"0", b"None", b"'False'"],
    b"shape": [
        b"()", b"(6,)", b"(3, 2)", b"(2, 3)", b"(12,)", b"(4, 3)", b"(0, 3)", b"(-1,)", b"(-3, -4)",
        b"(2**40,)", b"(1099511627776, 1099511627776)", b"(0, 18446744073709551616)", b"(3.0, 4)",
        b"(True, 4)", b"[3, 4]", b"12", b"(1L, 2L)", b"(" + b"1, " * 70 + b")", b"None",
        b"(3, 4, 1)", b"(12, 1)", b"(" * 99 + b")" * 99,
    ],
}  # fmt: skip


def other_npy(data, rng):
    """An array of NumPy's under a header that somebody else wrote, or one that is damaged."""
    if data[:6] != b"\x93NUMPY" or rng.random() < 0.3:
        return damaged(data, rng, BINARY)
    at = 10 if data[6] == 1 else 12
    length = int.from_bytes(data[8:at], "little")
    text, body, version = data[at : at + length], data[at + length :], data[6]
    for _ in range(rng.choice([0, 1, 1, 2])):
        name = rng.choice(list(NPY))
        field = rb"('%s': )('[^']*'|\([^)]*\)|\w+)" % name
        text = re.sub(field, lambda found: found[1] + rng.choice(NPY[name]), text)  # noqa: B023
    if rng.random() < 0.2:
        text = damaged(text, rng, TEXT)
    if rng.random() < 0.3:
        version = rng.choice([1, 2, 3, 3, 4, 0])
    width = 2 if version == 1 else 4
    return data[:6] + bytes([version, 0]) + len(text).to_bytes(width, "little") + text + body


def other_zip(data, rng, damage=lambda data, rng: damaged(data, rng, BINARY)):
    """An archive of which one member is damaged, under a checksum that is right."""
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(target, "w") as found:
        members = source.namelist()
        bad = rng.choice([name for name in members if name.endswith("pkl")] + members)
        for name in members:
            content = source.read(name)
            found.writestr(name, damage(content, rng) if name == bad else content)
    return target.getvalue()
