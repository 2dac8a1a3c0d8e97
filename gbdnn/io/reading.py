"""Reading of regular files, with errors that name the file."""

from __future__ import annotations

import errno
import gzip
import io
import os
import re
import stat
import zipfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, cast

import numpy as np

from gbdnn.errors import FormatError, GbdnnError, MissingFileError, ReadError, TooLargeError
from gbdnn.runtime.signals import from_handler

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_OTHERS = {
    b"version https://git-lfs": "a Git LFS pointer; run git lfs pull",
    b"<!doctype html": "an HTML page; download the file itself",
    b"<html": "an HTML page; download the file itself",
    b"bzh": "compressed with bzip2; unpack it, or compress it with gzip",
    b"\xfd7zxz": "compressed with xz; unpack it, or compress it with gzip",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; unpack it, or compress it with gzip",
    b"par1": "a Parquet file; read it with pandas and pass its values",
    b"\x89hdf": "an HDF5 file; read it with h5py and pass its arrays",
    b"matlab ": "a MATLAB file; read it with scipy.io.loadmat and pass its matrices",
}
"""First bytes, in lower case, of files that are not what their names say, and what they are."""

_ZIP_END = b"PK\5\6"  # begins a record of 22 bytes and the comment
_ARCHIVES = {
    "constants.pkl": "TorchScript; save the state_dict of torch.jit.load(path)",
    "archive_format": "an exported program; pass torch.export.load(path) to gbdnn.io.from_torch",
}
"""Members of zip archives that no reader reads, and what these are."""

_TAR, _TAR_AT = b"ustar", 257
_PART = re.compile(r".*-[0-9]+-of-[0-9]+\.(safetensors|bin|pt|pth)|.+\.index\.json", re.IGNORECASE)
_TABLES = (".csv", ".csv.gz", ".parquet", ".feather", ".xlsx")
_NOT_THERE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP}


@contextmanager
def foreign_errors(path: object, fault: str) -> Iterator[None]:
    """Convert exceptions of another package to a FormatError that names the file.

    The block contains only calls of that package: on damaged files, packages raise exceptions of
    any type, like those of a fault in gbdnn. A MemoryError becomes a TooLargeError, and an error of
    the operating system a ReadError.
    """
    try:
        yield
    except GbdnnError:
        raise
    except MemoryError as err:
        raise TooLargeError(f"{path}: {str(err) or 'not enough memory'}") from err
    except BaseException as err:
        if from_handler(err):
            raise
        # EINVAL: a damaged offset. Packages raise OSErrors without a number.
        number = err.errno if isinstance(err, OSError) else None
        if number is not None and number not in _NOT_THERE | {errno.EINVAL}:
            raise unreadable(path, cast("OSError", err)) from err
        # A panic of a Rust package is not an Exception.
        if not isinstance(err, Exception) and type(err).__name__ != "PanicException":
            raise
        reason = " ".join(str(err).split()) or "no reason given"
        raise FormatError(f"{path}: {fault}: {type(err).__name__}: {reason}") from err


@contextmanager
def valid_fields(path: object, fault: str = "the content is invalid") -> Iterator[None]:
    """Convert exceptions about fields of a record in a file to a FormatError.

    The block does nothing but check the fields and make objects of them.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError) as err:
        raise FormatError(f"{path}: {fault}: {err!r}") from err


def unreadable(path: object, err: OSError | ValueError) -> GbdnnError:
    """Return the error for a path that cannot be opened, listed or read.

    A MissingFileError if there is no such file (ValueError: the name has a NUL), else a ReadError.
    """
    number = getattr(err, "errno", None)
    kind = MissingFileError if number in _NOT_THERE or isinstance(err, ValueError) else ReadError
    fault = f"cannot be read: {getattr(err, 'strerror', None) or err}"
    error = kind(f"{path}: {'no such file or folder' if number == errno.ENOENT else fault}")
    error.errno = number
    return error


@contextmanager
def read_errors(path: object) -> Iterator[None]:
    """Raise the error of `unreadable` about `path` in place of an OSError in the block."""
    try:
        yield
    except GbdnnError:
        raise
    except (OSError, ValueError) as err:
        if from_handler(err):
            raise
        raise unreadable(path, err) from err


def require_no_table(path: Path) -> None:
    """Raise FormatError for a table of another library, by its name."""
    if path.name.lower().endswith(_TABLES):
        raise FormatError(
            f"{path}: unsupported format; read the table with pandas and pass its values, such as"
            " pandas.read_csv(path).to_numpy()"
        )


def _require_known(start: bytes, path: Path, allow_empty: bool) -> None:
    """Raise FormatError if the first bytes are those of a file that no reader reads."""
    if not start and not allow_empty:
        raise FormatError(f"{path}: the file is empty")
    if _PART.fullmatch(path.name):
        raise FormatError(
            f"{path}: the weights are in several files; read all of them, such as with"
            " safetensors.torch.load_file, and pass one dict with the layers in order to"
            " gbdnn.io.from_torch"
        )
    if start[_TAR_AT:].startswith(_TAR):
        raise FormatError(f"{path}: the file is a tar archive; unpack it")
    begin = start.lstrip()[:32].lower()
    for mark, what in _OTHERS.items():
        if begin.startswith(mark):
            raise FormatError(f"{path}: the file is {what}")


@contextmanager
def open_checked(path: Path, *, allow_empty: bool = False) -> Iterator[BinaryIO]:
    """Open a regular file for reading.

    Yields the file, or its decompressed content for gzip (detected by its first bytes). Anything
    but a regular file is refused, since a FIFO could block, and so are files of formats
    that no reader reads, empty ones unless `allow_empty`.
    """
    with _opened(path) as file:
        with read_errors(path):
            start = file.peek(_TAR_AT + len(_TAR))  # type: ignore[attr-defined]
        if start.startswith(b"\x1f\x8b"):
            with foreign_errors(path, "the gzip stream is damaged"):
                content = gzip.decompress(file.read())
            _require_known(content[: _TAR_AT + len(_TAR)], path, allow_empty)
            yield io.BytesIO(content)
            return
        _require_known(start, path, allow_empty)
        if start.startswith(b"PK"):
            with (
                foreign_errors(path, "the zip archive is damaged"),
                zipfile.ZipFile(file) as archive,
            ):
                first = min((member.header_offset for member in archive.infolist()), default=0)
                file.seek(-len(archive.comment) - len(_ZIP_END) - 18, os.SEEK_END)
                names = {name.rpartition("/")[2] for name in archive.namelist()}
                is_whole = first == 0 and file.read(len(_ZIP_END)) == _ZIP_END
            for name in sorted(_ARCHIVES.keys() & names):
                raise FormatError(f"{path}: the file is {_ARCHIVES[name]}")
            if not is_whole:
                raise FormatError(f"{path}: the file has bytes before or after its zip archive")
            file.seek(0)
        yield file


def read_unzipped(path: Path, *, allow_empty: bool = False) -> bytes:
    """Return the bytes of a file, decompressed if it is gzip; errors as for `open_checked`."""
    with open_checked(path, allow_empty=allow_empty) as file, read_errors(path):
        return file.read()


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file, compressed or not; errors as for `open_checked`."""
    with _opened(path) as file, read_errors(path):
        return file.read()


def _opened(path: Path) -> BinaryIO:
    with read_errors(path):
        mode = os.stat(path).st_mode  # noqa: PTH116 -- Path("") is Path(".")
        if not stat.S_ISREG(mode):
            kind = "a folder, not a file" if stat.S_ISDIR(mode) else "not a regular file"
            raise FormatError(f"{path} is {kind}")
        return path.open("rb")


def first_duplicate(*columns: np.ndarray) -> tuple[int, int]:
    """Return the positions of the first duplicate: (of the earlier line, of the duplicate)."""
    order = np.lexsort(columns)  # stable: equal lines keep their order
    again = np.logical_and.reduce([x[order][1:] == x[order][:-1] for x in columns])
    pairs = np.stack([order[:-1][again], order[1:][again]])
    first, second = pairs[:, pairs[1].argmin()]
    return int(first), int(second)
