"""How much of a run has been done: counted while it runs, for who looks at it from another thread.

    c(k)   inputs that were computed at layer k
    w(k)   inputs that wait before it
    d(k)   inputs that were dropped before it: dead, or equal to another one
    F(k) = (F(k-1) + a(k)) (c(k) + w(k)) / (c(k) + w(k) + d(k))

F is how many there will be, by Kaplan and Meier's estimate; a(k) begin at layer k. Inputs that have
not come to a layer tell nothing about it, and where nobody has been yet, all are taken to live on.
In the end F = c.

E. Kaplan, P. Meier, "Nonparametric estimation from incomplete observations", JASA 53 (1958).
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from gbdnn.model.layer_info import LayerInfo

__all__ = ["Tally", "Work", "counted", "current", "watched"]


class Tally:
    """What one thread has done.

    Parameters
    ----------
    layers : int
        Of the network.
    """

    def __init__(self, layers: int) -> None:
        self._computed = np.zeros(layers, np.int64)
        self._waiting = np.zeros(layers + 1, np.int64)
        self._dropped = np.zeros(layers + 1, np.int64)

    def computed(self, k: int, inputs: int) -> None:
        """Note that inputs were computed at layer `k`."""
        self._computed[k] += inputs

    def waits(self, k: int, inputs: int) -> None:
        """Note that so many more inputs wait before layer `k`."""
        self._waiting[k] += inputs

    def dropped(self, k: int, inputs: int) -> None:
        """Note that inputs were dropped before layer `k`."""
        self._dropped[k] += inputs

    def chain(self, k: int, computed: np.ndarray, left: int) -> None:
        """Note how many inputs were computed at layer `k` and those behind it, and are left."""
        stop = k + len(computed)
        self._computed[k:stop] += computed
        self._dropped[k + 1 : stop] += computed[:-1] - computed[1:]
        self._dropped[stop] += computed[-1] - left

    @property
    def counts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Inputs computed at each layer, waiting and dropped before it."""
        return self._computed, self._waiting[:-1], self._dropped[:-1]


class Work:
    """What the threads of a run have done, and a guess of how much there is to do.

    Any thread may look at it: what it sees may lag behind by a block.

    Attributes
    ----------
    runs : int
        How many runs have begun.
    ended : bool
        Whether the last one has ended, or none has begun.
    """

    def __init__(self) -> None:
        self._edges = np.zeros(0)
        self._begins = np.zeros(0)
        self._tallies: dict[Hashable, Tally] = {}
        self.runs = 0
        self.ended = True

    def begin(self, edges: Sequence[int], inputs: dict[int, int]) -> None:
        """Begin to count: `edges` of each layer, and how many inputs begin at which layer."""
        begins = np.zeros(len(edges))
        for k, count in inputs.items():
            begins[k] += count
        self._tallies = {}
        self._edges, self._begins = np.asarray(edges, np.float64), begins
        self.runs, self.ended = self.runs + 1, False

    def tally(self, of: Hashable = None) -> Tally:
        """Return this thread's own tally, or that of what is told."""
        of = threading.get_ident() if of is None else of
        if of not in self._tallies:
            self._tallies[of] = Tally(len(self._edges))
        return self._tallies[of]

    def end(self) -> None:
        """Note that nothing is left to do."""
        self.ended = True

    @property
    def processed(self) -> int:
        """Edges, summed over the inputs that were computed."""
        return round(float(self._counts()[0] @ self._edges))

    @property
    def fraction(self) -> float:
        """Part of the work that has been done, from 0 to 1."""
        edges, begins = self._edges, self._begins
        computed, waiting, dropped = self._counts()
        if not len(edges) or len(computed) != len(edges):
            return 0.0
        known = computed + np.maximum(waiting + begins, 0)
        lives = np.where(known + dropped > 0, known / np.maximum(known + dropped, 1), 1.0)
        inputs, there_will_be = 0.0, np.empty(len(edges))
        for k, (some, part) in enumerate(zip(begins, lives, strict=True)):
            inputs = (inputs + some) * part
            there_will_be[k] = inputs
        total = float(there_will_be @ edges)
        return min(1.0, float(computed @ edges) / total) if total else 0.0

    def _counts(self) -> np.ndarray:
        found = np.zeros((3, len(self._edges)))
        for tally in list(self._tallies.values()):
            counts = np.array(tally.counts)
            if counts.shape == found.shape:  # else it is of the run before
                found += counts
        return found


_CURRENT: ContextVar[Work | None] = ContextVar("gbdnn_work", default=None)


def current() -> Work:
    """Return what counts the runs of this context: nobody looks at it if nobody asked."""
    return _CURRENT.get() or Work()


def counted(infos: Sequence[LayerInfo], inputs: int) -> AbstractContextManager[None]:
    """Count a run as a whole, when it ends, if anybody looks."""
    work = _CURRENT.get()
    return _NOT_COUNTED if work is None else _whole(work, infos, inputs)


_NOT_COUNTED = nullcontext()  # a run of one input takes some microseconds


@contextmanager
def _whole(work: Work, infos: Sequence[LayerInfo], inputs: int) -> Iterator[None]:
    work.begin([info.edges for info in infos], {0: inputs})
    yield
    tally = work.tally()
    for k in range(len(infos)):
        tally.computed(k, inputs)
    work.end()


@contextmanager
def watched(work: Work) -> Iterator[Work]:
    """Count the runs that this thread begins in the ``with`` block; the last one is seen."""
    token = _CURRENT.set(work)
    try:
        yield work
    finally:
        _CURRENT.reset(token)
