"""Machine code on disk: loaded if it is what its name says, and nobody else can have written it.

    digest of all that follows | length of the key | key | machine code

The key is all that the code follows from, with the names of its functions: a file under another
one's name is not code. Machine code does what it likes: file and folder have to be this user's own,
and writable by no one else. A link, a FIFO or a device is not read.

A file is written beside and then renamed: two processes that compile at once write the same file
twice. Whoever writes one removes those that no process has read for long, and what a killed writer
has left.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import tempfile
import time
from pathlib import Path

__all__ = ["CodeFile", "UntrustedError"]

_DIGEST = hashlib.sha256().digest_size
_DAY = 86_400.0  # seconds
_UNREAD, _UNFINISHED = 90 * _DAY, _DAY / 24  # after which a file, or a temporary one, is removed


class UntrustedError(Exception):
    """Code that is not to be loaded; the message says why."""


class CodeFile:
    """Where the machine code of some functions is, or will be.

    Parameters
    ----------
    folder : Path
        Made when it is needed.
    label : str
        The first part of the file's name.
    key : bytes
        All that the code follows from.
    """

    def __init__(self, folder: Path, label: str, key: bytes) -> None:
        self._key = len(key).to_bytes(8, "little") + key
        self.path = folder / f"kernels-{label}-{hashlib.sha256(key).hexdigest()[:32]}.o"

    @property
    def is_there(self) -> bool:
        """Whether there is a file, of this user's own."""
        try:
            file = self._open()
        except (OSError, UntrustedError):
            return False
        os.close(file)
        return True

    def read(self) -> bytes | None:
        """Return the code; None if it is not there, or damaged, or other code.

        Raises
        ------
        UntrustedError
            Somebody else may have written it.
        """
        try:
            with os.fdopen(self._open(), "rb") as file:
                if time.time() - os.fstat(file.fileno()).st_mtime > _DAY:
                    os.utime(file.fileno())  # it is not removed
                data = file.read()
        except OSError:
            return None
        digest, rest = data[:_DIGEST], data[_DIGEST:]
        if hashlib.sha256(rest).digest() != digest or not rest.startswith(self._key):
            return None
        return rest[len(self._key) :] or None

    def write(self, code: bytes) -> None:
        """Write the code, if that is possible."""
        folder, rest = self.path.parent, self._key + code
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(_own_folder(folder))
            handle, name = tempfile.mkstemp(dir=folder, prefix="kernels-", suffix=".tmp")
            try:
                with os.fdopen(handle, "wb") as out:
                    out.write(hashlib.sha256(rest).digest() + rest)
                Path(name).replace(self.path)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
            _remove_old(folder)
        except (OSError, UntrustedError):
            return

    def _open(self) -> int:
        """Return a descriptor of the file."""
        folder = _own_folder(self.path.parent)
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(self.path.name, flags, dir_fd=folder)
        except OSError as err:
            if err.errno == errno.ELOOP:
                raise UntrustedError(f"{self.path} is a link") from err
            raise
        finally:
            os.close(folder)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise UntrustedError(f"{self.path} is not a regular file")
            _require_own(file, self.path)
        except BaseException:
            os.close(file)
            raise
        return file


def _own_folder(path: Path) -> int:
    """Return a descriptor of a folder that this user alone may write to."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _require_own(folder, path)
    except BaseException:
        os.close(folder)
        raise
    return folder


def _require_own(descriptor: int, path: Path) -> None:
    found = os.fstat(descriptor)
    if found.st_uid != os.geteuid():
        raise UntrustedError(f"{path} is another user's")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UntrustedError(f"{path} can be written by others: chmod go-w")


def _remove_old(folder: Path) -> None:
    now = time.time()
    for suffix, age in ((".o", _UNREAD), (".tmp", _UNFINISHED)):
        for path in folder.glob(f"kernels-*{suffix}"):
            if now - path.lstat().st_mtime > age:
                path.unlink(missing_ok=True)
