"""Ranks that compute together: rows from rank to rank, and an error of one rank raised on all.

A message is `CompactRows` with ids, which mpi4py pickles with the arrays out of band: they are not
copied and may have any size. None ends a link. All sends are nonblocking. A rank that waits also
checks whether another rank has failed. A rank that has failed, or learnt of a failure, ends its own
links and empties the others, so that no rank waits for ever.
"""

from __future__ import annotations

from collections import deque
from copy import copy
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, TypeVar

from gbdnn.distributed.rows import CompactRows
from gbdnn.errors import GbdnnError, WorkerError, prefix
from gbdnn.runtime.optional import require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mpi4py.MPI import Comm

    from gbdnn.arrays.sparse_rows import SparseRows

__all__ = ["Links", "Ranks"]

T = TypeVar("T")

_AHEAD = 4  # messages to a rank that may be under way
_ROWS, _FAILED = 1, 2  # tags
_LONGEST_PAUSE = 1e-3  # seconds between two checks; MPI's own waiting would keep a core busy


class Ranks:
    """The ranks of a communicator, until all of them call `close`.

    Attributes
    ----------
    rank, size : int
        This rank, and the number of ranks.
    """

    def __init__(self, comm: Comm) -> None:
        self._comm = comm.Dup()  # its messages do not mix with the caller's
        self.rank, self.size = self._comm.rank, self._comm.size

    def close(self) -> None:
        """Free the communicator; all ranks call it."""
        self._comm.Free()

    def together(self, step: Callable[[], T]) -> list[T]:
        """Return what every rank's step returns, a small object.

        Raises
        ------
        GbdnnError
            On all ranks, if one of them raised an error: the same error if it is gbdnn's, else a
            WorkerError. The message names the rank.
        """
        mine: T | None = None
        caught: BaseException | None = None
        try:
            mine = step()
        except BaseException as error:
            caught = error
        outcomes = self._gathered((mine, self._described(caught)))
        if caught is not None and not isinstance(caught, Exception):
            raise caught
        for _, its_error in outcomes:
            if its_error is not None:
                raise its_error from (None if isinstance(caught, _Stopped) else caught)
        return [outcome for outcome, _ in outcomes]

    def linked(
        self, work: Callable[[Links], T], sources: Iterable[int], targets: Iterable[int]
    ) -> list[T]:
        """Return what every rank's work with its links returns; see `Links` and `together`."""
        links = Links(self._comm, sources, targets)
        try:
            return self.together(lambda: links.run(work))
        finally:
            links.clear(self._gathered(links.has_failed))

    def _gathered(self, mine: Any) -> list[Any]:
        """Return the objects of all ranks, small ones."""
        barrier = self._comm.Ibarrier()
        for pause in _pauses():
            if barrier.Test():
                break
            sleep(pause)
        return self._comm.allgather(mine)

    def _described(self, error: BaseException | None) -> GbdnnError | None:
        """Return an error as the other ranks raise it; None if it is another rank's."""
        if error is None or isinstance(error, _Stopped):
            return None
        if isinstance(error, GbdnnError):
            named = copy(error)
            prefix(named, f"rank {self.rank}")
            return named
        return WorkerError(f"rank {self.rank}: {type(error).__name__}: {error}")


class Links:
    """One rank's ends of the links of a pipeline.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm
        Used by these links only.
    sources, targets : iterable of int
        Ranks that send rows to this one, and ranks that receive rows from it.

    Attributes
    ----------
    sent : int
        Bytes sent so far.
    waited : float
        Seconds of waiting for other ranks.
    has_failed : bool
        Whether this rank has reported a failure to the others.
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
        """Return ``work(links)`` when all rows sent have arrived; the links are closed in any case.

        Raises
        ------
        _Stopped
            Another rank has failed.
        """
        try:
            result = work(self)
            self.end()
            self._wait(lambda: self._has_arrived(0))
        except BaseException as error:
            if not isinstance(error, _Stopped):
                self._announce()
            self._drain()
            raise
        return result

    def send(self, rows: SparseRows) -> None:
        """Send rows to all targets; wait if many messages are under way."""
        message = CompactRows.of(rows, ids=rows.ids)
        for target in self._targets:
            self._wait(lambda: self._has_arrived(_AHEAD - 1))
            self._send(message, target)
            self.sent += message.nbytes

    def end(self) -> None:
        """Close the links to the targets."""
        while self._targets:
            self._send(None, self._targets.pop())

    def receive(self, source: int) -> Iterator[SparseRows]:
        """Yield the rows that a source sends."""
        while source in self._open:
            self._wait(lambda: self._has_message(source))
            message = self._receive(source)
            if message is not None:
                yield message.rows()

    def watched(self, each: Iterable[T]) -> Iterator[T]:
        """Yield the items while no other rank has failed."""
        for item in each:
            self._check()
            yield item

    def clear(self, failed: list[bool]) -> None:
        """Receive the reports of the ranks that failed."""
        for rank, has_failed in enumerate(failed):
            if has_failed and rank != self._comm.rank:
                self._comm.recv(None, rank, _FAILED)

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
        """Whether all messages have left this rank's memory, except `but` of them."""
        while self._under_way and self._under_way[0].test()[0]:
            self._under_way.popleft()
        return len(self._under_way) <= but

    def _wait(self, is_done: Callable[[], bool]) -> None:
        began = perf_counter()
        for pause in _pauses():
            self._check()
            if is_done():
                break
            sleep(pause)
        self.waited += perf_counter() - began

    def _check(self) -> None:
        if self._comm.Iprobe(self._mpi.ANY_SOURCE, _FAILED):
            raise _Stopped

    def _announce(self) -> None:
        """Report to all other ranks that this one has failed."""
        self.has_failed = True
        for rank in range(self._comm.size):
            if rank != self._comm.rank:
                self._send(None, rank, _FAILED)

    def _drain(self) -> None:
        """Close the links: receive the remaining messages, and wait until the own ones arrive."""
        self.end()
        for pause in _pauses():
            for source in [rank for rank in self._open if self._has_message(rank)]:
                self._receive(source)
            if self._has_arrived(0) and not self._open:
                return
            sleep(pause)


class _Stopped(Exception):  # noqa: N818 -- not an error of this rank
    """Another rank has failed."""


def _pauses() -> Iterator[float]:
    """Yield increasing pauses between two checks, in seconds."""
    pause = 0.0
    while True:
        yield pause
        pause = min(pause + 5e-5, _LONGEST_PAUSE)
