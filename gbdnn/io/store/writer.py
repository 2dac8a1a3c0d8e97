"""Writing a store: shards first, the index last, by rename.

New shards are written into a temporary folder in the store's. When all are complete they are
renamed into the store, the index is replaced, and the old shards are removed. Until the index is
replaced a reader sees the old store, afterwards the new one; shards have random names, so none is
overwritten. Files that a killed process left are removed by the next save, unless it goes on with
them (`gbdnn.io.store.resumed`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from gbdnn.arrays.checks import as_path
from gbdnn.errors import GbdnnError, OutputError
from gbdnn.io.files import output_errors, whole_file
from gbdnn.io.reading import read_bytes, read_errors
from gbdnn.io.store.fingerprints import checksum
from gbdnn.io.store.index import INDEX, encode, is_index, read_index
from gbdnn.io.store.shards import safetensors, write_shard
from gbdnn.io.store.unfinished import bring_back, named_by_index, require_same_run

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from gbdnn.io.store.unfinished import Origin

__all__ = ["SHARD_BYTES", "Writer", "remove_left"]

SHARD_BYTES = 256 << 20
"""Largest size of a shard, unless a single layer is larger."""

_SHARD = re.compile(r"shard-[0-9a-f]{16}-[0-9]{5,}\.safetensors")
_UNFINISHED = re.compile(r"\.gbdnn-[0-9a-f]{16}\.tmp")


class Writer:
    """A context manager that writes a store; without `finish` the folder is unchanged.

    An OutputError says that the folder is not empty and not a store, is a file, is being written to
    by another process, holds what another run has completed, or cannot be written.

    Parameters
    ----------
    path : path-like
        The folder.
    shard_bytes : int, optional
        Largest size of a shard, unless a single array is larger (default: `SHARD_BYTES`).
    origin : Origin, optional
        Of the run: what it has completed itself may be in the folder.
    restart : bool, default False
        Whether what runs have completed is removed.
    any_run : bool, default False
        Whether no run is looked for.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        shard_bytes: int | None = None,
        origin: Origin | None = None,
        restart: bool = False,
        any_run: bool = False,
    ) -> None:
        safetensors()
        checksum(b"")
        self._folder = as_path(path).absolute()
        self._token = secrets.token_hex(8)
        self._new = self._folder / f".gbdnn-{self._token}.tmp"
        self._most = SHARD_BYTES if shard_bytes is None else shard_bytes
        self._origin, self._restart, self._any_run = origin, restart, any_run
        self._shards: list[dict[str, Any]] = []
        self._places: dict[str, Path] = {}  # the folder in which a shard waits for the end
        self._tensors: dict[str, np.ndarray] = {}
        self._bytes = 0
        self._lock = -1
        self._has_begun = False
        self._made: list[Path] = []
        self._old: os.stat_result | None = None

    def __enter__(self) -> Self:
        try:
            with output_errors(self._folder):
                self._make_folders()
                self._lock = _locked(self._folder)
                self._require_ours()
                with contextlib.suppress(FileNotFoundError):
                    self._old = (self._folder / INDEX).stat()
                if not self._any_run:
                    require_same_run(self._folder, self._origin, restart=self._restart)
                self._has_begun = True
                self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Remove temporary files and release the lock."""
        try:
            if self._has_begun:
                self._abandon()
        finally:
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1
            with contextlib.suppress(OSError, ValueError):
                while self._made:
                    self._made.pop().rmdir()

    @property
    def folder_mode(self) -> int:
        """The mode of temporary folders: nobody may enter who may not read the old store."""
        return 0o777 if self._old is None or self._old.st_mode & 0o077 else 0o700

    def add(self, name: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
        """Add arrays, which go into one shard, and return their place."""
        size = sum(array.nbytes for array in arrays.values())
        if self._tensors and self._bytes + size > self._most:
            self._flush()
        self._bytes += size
        places = {}
        for role, array in arrays.items():
            array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
            self._tensors[f"{name}.{role}"] = array
            digest = checksum(array.view(np.uint8))
            places[role] = {"name": f"{name}.{role}", "xxh3_64": digest}
        return {"shard": self._shard(), "tensors": places}

    def adopt(self, folder: Path) -> dict[str, Any]:
        """Add the shards of another store, which is to be removed, and return its index."""
        index = read_index(folder)
        for shard in index["shards"]:
            if self._old is not None:
                with output_errors(self._folder):
                    (folder / shard["file"]).chmod(stat.S_IMODE(self._old.st_mode))
            self._keep(shard, folder)
        return index

    def finish(self, kind: str, content: dict[str, Any]) -> None:
        """Write the index, which makes this the folder's store."""
        if self._tensors:
            self._flush()
        data = encode(kind, self._shards, content)
        with output_errors(self._folder):
            try:
                for file, folder in self._places.items():
                    (folder / file).rename(self._folder / file)
                _sync(self._folder)
                with whole_file(self._folder / INDEX) as index:
                    index.write(data)
            except BaseException:
                if self._has_other_index(data):  # Ctrl-C may come right after the rename
                    with contextlib.suppress(GbdnnError, OSError):
                        bring_back(self._folder, self._places)
                raise
            self._made.clear()
            _sync(self._folder)
        self.tidy(self._places)

    def tidy(self, named: Collection[str]) -> None:
        """Remove all shards but these, those that the index names, and then temporary folders.

        In this order: after a kill a folder that is left tells that there is something to remove.
        """
        with contextlib.suppress(OSError):
            left = [path for path in _leftovers(self._folder) if path.name not in named]
            for path in sorted(left, key=lambda path: _SHARD.fullmatch(path.name) is None):
                _remove(path)

    def _begin(self) -> None:
        """Make the temporary folder."""
        self._new.mkdir(mode=self.folder_mode)

    def _abandon(self) -> None:
        """Remove the temporary folder, if it is there."""
        _remove(self._new)

    def _keep(self, shard: dict[str, Any], folder: Path) -> None:
        """Take a shard that is complete; it stays where it is until the end."""
        self._shards.append(shard)
        self._places[shard["file"]] = folder

    def _flush(self) -> None:
        """Write the arrays added since the last shard."""
        path = self._new / self._shard()
        try:
            with output_errors(self._folder):
                header, size = write_shard(path, self._tensors, self._old)
        except BaseException:
            _remove(path)
            raise
        digest = checksum(header)
        self._keep({"file": path.name, "bytes": size, "header_xxh3_64": digest}, self._new)
        self._tensors, self._bytes = {}, 0

    def _has_other_index(self, data: bytes) -> bool:
        """Whether the index is known not to be this one."""
        try:
            return read_bytes(self._folder / INDEX) != data
        except FileNotFoundError:
            return True
        except (GbdnnError, OSError):
            return False

    def _make_folders(self) -> None:
        """Make the folder, and those that it is in."""
        missing, at = [], self._folder
        while not at.exists():
            missing.append(at)
            at = at.parent
        while missing:
            self._made.append(missing.pop())
            self._made[-1].mkdir(exist_ok=True)

    def _shard(self) -> str:
        return f"shard-{self._token}-{len(self._shards):05}.safetensors"

    def _require_ours(self) -> None:
        """Raise OutputError if the folder is not empty and no store."""
        index = self._folder / INDEX
        if index.exists():
            ours = is_index(index)
        else:
            ours = len(_leftovers(self._folder)) == len(list(self._folder.iterdir()))
        if not ours:
            raise OutputError(
                f"{self._folder}: is not empty and not a store; choose another folder, or remove"
                " what is in it"
            )


def remove_left(path: Path) -> None:
    """Remove what a run has left that was killed when its store was finished.

    Nothing, if a run that can be resumed has something there, or the store is being written.
    """
    named = named_by_index(path)
    with read_errors(path):
        left = [each for each in _leftovers(path) if each.name not in named]
    if named and left:
        with contextlib.suppress(OutputError), Writer(path) as writer:
            writer.tidy(named_by_index(path))


def _leftovers(folder: Path) -> list[Path]:
    """Return the shards and temporary folders of all writers."""
    return [
        path
        for path in folder.iterdir()
        if _SHARD.fullmatch(path.name) or _UNFINISHED.fullmatch(path.name)
    ]


def _locked(folder: Path) -> int:
    """Return an open descriptor of the folder, with an exclusive lock where there are locks."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        failure = OutputError(f"{folder}: another process is writing to this store")
        failure.errno = errno.EAGAIN
        raise failure from None
    except OSError:  # the file system has no locks
        return descriptor
    return descriptor


def _sync(folder: Path) -> None:
    """Flush a folder's names to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError, ValueError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
