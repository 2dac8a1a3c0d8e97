"""Where a run stands: queued and finished rows, and which inputs follow another one.

Queued rows take memory, most of it where few inputs have died yet. While there is little of it, the
shallowest queue is next, so that survivors of all blocks come together before the next layers;
when there is much, the queue with the most bytes is next.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from gbdnn.arrays.sparse_rows import SparseRows

if TYPE_CHECKING:
    import graphblas as gb
    import numpy as np

    from gbdnn.engine.answer import Answer
    from gbdnn.engine.duplicates import Duplicates
    from gbdnn.engine.sources import RowSource

__all__ = ["LayerQueue", "RowRange", "RunState"]


class RowRange(NamedTuple):
    """Some rows of a source: of activations that the run holds, or of the features."""

    source: RowSource
    start: int
    stop: int
    is_held: bool

    @property
    def nrows(self) -> int:
        """Number of rows."""
        return self.stop - self.start

    @property
    def entries(self) -> float:
        """Number of entries, taken to be spread evenly."""
        return self.source.nvals * self.nrows / self.source.nrows

    @property
    def nbytes(self) -> float:
        """Bytes that the run holds for these rows; the features are the caller's."""
        if not isinstance(self.source, SparseRows) or not self.is_held:
            return 0.0
        return self.source.nbytes * self.nrows / self.source.nrows

    @property
    def is_dense(self) -> bool:
        """Whether the rows can be had as an array."""
        return hasattr(self.source, "dense_rows")

    def dense_rows(self) -> np.ndarray:
        """Return the rows as an array, if they can be had so."""
        found: np.ndarray = self.source.dense_rows(self.start, self.stop)  # type: ignore[attr-defined]
        return found

    def rows(self) -> SparseRows:
        """Return the rows."""
        if isinstance(self.source, SparseRows) and self.nrows == self.source.nrows:
            return self.source
        return self.source.sparse_rows(self.start, self.stop)


class LayerQueue:
    """Rows queued at one layer, first in, first out."""

    def __init__(self) -> None:
        self._ranges: deque[RowRange] = deque()
        self.inputs = 0

    def __repr__(self) -> str:
        return f"LayerQueue({self.inputs} inputs, {self.entries:.0f} entries)"

    @property
    def is_dense(self) -> bool:
        """Whether the first rows can be had as an array."""
        return bool(self._ranges) and self._ranges[0].is_dense

    @property
    def entries(self) -> float:
        """Number of entries of the queued rows."""
        return sum(each.entries for each in self._ranges)

    @property
    def nbytes(self) -> float:
        """Bytes that the run holds for them."""
        return sum(each.nbytes for each in self._ranges)

    def add(self, source: RowSource, *, is_held: bool = True) -> None:
        """Queue all rows of a source."""
        self.add_range(source, 0, source.nrows, is_held=is_held)

    def add_range(self, source: RowSource, start: int, stop: int, *, is_held: bool) -> None:
        """Queue some rows of a source."""
        if stop > start:
            self._ranges.append(RowRange(source, start, stop, is_held))
            self.inputs += stop - start

    def put_back(self, rows: SparseRows) -> None:
        """Queue rows before all others."""
        if rows.nrows:
            self._ranges.appendleft(RowRange(rows, 0, rows.nrows, is_held=True))
            self.inputs += rows.nrows

    def take(self, count: int) -> list[RowRange]:
        """Remove the first `count` inputs, or all if there are fewer."""
        taken = []
        while count and self._ranges:
            first = self._ranges.popleft()
            middle = min(first.stop, first.start + count)
            if middle < first.stop:
                self._ranges.appendleft(first._replace(start=middle))
            taken.append(first._replace(stop=middle))
            count -= middle - first.start
            self.inputs -= middle - first.start
        return taken


class RunState:
    """All that a run knows beside the network and the features.

    Parameters
    ----------
    layers : int
        Number of layers: rows that are queued behind the last one are finished.
    limit : int
        Bytes of queued rows; from half of it on, the largest queue is next.
    answer : Answer
        Where finished rows go.
    duplicates : Duplicates, optional
        Which inputs follow another one's course.

    Attributes
    ----------
    queues : dict of int to LayerQueue
        By layer.
    """

    def __init__(
        self, layers: int, limit: int, answer: Answer, duplicates: Duplicates | None
    ) -> None:
        self._layers, self._limit = layers, limit
        self.queues: dict[int, LayerQueue] = {}
        self.answer, self.duplicates = answer, duplicates

    def __repr__(self) -> str:
        queued = ", ".join(f"{k}: {queue!r}" for k, queue in sorted(self.queues.items()))
        return f"RunState({self._layers} layers; {queued})"

    def begin(self, X: RowSource) -> None:
        """Queue all features before layer 0."""
        self.queues.setdefault(0, LayerQueue()).add(X, is_held=False)

    def add(self, k: int, rows: SparseRows) -> None:
        """Queue rows at layer `k`; behind the last layer they are the answer's."""
        if k == self._layers:
            self.answer.add(rows)
        else:
            self.queues.setdefault(k, LayerQueue()).add(rows)

    def next(self) -> tuple[int, LayerQueue, float] | None:
        """Return the next layer, its queue, and the bytes by which other queues may grow.

        None if nothing is queued. The bytes are beyond those that the queue itself gives up.
        """
        queues = {k: queue for k, queue in self.queues.items() if queue.inputs}
        if not queues:
            return None
        held = sum(queue.nbytes for queue in queues.values())
        shallow = held < self._limit / 2
        k = min(queues) if shallow else max(queues, key=lambda k: (queues[k].nbytes, k))
        return k, queues[k], self._limit / (2 if shallow else 1) - held

    def matrix(self) -> gb.Matrix:
        """Return the answer of all inputs as a matrix; the state gives it up."""
        return self.answer.matrix(None if self.duplicates is None else self.duplicates.followed())
