"""What an object is, in words that are the same in every process: for fingerprints."""

from __future__ import annotations

import dataclasses
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import Any

import numpy as np

from gbdnn.io.store.index import checksum
from gbdnn.runtime.first_use import complete

__all__ = ["identity"]

_PLAIN = (type(None), type(...), bool, int, float, complex, str)


def identity(x: Any) -> str:
    """Return what `x` is: its class, by name, and what it consists of.

    That is the fields of a dataclass, the code of a function and what it has bound, of other
    objects what `pickle` would keep. What has nothing of that is known by its `repr`, as a rule
    with an address in it: it is never taken for another one.
    """
    return _words(x, {}, ())


def _words(x: Any, known: dict[int, tuple[Any, str]], around: tuple[Any, ...]) -> str:
    """Return what `identity` does; `known` has what was met before, `around` what `x` is in."""
    if type(x) in _PLAIN:
        return repr(x)
    if type(x) in (bytes, bytearray):
        return f"bytes {len(x)} {checksum(x)}"
    if isinstance(x, type | BuiltinFunctionType | np.ufunc):
        return f"{getattr(x, '__module__', '')}.{getattr(x, '__qualname__', x.__name__)}"
    if id(x) in known:
        return known[id(x)][1]
    for depth, each in enumerate(around):
        if each is x:
            return f"what is around it, {depth}"
    parts = _parts(x)
    if parts is None:
        words = repr(x)
    else:
        of_parts = [_words(each, known, (*around, x)) for each in parts]
        if isinstance(x, dict | set | frozenset):
            of_parts.sort()
        words = checksum(f"{type(x).__module__}.{type(x).__qualname__}{of_parts}".encode())
    known[id(x)] = x, words  # with `x`: its address is nobody else's then
    return words


def _parts(x: Any) -> list[Any] | None:
    """Return what an object consists of, None if that cannot be told."""
    if type(x) is dict:
        return list(x.items())
    if type(x) in (list, tuple, set, frozenset):
        return list(x)
    if dataclasses.is_dataclass(x):
        return [getattr(x, field.name) for field in dataclasses.fields(x)]
    if type(x) is CodeType:
        return [x.co_code, x.co_consts, x.co_names]
    complete(x)
    try:
        if type(x) is FunctionType:
            bound = [cell.cell_contents for cell in x.__closure__ or ()]
            named = [x.__module__, x.__qualname__]
            return [*named, x.__code__, x.__defaults__, x.__kwdefaults__, bound]
        found = x.__reduce_ex__(4)
    except Exception:  # of a class of anybody's
        return None
    return [found] if isinstance(found, str) else [*found[:3], *map(list, filter(None, found[3:5]))]
