"""Tables of numbers as text, plain or gzip: lines of 1-based indices and an optional value.

Fields are separated by one tab, lines end in LF or CR LF. Indices are integers, values decimal
numbers such as ``0.0625``, ``1`` or ``6.250000e-02``; both may have a sign.

polars parses the text; if it fails, Python finds the first bad line. SciPy's Matrix Market
parser takes half the time, but it accepts ``1.2.3`` and lines of four fields, refuses ``+1``,
rounds float32 twice, and may crash on a text that ends in ``2e``.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbdnn.arrays.checks import as_path
from gbdnn.errors import FormatError
from gbdnn.io.reading import read_unzipped
from gbdnn.io.writing import whole_file
from gbdnn.runtime.optional import require

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

MAX_INDEX = 2**60
"""The largest dimension of a GraphBLAS matrix."""

# All bytes of a valid file. polars accepts some blanks, quotes, comments, words ("nan") and byte
# order marks, which are refused beforehand.
_ALPHABET = b"0123456789+-.eE\t\r\n"
_INDEX = re.compile(rb"[+-]?[0-9]+")
_NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LINES_AT_ONCE = 1 << 20  # to write
_PIECE = 1 << 22  # bytes to parse at once: faster than a large file as a whole


class Index(NamedTuple):
    """A column of 1-based indices: its name, the limit, and the name of the limit in errors."""

    name: str
    largest: int = MAX_INDEX
    limit: str = "the largest index"


def read_columns(
    path: str | os.PathLike[str],
    indices: Sequence[Index],
    dtype: np.dtype | None = None,
    *,
    allow_empty: bool = False,
) -> list[np.ndarray]:
    """Read a table: columns of indices as 0-based uint64, then an optional column of finite values.

    `dtype` is that of the values, float32 or float64, or None without values. An empty file is an
    empty table if `allow_empty`. A FormatError names the file, the 1-based line and the fault.
    """
    data = read_unzipped(as_path(path), allow_empty=allow_empty)
    columns, start = parsed_columns(data, indices, dtype)
    if columns is None:
        before = data.count(b"\n", 0, start)
        fault = first_fault(io.BytesIO(data[start:]), before, indices, dtype)
        raise FormatError(f"{path}{fault}")
    return columns


def parsed_columns(
    data: bytes, indices: Sequence[Index], dtype: np.dtype | None
) -> tuple[list[np.ndarray] | None, int]:
    """Return the columns of a text, or None and the start of the piece with the first error."""
    if not data:
        empty = [np.empty(0, np.uint64) for _ in indices]
        return (empty if dtype is None else [*empty, np.empty(0, dtype)]), 0
    pieces, start = [], 0
    while start < len(data):
        stop = data.find(b"\n", start + _PIECE) + 1 or len(data)
        columns = _parsed(data[start:stop], indices, dtype)
        if columns is None:
            return None, start
        pieces.append(columns)
        start = stop
    return [np.concatenate(x) if len(x) > 1 else x[0] for x in zip(*pieces, strict=True)], 0


def write_columns(
    columns: dict[str, np.ndarray], path: str | os.PathLike[str], *, replace: bool
) -> None:
    """Write columns of numbers; the file is written atomically."""
    frame = _polars().DataFrame(columns)
    with whole_file(path, replace=replace) as file:
        for lines in frame.iter_slices(_LINES_AT_ONCE):
            text = io.BytesIO()
            lines.write_csv(text, include_header=False, separator="\t", quote_style="never")
            file.write(text.getbuffer())


def _polars() -> Any:
    return require("polars", "files", "tab-separated files need polars")


def _parsed(
    data: bytes, indices: Sequence[Index], dtype: np.dtype | None
) -> list[np.ndarray] | None:
    """Return the columns of a text, or None if a line has a fault."""
    pl = _polars()
    nlines = data.count(b"\n")
    nfields = len(indices) + (dtype is not None)
    if (
        not data.endswith(b"\n")
        or data.count(b"\t") != nlines * (nfields - 1)
        or data.count(b"\r") != data.count(b"\r\n")
        or data.translate(None, _ALPHABET)
    ):
        return None
    schema = dict.fromkeys((x.name for x in indices), pl.UInt64)
    if dtype is not None:
        # Not through Float64: rounding twice may change the last bit.
        schema["value"] = getattr(pl, dtype.name.capitalize())
    try:
        frame = pl.read_csv(data, separator="\t", has_header=False, schema=schema, quote_char=None)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return None
    if frame.shape != (nlines, nfields) or any(x.null_count() for x in frame):
        return None
    columns = [x.to_numpy() for x in frame]
    for x, index in zip(columns, indices, strict=False):
        if x.min() < 1 or x.max() > index.largest:
            return None
    if dtype is not None and not np.isfinite(columns[-1]).all():
        return None
    return [x - np.uint64(1) for x in columns[: len(indices)]] + columns[len(indices) :]


def first_fault(
    lines: Iterable[bytes],
    before: int,
    indices: Sequence[Index],
    dtype: np.dtype | None,
    *,
    allow_blank: bool = False,
) -> str:
    """Return number and fault of the first bad line, after `before` previous lines."""
    for number, line in enumerate(lines, before + 1):
        if allow_blank and not line.strip():
            continue
        if not line.endswith(b"\n"):
            return (
                f": the file ends inside line {number} (no newline at its end); it is truncated,"
                " or needs a final newline"
            )
        if fault := _line_fault(line[:-1].removesuffix(b"\r"), indices, dtype):
            return f", line {number}: {fault}"
    return f", line {before + 1} or later: cannot read a number"


def _line_fault(line: bytes, indices: Sequence[Index], dtype: np.dtype | None) -> str | None:
    """Return the fault of a line, or None."""
    expected = [x.name for x in indices] + ([] if dtype is None else ["value"])
    fields = line.split(b"\t")
    if len(fields) != len(expected):
        shown = f"{len(fields)} fields in {_show(line)}" if line.strip() else "a blank line"
        return f"{shown}; expected {len(expected)}: {', '.join(expected)}"
    for field, (name, largest, limit) in zip(fields, indices, strict=False):
        digits = field.lstrip(b"+-").lstrip(b"0")
        if not _INDEX.fullmatch(field):
            return f"the {name} {_show(field)} is not an integer"
        if not digits or field.startswith(b"-"):
            return f"the {name} is {_show(field)}; indices start at 1"
        # int() refuses thousands of digits.
        if len(digits) > len(str(MAX_INDEX)) or int(digits) > largest:
            return f"the {name} {_show(field)} exceeds {limit}, {largest}"
    if dtype is None:
        return None
    field = fields[-1]
    if not _NUMBER.fullmatch(field):
        return f"the value {_show(field)} is not a finite number"
    with np.errstate(over="ignore", under="ignore"):
        if not np.isfinite(np.float64(field).astype(dtype)):
            return f"the value {_show(field)} is too large for {dtype}"
    return None


def _show(text: bytes) -> str:
    """Return the start of a field as ASCII in quotes."""
    start = ascii(text[:40].decode("utf-8", "backslashreplace"))
    return start + ("..." if len(text) > 40 else "")
