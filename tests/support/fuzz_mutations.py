"""Damage: bytes, text, JSON and zip archives that are changed a little, as a seed says."""

import gzip
import io
import re
import struct
import zipfile
import zlib

EXTREMES = [
    b"0", b"-1", b"1", b"2147483647", b"-2147483648", b"4294967296", b"9223372036854775808",
    b"18446744073709551616", b"1e400", b"-1e400", b"1e-400", b"nan", b"inf", b"1e", b"0x10", b"",
    b"1.5", b"1_0", b"+3", b"-0.0", b"1" * 400,
]  # fmt: skip
PIECES = [b"\0", b"\r", b"\n", b"\t", b" ", b"e", b".", b"-", b"%", b"\xff", b"\n\n", b"9", b"0"]


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
    """Damaged bytes, in half of the cases gzipped, before or after the damage."""
    how = rng.randrange(6)
    if how == 0:
        return damaged(gzip.compress(data, mtime=0), rng, BINARY)
    if how == 1:
        return gzip.compress(damaged(data, rng, kinds), mtime=0)
    if how == 2:
        return other_gzip(data, rng)
    return damaged(data, rng, kinds)


def other_gzip(data, rng):
    """A stream of gzip of some members, with optional fields, sums and sizes that may be wrong."""
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.choice([0, 1, 2])))
    members = []
    for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True):
        part = data[start:stop]
        flags = rng.choice([0, 0, 0, 1, 2, 4, 8, 16, 31, 32, 128])
        head = b"\x1f\x8b" + bytes([rng.choice([8, 8, 8, 8, 8, 8, 0, 7]), flags]) + bytes(6)
        if flags & 4:
            head += struct.pack("<H", rng.choice([3, 3, 2, 200])) + b"abc"
        head += (b"name\0" if flags & 8 else b"") + (b"words\0" if flags & 16 else b"")
        head += struct.pack("<H", zlib.crc32(head) & 0xFFFF) if flags & 2 else b""
        packer = zlib.compressobj(rng.choice([0, 1, 9]), zlib.DEFLATED, -15)
        body = packer.compress(part) + packer.flush()
        ends = [zlib.crc32(part), len(part)]
        if rng.random() < 0.15:
            ends[rng.randrange(2)] ^= 1 << rng.randrange(32)
        members.append(head + body + struct.pack("<II", *ends))
    how = rng.randrange(8)
    if how == 0:
        members.pop(rng.randrange(len(members)))
    elif how == 1:
        rng.shuffle(members)
    behind = rng.choice([b""] * 8 + [b"\0", b"\0" * 20, b"x", b"\x1f\x8b", b"\0\x1f", members[0:1]])
    return b"".join([*members, *([behind] if isinstance(behind, bytes) else behind)])


BANNER = [
    ["%%MatrixMarket"] * 6 + ["%MatrixMarket", "%%matrixmarket", "%%MATRIXMARKET", "%%MatrixMarke"],
    ["matrix"] * 6 + ["Matrix", "MATRIX", "vector", "tensor"],
    ["coordinate", "array", "Coordinate", "ARRAY", "coo"],
    ["real", "integer", "pattern", "complex", "unsigned-integer", "double", "Integer", "REAL"],
    ["general", "symmetric", "skew-symmetric", "hermitian", "SYMMETRIC", "Skew-Symmetric"],
]


def other_banner(data, rng):
    """A Matrix Market file whose first line says something else of the same numbers."""
    first, _, rest = data.partition(b"\n")
    words = first.decode("latin-1").split()
    for _ in range(rng.choice([1, 1, 2])):
        k = min(rng.choice([0, 1, 2, 3, 3, 3, 4, 4]), len(words) - 1)
        words[k] = rng.choice(BANNER[k])
    if rng.random() < 0.3:  # sizes, too
        lines = rest.split(b"\n")
        at = next((k for k, line in enumerate(lines) if line and line[:1] != b"%"), 0)
        sizes = lines[at].split()
        if sizes:
            sizes[rng.randrange(len(sizes))] = b"%d" % rng.randint(0, 12)
            lines[at] = b" ".join(sizes)
            rest = b"\n".join(lines)
    return " ".join(words).encode() + b"\n" + rest


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
    if rng.random() < 0.1:  # blanks that NumPy does not know
        at = rng.choice([0, max(0, len(text) - 1), rng.randint(0, len(text))])
        text = text[:at] + rng.choice([b"\xa0", b"\x85", b"\x1f", b"\xc2\xa0", b"\f"]) + text[at:]
    if rng.random() < 0.3:
        version = rng.choice([1, 2, 3, 3, 4, 0])
    width = 2 if version == 1 else 4
    return data[:6] + bytes([version, 0]) + len(text).to_bytes(width, "little") + text + body


def other_zip(data, rng, damage=lambda data, rng: damaged(data, rng, BINARY)):
    """An archive of which one member is damaged, under a checksum that is right."""
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(target, "w") as found:
        members = source.namelist()
        pickles = [name for name in members if name.endswith("pkl")]
        bad = rng.choice(pickles * len(members) + members)
        for name in members:
            content = source.read(name)
            found.writestr(name, damage(content, rng) if name == bad else content)
    return target.getvalue()
