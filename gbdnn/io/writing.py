"""Atomic writing of files and folders.

A file is written under a temporary name in the folder of its target, flushed to the disk and then
renamed onto the target, so that a reader sees either the old content or the new one. A process that
is killed can leave a temporary file, ``.gbdnn-*.tmp``, which can be deleted.

Output folders should belong to the user who writes to them. Nothing here protects against other
users who can write to the same folder.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import secrets
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from gbdnn.arrays.checks import as_flag, as_path
from gbdnn.errors import GbdnnError, OutputError
from gbdnn.runtime.signals import from_handler

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "existing",
    "is_standard_output",
    "output_errors",
    "require_writable",
    "whole_file",
    "whole_folder",
]

_GZIP_LEVEL = 6  # a third of the time of level 9 for 2 % more bytes


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str], *, replace: bool = True) -> Iterator[BinaryIO]:
    """Open a binary file that is renamed to `path` when the block ends without an exception.

    Unless `replace`, an existing file raises OutputError; an empty one is replaced in any case.
    It is compressed with gzip if the name ends in ``.gz``; equal content gives equal bytes.
    Symbolic links are followed and the permissions of an existing file are kept. Anything that is
    not a regular file (``/dev/null``, a FIFO) and this process's own output (``/dev/stdout``) are
    written directly. An OSError in the block, too, becomes an OutputError.
    """
    path = as_path(path)
    as_flag(replace, "replace")
    with output_errors(path):
        old = _stat(path)
        if old is not None and stat.S_ISDIR(old.st_mode):
            raise OutputError(f"{path}: cannot be written: it is a folder")
        stream = None if old is None else _own_output(old)
        if not replace and stream is None and old and stat.S_ISREG(old.st_mode) and old.st_size:
            raise existing(path)
        opened: contextlib.AbstractContextManager[BinaryIO]
        if stream is not None:
            opened = os.fdopen(os.dup(stream), "wb")
        elif old is not None and not stat.S_ISREG(old.st_mode):
            opened = path.open("wb")
        else:
            opened = _replacing(Path(os.path.realpath(path)), old)
        compressed = _compressed if path.name.endswith(".gz") else contextlib.nullcontext
        with opened as file, compressed(file) as writable:
            yield writable


def existing(path: object) -> OutputError:
    """Return the error for an output that exists."""
    return OutputError(f"{path} already exists; pass replace=True to replace it")


@contextlib.contextmanager
def whole_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Make a folder that is renamed to `path` when the block ends without an exception.

    `path` must not exist, or must be an empty folder; otherwise OutputError is raised. The new
    folder is removed after an exception in the block.
    """
    with output_errors(path):
        target = Path(os.path.realpath(path))
        if target.exists() and not (target.is_dir() and not any(target.iterdir())):
            what = "the folder is not empty" if target.is_dir() else "the path is not a folder"
            raise OutputError(f"{path}: {what}; choose another path or remove it")
        temporary = _temporary(target.parent)
        temporary.mkdir(parents=True)
        try:
            yield temporary
            temporary.replace(target)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


@contextlib.contextmanager
def output_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise an OutputError about `path` in place of an OSError in the block."""
    path = as_path(path)
    if "\0" in str(path):
        raise OutputError(f"{str(path)!r}: cannot be written: the name contains a NUL character")
    try:
        yield
    except GbdnnError:
        raise
    except OSError as err:
        if from_handler(err):
            raise
        folder = Path(os.path.realpath(path)).parent
        reason = err.strerror or str(err) or type(err).__name__
        if isinstance(err, FileNotFoundError) and not folder.exists():
            reason = f"the folder {folder} does not exist"
        failure = OutputError(f"{path}: cannot be written: {reason}")
        failure.errno = err.errno
        raise failure from err


def require_writable(path: str | os.PathLike[str], *, replace: bool = True) -> None:
    """Raise the OutputError that `whole_file` would raise, before the content is computed.

    Nothing is changed; a FIFO or a device is not opened.
    """

    class WithdrawnError(Exception):
        pass

    with output_errors(path):
        old = _stat(as_path(path))
    if old is None or stat.S_ISREG(old.st_mode) or stat.S_ISDIR(old.st_mode):
        with contextlib.suppress(WithdrawnError), whole_file(path, replace=replace):
            raise WithdrawnError


def is_standard_output(path: Path) -> bool:
    """Return whether a path is this process's standard output."""
    with output_errors(path):
        status = _stat(path)
    return status is not None and _own_output(status) == 1


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _own_output(file: os.stat_result) -> int | None:
    """Return the descriptor of standard output or error if `file` is one of them.

    Such a file is written through the descriptor; replacing it would lose other output.
    """
    for stream in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(file, os.fstat(stream)):
                return stream
    return None


@contextlib.contextmanager
def _replacing(target: Path, old: os.stat_result | None) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `target`, whose status is `old`."""
    if old is not None:
        _require_writable_file(target)
    mode = 0o666 if old is None else stat.S_IMODE(old.st_mode)
    temporary = _temporary(target.parent)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            if old is not None and hasattr(os, "fchmod"):  # not on Windows
                os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        temporary.replace(target)
    finally:
        with contextlib.suppress(OSError):  # the first error counts
            temporary.unlink(missing_ok=True)


def _require_writable_file(target: Path) -> None:
    if not os.access(target, os.W_OK):
        # A rename needs write access to the folder only, and would replace a read-only file.
        raise PermissionError(f"{target} is read-only")


def _temporary(folder: Path) -> Path:
    return folder / f".gbdnn-{secrets.token_hex(8)}.tmp"


def _compressed(file: BinaryIO) -> BinaryIO:
    # No name and time in the header: the bytes depend only on the content.
    return cast("BinaryIO", gzip.GzipFile("", "wb", _GZIP_LEVEL, file, mtime=0))
