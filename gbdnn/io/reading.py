"""Reading of regular files, with a limit on decompression and errors that name the file."""

from __future__ import annotations

import errno
import gzip
import io
import os
import stat
import zipfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np

from gbdnn.arrays.checks import whole_number
from gbdnn.errors import FormatError, GbdnnError, MissingFileError, ReadError, TooLargeError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

UNPACKED = 64 << 20
"""Every file may unpack to this number of bytes."""

RATIO = 100
"""Maximum ratio of unpacked bytes to the size of the file, for files beyond `UNPACKED`.

Tables of numbers typically compress to between a third and a tenth of their size.
"""

WRONG = (FormatError, MissingFileError, LookupError, TypeError, ValueError)
"""Exceptions for a missing or damaged file."""

_NOT_THERE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP}
_PIECE = 1 << 24  # bytes


@contextmanager
def foreign_errors(path: object, fault: str) -> Iterator[None]:
    """Convert exceptions of other packages in the block to a FormatError that names the file.

    Errors of gbdnn and exceptions that are not about the file (KeyboardInterrupt) pass unchanged. A
    MemoryError becomes a TooLargeError, and an error of the operating system a ReadError.
    """
    try:
        yield
    except GbdnnError:
        raise
    except MemoryError as err:
        raise TooLargeError(f"{path}: {str(err) or 'not enough memory'}") from err
    except BaseException as err:
        # EINVAL: a damaged offset. Packages raise OSErrors without a number.
        number = err.errno if isinstance(err, OSError) else None
        if number is not None and number not in _NOT_THERE | {errno.EINVAL}:
            raise unreadable(path, cast("OSError", err)) from err
        # A panic of a Rust package is not an Exception.
        if not isinstance(err, Exception) and type(err).__name__ != "PanicException":
            raise
        reason = " ".join(str(err).split()) or "no reason given"
        raise FormatError(f"{path}: {fault}: {type(err).__name__}: {reason}") from err


def unreadable(path: object, err: OSError | ValueError) -> GbdnnError:
    """Return the error for a path that cannot be opened, listed or read.

    A MissingFileError if there is no such file (ValueError: the name has a NUL), else a ReadError.
    """
    number = getattr(err, "errno", None)
    kind = MissingFileError if number in _NOT_THERE or isinstance(err, ValueError) else ReadError
    fault = f"cannot be read: {getattr(err, 'strerror', None) or err}"
    found = kind(f"{path}: {'no such file or folder' if number == errno.ENOENT else fault}")
    found.errno = number
    return found


@contextmanager
def read_errors(path: object) -> Iterator[None]:
    """Raise the error of `unreadable` about `path` in place of an OSError in the block."""
    try:
        yield
    except GbdnnError:
        raise
    except (OSError, ValueError) as err:
        raise unreadable(path, err) from err


@contextmanager
def open_checked(
    path: Path, limit: int | None = None, fault: str = "cannot be read"
) -> Iterator[BinaryIO]:
    """Open a regular file for reading, with a limit on decompression.

    Yields the file, or its decompressed content for gzip (detected by its first bytes). Zip
    archives are not decompressed, but refused if the total size of members exceeds `limit`
    (default: see `most_unpacked`). Anything but a regular file is refused, since a FIFO could
    block. `fault` is the prefix of the FormatError for an exception of another package in the
    block.
    """
    with _opened(path) as file, foreign_errors(path, fault):
        start = file.peek(2)  # type: ignore[attr-defined]
        if start.startswith(b"\x1f\x8b"):
            with foreign_errors(path, "the gzip stream is damaged"):
                data = _decompressed(file, path, limit)
            yield io.BytesIO(data)
            return
        if start.startswith(b"PK"):
            with zipfile.ZipFile(file) as archive:
                needed = sum(member.file_size for member in archive.infolist())
            require_unpacked(path, needed, limit)
            file.seek(0)
        yield file


def read_unzipped(path: Path, limit: int | None = None) -> bytes:
    """Return the bytes of a file, decompressed if it is gzip; errors as for `open_checked`."""
    with open_checked(path, limit) as file:
        return file.read()


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file, compressed or not; errors as for `open_checked`."""
    with _opened(path) as file, foreign_errors(path, "cannot be read"):
        return file.read()


def as_limit(unpacked_limit: Any) -> int | None:
    """Return the argument ``unpacked_limit`` after validation."""
    return (
        None if unpacked_limit is None else whole_number(unpacked_limit, "unpacked_limit", least=0)
    )


def most_unpacked(size: int, limit: int | None = None) -> int:
    """Return the largest number of bytes that a file of `size` bytes may unpack to."""
    return max(UNPACKED, RATIO * size) if limit is None else limit


def require_unpacked(path: Path, needed: int, limit: int | None = None) -> None:
    """Raise a FormatError if `needed` bytes are more than a file may unpack to."""
    size = path.stat().st_size
    most = most_unpacked(size, limit)
    if needed > most:
        raise FormatError(
            f"{path}: {size} bytes unpack to more than the limit of {most} bytes; if the file is"
            " valid, raise unpacked_limit= or save it uncompressed"
        )


def _opened(path: Path) -> BinaryIO:
    with read_errors(path):
        mode = os.stat(path).st_mode  # noqa: PTH116 -- Path("") is Path(".")
        if not stat.S_ISREG(mode):
            kind = "a folder, not a file" if stat.S_ISDIR(mode) else "not a regular file"
            raise FormatError(f"{path} is {kind}")
        return path.open("rb")


def _decompressed(file: BinaryIO, path: Path, limit: int | None) -> bytes:
    most = most_unpacked(os.fstat(file.fileno()).st_size, limit)
    stream, pieces, found = gzip.GzipFile(fileobj=file), [], 0
    while piece := stream.read(_PIECE):
        pieces.append(piece)
        found += len(piece)
        require_unpacked(path, found, most)
    return b"".join(pieces)


def first_duplicate(*columns: np.ndarray) -> tuple[int, int]:
    """Return the positions of the first duplicate: (of the earlier line, of the duplicate)."""
    order = np.lexsort(columns)  # stable: equal lines keep their order
    again = np.logical_and.reduce([x[order][1:] == x[order][:-1] for x in columns])
    pairs = np.stack([order[:-1][again], order[1:][again]])
    first, second = pairs[:, pairs[1].argmin()]
    return int(first), int(second)
