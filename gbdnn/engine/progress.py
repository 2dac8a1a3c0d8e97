"""How much of a run has been done: two counters, for who looks at them from another thread.

    done       edges, summed over the inputs that were computed
    possible   edges, summed over all inputs that have not been dropped, to the last layer

Where inputs are dropped, dead or equal to another one, what they will not need is taken off. In the
end both are equal; before, the share that is done is a guess from below: inputs that have not been
read may still die.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gbdnn.model.layer_info import LayerInfo

__all__ = ["RunProgress", "current", "watched"]


class RunProgress:
    """What the runs of a ``with watched(...)`` block have done; any thread may look at it.

    Attributes
    ----------
    runs : int
        How many runs have begun; the counters are those of the last one.
    ended : bool
        Whether it has ended, or none has begun.
    done, possible : int
        See above.
    forms : dict of str to int
        Edges, summed over inputs and all runs, by the form that computed them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.runs, self.ended = 0, True
        self.done = self.possible = 0
        self.forms: dict[str, int] = {}

    def begin(self, infos: Sequence[LayerInfo], inputs: dict[int, int]) -> None:
        """Begin to count: so many inputs begin at each layer."""
        self._edges = np.array([info.edges for info in infos], np.int64)
        self._behind = np.append(np.cumsum(self._edges[::-1])[::-1], 0)  # from layer k to the end
        self.runs, self.ended = self.runs + 1, False
        self.done = 0
        self.possible = sum(count * int(self._behind[k]) for k, count in inputs.items())

    def computed(
        self, k: int, counts: Sequence[int] | np.ndarray, left: int, form: str = "fused"
    ) -> None:
        """Note how many inputs layer `k`, and those behind it, computed, and how many are left."""
        counts, stop = np.asarray(counts, np.int64), k + len(counts)
        dropped = counts - np.append(counts[1:], left)
        done = int(counts @ self._edges[k:stop])
        with self._lock:
            self.done += done
            self.forms[form] = self.forms.get(form, 0) + done
            self.possible -= int(dropped @ self._behind[k + 1 : stop + 1])

    def dropped(self, k: int, inputs: int) -> None:
        """Note that inputs were dropped before layer `k`."""
        if inputs:
            with self._lock:
                self.possible -= inputs * int(self._behind[k])

    def end(self) -> None:
        """Note that nothing is left to do."""
        self.ended = True

    @property
    def fraction(self) -> float:
        """Part of the work that has been done, from 0 to 1; a guess until the end."""
        return min(1.0, self.done / self.possible) if self.possible else 0.0


_CURRENT: ContextVar[RunProgress | None] = ContextVar("gbdnn_progress", default=None)


def current() -> RunProgress | None:
    """Return what counts the runs of this context, if anybody looks."""
    return _CURRENT.get()


@contextmanager
def watched(progress: RunProgress) -> Iterator[RunProgress]:
    """Count the runs that this thread begins in the ``with`` block."""
    token = _CURRENT.set(progress)
    try:
        yield progress
    finally:
        _CURRENT.reset(token)
