"""Progress of a run, readable from other threads."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import numpy as np

from gbdnn.runtime.forks import new_lock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gbdnn.engine.plan import Plan
    from gbdnn.model.layer_info import LayerInfo

__all__ = ["UNWATCHED", "RunProgress", "current", "watched"]


class RunProgress:
    """Progress of the runs in a ``with watched(...)`` block.

    Attributes
    ----------
    done : int
        Edges processed in the last run, summed over inputs.
    kernels : dict of str to int
        Edges processed in all runs, by kernel.
    layers : dict of str to ndarray, shape (layers, 2)
        Seconds and edges processed of each layer in the last run, by kernel, summed over threads.
    seconds : dict of str to float
        Seconds of the last run for ``"reading"``, ``"writing"`` and ``"regrouping"``, summed over
        threads.
    is_watched : bool
        Whether anything is recorded.
    plan : Plan, optional
        Plan of the last run in this process.
    """

    def __init__(self, *, is_watched: bool = True) -> None:
        self._lock, self.is_watched = new_lock(), is_watched
        self._edges = np.empty(0, np.int64)
        self.done = self._inputs = self._passed = 0
        self.kernels, self.seconds = dict[str, int](), dict[str, float]()
        self.layers = dict[str, np.ndarray]()
        self.plan: Plan | None = None

    def begin(self, infos: Sequence[LayerInfo], inputs: int, plan: Plan | None = None) -> None:
        """Begin a run of `inputs` inputs."""
        if not self.is_watched:
            return
        self.plan = plan
        self._edges = np.array([info.edges for info in infos], np.int64)
        self._inputs, self._passed, self.done = inputs, 0, 0
        self.layers, self.seconds = {}, {}

    def computed(
        self, k: int, counts: Sequence[int] | np.ndarray, left: int, kernel: str,
        seconds: np.ndarray | float = 0.0,
    ) -> None:  # fmt: skip
        """Record the inputs that layer `k` and the next ones computed, and how many are left.

        `seconds` are those of each layer.
        """
        if not self.is_watched:
            return
        counts = np.asarray(counts, np.int64)
        stop = k + len(counts)
        edges = counts * self._edges[k:stop]
        done = int(edges.sum())
        with self._lock:
            of = self.layers.setdefault(kernel, np.zeros((len(self._edges), 2)))
            of[k:stop, 0] += seconds
            of[k:stop, 1] += edges
            self.done += done
            self.kernels[kernel] = self.kernels.get(kernel, 0) + done
            self._passed += left * (stop - k)
        self.dropped(k, int(counts[0]) - left)

    def dropped(self, k: int, inputs: int) -> None:
        """Record that inputs were dropped before layer `k`."""
        with self._lock:
            self._passed += inputs * (len(self._edges) - k)

    def spent(self, **seconds: float) -> None:
        """Add seconds of a thread, by what it did."""
        if self.is_watched:
            with self._lock:
                for what, spent in seconds.items():
                    self.seconds[what] = self.seconds.get(what, 0.0) + spent

    @property
    def fraction(self) -> float:
        """Layers passed, summed over inputs, from 0 to 1; inputs that are dropped pass all.

        It is 1 in a run of no inputs.
        """
        all_layers = self._inputs * len(self._edges)
        return self._passed / all_layers if all_layers else float(len(self._edges) > 0)


UNWATCHED = RunProgress(is_watched=False)
_CURRENT: ContextVar[RunProgress] = ContextVar("gbdnn_progress", default=UNWATCHED)


def current() -> RunProgress:
    """Return the progress of this context; `UNWATCHED` by default."""
    return _CURRENT.get()


@contextmanager
def watched(progress: RunProgress) -> Iterator[RunProgress]:
    """Record the progress of the runs that this thread begins in the ``with`` block."""
    token = _CURRENT.set(progress)
    try:
        yield progress
    finally:
        _CURRENT.reset(token)
