"""Damage in pickles, opcode by opcode: gone, doubled, exchanged, with another argument."""

import pickletools
import struct

import fuzz_mutations as mutate

NUMBERS = [0, 1, 2, 3, 4, 5, 6, 7, 20, 255, 256, 65535, 2**31 - 1, -1, -2, -(2**31), 2**63, 2**70]
NAMES = [
    "weight", "bias", "0.weight", "1.weight", "0.bias", "2.bias", "a.b.weight", "cpu", "cuda:0",
    "0", "1", "storage", "torch FloatStorage", "torch HalfStorage", "torch DoubleStorage", "",
    "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_sparse_tensor",
    "torch._utils _rebuild_parameter", "collections OrderedDict", "builtins getattr", "os system",
    "torch sparse_csr", "torch sparse_csc", "torch strided", "torch Size", "torch float32",
]  # fmt: skip
PLAIN = [b"N", b"\x88", b"\x89", b")", b"]", b"}", b"0", b"2", b"(", b"t", b"\x85", b"\x86",
         b"\x87", b"R", b"Q", b"s", b"u", b"b", b"a", b"e", b"."]  # fmt: skip


def opcodes(data):
    """The opcodes of the first pickle in some bytes, each as bytes, and what is behind it."""
    places = [place for _, _, place in pickletools.genops(data)]
    ends = [*places[1:], places[-1] + 1]
    return [data[start:stop] for start, stop in zip(places, ends, strict=True)], data[ends[-1] :]


def _whole(n):
    """An opcode for a whole number."""
    if 0 <= n < 256:
        return b"K" + bytes([n])
    if -(2**31) <= n < 2**31:
        return b"J" + struct.pack("<i", n)
    size = n.bit_length() // 8 + 1
    return b"\x8a" + bytes([size]) + n.to_bytes(size, "little", signed=True)


def _text(text):
    data = text.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def _argument(op, rng):
    """The opcode with another argument."""
    kind = op[:1]
    if kind in b"KMJ\x8a":
        old = int.from_bytes(
            op[2:] if kind == b"\x8a" else op[1:], "little", signed=kind in b"J\x8a"
        )
        return _whole(rng.choice([old + 1, old - 1, -old, 2 * old, *NUMBERS]))
    if kind in b"X\x8c":
        return _text(rng.choice(NAMES))
    if kind == b"c":
        return b"c" + rng.choice(NAMES).replace(" ", "\n").encode() + b"\n"
    if kind in b"qh":  # the memo
        return kind + bytes([max(0, min(255, op[1] + rng.choice([-2, -1, 1, 2])))])
    if kind in b"rj":
        return kind + struct.pack("<I", rng.choice([0, 1, 2**31]))
    if kind in b"\x88\x89":
        return b"\x89" if kind == b"\x88" else b"\x88"
    if kind in b"G":
        return b"G" + struct.pack(">d", rng.choice([0.0, -1.0, 1e308, float("nan")]))
    return rng.choice(PLAIN)


def other_pickle(data, rng):
    """Bytes that begin with pickles, one of which has other opcodes."""
    try:
        before, ops, rest = b"", *opcodes(data)
    except ValueError:  # no pickle
        return mutate.damaged(data, rng, mutate.BINARY)
    while rest[:1] == b"\x80" and rng.random() < 0.75:
        before += b"".join(ops)
        ops, rest = opcodes(rest)
    for _ in range(rng.choice([1, 1, 1, 2])):
        at, other, how = rng.randrange(len(ops)), rng.randrange(len(ops)), rng.randrange(8)
        if how == 0:
            del ops[at]
        elif how == 1:
            ops.insert(other, ops[at])
        elif how == 2:
            ops[at], ops[other] = ops[other], ops[at]
        elif how == 3:
            ops.insert(
                at, rng.choice([*PLAIN, _whole(rng.choice(NUMBERS)), _text(rng.choice(NAMES))])
            )
        else:
            ops[at] = _argument(ops[at], rng)
        ops = ops or [b"."]
    return before + b"".join(ops) + rest
