"""Arguments other than arrays: paths, flags, words, functions, numbers; checked at the boundary.

Each check returns its value, or raises the error that names the argument.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gbdnn.arrays.first_use import complete, shown
from gbdnn.errors import ArgumentError, ArgumentTypeError, require_kind

__all__ = [
    "as_flag",
    "as_number",
    "as_path",
    "as_records",
    "as_word",
    "require_callable",
    "require_iterable",
    "require_method",
]

T = TypeVar("T")

# One slash: a Path has made one of two. One letter is a drive.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def as_path(path: Any, what: str = "path") -> Path:
    """Return a path that is a str or a path-like of one; not an address."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise ArgumentTypeError(f"{what} is a str or a path-like, not {type(path).__qualname__}")
    if _SCHEME.match(os.fspath(path)):
        raise ArgumentError(
            f"{what}: {os.fspath(path)} is an address, and only files of this machine are read and"
            " written (a folder of such a name is given by its absolute path)"
        )
    return Path(path)


def as_flag(x: Any, what: str) -> bool:
    """Return True or False."""
    if not isinstance(x, bool | np.bool_):
        raise ArgumentTypeError(f"{what} is True or False, not {shown(x)}")
    return bool(x)


def as_word(x: Any, what: str, allowed: Iterable[str]) -> str:
    """Return one of some words."""
    words = list(allowed)
    if not isinstance(x, str) or x not in words:
        listed = " or ".join([", ".join(map(repr, words[:-1])), repr(words[-1])]).removeprefix(
            " or "
        )
        raise ArgumentError(f"{what} is {listed}, not {shown(x)}")
    return x


def as_number(x: Any, what: str) -> float:
    """Return a real number, which is not NaN."""
    real = isinstance(x, int | float | np.integer | np.floating) and not isinstance(x, bool)
    if not real:
        raise ArgumentTypeError(f"{what} is a number, not {shown(x)}")
    if x != x:
        raise ArgumentError(f"{what} is a number, not {x}")
    return float(x)


def require_callable(x: Any, what: str) -> None:
    """Raise ArgumentTypeError unless `x` is a callable or None."""
    if x is not None and not callable(x):
        raise ArgumentTypeError(f"{what} is callable or None, not {shown(x)}")


def require_method(x: Any, method: str, what: str) -> None:
    """Raise ArgumentTypeError unless `x` is an object, and no class, that has a method."""
    if isinstance(x, type) or not callable(getattr(x, method, None)):
        raise ArgumentTypeError(f"{what}, not {shown(x)}")


def require_iterable(x: Any, what: str) -> None:
    """Raise ArgumentTypeError unless `x` can be iterated over."""
    complete(x)
    if not isinstance(x, Iterable):
        raise ArgumentTypeError(f"{what}, not {type(x).__qualname__}")


def as_records(x: Any, kind: type[T], what: str) -> list[T]:
    """Return the items of an iterable, which are all of one class."""
    require_iterable(x, f"{what} is a list of {kind.__name__}")
    records = list(x)
    for k, record in enumerate(records):
        require_kind(record, kind, f"{what}: item {k} is a {kind.__name__}")
    return records
