"""An error on one rank is an error on all: ranks take a step together."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, TypeVar

from gbdnn.distributed.mpi.transport import Links, Stopped, rank_wise
from gbdnn.errors import GbdnnError, RankError, prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Self

    from mpi4py.MPI import Comm

__all__ = ["Ranks"]

T = TypeVar("T")


class Ranks:
    """The ranks of a communicator, for the length of a ``with`` block that all of them enter.

    Attributes
    ----------
    rank, size : int
        This rank, and how many there are.
    """

    def __init__(self, comm: Comm) -> None:
        self._comm = comm.Dup()  # no message meets one of the caller's
        self.rank, self.size = self._comm.rank, self._comm.size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._comm.Free()

    def together(self, step: Callable[[], T]) -> list[T]:
        """Return what every rank's step returns, a small object.

        Raises
        ------
        GbdnnError
            On all ranks, if a rank's step raised an error: the same one if gbdnn raised it, else a
            RankError. The message names the rank.
        """
        mine: T | None = None
        caught: BaseException | None = None
        try:
            mine = step()
        except BaseException as error:
            caught = error
        told = None if caught is None else self._described(caught)
        outcomes = rank_wise(self._comm, (mine, told))
        if caught is not None and not isinstance(caught, Exception):
            raise caught
        for _, its_error in outcomes:
            if its_error is not None:
                raise its_error from (None if isinstance(caught, Stopped) else caught)
        return [each for each, _ in outcomes]  # type: ignore[misc]

    def linked(
        self,
        work: Callable[[Links], T],
        sources: Iterable[int],
        targets: Iterable[int],
    ) -> list[T]:
        """Return what every rank's work with its links returns; see `Links` and `together`."""
        links = Links(self._comm, sources, targets)
        try:
            return self.together(lambda: links.run(work))
        finally:
            links.clear(rank_wise(self._comm, links.has_failed))

    def _described(self, error: BaseException) -> GbdnnError | None:
        """Return an error as the other ranks are to raise it; None if it is another rank's."""
        if isinstance(error, Stopped):
            return None
        if isinstance(error, GbdnnError):
            told = copy(error)
            prefix(told, f"rank {self.rank}")
            return told
        return RankError(f"rank {self.rank}: {type(error).__name__}: {error}")
