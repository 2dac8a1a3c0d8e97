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
import os
import re
import secrets
import shutil
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from gbdnn.arrays.arguments import as_path
from gbdnn.errors import OutputError
from gbdnn.io.atomic import give_permissions, output_errors, whole_file
from gbdnn.io.store.index import INDEX, checksum, encode, is_index, read_index
from gbdnn.optional import require

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

SHARD_BYTES = 256 << 20
"""Largest size of a shard, unless a single layer is larger."""

_SHARD = re.compile(r"shard-[0-9a-f]{16}-[0-9]{5,}\.safetensors")
_UNFINISHED = re.compile(r"\.gbdnn-[0-9a-f]{16}\.tmp")


class Writer:
    """A context manager that writes a store; without `finish` the folder is unchanged.

    An OutputError says that the folder is no store and not empty, is a file, is being written to by
    another process, or cannot be written.

    Parameters
    ----------
    path : path-like
        The folder.
    shard_bytes : int, optional
        Largest size of a shard, unless a single array is larger (default: `SHARD_BYTES`).
    """

    def __init__(self, path: str | os.PathLike[str], *, shard_bytes: int | None = None) -> None:
        safetensors()
        checksum(b"")
        self._folder = as_path(path).absolute()
        self._token = secrets.token_hex(8)
        self._new = self._folder / f".gbdnn-{self._token}.tmp"
        self._most = SHARD_BYTES if shard_bytes is None else shard_bytes
        self._shards: list[dict[str, Any]] = []
        self._tensors: dict[str, np.ndarray] = {}
        self._bytes = 0
        self._lock = -1
        self._made = False
        self._old: os.stat_result | None = None

    def __enter__(self) -> Self:
        try:
            with output_errors(self._folder):
                self._made = not self._folder.exists()
                self._folder.mkdir(parents=True, exist_ok=True)
                self._lock = _locked(self._folder)
                self._require_ours()
                with contextlib.suppress(FileNotFoundError):
                    self._old = (self._folder / INDEX).stat()
                self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Remove temporary files and release the lock."""
        self._abandon()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        if self._made:
            with contextlib.suppress(OSError, ValueError):
                self._folder.rmdir()

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
            source, target = folder / shard["file"], self._new / shard["file"]
            with output_errors(self._folder):
                try:
                    os.link(source, target)  # the other store stays whole until this one is
                except FileNotFoundError:
                    raise
                except OSError:  # a file system without links
                    source.rename(target)
                if self._old is not None:
                    give_permissions(target, self._old)
            self._shards.append(shard)
        return index

    def finish(self, kind: str, content: dict[str, Any]) -> None:
        """Write the index, which makes this the folder's store."""
        if self._tensors:
            self._flush()
        data = encode(kind, self._shards, content)
        named = [shard["file"] for shard in self._shards]
        try:
            for file in named:
                (self._new / file).rename(self._folder / file)
            _sync(self._folder)
            with whole_file(self._folder / INDEX) as index:
                index.write(data)
        except BaseException:
            if not self._is_index(data):  # Ctrl-C may come right after the rename
                self._withdraw(named)
            raise
        _sync(self._folder)
        self._made = False
        self.tidy(named)

    def tidy(self, named: Collection[str]) -> None:
        """Remove temporary folders, and all shards but these: those that the index names."""
        for path in self._leftovers():
            if path.name not in named:
                _remove(path)

    def _begin(self) -> None:
        """Make the temporary folder."""
        self._new.mkdir(mode=self.folder_mode)

    def _abandon(self) -> None:
        """Remove the temporary folder, if it is there."""
        _remove(self._new)

    def _withdraw(self, files: list[str]) -> None:
        """Take back shards that no index names."""
        for file in files:
            _remove(self._folder / file)

    def _flush(self) -> None:
        """Write the arrays added since the last shard."""
        from safetensors.numpy import save_file

        path = self._new / self._shard()
        try:
            save_file(self._tensors, path)
            self._give_permissions(path)
            _sync(path)
            header = header_of(path)
        except (OSError, safetensors().SafetensorError) as err:
            raise OutputError(f"{self._folder}: cannot be written: {err}") from err
        digest = checksum(header)
        size = path.stat().st_size
        self._shards.append({"file": path.name, "bytes": size, "header_xxh3_64": digest})
        self._tensors, self._bytes = {}, 0

    def _give_permissions(self, shard: Path) -> None:
        """Give a shard the permissions of the old store's index, else those that are usual."""
        if self._old is not None:
            give_permissions(shard, self._old)
        else:
            # The package makes files private to their owner; a new folder has the umask's mode.
            shard.chmod(self._new.stat().st_mode & 0o666)

    def _is_index(self, data: bytes) -> bool:
        try:
            return (self._folder / INDEX).read_bytes() == data
        except OSError:
            return False

    def _shard(self) -> str:
        return f"shard-{self._token}-{len(self._shards):05}.safetensors"

    def _require_ours(self) -> None:
        """Raise OutputError if the folder is not empty and no store."""
        index = self._folder / INDEX
        if index.exists():
            ours = is_index(index)
        else:
            ours = len(self._leftovers()) == len(list(self._folder.iterdir()))
        if not ours:
            raise OutputError(
                f"{self._folder}: is not empty and no store; choose another folder, or remove what"
                " is in it"
            )

    def _leftovers(self) -> list[Path]:
        """Return the shards and temporary folders of this and other writers."""
        return [
            path
            for path in self._folder.iterdir()
            if _SHARD.fullmatch(path.name) or _UNFINISHED.fullmatch(path.name)
        ]


def safetensors() -> Any:
    """Return the package safetensors, or raise MissingPackageError."""
    return require("safetensors", "store", "a store has shards of safetensors")


def header_of(path: Path) -> bytes:
    """Return the first bytes of a shard: its header's length, and the header."""
    with path.open("rb") as file:
        length = file.read(8)
        # A damaged length may exceed the file's.
        return length + file.read(min(int.from_bytes(length, "little"), path.stat().st_size))


def _locked(folder: Path) -> int:
    """Return an open descriptor with an exclusive lock on the folder, -1 without locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        return -1
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        failure = OutputError(f"{folder}: another process is writing to this store")
        failure.errno = errno.EAGAIN
        raise failure from None
    except OSError:  # a file system without locks
        pass
    return descriptor


def _sync(path: Path) -> None:
    """Flush a file, or a folder's names, to the disk."""
    if path.is_dir() and os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
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
