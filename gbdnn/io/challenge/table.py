"""Tables of numbers as text files, plain or gzip: 1-based indices and maybe a value on each line.

Two readers. The fast one (polars) takes a piece of text only if nothing about it is unusual, and
does not say what it disliked. Then the strict one goes through the piece's lines and names the
first bad one; if there is none, what it read is the answer. The grammar is the strict reader's:
what the fast one takes, the strict one reads as the same numbers.
"""

from __future__ import annotations

import gzip
import io
import operator
import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.errors import (
    ArgumentError,
    ArgumentTypeError,
    FormatError,
    MissingFileError,
    MissingPackageError,
)
from gbdnn.io.atomic import whole_file
from gbdnn.io.challenge.strict import MAX_INDEX, Index, read_strict

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "MAX_INDEX",
    "Index",
    "dimension",
    "first_duplicate",
    "import_polars",
    "read_bytes",
    "read_columns",
    "whole_number",
    "write_columns",
]

_GZIP_MAGIC = b"\x1f\x8b"
# Every byte that a good file can have. Signs, dots and exponents are all that stay to be parsed:
# no blanks, quotes, comments, words ("nan"), byte order marks or binary reach the fast reader.
_ALPHABET = b"0123456789+-.eE\t\r\n"
_LINES_AT_ONCE = 1 << 20  # to write
_PIECE = 1 << 22  # bytes to read: what the strict reader goes through in a second or two


def read_columns(
    path: str | os.PathLike[str],
    indices: Sequence[Index],
    dtype: np.dtype | None = None,
    *,
    allow_empty: bool = False,
) -> list[np.ndarray]:
    """Read a table, plain or gzip (told by its content).

    Parameters
    ----------
    path : path-like
        The file.
    indices : sequence of Index
        The index columns in order.
    dtype : float32 or float64, optional
        Type of the values in the last column; None if there are indices alone.
    allow_empty : bool
        Whether a file of no bytes is a table of no lines.

    Returns
    -------
    list of ndarray
        The index columns, 0-based uint64, then the finite values if any.

    Raises
    ------
    FormatError
        Names the file, the line (1-based) and what is wrong there.
    MissingFileError
        There is no such file, or it may not be read.
    """
    name = str(path)
    data = _content(Path(path), name)
    if not data:
        if not allow_empty:
            raise FormatError(f"{name}: empty file, not one line")
        empty = [np.empty(0, np.uint64) for _ in indices]
        return empty if dtype is None else [*empty, np.empty(0, dtype)]
    pieces, start, line = [], 0, 1
    while start < len(data):
        end = data.find(b"\n", start + _PIECE) + 1 or len(data)
        piece = data[start:end]
        columns = _read_fast(piece, indices, dtype)
        if columns is None:
            columns = read_strict(piece, name, indices, dtype, line)
        pieces.append(columns)
        start, line = end, line + columns[0].size
    return [np.concatenate(x) if len(x) > 1 else x[0] for x in zip(*pieces, strict=True)]


def write_columns(columns: dict[str, np.ndarray], path: str | os.PathLike[str]) -> None:
    """Write columns of numbers as they are, whole or not at all."""
    frame = import_polars().DataFrame(columns)
    with whole_file(path) as file:
        for lines in frame.iter_slices(_LINES_AT_ONCE):
            text = io.BytesIO()
            lines.write_csv(text, include_header=False, separator="\t", quote_style="never")
            file.write(text.getbuffer())


def first_duplicate(*columns: np.ndarray) -> tuple[int, int]:
    """Return the positions of the earliest line equal to one before it: (that one, it)."""
    order = np.lexsort(columns)  # stable: equal lines keep their order
    again = np.logical_and.reduce([x[order][1:] == x[order][:-1] for x in columns])
    pairs = np.stack([order[:-1][again], order[1:][again]])
    first, second = pairs[:, pairs[1].argmin()]
    return int(first), int(second)


def dimension(number: Any, name: str) -> int:
    """Return `number` as an int if it can be a dimension; `name` names it in an error."""
    n = whole_number(number, name)
    if not 1 <= n <= MAX_INDEX:
        raise ArgumentError(f"{name}: {n} is not between 1 and {MAX_INDEX}")
    return n


def whole_number(number: Any, name: str) -> int:
    """Return `number` as an int; bool and floats are none."""
    try:
        if isinstance(number, bool | np.bool_):
            raise TypeError
        return operator.index(number)
    except TypeError as err:
        raise ArgumentTypeError(f"{name}: {number!r} is no whole number") from err


def import_polars() -> Any:
    """Return the package polars; without it, say how to install it."""
    try:
        import polars
    except ImportError as err:
        raise MissingPackageError(
            'tab-separated files are read and written with polars: pip install "gbdnn[files]"'
        ) from err
    return polars


def read_bytes(path: Path) -> bytes:
    """Return what a file holds, or say why it cannot be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError as err:
        raise MissingFileError(f"{path}: no such file") from err
    except OSError as err:
        if os.path.isdir(path):  # noqa: PTH112 -- Path.is_dir() raises; Prefetch: no permission
            raise FormatError(f"{path}: is a folder, not a file") from err
        raise MissingFileError(f"{path}: cannot be read: {err.strerror}") from err
    except ValueError as err:  # a NUL in the name
        raise MissingFileError(f"{path}: cannot be read: {err}") from err


def _content(path: Path, name: str) -> bytes:
    data = read_bytes(path)
    if not data.startswith(_GZIP_MAGIC):
        return data
    try:
        return gzip.decompress(data)
    except EOFError as err:
        raise FormatError(
            f"{name}: the gzip stream ends early, after line {_whole_lines(data)}: cut off?"
        ) from err
    except (gzip.BadGzipFile, zlib.error) as err:
        raise FormatError(
            f"{name}: damaged gzip stream, after line {_whole_lines(data)}: {err}"
        ) from err


def _whole_lines(data: bytes) -> int:
    """Return how many lines come out of a gzip stream before its fault."""
    lines = 0
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            while chunk := stream.read1():
                lines += chunk.count(b"\n")
    except (EOFError, gzip.BadGzipFile, zlib.error):
        pass
    return lines


def _read_fast(
    data: bytes, indices: Sequence[Index], dtype: np.dtype | None
) -> list[np.ndarray] | None:
    """Return the columns, or None if anything is out of the ordinary."""
    pl = import_polars()
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
        # Not by way of Float64: text that is rounded twice may end one bit off.
        schema["value"] = pl.Float32 if dtype == np.float32 else pl.Float64
    try:
        frame = pl.read_csv(data, separator="\t", has_header=False, schema=schema, quote_char=None)
    except pl.exceptions.PolarsError:
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
