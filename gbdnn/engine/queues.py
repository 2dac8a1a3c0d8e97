"""Inputs that wait, at the layer that is their next, as sparse rows.

What waits takes memory, and most of it where few inputs have died yet. As long as there is little
of it, the shallowest inputs go on first, so that survivors of all blocks come together before the
next layers; when there is much, the layer with the most bytes is next.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from gbdnn.arrays.sparse_rows import SparseRows

if TYPE_CHECKING:
    from gbdnn.engine.features import Features

__all__ = ["LayerQueue", "LayerQueues", "RowRange"]


class RowRange(NamedTuple):
    """Some rows of the features, or of activations that a run holds."""

    source: Features | SparseRows
    start: int
    stop: int
    is_held: bool

    @property
    def nbytes(self) -> float:
        """Bytes that a run holds for these rows."""
        if not (self.is_held and isinstance(self.source, SparseRows)):
            return 0.0
        return self.source.nbytes * (self.stop - self.start) / len(self.source.inputs)

    def rows(self) -> SparseRows:
        """Return the rows."""
        return self.source.rows(self.start, self.stop)


class LayerQueue:
    """Inputs at one layer, first in, first out.

    Attributes
    ----------
    inputs : int
        How many there are.
    """

    def __init__(self) -> None:
        self._spans: deque[RowRange] = deque()
        self.inputs = 0

    @property
    def entries(self) -> float:
        """Number of their activations that are not 0."""
        return sum(
            span.source.nvals * (span.stop - span.start) / len(span.source.inputs)
            for span in self._spans
        )

    @property
    def nbytes(self) -> float:
        """Bytes that are held for them."""
        return sum(span.nbytes for span in self._spans)

    def add(self, source: Features | SparseRows, *, is_held: bool) -> None:
        """Let all rows of a source wait."""
        if count := len(source.inputs):
            self._spans.append(RowRange(source, 0, count, is_held))
            self.inputs += count

    def take(self, count: int) -> list[RowRange]:
        """Remove the first `count` inputs, or all if there are fewer."""
        taken = []
        while count and self._spans:
            span = self._spans.popleft()
            middle = min(span.stop, span.start + count)
            if middle < span.stop:
                self._spans.appendleft(span._replace(start=middle))
            taken.append(span._replace(stop=middle))
            count -= middle - span.start
            self.inputs -= middle - span.start
        return taken


class LayerQueues:
    """The queues of all layers.

    Parameters
    ----------
    layers : int
        Number of layers: what waits behind the last one is the answer.
    limit : int
        Bytes that may wait; half of it makes the shallowest inputs wait too.
    """

    def __init__(self, layers: int, limit: int) -> None:
        self._layers, self._limit = layers, limit
        self._queues: dict[int, LayerQueue] = {}
        self.done: list[SparseRows] = []

    def begin(self, features: Features | SparseRows) -> None:
        """Let the features wait at the first layer; their memory does not count."""
        self._queues[0] = LayerQueue()
        self._queues[0].add(features, is_held=False)

    def add(self, k: int, piece: SparseRows) -> None:
        """Let inputs wait at layer `k`."""
        if k == self._layers:
            self.done.append(piece)
        else:
            self._queues.setdefault(k, LayerQueue()).add(piece, is_held=True)

    def next(self) -> tuple[int, LayerQueue, float] | None:
        """Return the layer that is next, its queue, and the bytes that may come to wait meanwhile.

        None if nothing waits. The bytes are beyond those that the queue itself gives up.
        """
        queues = {k: queue for k, queue in self._queues.items() if queue.inputs}
        if not queues:
            return None
        held = sum(queue.nbytes for queue in queues.values())
        shallow = held < self._limit / 2
        k = min(queues) if shallow else max(queues, key=lambda k: (queues[k].nbytes, k))
        return k, queues[k], self._limit / (2 if shallow else 1) - held
