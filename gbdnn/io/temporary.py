"""Temporary files and folders: in use as long as they are locked, left behind where they are not.

A process that is killed cannot remove what it was writing. The lock on it ends with the process, so
that the next one that writes into the folder can tell it from what another one is writing. Where
there are no locks, nothing is removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import time
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["lock", "new_file", "new_folder", "remove_leftovers"]

_LEFTOVER = re.compile(r"\.gbdnn-[0-9a-f]{16}(\.folder)?\.tmp")
_PAUSE = 10.0  # seconds
_LOOKED: dict[Path, float] = {}


def lock(descriptor: int, *, wait: bool = False) -> bool:
    """Lock an open file or folder for this process, until it is closed.

    False if its file system has no locks. Another process that has the lock is waited for, or a
    BlockingIOError is raised.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


def new_file(folder: Path, mode: int = 0o666) -> tuple[Path, int]:
    """Make a temporary file; return it, and a descriptor to write to, which holds the lock.

    The mode is subject to the umask, as that of `open` is.
    """
    return _held(folder, partial(_make_file, mode=mode))


def new_folder(folder: Path) -> tuple[Path, int]:
    """Make a temporary folder; return it, and a descriptor that holds the lock."""
    return _held(folder, _make_folder)


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files and folders in `folder` that killed processes have left.

    Those in use are locked. A folder is looked at once in a while, since it may hold many files.
    """
    now = time.monotonic()
    if now - _LOOKED.get(folder, -_PAUSE) < _PAUSE:
        return
    _LOOKED[folder] = now
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if _LEFTOVER.fullmatch(entry.name) and not entry.is_symlink():
                _remove_unused(folder / entry.name, is_folder=entry.is_dir(follow_symlinks=False))


def _make_file(folder: Path, mode: int) -> tuple[Path, int]:
    path = folder / f".gbdnn-{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    return path, os.open(path, flags, mode)


def _make_folder(folder: Path) -> tuple[Path, int]:
    path = folder / f".gbdnn-{secrets.token_hex(8)}.folder.tmp"
    path.mkdir()
    try:
        return path, os.open(path, os.O_RDONLY)
    except BaseException:
        path.rmdir()
        raise


def _held(folder: Path, make: Callable[[Path], tuple[Path, int]]) -> tuple[Path, int]:
    """Return a new temporary file or folder, and a descriptor of it.

    The descriptor has a lock, which ends with this process: by it others know that it is in use.
    """
    while True:
        path, descriptor = make(folder)
        try:
            lock(descriptor, wait=True)
            # Another process may have taken it for a leftover before it was locked.
            if os.fstat(descriptor).st_nlink:
                return path, descriptor
        except BaseException:
            os.close(descriptor)
            _remove_unused(path, is_folder=path.name.endswith(".folder.tmp"))
            raise
        os.close(descriptor)


def _remove_unused(path: Path, *, is_folder: bool) -> None:
    # A folder of the other name belongs to a store, which has a lock of its own.
    if is_folder != path.name.endswith(".folder.tmp"):
        return
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            if lock(descriptor):
                if is_folder:
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()
        finally:
            os.close(descriptor)
