"""Lines of tab-separated numbers, read one by one: the grammar, and what breaks it.

A line holds indices and maybe a value, with one tab between two fields and nothing around them,
and ends in LF or CR LF. An index is digits, a value a decimal number such as ``0.0625``, ``1`` or
``6.250000e-02``; both may have a sign.
"""

from __future__ import annotations

import io
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbdnn.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MAX_INDEX", "Index", "read_strict"]

MAX_INDEX = 2**60  # the largest dimension of a GraphBLAS matrix

_INDEX = re.compile(rb"[+-]?[0-9]+")
_NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(rb"[+-]?(nan|inf|infinity)", re.IGNORECASE)


class Index(NamedTuple):
    """A column of 1-based indices: its name, the largest one, and what an error calls that."""

    name: str
    largest: int = MAX_INDEX
    limit: str = "the largest index"


def read_strict(
    data: bytes,
    name: str,
    indices: Sequence[Index],
    dtype: np.dtype | None,
    line: int = 1,
) -> list[np.ndarray]:
    """Return the columns of a text that is not empty, or raise the error of its first bad line.

    `name` is the file's, `line` the number of the text's first line in it, the rest as for
    `gbdnn.io.challenge.table.read_columns`.
    """
    expected = [x.name for x in indices] + ([] if dtype is None else ["value"])
    columns: list[list[Any]] = [[] for _ in expected]
    for number, full in enumerate(io.BytesIO(data), line):
        where = f"{name}, line {number}"
        if not full.endswith(b"\n"):
            raise FormatError(
                f"{name}: ends inside line {number} (no newline at its end): cut off?"
                " If the file is whole, end it with a newline"
            )
        text = full[:-1].removesuffix(b"\r")
        fields = text.split(b"\t")
        if len(fields) != len(expected):
            form = "<TAB>".join(expected)
            found = f"{len(fields)} fields in {_show(text)}" if text.strip() else "a blank line"
            raise FormatError(f"{where}: {found}; {len(expected)} needed: {form}")
        for field, index, column in zip(fields, indices, columns, strict=False):
            column.append(_index(field, index, where))
        if dtype is not None:
            columns[-1].append(_value(fields[-1], dtype, where))
    kinds = [np.dtype(np.uint64)] * len(indices) + ([] if dtype is None else [dtype])
    return [np.array(x, kind) for x, kind in zip(columns, kinds, strict=True)]


def _index(field: bytes, index: Index, where: str) -> int:
    """Return the 0-based index."""
    if not _INDEX.fullmatch(field):
        raise FormatError(f"{where}: the {index.name} {_show(field)} is no whole number")
    digits = field.lstrip(b"+-").lstrip(b"0")
    if not digits or field.startswith(b"-"):
        raise FormatError(f"{where}: the {index.name} is {_show(field)}; indices start at 1")
    # int() refuses to read thousands of digits.
    if len(digits) > len(str(MAX_INDEX)) or int(digits) > index.largest:
        raise FormatError(
            f"{where}: the {index.name} {_show(field)} is past {index.limit}, {index.largest}"
        )
    return int(digits) - 1


def _value(field: bytes, dtype: np.dtype, where: str) -> Any:
    if _NOT_FINITE.fullmatch(field):
        raise FormatError(f"{where}: the value is {_show(field)}; values are finite")
    if not _NUMBER.fullmatch(field):
        raise FormatError(f"{where}: the value {_show(field)} is no number")
    value = _float32(field) if dtype == np.float32 else np.float64(field)
    if not np.isfinite(value):
        raise FormatError(f"{where}: the value {_show(field)} is too large for {dtype}")
    return value


def _float32(field: bytes) -> np.float32:
    """Return the nearest float32 to a decimal number, rounded once.

    By way of float64 it would be rounded twice: first maybe onto the midpoint of two float32, then
    to the wrong one. A midpoint is an even float64, so if that is inexact, its odd neighbour on the
    side of the number stands for it (rounding to odd).
    """
    x = np.float64(field)
    with np.errstate(over="ignore"):
        if np.float32(x) != x and not x.view(np.int64) & 1:
            exact = Decimal(field.decode())
            if exact != Decimal(float(x)):
                x = np.nextafter(x, np.float64(np.inf if exact > Decimal(float(x)) else -np.inf))
        return np.float32(x)


def _show(text: bytes) -> str:
    """Return the start of a field as ASCII in quotes, whatever bytes it has."""
    start = ascii(text[:40].decode("utf-8", "backslashreplace"))
    return start + ("..." if len(text) > 40 else "")
