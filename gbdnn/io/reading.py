"""What readers of files share: bytes, plain or gzip, with errors that name the file; duplicates.

Regular files alone are read: a FIFO would wait for a writer, and a device may have no end. The
exceptions of other packages become a FormatError in one place, `foreign_errors`.

What is wrong with a file (`WRONG`) and what the system refuses now (`unreadable`: a ReadError) are
told apart here: only the former says anything of what a file holds.
"""

from __future__ import annotations

import errno
import gzip
import math
import os
import stat
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, Self, cast

import numpy as np

from gbdnn.arrays.checks import whole_number
from gbdnn.errors import FormatError, GbdnnError, MissingFileError, ReadError, TooLargeError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

UNPACKED = 64 << 20
"""Bytes to which any gzip stream may unpack."""

RATIO = 100
"""Beyond `UNPACKED`: how many times its own size a gzip stream may unpack to.

Tables of numbers shrink to a third or a tenth; a stream of one byte a billion times to a 1,000th.
"""

WRONG = (FormatError, MissingFileError, LookupError, TypeError, ValueError)
"""What is raised where a file, or a description in it, is proven to be missing or damaged."""

_NOT_THERE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP}
_LIMIT = "unpacked_limit"
_AT_ONCE = 1 << 24  # bytes
_KINDS = {
    stat.S_IFDIR: "a folder, not a file",
    stat.S_IFIFO: "a FIFO, not a regular file",
    stat.S_IFSOCK: "a socket, not a regular file",
    stat.S_IFCHR: "a device, not a regular file",
    stat.S_IFBLK: "a device, not a regular file",
}


@contextmanager
def foreign_errors(path: object, fault: str) -> Iterator[None]:
    """Raise a FormatError that names the file for what another package raises in the block.

    Errors of gbdnn pass, and so do those that do not say anything of the file (KeyboardInterrupt).
    A MemoryError becomes a TooLargeError: damaged sizes may ask for any amount. What the system
    refuses becomes a ReadError.
    """
    try:
        yield
    except GbdnnError:
        raise
    except MemoryError as err:
        raise TooLargeError(f"{path}: {str(err) or 'more than memory has room for'}") from err
    except BaseException as err:
        # EINVAL: a damaged offset. Without a number it is the package's own.
        number = err.errno if isinstance(err, OSError) else None
        if number is not None and number not in _NOT_THERE | {errno.EINVAL}:
            raise unreadable(path, cast("OSError", err)) from err
        # A panic of a package in Rust is not an Exception.
        if not isinstance(err, Exception) and type(err).__name__ != "PanicException":
            raise
        reason = " ".join(str(err).split()) or "no reason is given"
        raise FormatError(f"{path}: {fault}: {type(err).__name__}: {reason}") from err


def unreadable(path: object, err: OSError | ValueError) -> GbdnnError:
    """Return the error of a file or folder that could not be opened, listed or read.

    A MissingFileError if there is none of that name (ValueError: there cannot be one), a ReadError
    if that is not known.
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
    except (OSError, ValueError) as err:  # ValueError: a NUL in the name
        raise unreadable(path, err) from err


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file to read; raise MissingFileError or FormatError if it is none.

    A ReadError says that the system does not let it be read.
    """
    with read_errors(path):
        # Asked before it is opened, which can have effects on a device; and after.
        _require_regular(path, os.stat(path).st_mode)  # noqa: PTH116 -- Path("") is Path(".")
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")
    try:
        _require_regular(path, os.fstat(file.fileno()).st_mode)
    except BaseException:
        file.close()
        raise
    return file


def _require_regular(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise FormatError(f"{path}: is {_KINDS.get(stat.S_IFMT(mode), 'no regular file')}")


def require_regular(path: Path) -> None:
    """Raise the error of `open_regular`, for a reader that opens the file itself."""
    open_regular(path).close()


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file; errors as for `open_regular`."""
    with open_regular(path) as file, read_errors(path):
        try:
            return file.read()
        except MemoryError as err:
            raise TooLargeError(f"{path}: more than memory has room for") from err


def as_limit(unpacked_limit: Any) -> int | None:
    """Return the most bytes that a caller lets a file unpack to, None for `most_unpacked`'s."""
    return None if unpacked_limit is None else whole_number(unpacked_limit, _LIMIT, least=0)


def most_unpacked(size: int, limit: int | None) -> int:
    """Return the most bytes that `size` compressed ones may unpack to."""
    return max(UNPACKED, RATIO * size) if limit is None else limit


def read_unzipped(path: Path, limit: int | None = None) -> bytes:
    """Return the bytes of a file, decompressed if its first two bytes are gzip's.

    A stream that unpacks to more than `limit` bytes (default: `UNPACKED`, or `RATIO` times its own
    size if that is more) is refused before it fills the memory. A plain file has no such limit.
    """
    with UnzippedFile(path) as file:
        if not file.is_compressed:
            return file.read()
        most = most_unpacked(file.size, limit)
        data = file.read(most)
        if file.read(1):
            raise FormatError(
                f"{path}: {file.size} bytes of gzip unpack to more than {most}; if the file is"
                f" what it should be, raise {_LIMIT}=, or unpack it with gunzip first"
            )
        return data


class UnzippedFile:
    """A file that is read from its start, decompressed if its first two bytes are gzip's.

    A context manager. Errors are those of `open_regular`, and a FormatError for a gzip stream that
    is damaged or cut off, with the byte and the line before the fault.

    Attributes
    ----------
    size : int
        Bytes of the file.
    is_compressed : bool
        Whether it is gzip.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = open_regular(path)
        self.size = os.fstat(self._file.fileno()).st_size
        self.is_compressed = False
        self._stream: BinaryIO = self._file
        self._bytes = self._lines = 0

    def __enter__(self) -> Self:
        self.is_compressed = self._file.peek(2).startswith(b"\x1f\x8b")  # type: ignore[attr-defined]
        if self.is_compressed:
            self._stream = cast("BinaryIO", gzip.GzipFile(fileobj=self._file))
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, most: float = math.inf) -> bytes:
        """Return the next `most` bytes, fewer at the end; all of them by default."""
        pieces = []
        while most > 0 and (piece := self._piece(most)):
            pieces.append(piece)
            most -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _piece(self, most: float) -> bytes:
        """Return at most so many bytes, none at the end."""
        try:
            if not self.is_compressed:
                return self._stream.read(-1 if most == math.inf else int(min(most, _AT_ONCE)))
            piece: bytes = self._stream.read1(int(min(most, _AT_ONCE)))  # type: ignore[attr-defined]
        except EOFError as err:
            raise self._fault("cut off: the gzip stream does not end", err) from err
        except (gzip.BadGzipFile, zlib.error) as err:
            raise self._fault("the gzip stream is damaged", err) from err
        except OSError as err:
            raise unreadable(self._path, err) from err
        except MemoryError as err:
            raise TooLargeError(f"{self._path}: more than memory has room for") from err
        self._bytes += len(piece)
        self._lines += piece.count(b"\n")
        return piece

    def _fault(self, fault: str, cause: Exception) -> FormatError:
        where = f"after {self._bytes} bytes, line {self._lines}"
        return FormatError(f"{self._path}: {fault}, {where}: {cause}")


def first_duplicate(*columns: np.ndarray) -> tuple[int, int]:
    """Return the positions of the first line that equals an earlier one: (the earlier, it)."""
    order = np.lexsort(columns)  # stable: equal lines keep their order
    again = np.logical_and.reduce([x[order][1:] == x[order][:-1] for x in columns])
    pairs = np.stack([order[:-1][again], order[1:][again]])
    first, second = pairs[:, pairs[1].argmin()]
    return int(first), int(second)
