"""How much of a run has been done: two counters, for who looks at them from another thread.

    done       edges, summed over the inputs that were computed
    possible   edges, summed over all inputs that have not been dropped, to the last layer

Where inputs are dropped, dead or equal to another one, what they will not need is taken off. In the
end both are equal; before, the share that is done is a guess from below: inputs that have not been
read may still die.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gbdnn.model.layer_info import LayerInfo

__all__ = ["UNWATCHED", "RunProgress", "current", "watched"]

_AT_MOST = 1000  # blocks


class RunProgress:
    """What the runs of a ``with watched(...)`` block have done; any thread may look at it.

    Attributes
    ----------
    runs : int
        How many runs have begun; the counters are those of the last one.
    ended : bool
        Whether it has ended, or none has begun.
    """

    is_watched = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Noted, and counted when somebody looks: blocks come several times in a millisecond.
        self._noted: deque[tuple[int, Sequence[int] | np.ndarray, int, str]] = deque()
        self.runs, self.ended = 0, True
        self._done = self._possible = 0
        self._forms: dict[str, int] = {}

    def begin(self, infos: Sequence[LayerInfo], inputs: dict[int, int]) -> None:
        """Begin to count: so many inputs begin at each layer."""
        self._count()
        self._edges = np.array([info.edges for info in infos], np.int64)
        self._behind = np.append(np.cumsum(self._edges[::-1])[::-1], 0)  # from layer k to the end
        self.runs, self.ended = self.runs + 1, False
        self._done = 0
        self._possible = sum(count * int(self._behind[k]) for k, count in inputs.items())

    def computed(
        self, k: int, counts: Sequence[int] | np.ndarray, left: int, form: str = "fused"
    ) -> None:
        """Note how many inputs layer `k`, and those behind it, computed, and how many are left."""
        self._noted.append((k, counts, left, form))
        if len(self._noted) >= _AT_MOST:
            self._count()

    def dropped(self, k: int, inputs: int) -> None:
        """Note that inputs were dropped before layer `k`."""
        if inputs:
            with self._lock:
                self._possible -= inputs * int(self._behind[k])

    def end(self) -> None:
        """Note that nothing is left to do."""
        self.ended = True

    @property
    def done(self) -> int:
        """See above."""
        self._count()
        return self._done

    @property
    def possible(self) -> int:
        """See above."""
        self._count()
        return self._possible

    @property
    def forms(self) -> dict[str, int]:
        """Edges, summed over inputs and all runs, by the form that computed them."""
        self._count()
        return self._forms

    def _count(self) -> None:
        with self._lock:
            while self._noted:
                k, counts, left, form = self._noted.popleft()
                dropped, stop = np.array(counts, np.int64), k + len(counts)
                done = int(dropped @ self._edges[k:stop])
                self._done += done
                self._forms[form] = self._forms.get(form, 0) + done
                dropped[:-1] -= dropped[1:]
                dropped[-1] -= left
                self._possible -= int(dropped @ self._behind[k + 1 : stop + 1])

    @property
    def fraction(self) -> float:
        """Part of the work that has been done, from 0 to 1; a guess until the end."""
        possible = self.possible
        return min(1.0, self._done / possible) if possible else 0.0


class _Unwatched(RunProgress):
    """Counts nothing."""

    is_watched = False

    def begin(self, infos: Sequence[LayerInfo], inputs: dict[int, int]) -> None:
        pass

    def computed(
        self, k: int, counts: Sequence[int] | np.ndarray, left: int, form: str = "fused"
    ) -> None:
        pass

    def dropped(self, k: int, inputs: int) -> None:
        pass

    def end(self) -> None:
        pass


UNWATCHED = _Unwatched()
_CURRENT: ContextVar[RunProgress] = ContextVar("gbdnn_progress", default=UNWATCHED)


def current() -> RunProgress:
    """Return what counts the runs of this context; `UNWATCHED` where nobody looks."""
    return _CURRENT.get()


@contextmanager
def watched(progress: RunProgress) -> Iterator[RunProgress]:
    """Count the runs that this thread begins in the ``with`` block."""
    token = _CURRENT.set(progress)
    try:
        yield progress
    finally:
        _CURRENT.reset(token)
