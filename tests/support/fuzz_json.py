"""Other fields in trees of JSON, and other arrays in safetensors files, which begin with one."""

import copy
import json
import struct

from fuzz_mutations import cut, delete, flip, insert, replace

ODD = [
    None, True, False, -1, 0, 1, 1.5, 2**31, 2**63, 2**70, 1e308, -1e-300, "", "3", "x", [], {},
    [3], "ab", [None, 3], [3, 3], "float64", "iso[float32]", "all", "identity", {"lowest": 0},
]  # fmt: skip

NUMBERS = (int, float, type(None))


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
        old, how = here[last], rng.randrange(10)
        if how == 0:
            del here[last]
        elif how == 1:
            here[last] = [old]
        elif how == 2:
            here[last] = copy.deepcopy(rng.choice(ODD))
        else:
            here[last] = _alike(tree, old, rng)
    return tree


def other_leaf(tree, rng, kinds=NUMBERS):
    """A tree of JSON in which one number, or what has its place, is another one."""
    tree = json.loads(json.dumps(tree))
    found = []
    for *way, last in (at for at in places(tree) if at):
        here = tree
        for name in way:
            here = here[name]
        if isinstance(here[last], kinds):
            found.append((here, last))
    if found:
        here, last = rng.choice(found)
        here[last] = rng.choice([_alike(tree, here[last], rng)] * 3 + [0.125, 7, None, True])
    return tree


def _alike(tree, old, rng):
    """Another value of the same kind, or nearly."""
    if isinstance(old, bool) or old is None:
        return rng.choice([True, False, None])
    if isinstance(old, int | float):
        near = [old + 1, old - 1, old + 1, old - 1, -old, old * 2, old / 2, float(old), str(old)]
        return rng.choice([*near, *(x for x in _values(tree) if type(x) is type(old))])
    if isinstance(old, str):
        return rng.choice([x for x in _values(tree) if isinstance(x, str)])
    items = list(old) if isinstance(old, list) else list(old.items())
    if items:
        k, other, how = rng.randrange(len(items)), rng.randrange(len(items)), rng.randrange(4)
        if isinstance(old, dict):  # two fields exchange their values
            a, b = items[k][0], items[other][0]
            return {**old, a: old[b], b: old[a]}
        if how == 0:
            del items[k]
        elif how == 1:
            items.insert(other, copy.deepcopy(items[k]))
        elif how == 2:
            items[k], items[other] = items[other], items[k]
        else:
            items.reverse()
    return items


def _values(tree):
    """All numbers and texts in a tree."""
    if isinstance(tree, dict | list):
        for each in tree.values() if isinstance(tree, dict) else tree:
            yield from _values(each)
    else:
        yield tree


def other_safetensors(data, rng):
    """Arrays with other numbers, or under a header that somebody else wrote."""
    size = int.from_bytes(data[:8], "little")
    head, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    names = [name for name in head if name != "__metadata__"]
    if rng.random() < 0.5:
        for _ in range(rng.choice([1, 1, 2])):
            body = _other_number(body, head[rng.choice(names)], rng)
        return data[: 8 + size] + body
    for _ in range(rng.choice([1, 1, 2])):
        one, other, how = rng.choice(names), rng.choice(names), rng.randrange(8)
        if not {one, other} <= head.keys() or not isinstance(head[one], dict):
            continue
        if how == 0:
            head[one], head[other] = head[other], head[one]
        elif how == 1:
            head[rng.choice([*names, "0.other", ""])] = head.pop(one)
        elif how == 2:
            head[one]["dtype"] = rng.choice(
                ["F32", "F64", "U32", "I32", "U64", "I64", "BF16", "F16", "BOOL", "U8", "X"]
            )
        elif how == 3:
            head[one]["shape"] = rng.choice(
                [[], [0], [1], [2, 3], [3, 2], [2**40], [-1], [1.5], [3, 1], [1, 3], None]
            )
        elif how == 4:
            head[one]["data_offsets"] = copy.deepcopy(head[other].get("data_offsets"))
        elif how == 5:
            start, stop = head[one].get("data_offsets") or [0, 0]
            move = rng.choice([-8, -4, -1, 1, 4, 8, 2**40, -(2**40)])
            head[one]["data_offsets"] = rng.choice(
                [[start + move, stop], [start, stop + move], [start + move, stop + move]]
            )
        elif how == 6:
            head = other_json(head, rng)
            break
        else:
            body = rng.choice([flip, flip, cut, insert, delete, replace])(body, rng) or body
    text = json.dumps(head).encode()
    if rng.random() < 0.2:  # a name that comes twice
        text = text[:-1] + b"," + json.dumps({one: head.get(one)}).encode()[1:]
    text += b" " * (-len(text) % 8)
    lengths = [len(text)] * 20 + [0, 1, len(text) + 8, 2**40, 2**64 - 1]
    return rng.choice(lengths).to_bytes(8, "little") + text + body


def _other_number(body, place, rng):
    """Bytes in which a number of an array is a small one, or the one beside it."""
    form = {"F32": "<f", "F64": "<d", "U32": "<I", "U64": "<Q", "I64": "<q"}[place["dtype"]]
    start, stop = place["data_offsets"]
    size = struct.calcsize(form)
    if start == stop:
        return body
    numbers = list(struct.unpack(f"<{(stop - start) // size}{form[1]}", body[start:stop]))
    k = rng.randrange(len(numbers))
    odd = [0.5, -2.0, float("nan"), 0.0] if form in ("<f", "<d") else [0, 1, 2, 5, 12, 48, 2**31]
    near = [numbers[k - 1], numbers[k] + 1, max(numbers[k] - 1, 0)]
    numbers[k] = rng.choice([*odd, *near, *near])
    try:
        return body[:start] + struct.pack(f"<{len(numbers)}{form[1]}", *numbers) + body[stop:]
    except struct.error:  # it does not fit
        return body
