"""One store of features written by many processes: each part in a folder of its own until the end.

    Y/.gbdnn-<key>.tmp/part-<start>-<stop>/    a store of these rows, by whoever computed them
    Y/                                         at the end: all shards, and one index that names them

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

from gbdnn.arrays.checks import as_path
from gbdnn.errors import MissingFileError, OutputError
from gbdnn.io.files import output_errors
from gbdnn.io.reading import WRONG
from gbdnn.io.store.features import StoredFeatures, write_features
from gbdnn.io.store.reader import Reader
from gbdnn.io.store.unfinished import (
    RUN,
    Origin,
    bring_back,
    find_unfinished,
    finished_key,
    part_name,
    read_run,
    run_folder,
    write_run,
)
from gbdnn.io.store.writer import Writer, remove_left

if TYPE_CHECKING:
    import os

    import graphblas as gb
    import numpy as np

__all__ = ["PartWriter", "write_part"]

_AT_ONCE = 4096  # rows that are verified at a time
_PATIENCE = 60.0  # seconds for which another writer of the same part is waited for


class PartWriter:
    """A context manager for the caller: keeps other writers away, and puts parts together.

    Parameters
    ----------
    path : path-like
        The store's folder.
    origin : Origin
        What the content follows from.
    starts : list of int
        Where the parts begin, and the number of rows, unless the run has parts already.
    layers : int
        Of the network; for people.
    batch : int, optional
        The size of parts that was asked for: parts of another size are refused.
    restart : bool
        Whether to begin anew, and to discard what this or another run has done.

    Attributes
    ----------
    starts : list of int
        Where the parts begin.
    is_finished : bool
        Whether the store was there already, of the same origin.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        origin: Origin,
        starts: list[int],
        *,
        layers: int = 0,
        batch: int | None = None,
        restart: bool = False,
    ) -> None:
        self._folder, self._origin, self._restart = as_path(path).absolute(), origin, restart
        self._parts = run_folder(self._folder, origin.key)
        self._writer = Writer(path, origin=origin, restart=restart)
        self._batch, self._layers = batch, layers
        self.starts = starts
        self.is_finished = False

    def __enter__(self) -> Self:
        self.is_finished = self._finds_finished()
        if self.is_finished:
            remove_left(self._folder)
            return self
        self._writer.__enter__()
        try:
            self.is_finished = self._finds_finished()  # by a process that had the lock
            if not self.is_finished:
                with output_errors(self._parts, "made"):
                    self._parts.mkdir(self._writer.folder_mode, exist_ok=True)
                self._take_starts()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if not self.is_finished:
                self._remove_empty()
        finally:
            self._writer.__exit__()

    def _remove_empty(self) -> None:
        """Remove the folder of the parts if there are none."""
        with contextlib.suppress(OSError):
            if all(each.name == RUN for each in self._parts.iterdir()):
                (self._parts / RUN).unlink(missing_ok=True)
                self._parts.rmdir()  # a worker whose answer nobody waits for may write all the same

    def _take_starts(self) -> None:
        """Go on with the parts of an earlier call, or write down those of this one."""
        starts = self._kept_starts()
        if starts is None:
            write_run(
                self._parts,
                self._origin,
                {"kind": "features", "starts": self.starts, "layers": self._layers},
            )
            return
        if self._batch is not None and starts != self.starts:
            sizes = [each[1] - each[0] for each in (starts, self.starts)]
            raise OutputError(
                f"{self._folder}: holds parts of {sizes[0]:,} inputs, not {sizes[1]:,}, of the same"
                " run: without batch= (in the shell --batch) it goes on with them, and restart=True"
                " (--restart) discards them"
            )
        self.starts = starts

    def _kept_starts(self) -> list[int] | None:
        """Return where the parts of an earlier call begin, if it has completed any."""
        if (found := find_unfinished(self._folder)) is None or found.is_empty:
            return None
        try:
            starts = [int(each) for each in read_run(self._parts)[1]["starts"]]
        except WRONG:
            return None
        return starts if starts[-1] == self.starts[-1] else None

    def _finds_finished(self) -> bool:
        return not self._restart and finished_key(self._folder) == self._origin.key

    @property
    def count(self) -> int:
        """Number of parts."""
        return len(self.starts) - 1

    def folder(self, k: int) -> Path:
        """Return the folder of part `k`."""
        return self._parts / part_name(self.starts[k], self.starts[k + 1])

    def missing(self) -> list[int]:
        """Return which parts are not complete; damaged ones are removed."""
        return [k for k in range(self.count) if not self._has(k)]

    def _has(self, k: int) -> bool:
        folder = self.folder(k)
        try:
            shards = Reader(folder).index["shards"]
        except MissingFileError:  # written last: somebody may be writing it
            return False
        except WRONG:
            shards = []
        bring_back(self._folder, {shard["file"]: folder for shard in shards})
        if _is_whole(folder, self.starts[k + 1] - self.starts[k], verify=True):
            return True
        shutil.rmtree(folder, ignore_errors=True)
        return False

    def finish(self, shape: tuple[int, int], dtype: np.dtype) -> None:
        """Make one store of all parts."""
        shards = [self._writer.adopt(self.folder(k)) for k in range(self.count)]
        parts: list[dict[str, Any]] = [part for index in shards for part in index["parts"]]
        content = {"shape": list(shape), "dtype": dtype.name, "parts": parts}
        self._writer.finish("features", {**content, "made_from": self._origin.key})


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


def _is_whole(folder: Path, rows: int, *, verify: bool = False) -> bool:
    """Whether a part is complete, with so many rows; if `verify`, with the bytes it was given."""
    try:
        reader = Reader(folder)
        found = StoredFeatures(reader)
        reader.require_shards()
        for start in range(0, rows, _AT_ONCE) if verify and found.nrows == rows else ():
            found.sparse_rows(start, min(start + _AT_ONCE, rows))
    except WRONG:
        return False
    return found.nrows == rows
