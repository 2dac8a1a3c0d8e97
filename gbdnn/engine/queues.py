"""Where a run stands: queued and finished rows, and which inputs follow another one.

Queued rows take memory, most of it where few inputs have died yet. While there is little of it, the
shallowest queue is next, so that survivors of all blocks come together before the next layers;
when there is much, the queue with the most bytes is next.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from gbdnn.arrays.sparse_rows import SparseRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import graphblas as gb

    from gbdnn.engine.answer import Answer
    from gbdnn.engine.duplicates import Duplicates
    from gbdnn.engine.sources import RowSource
    from gbdnn.model.layer_info import LayerInfo

__all__ = ["Checkpoint", "LayerQueue", "RowRange", "RunState", "SavedState"]


class SavedState(NamedTuple):
    """A `RunState` as it is written down.

    Attributes
    ----------
    queued : list of (int, SparseRows or range)
        Layers and the rows that are queued there; a range of features that have not been read.
    finished : list of SparseRows
        Rows of the answer, by their ids.
    followed : (ndarray, ndarray), optional
        Of each input the one that it follows, and how many it stands for.
    """

    queued: list[tuple[int, SparseRows | range]]
    finished: list[SparseRows]
    followed: tuple[np.ndarray, np.ndarray] | None

    def is_sound(self, infos: Sequence[LayerInfo], inputs: int, *, merges: bool) -> bool:
        """Whether a run of so many inputs through these layers can have come here.

        Compiled code writes where ids tell. An input is at one place at most; it may have died.
        """
        if any(k >= len(infos) for k, _ in self.queued):
            return False
        places = np.zeros(inputs, np.int64)
        finished = [(len(infos), rows) for rows in self.finished]
        for k, rows in [*self.queued, *finished]:
            if isinstance(rows, range):
                if k != 0 or not 0 <= rows.start <= rows.stop <= inputs:
                    return False
                places[rows.start : rows.stop] += 1
                continue
            ids = rows.ids
            if len(ids) and not 0 <= ids.min() <= ids.max() < inputs:
                return False
            width = infos[k].nrows if k < len(infos) else infos[-1].ncols
            if rows.ncols != width or rows.values.dtype != infos[0].dtype:
                return False
            np.add.at(places, ids, 1)
        if (self.followed is not None) != merges or (places > 1).any():
            return False
        return self.followed is None or _is_forest(*self.followed, places)


def _is_forest(parents: np.ndarray, weights: np.ndarray, places: np.ndarray) -> bool:
    """Whether each input follows, in the end, one that follows none and stands for as many."""
    inputs = np.arange(len(places))
    if len(parents) != len(inputs) or ((parents < 0) | (parents > inputs.max(initial=0))).any():
        return False
    root = parents
    for _ in range(len(inputs).bit_length()):  # twice as far at each step: in a cycle, nowhere
        root = root[root]
    is_root = parents == inputs
    counts = np.bincount(root, minlength=len(inputs))
    return bool(
        is_root[root].all() and (weights == counts)[is_root].all() and not places[~is_root].any()
    )


class Checkpoint(Protocol):
    """Where a run that streams its network is written down, and goes on from."""

    def restore(self) -> SavedState | None:
        """Return what is written down, None if that is nothing."""
        ...

    def offer(self, k: int, state: RunState, /) -> None:
        """Write the state down before layer `k`, or not."""
        ...


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

    def saved(self) -> list[SparseRows | range]:
        """Return all rows; ranges of the features as their numbers."""
        return [
            each.rows() if each.is_held else range(each.start, each.stop) for each in self._ranges
        ]

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

    @property
    def nbytes(self) -> float:
        """Bytes of what `saved` returns, about."""
        queued = sum(queue.nbytes for queue in self.queues.values())
        return queued + self.answer.nbytes + (self.duplicates.nbytes if self.duplicates else 0)

    def saved(self) -> SavedState:
        """Return all that goes on in another process; the features are there again."""
        queued = [(k, rows) for k, queue in self.queues.items() for rows in queue.saved()]
        followed = None if self.duplicates is None else self.duplicates.saved()
        return SavedState(queued, self.answer.rows(), followed)

    def restore(self, saved: SavedState, X: RowSource) -> None:
        """Go on from what was saved."""
        for k, rows in saved.queued:
            if isinstance(rows, range):
                queue = self.queues.setdefault(k, LayerQueue())
                queue.add_range(X, rows.start, rows.stop, is_held=False)
            else:
                self.add(k, rows)
        for rows in saved.finished:
            self.answer.add(rows)
        if self.duplicates is not None and saved.followed is not None:
            self.duplicates.restore(*saved.followed)

    def matrix(self) -> gb.Matrix:
        """Return the answer of all inputs as a matrix; the state gives it up."""
        return self.answer.matrix(None if self.duplicates is None else self.duplicates.followed())
