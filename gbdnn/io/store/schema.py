"""What an index says, checked as a whole before anything is read of it: `docs/store.md` in code.

The record of a run that is not complete, ``run.json``, is checked the same way.

A check is called with a value, and raises a `_Fault` that says what was expected; records and
lists put the name of the field, ``layers[3].binsparse.shape[0]``, before it. Fields that are not
listed are ignored.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, TypeAlias

from gbdnn.errors import FormatError

__all__ = ["KINDS", "require_index", "require_record"]

_Check: TypeAlias = Callable[[Any], None]

_LARGEST = 2**60
_SHOWN = 60  # characters of a wrong value


class _Fault(Exception):  # noqa: N818 -- of a part; the whole is a FormatError
    """What a value is not, and where it is, from the inside to the outside."""

    def __init__(self, expected: str, found: object = None, *, missing: bool = False) -> None:
        self.expected, self.found, self.missing, self.where = expected, found, missing, ""

    def within(self, name: str) -> _Fault:
        """Put the name of what is around before the place."""
        between = "" if not self.where or self.where.startswith("[") else "."
        self.where = name + between + self.where
        return self


def _whole(least: int = 0, most: int = _LARGEST) -> _Check:
    def check(x: Any) -> None:
        if type(x) is not int or not least <= x <= most:
            raise _Fault(f"a whole number from {least} to {most}", x)

    return check


def _number(x: Any) -> None:
    if type(x) not in (int, float) or not abs(x) <= 1.7976931348623157e308 or not math.isfinite(x):
        raise _Fault("a finite number", x)


def _positive(x: Any) -> None:
    _number(x)
    if x <= 0:
        raise _Fault("a number > 0", x)


def _not_negative(x: Any) -> None:
    _number(x)
    if x < 0:
        raise _Fault("a number >= 0", x)


def _text(x: Any) -> None:
    if not isinstance(x, str):
        raise _Fault("a text", x)


def _one_of(*allowed: str) -> _Check:
    def check(x: Any) -> None:
        if not isinstance(x, str) or x not in allowed:
            raise _Fault(" or ".join(map(repr, allowed)), x)

    return check


def _like(pattern: str, expected: str) -> _Check:
    compiled = re.compile(pattern)

    def check(x: Any) -> None:
        if not isinstance(x, str) or not compiled.fullmatch(x):
            raise _Fault(expected, x)

    return check


def _or_null(check: _Check) -> _Check:
    def check_or_null(x: Any) -> None:
        if x is not None:
            check(x)

    return check_or_null


def _list(check: _Check, length: int | None = None) -> _Check:
    def check_list(x: Any) -> None:
        if not isinstance(x, list) or length not in (None, len(x)):
            raise _Fault("a list" if length is None else f"a list of {length}", x)
        for k, item in enumerate(x):
            try:
                check(item)
            except _Fault as fault:
                raise fault.within(f"[{k}]") from None

    return check_list


def _texts(x: Any) -> None:
    if not isinstance(x, dict) or not all(isinstance(each, str) for each in x.values()):
        raise _Fault("an object of texts", x)


def _record(required: dict[str, _Check], optional: dict[str, _Check] | None = None) -> _Check:
    checks = {**required, **(optional or {})}

    def check(x: Any) -> None:
        if not isinstance(x, dict):
            raise _Fault("an object", x)
        for name in required:
            if name not in x:
                raise _Fault("", missing=True).within(name)
        for name, of in checks.items():
            if name in x:
                try:
                    of(x[name])
                except _Fault as fault:
                    raise fault.within(name) from None

    return check


_DIGEST = _like("[0-9a-f]{16}", "16 hexadecimal digits")
_FILE = _like(r"[A-Za-z0-9_-][A-Za-z0-9._-]*\.safetensors", "the name of a file *.safetensors")
_INTEGERS = _one_of("uint32", "uint64")
_TENSOR = _record({"name": _text, "xxh3_64": _DIGEST})
_SHARD = _record({"file": _FILE, "bytes": _whole(), "header_xxh3_64": _DIGEST})
_BOUNDS = _record({"lowest": _number, "highest": _number})


def _bias(x: Any) -> None:
    (_BOUNDS if isinstance(x, dict) else _number)(x)


def _matrix(
    form: str, beside: dict[str, _Check], optional: dict[str, _Check], *more: str
) -> _Check:
    """Return the check of a matrix; `more` are arrays that it has beside its own."""
    descriptor = _record(
        {
            "format": _one_of(form),
            "shape": _list(_whole(), 2),
            "number_of_stored_values": _whole(),
            "data_types": _record(
                {
                    "pointers_to_1": _INTEGERS,
                    "indices_1": _INTEGERS,
                    "values": _one_of("float32", "float64", "iso[float32]", "iso[float64]"),
                }
            ),
        }
    )
    arrays = dict.fromkeys(("pointers_to_1", "indices_1", "values", *more), _TENSOR)
    tensors = _record(arrays, {"bias": _TENSOR})
    return _record(
        {"binsparse": descriptor, "shard": _FILE, "tensors": tensors, **beside}, optional
    )


def _layer(x: Any) -> None:
    _LAYER(x)
    if isinstance(x["bias"], dict) and "bias" not in x["tensors"]:
        raise _Fault("", missing=True).within("tensors.bias")


_LAYER = _matrix(
    "CSC",
    {
        "bias": _bias,
        "bias_rule": _one_of("all", "entries"),
        "activation": _one_of("relu", "identity"),
        "clip": _or_null(_positive),
        "gain": _or_null(_not_negative),
    },
    {},
)
_IDS = _record({"shard": _FILE, "tensors": _record({"ids": _TENSOR})})
_FOLLOWED = _record(
    {
        "shard": _FILE,
        "tensors": _record({"parents": _TENSOR, "weights": _TENSOR}),
        "inputs": _whole(),
    }
)
KINDS: dict[str, _Check] = {
    "network": _record({"layers": _list(_layer)}, {"made_from": _text}),
    "features": _record(
        {
            "shape": _list(_whole(), 2),
            "dtype": _one_of("float32", "float64"),
            "parts": _list(_matrix("CSR", {}, {"largest": _not_negative})),
        },
        {"made_from": _text},
    ),
    "categories": _record({"count": _whole(), "categories": _IDS}),
    "checkpoint": _record(
        {
            "next_layer": _whole(),
            "unread": _list(_list(_whole(), 3)),
            "queued": _list(_matrix("CSR", {"layer": _whole()}, {}, "ids")),
            "finished": _list(_matrix("CSR", {}, {}, "ids")),
            "followed": _or_null(_FOLLOWED),
        }
    ),
}
"""What an index of each kind has beside ``format``, ``version``, ``checksum`` and ``kind``."""

_SHARDS = _record({"shards": _list(_SHARD)})


def _starts(x: Any) -> None:
    _list(_whole())(x)
    if not x or x[0] != 0 or any(a >= b for a, b in pairwise(x)):
        raise _Fault("a list that ascends from 0", x)


def _kept_layers(x: Any) -> None:
    _KEPT_LAYERS(x)
    if not len(x["layers"]) == len(x["marks"]) <= x["count"]:
        raise _Fault("as many as marks, and no more than count", x["layers"]).within("layers")


_KEPT_LAYERS = _record(
    {
        "count": _whole(),
        "layers": _list(_layer),
        "marks": _list(_text),
        "shards": _list(_SHARD),
    }
)
_RECORDS: dict[str, _Check] = {
    "network": _kept_layers,
    "features": _record({"starts": _starts, "layers": _whole()}),
}
_ORIGIN = _record({"fingerprints": _texts, "words": _texts})

_PLACES = {
    "network": ("layers",),
    "features": ("parts",),
    "categories": ("categories",),
    "checkpoint": ("queued", "finished", "followed"),
}


def _entries(index: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what an index says of arrays, and where it says it."""
    for name in _PLACES[index["kind"]]:
        found = index[name]
        if isinstance(found, list):
            yield from ((f"{name}[{k}]", entry) for k, entry in enumerate(found))
        elif found is not None:
            yield name, found


def require_index(index: dict[str, Any], path: object) -> None:
    """Raise a FormatError that names the first field of an index that is not as it has to be."""
    with _faults(path):
        kind = _kind(index, KINDS, path)
        _SHARDS(index)
        KINDS[kind](index)
        shards = [shard["file"] for shard in index["shards"]]
        if len(set(shards)) < len(shards):
            raise _Fault("each file once", shards).within("shards")
        for place, entry in _entries(index):
            if entry["shard"] not in shards:
                raise _Fault("one of the shards", entry["shard"]).within(f"{place}.shard")


def require_record(run: Any, path: object) -> None:
    """Raise a FormatError that names the first field of a run's record that is wrong."""
    with _faults(path):
        _ORIGIN(run)
        _RECORDS[_kind(run, _RECORDS, path)](run)


def _kind(x: dict[str, Any], known: Collection[str], path: object) -> str:
    kind = x.get("kind")
    if not isinstance(kind, str) or kind not in known:
        raise FormatError(f"{path}: holds {kind!r}; known are {', '.join(known)}")
    return kind


@contextmanager
def _faults(path: object) -> Iterator[None]:
    """Raise a FormatError for a fault in the block."""
    try:
        yield
    except _Fault as fault:
        if fault.missing:
            raise FormatError(f"{path}: {fault.where} is missing") from None
        found = repr(fault.found)
        found = found if len(found) <= _SHOWN else found[:_SHOWN] + "..."
        where = f"{fault.where} " if fault.where else ""
        raise FormatError(f"{path}: {where}is {fault.expected}, not {found}") from None
