"""Sparse rows from rank to rank.

A message is `CompactRows` with ids, pickled by mpi4py with its arrays beside it, which are not
copied and may have any size; None ends a link. All sends are nonblocking. A rank that waits also
looks whether another one has failed; whoever has failed, or learnt of it, ends its own links and
empties the others: nobody waits for what will never come.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, TypeVar

from gbdnn.distributed.messages import CompactRows
from gbdnn.runtime.optional import require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mpi4py.MPI import Comm

    from gbdnn.arrays.sparse_rows import SparseRows

__all__ = ["Links", "Stopped", "rank_wise"]

T = TypeVar("T")

_AHEAD = 4  # messages to a rank that may be on their way
_ROWS, _FAILED = 1, 2  # tags
_LONGEST_PAUSE = 1e-3  # seconds between two looks: MPI's own waiting would keep a core busy


class Stopped(Exception):  # noqa: N818 -- not an error of this rank
    """Another rank has failed."""


class Links:
    """One rank's ends of the links of a pipeline.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm
        Used by these links alone.
    sources : sequence of int
        The ranks that send rows to this one.
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

    def __init__(self, comm: Comm, sources: Iterable[int], targets: Iterable[int]) -> None:
        self._mpi = require("mpi4py.util.pkl5", "mpi", "ranks need mpi4py")
        self._comm = self._mpi.Intracomm(comm)
        self._open = set(sources)
        self._targets = list(targets)
        self._under_way: deque[Any] = deque()
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
        """Send rows to all targets; wait if many messages are under way."""
        message = CompactRows.of(rows, ids=rows.ids)
        for target in self._targets:
            self._wait(lambda: self._has_arrived(_AHEAD - 1))
            self._send(message, target)
            self.sent += message.nbytes

    def end(self) -> None:
        """Tell the targets that no further rows come."""
        while self._targets:
            self._send(None, self._targets.pop())

    def receive(self, source: int) -> Iterator[SparseRows]:
        """Yield the rows that a source sends, as they come."""
        while source in self._open:
            self._wait(lambda: self._has_message(source))
            message = self._receive(source)
            if message is not None:
                yield message.rows()

    def _receive(self, source: int) -> CompactRows | None:
        message: CompactRows | None = self._comm.recv(None, source, _ROWS)
        if message is None:
            self._open.remove(source)
        return message

    def _send(self, message: CompactRows | None, target: int, tag: int = _ROWS) -> None:
        self._under_way.append(self._comm.isend(message, target, tag))

    def _has_message(self, source: int) -> bool:
        return bool(self._comm.Iprobe(source, _ROWS))

    def _has_arrived(self, but: int) -> bool:
        """Whether all messages, but for so many, have left this rank's memory."""
        while self._under_way and self._under_way[0].test()[0]:
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
        for rank in range(self._comm.size):
            if rank != self._comm.rank:
                self._send(None, rank, _FAILED)

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
        for rank, has_failed in enumerate(failed):
            if has_failed and rank != self._comm.rank:
                self._comm.recv(None, rank, _FAILED)


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
