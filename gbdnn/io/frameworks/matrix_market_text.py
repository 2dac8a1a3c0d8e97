"""The text of a Matrix Market file: banner, size line, entries; every line is checked.

A banner, comments, one line of sizes, then as many lines as the sizes say::

    %%MatrixMarket matrix coordinate real general
    %%GraphBLAS type float
    4 4 3
    1 1 .0625
    2 1 .0625
    4 3 .0625

Fields are separated by blanks or tabs, and blank lines have no meaning. The last line ends with a
newline, too: without it ``0.5`` may be what is left of ``0.5625``. SciPy's parser is not used: it
accepts ``-1.fl``, and ends the process at a text that stops with ``2e``.

R. Boisvert, R. Pozo, K. Remington, "The Matrix Market Exchange Formats", NISTIR 5935, 1996.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbdnn.arrays.checks import require_room
from gbdnn.errors import FormatError
from gbdnn.io.challenge.table import MAX_INDEX, Index, line_fault, parsed_columns
from gbdnn.io.frameworks.scipy import scipy_sparse
from gbdnn.io.reading import first_duplicate

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["parse", "parse_distinct"]

_BANNER = re.compile(
    rb"%%MatrixMarket(?i:[ \t]+matrix[ \t]+(coordinate|array)"
    rb"[ \t]+(real|integer|unsigned-integer|pattern)"
    rb"[ \t]+(general|symmetric|skew-symmetric))[ \t]*\r?\n"
)
_FP32 = re.compile(rb"%%GraphBLAS (type float|GrB_FP32)[ \t]*\r?\n")
_COMMENTS = re.compile(rb"(?:%[^\n]*\n|[ \t]*\r?\n)*+")
_SIZES = re.compile(rb"[ \t]*([0-9]+)[ \t]+([0-9]+)(?:[ \t]+([0-9]+))?[ \t]*\r?\n")
_TABS = bytes.maketrans(b" ", b"\t")


class _Head(NamedTuple):
    """What stands before the entries."""

    layout: str
    field: str
    symmetry: str
    nrows: int
    ncols: int
    lines: int  # that follow
    dtype: np.dtype | None  # of the values; None if there are none
    start: int  # of the entries, in bytes


def parse(data: bytes, path: Path) -> Any:
    """Return what a file holds: a COO array, or an ndarray; a FormatError names the line.

    Values are float64, or float32 where the second line is ``%%GraphBLAS type float``; whole
    numbers are float32 if that holds all of them, and patterns int8.
    """
    head = _head(data, path)
    if head.layout == "array":
        require_room(8 * head.nrows * head.ncols, f"{path}: {head.nrows} x {head.ncols}: values")
        indices = []
    else:
        indices = [
            Index("row", head.nrows, "the number of rows"),
            Index("column", head.ncols, "the number of columns"),
        ]
    if not data.endswith(b"\n"):
        last = data.count(b"\n") + 1
        raise FormatError(
            f"{path}: ends inside line {last} (no newline at its end): cut off?"
            " If the file is whole, end it with a newline"
        )
    text = data[head.start :]
    columns, _ = parsed_columns(text.translate(_TABS), indices, head.dtype)
    if columns is None:
        columns, _ = parsed_columns(_tidied(text).translate(_TABS), indices, head.dtype)
    if columns is None:
        raise FormatError(f"{path}{_first_fault(data, head, indices)}")
    if len(columns[-1]) != head.lines:
        found = len(columns[-1])
        more = "more lines than that" if found > head.lines else "cut off?"
        raise FormatError(
            f"{path}: {found} entries; its line of sizes promises {head.lines}: {more}"
        )
    if head.dtype == np.int64:
        if head.field == "unsigned-integer" and columns[-1].min(initial=0) < 0:
            raise FormatError(f"{path}: {columns[-1].min()} among unsigned integers")
        columns[-1] = _exact(columns[-1], path)
    return (
        _array(head, columns[-1]) if head.layout == "array" else _coordinates(head, columns, path)
    )


def parse_distinct(data: bytes, path: Path) -> Any:
    """As `parse`; a second entry at one place is a FormatError."""
    A = parse(data, path)
    if isinstance(A, np.ndarray):
        return A
    rows, columns = A.coords
    distinct = A.copy()
    distinct.sum_duplicates()
    if distinct.nnz < A.nnz:
        _, second = first_duplicate(rows, columns)
        raise FormatError(
            f"{path}: a second entry in row {rows[second] + 1}, column {columns[second] + 1}"
        )
    return A


def _head(data: bytes, path: Path) -> _Head:
    banner = _BANNER.match(data)
    if banner is None:
        first = ascii(data[:80].split(b"\n")[0].decode("latin-1"))
        raise FormatError(
            f"{path}, line 1: no Matrix Market banner that is known here, '%%MatrixMarket matrix"
            " coordinate|array real|integer|pattern general|symmetric|skew-symmetric':"
            f" {first if data else 'an empty file'}"
        )
    layout, field, symmetry = (word.decode().lower() for word in banner.groups())
    comments = _COMMENTS.match(data, banner.end())
    start = comments.end() if comments else banner.end()
    sizes, line = _SIZES.match(data, start), data.count(b"\n", 0, start) + 1
    if sizes is None or (sizes[3] is None) != (layout == "array"):
        names = "rows, columns" + (", entries" if layout == "coordinate" else "")
        found = ascii(data[start : start + 60].split(b"\n")[0].decode("latin-1"))
        raise FormatError(f"{path}, line {line}: {found} where the sizes are expected: {names}")
    if any(len(size.lstrip(b"0")) > len(str(MAX_INDEX)) for size in sizes.groups(b"")):
        raise FormatError(f"{path}, line {line}: a size is past {MAX_INDEX}")
    nrows, ncols, count = (int(size or b"0") for size in sizes.groups(b""))
    if max(nrows, ncols) > MAX_INDEX:
        raise FormatError(f"{path}, line {line}: {nrows} x {ncols} is past {MAX_INDEX}")
    if symmetry != "general" and nrows != ncols:
        raise FormatError(f"{path}, line {line}: {nrows} x {ncols} is not square, but {symmetry}")
    if field == "pattern" and (layout == "array" or symmetry == "skew-symmetric"):
        raise FormatError(f"{path}, line 1: a pattern cannot be {layout} and {symmetry}")
    if layout == "array":
        below = {"general": nrows * ncols, "symmetric": nrows * (nrows + 1) // 2}
        count = below.get(symmetry, nrows * (nrows - 1) // 2)
    if field == "pattern":
        dtype = None
    elif field == "real":
        dtype = np.dtype(np.float32 if _FP32.match(data, banner.end()) else np.float64)
    else:
        dtype = np.dtype(np.int64)
    return _Head(layout, field, symmetry, nrows, ncols, count, dtype, sizes.end())


def _exact(values: np.ndarray, path: Path) -> np.ndarray:
    """Return whole numbers as float32, or as float64 if that alone holds all of them."""
    for kind in (np.float32, np.float64):
        found = values.astype(kind)
        with np.errstate(invalid="ignore"):  # 2^63, which int64 does not hold
            if (found.astype(np.int64) == values).all():
                return found
    worst = values[np.abs(values.astype(np.float64)).argmax()]
    raise FormatError(f"{path}: the value {worst} has more digits than float64")


def _tidied(text: bytes) -> bytes:
    """Return lines with one blank between fields, without blank lines."""
    text = text.replace(b"\r\n", b"\n")
    if any(each in text for each in (b"\r", b"\v", b"\f")):  # split() would take it for a blank
        return text
    lines = (b" ".join(line.split()) for line in text.split(b"\n"))
    return b"".join(line + b"\n" for line in lines if line)


def _first_fault(data: bytes, head: _Head, indices: list[Index]) -> str:
    """Return the number and the fault of the first bad line of the entries."""
    first = data.count(b"\n", 0, head.start) + 1
    for number, line in enumerate(io.BytesIO(data[head.start :]), first):
        fields = re.split(rb"[ \t]+", line[:-1].removesuffix(b"\r").strip(b" \t"))
        if fields != [b""] and (fault := line_fault(b"\t".join(fields), indices, head.dtype, " ")):
            return f", line {number}: {fault}"
    return f", line {first} or one of the next: a number that cannot be read"


def _coordinates(head: _Head, columns: list[np.ndarray], path: Path) -> Any:
    rows, cols = (x.astype(np.int64) for x in columns[:2])
    values = np.ones(len(rows), np.int8) if head.dtype is None else columns[2]
    if head.symmetry != "general":
        beside = rows != cols
        if head.symmetry == "skew-symmetric" and not beside.all():
            raise FormatError(f"{path}: an entry on the diagonal of what is skew-symmetric")
        mirrored = values[beside] if head.symmetry == "symmetric" else -values[beside]
        values = np.concatenate((values, mirrored))
        rows, cols = np.append(rows, cols[beside]), np.append(cols, rows[beside])
    return scipy_sparse().coo_array((values, (rows, cols)), shape=(head.nrows, head.ncols))


def _array(head: _Head, values: np.ndarray) -> np.ndarray:
    """Return values that are listed column by column, of what is symmetric from the diagonal on."""
    if head.symmetry == "general":
        return values.reshape(head.ncols, head.nrows).T
    found = np.zeros((head.nrows, head.ncols), values.dtype)
    # Columns of the lower triangle are rows of the upper one.
    places = np.triu_indices(head.nrows, 1 if head.symmetry == "skew-symmetric" else 0)
    found.T[places[1], places[0]] = values
    found.T[places] = -values if head.symmetry == "skew-symmetric" else values
    return found.T
