"""Sparse rows from rank to rank, in mpi4py's buffer calls.

A message is the lengths of its arrays, then the arrays: ids, row pointers, columns, values. Columns
are as narrow as they may be, and left out where every row is full; equal values are sent once. All
sends are nonblocking. A rank that waits also looks whether another one has failed; whoever has
failed, or learnt of it, ends its own links and empties the others: nobody waits for what will never
come.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.runtime.optional import require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from mpi4py.MPI import Comm

__all__ = ["Links", "Stopped", "rank_wise"]

T = TypeVar("T")

MOST_ENTRIES = 1 << 27  # of a message: MPI counts with 31 bits
_AHEAD = 4  # messages to a rank that may be on their way
_ROWS, _FAILED = 1, 2  # tags
_END = -1  # in place of the number of rows
_LONGEST_PAUSE = 1e-3  # seconds between two looks: MPI's own waiting would keep a core busy


class Stopped(Exception):  # noqa: N818 -- not an error of this rank
    """Another rank has failed."""


class Links:
    """One rank's ends of the links of a pipeline.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm
        Used by these links alone.
    dtype : dtype
        Of the values.
    sources : dict
        The ranks that send rows to this one, with the number of columns of those rows.
    targets : sequence of int
        The ranks that get rows from this one.

    Attributes
    ----------
    sent : int
        Bytes of the messages so far.
    waited : float
        Seconds of waiting for other ranks.
    has_failed : bool
        Whether this rank has told the others that it failed.
    """

    def __init__(
        self, comm: Comm, dtype: np.dtype, sources: Mapping[int, int], targets: Iterable[int]
    ) -> None:
        self._mpi = require("mpi4py.MPI", "mpi", "ranks need mpi4py")
        self._comm, self._dtype = comm, dtype
        self._ncols = sources
        self._open = set(sources)
        self._targets = list(targets)
        self._under_way: deque[list[Any]] = deque()
        self.sent = 0
        self.waited = 0.0
        self.has_failed = False

    def run(self, work: Callable[[Links], T]) -> T:
        """Return ``work(links)`` when all it sent has arrived; end the links, however it ends.

        Raises
        ------
        Stopped
            Another rank has failed.
        """
        try:
            found = work(self)
            self.end()
            self._wait(lambda: self._has_arrived(0))
        except BaseException as error:
            if not isinstance(error, Stopped):
                self._announce()
            self._drain()
            raise
        return found

    def send(self, rows: SparseRows) -> None:
        """Send rows to all targets, in messages that MPI can count; wait if many are under way."""
        for part in rows.parts(MOST_ENTRIES):
            arrays = _arrays(part)
            lengths = np.array([len(arrays[0]), *map(len, arrays[2:])], np.int64)
            for target in self._targets:
                self._wait(lambda: self._has_arrived(_AHEAD - 1))
                self._send([lengths, *arrays], target)
                self.sent += lengths.nbytes + sum(array.nbytes for array in arrays)

    def end(self) -> None:
        """Tell the targets that no further rows come."""
        while self._targets:
            self._send([np.array([_END, 0, 0], np.int64)], self._targets.pop())

    def receive(self, source: int) -> Iterator[SparseRows]:
        """Yield the rows that a source sends, as they come."""
        while source in self._open:
            self._wait(lambda: self._has_message(source))
            rows = self._receive(source)
            if rows is not None:
                yield rows

    def _receive(self, source: int) -> SparseRows | None:
        ncols = self._ncols[source]
        lengths = np.empty(3, np.int64)
        self._comm.Recv(lengths, source, _ROWS)
        nrows, columns, values = lengths.tolist()
        if nrows == _END:
            self._open.remove(source)
            return None
        arrays = [
            np.empty(nrows, np.int64),
            np.empty(nrows + 1, np.uint64),
            np.empty(columns, _narrowest(ncols)),
            np.empty(values, self._dtype),
        ]
        for array in arrays:
            self._comm.Recv(array, source, _ROWS)
        return _rows(arrays, ncols)

    def _send(self, arrays: list[np.ndarray], target: int) -> None:
        # A request keeps its array.
        self._under_way.append([self._comm.Isend(array, target, _ROWS) for array in arrays])

    def _has_message(self, source: int) -> bool:
        return bool(self._comm.Iprobe(source, _ROWS))

    def _has_arrived(self, but: int) -> bool:
        """Whether all messages, but for so many, have left this rank's memory."""
        while self._under_way and self._mpi.Request.Testall(self._under_way[0]):
            self._under_way.popleft()
        return len(self._under_way) <= but

    def _wait(self, is_done: Callable[[], bool]) -> None:
        began = perf_counter()
        for pause in _pauses():
            self.check()
            if is_done():
                break
            sleep(pause)
        self.waited += perf_counter() - began

    def watched(self, each: Iterable[T]) -> Iterator[T]:
        """Yield what is given, as long as no other rank has failed."""
        for item in each:
            self.check()
            yield item

    def check(self) -> None:
        """Raise Stopped if another rank has failed."""
        if self._comm.Iprobe(self._mpi.ANY_SOURCE, _FAILED):
            raise Stopped

    def _announce(self) -> None:
        """Tell all other ranks that this one has failed."""
        self.has_failed = True
        nothing = np.empty(0, np.uint8)
        others = [r for r in range(self._comm.size) if r != self._comm.rank]
        self._under_way.append([self._comm.Isend(nothing, r, _FAILED) for r in others])

    def _drain(self) -> None:
        """End the links: what still comes is received, what is under way arrives."""
        self.end()
        for pause in _pauses():
            for source in [each for each in self._open if self._has_message(each)]:
                self._receive(source)
            if self._has_arrived(0) and not self._open:
                return
            sleep(pause)

    def clear(self, failed: list[bool]) -> None:
        """Receive what ranks announced: those for which it is true."""
        nothing = np.empty(0, np.uint8)
        for rank in np.flatnonzero(failed).tolist():
            if rank != self._comm.rank:
                self._comm.Recv(nothing, rank, _FAILED)


def rank_wise(comm: Comm, mine: T) -> list[T]:
    """Return what every rank passes, a small object; all ranks call it."""
    barrier = comm.Ibarrier()
    for pause in _pauses():
        if barrier.Test():
            break
        sleep(pause)
    found: list[T] = comm.allgather(mine)
    return found


def _pauses() -> Iterator[float]:
    """Yield seconds to sleep between two looks, longer and longer."""
    pause = 0.0
    while True:
        yield pause
        pause = min(pause + 5e-5, _LONGEST_PAUSE)


def _narrowest(ncols: int) -> np.dtype:
    """Return the narrowest dtype of column numbers."""
    return next(
        np.dtype(each)
        for each in (np.uint16, np.uint32, np.uint64)
        if ncols <= 1 + np.iinfo(each).max
    )


def _arrays(rows: SparseRows) -> list[np.ndarray]:
    full = rows.nvals == rows.nrows * rows.ncols
    columns = rows.columns[:0] if full else rows.columns
    values = rows.values[:1] if rows.is_iso else rows.values
    return [
        np.ascontiguousarray(rows.ids, np.int64),
        np.ascontiguousarray(rows.indptr, np.uint64),
        columns.astype(_narrowest(rows.ncols)),
        np.ascontiguousarray(values),
    ]


def _rows(arrays: list[np.ndarray], ncols: int) -> SparseRows:
    ids, indptr, columns, values = arrays
    if len(columns) < int(indptr[-1]):
        columns = np.tile(np.arange(ncols, dtype=np.uint64), len(ids))
    return SparseRows(indptr, columns.astype(np.uint64), values, ncols, ids)
