"""One store of features written by many processes: each part in a folder of its own until the end.

    Y/.gbdnn-<key>.tmp/part-00003/    a store of some rows, written by whoever computed them
    Y/                                at the end: all shards, and one index that names them

The key is a checksum of all that the content follows from, so that parts of something else are
never taken for these. A part is complete or not there. What is complete after a crash is kept: who
opens the parts with the same key again finds it.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from gbdnn.arrays.arguments import as_path
from gbdnn.errors import GbdnnError, OutputError
from gbdnn.io.store.features import open_features, write_features
from gbdnn.io.store.index import INDEX, read_index
from gbdnn.io.store.writer import Writer

if TYPE_CHECKING:
    import os

    import graphblas as gb
    import numpy as np

__all__ = ["PartWriter", "write_part"]

_PATIENCE = 60.0  # seconds for which another writer of the same part is waited for


class PartWriter:
    """A context manager for the caller: keeps other writers away, and puts parts together.

    Parameters
    ----------
    path : path-like
        The store's folder.
    key : str
        16 hexadecimal digits, of what the content follows from.
    """

    def __init__(self, path: str | os.PathLike[str], key: str) -> None:
        self._folder, self._key = as_path(path).absolute(), key
        self._parts = self._folder / f".gbdnn-{key}.tmp"
        self._writer = Writer(path)

    def __enter__(self) -> Self:
        self._writer.__enter__()
        try:
            self._parts.mkdir(self._writer.folder_mode, exist_ok=True)
        except OSError as err:
            self._writer.__exit__()
            raise OutputError(f"{self._parts}: cannot be made: {err}") from err
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._parts.rmdir()  # unless there are parts
        self._writer.__exit__()

    @property
    def is_finished(self) -> bool:
        """Whether the store is there already, of the same key."""
        with contextlib.suppress(GbdnnError):
            return read_index(self._folder).get("made_from") == self._key
        return False

    def folder(self, k: int) -> Path:
        """Return the folder of part `k`."""
        return self._parts / f"part-{k:05}"

    def has(self, k: int, rows: int) -> bool:
        """Whether part `k` is complete, with so many rows; a damaged one is removed."""
        folder = self.folder(k)
        if _is_whole(folder, rows):
            return True
        if (folder / INDEX).exists():  # written last: nobody is writing it
            shutil.rmtree(folder, ignore_errors=True)
        return False

    def finish(self, count: int, shape: tuple[int, int], dtype: np.dtype) -> None:
        """Make one store of `count` parts."""
        shards = [self._writer.adopt(self.folder(k)) for k in range(count)]
        parts: list[dict[str, Any]] = [part for index in shards for part in index["parts"]]
        content = {"shape": list(shape), "dtype": dtype.name, "parts": parts}
        self._writer.finish("features", {**content, "made_from": self._key})


def write_part(folder: str | os.PathLike[str], Y: gb.Matrix) -> None:
    """Write a part; another process that writes the same one is waited for."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return write_features([Y], folder)
        except OutputError as err:
            if err.errno != errno.EAGAIN or time.monotonic() > deadline:
                raise
        time.sleep(0.1)
        if _is_whole(Path(folder), Y.nrows):
            return None


def _is_whole(folder: Path, rows: int) -> bool:
    try:
        found = open_features(folder)
        sizes = [(shard["file"], shard["bytes"]) for shard in read_index(folder)["shards"]]
        there = all((folder / file).stat().st_size == size for file, size in sizes)
    except (GbdnnError, OSError):
        return False
    return there and found.nrows == rows
