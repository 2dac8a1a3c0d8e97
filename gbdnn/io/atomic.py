"""Files and folders that are written atomically.

A file is written under a temporary name in the folder of its target, and renamed onto the target
when it is complete: a reader sees the old content or the new one, never a part of it. What a
killed process leaves is removed by the next one that writes into the folder.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from gbdnn.arrays.checks import as_path
from gbdnn.errors import GbdnnError, OutputError
from gbdnn.io.links import resolved
from gbdnn.io.temporary import new_file, new_folder, remove_leftovers

if TYPE_CHECKING:
    from collections.abc import Iterator

_GZIP_LEVEL = 6  # a third of the time of 9 for 2% more bytes


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` when the block ends without an exception.

    Parameters
    ----------
    path : path-like
        Compressed with gzip if the name ends in ``.gz`` (equal content gives equal bytes). A
        symbolic link is followed, but none of another user in a folder that all may write to
        (``/tmp``); permissions are kept. What is not a regular file (``/dev/null``, a FIFO), or is
        this process's own output (``/dev/stdout``), is written to directly.

    Yields
    ------
    binary file
        Open for writing. After an exception in the block `path` is unchanged.

    Raises
    ------
    OutputError
        The file cannot be written. An OSError in the block becomes one, too.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from gbdnn.io.atomic import whole_file
    >>> path = Path(tempfile.mkdtemp()) / "answer.txt"
    >>> with whole_file(path) as file:
    ...     _ = file.write(b"42")
    ...     print(path.exists())
    False
    >>> path.read_text()
    '42'
    """
    as_path(path)
    path = os.fspath(path)
    with output_errors(path):
        old = _stat(path)
        if old is not None and stat.S_ISDIR(old.st_mode):
            raise IsADirectoryError(errno.EISDIR, "is a folder")
        stream = None if old is None else _own_output(old)
        target = resolved(path)
        opened: contextlib.AbstractContextManager[BinaryIO]
        if stream is not None:
            opened = os.fdopen(os.dup(stream), "wb")
        elif old is not None and not stat.S_ISREG(old.st_mode):
            opened = os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "wb")
        else:
            opened = _replaced(target)
        compressed = _compressed if path.endswith(".gz") else contextlib.nullcontext
        with opened as file, compressed(file) as writable:
            yield writable


@contextlib.contextmanager
def whole_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Make a folder that is renamed to `path` when the block ends without an exception.

    Parameters
    ----------
    path : path-like
        Does not exist, or is an empty folder.

    Yields
    ------
    Path
        A new folder beside it, removed after an exception in the block.

    Raises
    ------
    OutputError
        `path` is a file or a folder that is not empty, or cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from gbdnn.io.atomic import whole_folder
    >>> path = Path(tempfile.mkdtemp()) / "answers"
    >>> with whole_folder(path) as folder:
    ...     _ = (folder / "first.txt").write_text("42")
    ...     print(path.exists())
    False
    >>> (path / "first.txt").read_text()
    '42'
    """
    with output_errors(path):
        target = resolved(path)
        remove_leftovers(target.parent)
        if target.exists() and not (target.is_dir() and not any(target.iterdir())):
            what = "is not empty" if target.is_dir() else "is not a folder"
            raise OutputError(f"{path}: {what}; choose another, or remove what is there")
        temporary, lock = new_folder(target.parent)
        try:
            yield temporary
            temporary.replace(target)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        finally:
            os.close(lock)


def made_folder(path: str | os.PathLike[str]) -> Path:
    """Make a folder if it does not exist; raise OutputError if that fails."""
    folder = as_path(path, "directory")
    with output_errors(folder, "made"):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def output_errors(path: str | os.PathLike[str], done: str = "written") -> Iterator[None]:
    """Raise an OutputError about `path` in place of an OSError in the block."""
    as_path(path)
    path = os.fspath(path)
    if "\0" in path:
        raise OutputError(f"{path!r}: cannot be {done}: a NUL in the name")
    try:
        yield
    except GbdnnError:
        raise
    except OSError as err:
        failure = OutputError(f"{path}: cannot be {done}: {_reason(path, err)}")
        failure.errno = err.errno
        raise failure from err


def require_writable(path: str | os.PathLike[str]) -> None:
    """Raise the OutputError that `whole_file` would raise, before its content is computed.

    Parameters
    ----------
    path : path-like
        Not changed; a FIFO or a device is not opened.

    Raises
    ------
    OutputError
        A file cannot be written there.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from gbdnn.io.atomic import require_writable
    >>> folder = Path(tempfile.mkdtemp())
    >>> require_writable(folder / "Y.tsv")  # nothing is raised: a file can be made there
    """
    as_path(path)

    class WithdrawnError(Exception):
        pass

    with contextlib.suppress(OSError, ValueError):
        mode = os.stat(path).st_mode  # noqa: PTH116 -- as in _stat
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            return
    with contextlib.suppress(WithdrawnError), whole_file(path):
        raise WithdrawnError


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116 -- Path("") is Path("."), os.stat("") is an error
    except FileNotFoundError:
        if not path:
            raise
        return None


def _own_output(old: os.stat_result) -> int | None:
    """Return the descriptor of standard output or error if `old` is that file.

    Renaming onto it would cut off everything else that goes there.
    """
    for stream in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(old, os.fstat(stream)):
                return stream
    return None


def is_own_output(file: os.stat_result) -> bool:
    """Whether a file is this process's standard output or error."""
    return _own_output(file) is not None


@contextlib.contextmanager
def _replaced(target: Path) -> Iterator[BinaryIO]:
    old = None
    with contextlib.suppress(FileNotFoundError):
        old = target.lstat()
    # A rename needs write access to the folder alone, and would replace a read-only file.
    if old and not (stat.S_ISREG(old.st_mode) and os.access(target, os.W_OK)):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    remove_leftovers(target.parent)
    temporary, descriptor = new_file(target.parent, 0o666 if old is None else 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            if old is not None:
                give_permissions(descriptor, old)
            os.fsync(descriptor)
            temporary.replace(target)  # before the file is closed, which ends the lock
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def give_permissions(descriptor: int, old: os.stat_result) -> None:
    """Give an open file the owner, group and mode that another one has.

    Not by its name, which may be another file's by now where others may write to the folder.
    """
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))


def _compressed(file: BinaryIO) -> BinaryIO:
    # Neither name nor time in the header: the bytes depend on the content alone.
    return cast("BinaryIO", gzip.GzipFile("", "wb", _GZIP_LEVEL, file, mtime=0))


def _reason(path: str, err: OSError) -> str:
    folder = Path(os.path.realpath(path)).parent
    if isinstance(err, FileNotFoundError) and path and not folder.exists():
        return f"the folder {folder} does not exist"
    return err.strerror or str(err) or type(err).__name__
