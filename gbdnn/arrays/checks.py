"""Validation of arguments: paths, flags, words, callables, numbers, vectors, dtypes.

Each function returns the converted value, or raises an error that names the argument.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from gbdnn.errors import ArgumentError, ArgumentTypeError, TooLargeError, require_kind
from gbdnn.runtime.cores import cores
from gbdnn.runtime.first_use import COMPLETION, complete, gb, shown
from gbdnn.runtime.machine import memory as machine_memory
from gbdnn.runtime.signals import from_handler
from gbdnn.runtime.threads import MOST_THREADS

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "FEWER_NODES",
    "FEWER_ROWS",
    "are_finite",
    "as_array",
    "as_bytes",
    "as_dtype",
    "as_flag",
    "as_list",
    "as_nthreads",
    "as_number",
    "as_path",
    "as_records",
    "as_seed",
    "as_word",
    "finite",
    "floating",
    "require_callable",
    "require_exact",
    "require_method",
    "require_room",
    "rows_within",
    "whole_number",
]

T = TypeVar("T")

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_EXACT = {"f4": (24, "FP32", "pass dtype='FP64', or "), "f8": (53, "FP64", "")}
"""Bits up to which a dtype represents all integers, its name, and a remedy beyond."""
_SMALL = 1 << 20  # bytes that every machine has

# One slash: a Path has made one of two. One letter is a drive.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def as_path(path: Any, what: str = "path") -> Path:
    """Return a str or path-like as a Path; refuse URLs."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise ArgumentTypeError(f"{what} must be a str or path-like, not {type(path).__qualname__}")
    if _SCHEME.match(os.fspath(path)):
        raise ArgumentError(
            f"{what}: {os.fspath(path)} is a URL; gbdnn reads and writes local files only. For"
            ' buckets see "Object stores" in docs/how-to/cluster.md; for a folder of this name pass'
            " its absolute path"
        )
    return Path(path)


def as_flag(x: Any, what: str) -> bool:
    """Return True or False."""
    if not isinstance(x, bool | np.bool_):
        raise ArgumentTypeError(f"{what} must be True or False, not {shown(x)}")
    return bool(x)


def as_word(x: Any, what: str, allowed: Iterable[str]) -> str:
    """Return one of some words."""
    words = tuple(allowed)
    if not isinstance(x, str) or x not in words:
        listed = " or ".join(filter(None, [", ".join(map(repr, words[:-1])), repr(words[-1])]))
        raise ArgumentError(f"{what} must be {listed}, not {shown(x)}")
    return x


def as_number(x: Any, what: str) -> float:
    """Return a real number, which is not NaN."""
    real = isinstance(x, int | float | np.integer | np.floating) and not isinstance(x, bool)
    if not real:
        raise ArgumentTypeError(f"{what} must be a number, not {shown(x)}")
    if x != x:
        raise ArgumentError(f"{what} must be a number, not {x}")
    return float(x)


def require_callable(x: Any, what: str) -> None:
    """Raise ArgumentTypeError unless `x` is a callable or None."""
    if x is not None and not callable(x):
        raise ArgumentTypeError(f"{what} must be callable or None, not {shown(x)}")


def require_method(x: Any, method: str, what: str) -> None:
    """Raise ArgumentTypeError unless `x` is an instance of a class with this method."""
    complete(x)
    if isinstance(x, type) or not callable(getattr(x, method, None)):
        raise ArgumentTypeError(f"{what}, not {shown(x)}")


def as_records(x: Any, kind: type[T], what: str) -> list[T]:
    """Return the items of an iterable after checking that all are of one class."""
    records = as_list(x, f"{what} must be a list of {kind.__name__}")
    for k, record in enumerate(records):
        require_kind(record, kind, f"{what}: item {k} must be a {kind.__name__}")
    return records


def as_list(x: Any, what: str) -> list[Any]:
    """Return the items of an iterable; `what` begins the error message for other objects."""
    complete(x)
    try:
        if isinstance(x, str | bytes):
            raise TypeError
        return list(x)
    except TypeError:
        raise ArgumentTypeError(f"{what}, not {type(x).__qualname__}") from None


def whole_number(n: Any, what: str, *, least: int | None = None, most: int | None = None) -> int:
    """Return `n` as an int; raise an error if it is not an integer in the given range."""
    if not isinstance(n, int | np.integer) or isinstance(n, bool):
        raise ArgumentTypeError(f"{what} must be an integer, not {shown(n)}")
    if least is not None and n < least:
        raise ArgumentError(f"{what} must be at least {least}, not {n}")
    if most is not None and n > most:
        raise ArgumentError(f"{what} must be at most {most}, not {n}")
    return int(n)


def as_seed(seed: Any) -> int:
    """Return a seed of at most 32 bits if it is drawn from a NumPy Generator, else an integer."""
    if isinstance(seed, np.random.Generator):
        return int(seed.integers(1 << 32))
    return whole_number(seed, "seed", least=0)


def as_nthreads(n: Any, what: str = "nthreads") -> int | None:
    """Return a number of threads, or None for GraphBLAS's setting; -1 means all cores."""
    if n is None:
        return None
    n = whole_number(n, what, most=MOST_THREADS)
    if n < 1 and n != -1:
        raise ArgumentError(f"{what} must be at least 1, or -1 for all cores, not {n}")
    return cores() if n == -1 else n


def as_bytes(x: Any, what: str = "memory") -> int:
    """Return a number of bytes, given as an integer or as text with a unit."""
    if not isinstance(x, str):
        return min(whole_number(x, what, least=1), sys.maxsize)
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?) *([a-z]*)", x.lower())
    if match is None or match[2] not in _UNITS:
        raise ArgumentError(f"{what}: {x!r} is not a size such as 1000000, 512MiB or 8GiB")
    return whole_number(int(min(float(match[1]) * _UNITS[match[2]], sys.maxsize)), what, least=1)


def without_scalar(x: Any) -> Any:
    """Return the value of a ``graphblas.Scalar``, and other objects as they are."""
    return x.value if type(x).__module__ == "graphblas.core.scalar" else x


def as_array(x: Any, what: str) -> np.ndarray:
    """Return a number, or a sequence or array of any rank, as an array of real numbers."""
    complete(x)
    x = without_scalar(x)
    rows = x if isinstance(x, list | tuple) else [x]
    if any(isinstance(row, np.ma.MaskedArray) for row in rows):
        raise ArgumentTypeError(f"{what}: masked arrays are not supported; use filled(0)")
    is_object = type(x).__module__.startswith("graphblas.")
    if is_object or hasattr(x, "toarray"):  # SciPy's sparse arrays
        raise ArgumentTypeError(
            f"{what} must be a dense array, not a {type(x).__qualname__}; pass its"
            f" {'to_dense(fill_value=0)' if is_object else 'toarray()'}"
        )
    try:
        # An int of any size is a number; NumPy makes an object of one beyond 64 bits.
        array = np.asarray(float(x) if type(x) is int else x)
    except OverflowError as err:
        raise ArgumentError(
            f"{what}: an integer of {x.bit_length()} bits does not fit into FP64"
        ) from err
    except Exception as err:  # any exception, raised by another library
        if from_handler(err):
            raise
        raise ArgumentTypeError(f"{what} must be an array of numbers: {err}") from err
    if array.dtype.kind not in "biuf":
        raise ArgumentTypeError(f"{what} must contain real numbers, not {shown(x)}")
    return array


def as_dtype(dtype: Any, what: str = "dtype") -> np.dtype:
    """Return float32 or float64 for ``"FP32"``, ``"float64"``, ``np.float32`` and the like."""
    lookup = gb.dtypes.lookup_dtype  # errors of GraphBLAS's initialisation must pass
    try:
        with COMPLETION:
            checked = np.dtype(lookup(dtype).np_type)
    except (TypeError, ValueError, AttributeError) as err:
        raise ArgumentTypeError(f"{what} must be FP32 or FP64, not {shown(dtype)}") from err
    if checked not in (np.float32, np.float64):
        raise ArgumentTypeError(f"{what} must be FP32 or FP64, not {shown(dtype)}")
    return checked


def floating(dtype: np.dtype, what: str) -> np.dtype:
    """Return the dtype of computation: float64 for float64, float32 for other real dtypes."""
    if dtype.kind not in "bifu" or dtype.itemsize > 8:
        raise ArgumentTypeError(
            f"{what} must contain real numbers of at most 64 bits, not values of dtype {dtype}"
        )
    return np.dtype(np.float64 if dtype.kind == "f" and dtype.itemsize == 8 else np.float32)


def finite(
    values: np.ndarray, dtype: np.dtype | None, what: str, *, copy: bool = True, place: Any = None
) -> np.ndarray:
    """Return `values` as a new array of `dtype`; refuse NaN, infinities and overflow.

    With ``copy=False``, `values` itself is returned if it has this dtype. ``place(k)`` returns the
    row and column of the k-th value, for the error.
    """
    own = floating(values.dtype, what)
    if values.dtype.kind == "f" and not are_finite(values):
        bad = _first_bad(values, values, place)
        raise ArgumentError(f"{what}: contains {bad}; all values must be finite")
    dtype = own if dtype is None else dtype
    with np.errstate(over="ignore", under="ignore"):
        cast = values.astype(dtype, copy=copy)
    if cast.dtype != values.dtype and not are_finite(cast):
        raise ArgumentError(f"{what}: {_first_bad(values, cast, place)} does not fit into {dtype}")
    return cast


def _first_bad(values: np.ndarray, cast: np.ndarray, place: Any) -> str:
    """Return the first value that is not finite after a cast, and where it is."""
    k = int(np.flatnonzero(~np.isfinite(cast))[0])
    if place is None and values.ndim < 2:
        return f"{values[k]}" if len(values) == 1 else f"{values[k]} at index {k}"
    row, column = divmod(k, values.shape[1]) if place is None else place(k)
    return f"{values.flat[k]} in row {row}, column {column}"


def require_exact(values: np.ndarray, dtype: np.dtype | None, what: str) -> None:
    """Raise ArgumentError if `dtype` (default: FP32) does not represent all integers up to these.

    All means: up to the one with the largest absolute value.
    """
    is_integer = dtype is not None and dtype.kind in "iu"  # a caller who keeps integers
    if values.size and values.dtype.kind in "iu" and values.itemsize > 2 and not is_integer:
        bits, name, remedy = _EXACT["f8" if dtype == np.float64 else "f4"]
        bad = max(int(values.max()), int(values.min()), key=abs)
        if abs(bad) > 1 << bits:
            raise ArgumentError(
                f"{what}: {bad} is above 2**{bits} and may not be exact in {name}; {remedy}convert"
                " the integers to floating-point numbers"
            )


def are_finite(values: np.ndarray) -> bool:
    """Whether all values are finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = values.sum()  # passes a NaN on, and infinities
    return bool(np.isfinite(total) or np.isfinite(values).all())


def gib(nbytes: float) -> str:
    """Return a number of bytes in GiB, as text; less than 10 GiB with two digits."""
    return f"{nbytes / 2**30:.2g}" if nbytes < 10 << 30 else f"{nbytes / 2**30:,.0f}"


FEWER_ROWS = "pass only those with entries, such as X[gbdnn.categories(X), :].new()"
"""The remedy of `require_room` for a matrix with many rows."""

FEWER_NODES = "keep the nodes with edges as rows and columns, such as A[nodes, nodes].new()"
"""The remedy for a graph."""


def require_room(needed: int, what: str, remedy: str = "", *, share: float = 0.25) -> None:
    """Raise TooLargeError if `needed` bytes exceed a share of the machine's memory, if known."""
    if needed <= _SMALL:
        return
    there = machine_memory()
    if there is not None and needed > there * share:
        raise TooLargeError(
            f"{what} need {gib(needed)} GiB, but this machine has {gib(there)}"
            f"{remedy and '; '}{remedy}"
        )


def rows_within(memory: int, row_bytes: int, what: str, *, least: int, most: int) -> int:
    """Return how many rows of `row_bytes` bytes fit `memory`, at most `most`.

    Raises
    ------
    ArgumentError
        Fewer than `least` rows fit.
    """
    needed = min(least, most) * row_bytes
    if memory < needed:
        raise ArgumentError(
            f"memory={memory} is too small: a block of {min(least, most)} {what} needs {needed}"
            f" bytes; pass memory={needed} or more"
        )
    return min(most, memory // max(row_bytes, 1))
