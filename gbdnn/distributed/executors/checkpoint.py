"""Checkpoints of a streamed run: where it stands between two windows of layers, in a store.

    part-....run/    queued rows by layer, finished rows, which inputs follow another one

A network that is not in memory is read window by window; a run that is killed goes on with the
window that it was at. A checkpoint is written when the time since the last one is `_WORTH` times
what it takes to write it: an uninterrupted run takes 2 % more at most. It replaces the one before
it by rename, so that one of them is always whole.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.engine.queues import SavedState
from gbdnn.errors import FormatError, OutputError
from gbdnn.io.reading import WRONG
from gbdnn.io.store.reader import Reader
from gbdnn.io.store.sparse import described, read_arrays, write_arrays
from gbdnn.io.store.writer import Writer

if TYPE_CHECKING:
    import os

    from gbdnn.engine.queues import RunState

__all__ = ["Checkpoint"]

_WORTH = 50
_LEAST = 0.02  # seconds to flush a few files
_RATE = 2e8  # bytes a second, until one has been written
_SHARD = 16 << 20  # bytes that are held in memory twice


class Checkpoint:
    """Where one part of an answer stands, in a folder beside the part's.

    Parameters
    ----------
    folder : path-like
        Its folder; made when the first checkpoint is written.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self._rate, self._last = _RATE, monotonic()

    def restore(self) -> SavedState | None:
        """Return what an earlier call has left; None if that is nothing, or damaged.

        A ReadError, or a MemoryError, says that it cannot be read now.
        """
        try:
            return _read(Reader(self._folder))
        except WRONG:
            return None

    def offer(self, k: int, state: RunState) -> None:
        """Take the state before layer `k`, if it is time."""
        cost = _LEAST + state.nbytes / self._rate
        if monotonic() - self._last < _WORTH * cost:
            return
        began = monotonic()
        try:
            _write(self._folder, k, state.saved())
        except OutputError as err:
            if err.errno != errno.EAGAIN:  # another worker has got the same part
                raise
        self._last = monotonic()
        self._rate = max(1.0, state.nbytes) / max(1e-3, self._last - began - _LEAST)

    def remove(self) -> None:
        """Remove the folder: the part is complete."""
        with contextlib.suppress(OSError):
            shutil.rmtree(self._folder)


def _write(folder: Path, k: int, saved: SavedState) -> None:
    with Writer(folder, shard_bytes=_SHARD) as writer:
        unread: list[list[int]] = []
        queued: list[dict[str, Any]] = []
        for layer, rows in saved.queued:
            if isinstance(rows, range):
                unread.append([layer, rows.start, rows.stop])
            else:
                entry = _write_rows(writer, f"queued.{len(queued)}", rows)
                queued.append({**entry, "layer": layer})
        finished = [
            _write_rows(writer, f"finished.{n}", rows) for n, rows in enumerate(saved.finished)
        ]
        followed = None
        if saved.followed is not None:
            parents, weights = saved.followed
            entry = writer.add("followed", {"parents": parents, "weights": weights})
            followed = {**entry, "inputs": len(parents)}
        writer.finish(
            "checkpoint",
            {
                "next_layer": k,
                "unread": unread,
                "queued": queued,
                "finished": finished,
                "followed": followed,
            },
        )


def _write_rows(writer: Writer, name: str, rows: SparseRows) -> dict[str, Any]:
    beside = {"ids": np.asarray(rows.ids, np.int64)}
    return write_arrays(writer, name, rows, "CSR", (rows.nrows, rows.ncols), beside)


def _read(reader: Reader) -> SavedState:
    if reader.index.get("kind") != "checkpoint":
        raise FormatError(f"{reader.path}: holds {reader.index.get('kind')!r}, not a checkpoint")

    def read() -> SavedState:
        index = reader.index
        queued: list[tuple[int, SparseRows | range]] = [
            (int(k), range(int(start), int(stop))) for k, start, stop in index["unread"]
        ]
        queued += [(int(each["layer"]), _read_rows(reader, each)) for each in index["queued"]]
        finished = [_read_rows(reader, each) for each in index["finished"]]
        followed = index["followed"]
        if followed is not None:
            n = int(followed["inputs"])
            parents, weights = (
                reader.array(followed, role, "int64", n, "followed").copy()
                for role in ("parents", "weights")
            )
            followed = parents, weights
        return SavedState(queued, finished, followed)

    return reader.parsed("checkpoint", read)


def _read_rows(reader: Reader, entry: dict[str, Any]) -> SparseRows:
    given = described(entry)
    rows = read_arrays(reader, entry, given, "rows")
    ids = reader.array(entry, "ids", "int64", given.shape[0], "rows").copy()
    return SparseRows(rows.indptr, rows.columns, rows.values, rows.ncols, ids)
