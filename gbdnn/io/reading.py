"""What readers of files share: bytes, plain or gzip, with errors that name the file; duplicates."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from typing import TYPE_CHECKING

import numpy as np

from gbdnn.errors import FormatError, MissingFileError

if TYPE_CHECKING:
    from pathlib import Path


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file; raise MissingFileError or FormatError if it cannot be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError as err:
        raise MissingFileError(f"{path}: no such file") from err
    except OSError as err:
        if os.path.isdir(path):  # noqa: PTH112 -- Path.is_dir() raises where access is denied
            raise FormatError(f"{path}: is a folder, not a file") from err
        raise MissingFileError(f"{path}: cannot be read: {err.strerror}") from err
    except ValueError as err:  # a NUL in the name
        raise MissingFileError(f"{path}: cannot be read: {err}") from err


def read_unzipped(path: Path) -> bytes:
    """Return the bytes of a file, decompressed if its first two bytes are gzip's."""
    data = read_bytes(path)
    if not data.startswith(b"\x1f\x8b"):
        return data
    cause: Exception
    try:
        return gzip.decompress(data)
    except EOFError as err:
        fault, cause = "cut off: the gzip stream does not end", err
    except (gzip.BadGzipFile, zlib.error) as err:
        fault, cause = "the gzip stream is damaged", err
    whole, lines = _readable(data)
    raise FormatError(f"{path}: {fault}, after {whole} bytes, line {lines}: {cause}") from cause


def first_duplicate(*columns: np.ndarray) -> tuple[int, int]:
    """Return the positions of the first line that equals an earlier one: (the earlier, it)."""
    order = np.lexsort(columns)  # stable: equal lines keep their order
    again = np.logical_and.reduce([x[order][1:] == x[order][:-1] for x in columns])
    pairs = np.stack([order[:-1][again], order[1:][again]])
    first, second = pairs[:, pairs[1].argmin()]
    return int(first), int(second)


def _readable(data: bytes) -> tuple[int, int]:
    """Return the number of bytes and of line ends before the fault in a gzip stream."""
    whole = lines = 0
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            while chunk := stream.read1():
                whole, lines = whole + len(chunk), lines + chunk.count(b"\n")
    except (EOFError, gzip.BadGzipFile, zlib.error):
        pass
    return whole, lines
