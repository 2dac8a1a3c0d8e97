"""A block on its way through a chain of layers: from stop to stop, and out at the end.

What differs between runs is the policy: where a block stops, what is decided there, and where its
inputs go. Inputs of a queued run meet those of other blocks (`gbdnn.engine.stops`), those of a
direct run go through all layers (`gbdnn.engine.direct`).
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from gbdnn.engine.stats import layer_stats

if TYPE_CHECKING:
    from collections.abc import Callable

    from gbdnn.engine.progress import RunProgress
    from gbdnn.engine.stats import LayerStats
    from gbdnn.kernels.buffers import Buffers
    from gbdnn.kernels.form import Chain

__all__ = ["BlockPolicy", "BlockRun", "Task"]


class Task(NamedTuple):
    """A block that is ready to go through the layers from `k` on.

    ``fresh`` tells whether it is as it was read: no input has left it or joined it; ``inputs``, how
    many it has.
    """

    k: int
    number: int
    block: Any
    fresh: bool
    inputs: int


class BlockPolicy(Protocol):
    """Where blocks stop, and what becomes of them there."""

    @property
    def has_failed(self) -> bool:
        """Whether all blocks are to be left where they are: another thread has failed."""
        ...

    def next_stop(self, k: int, task: Task, /) -> tuple[int, bool]:
        """Return the layer before which a block at layer `k` stops, and if it has no dead there."""
        ...

    def takes(self, k: int, Y: Any, task: Task, /, *, due: bool) -> bool:
        """Decide about a block before layer `k`; True if its inputs have gone elsewhere.

        ``due`` tells that the chain stopped because moving the living pays.
        """
        ...

    def leave(self, k: int, Y: Any, /) -> None:
        """Take the inputs of a block that goes no further than layer `k`."""
        ...


class BlockRun:
    """Takes blocks of inputs through a chain.

    Parameters
    ----------
    chain : Chain
    buffers : Buffers
        Where blocks come from.
    policy : BlockPolicy
    progress : RunProgress
    tell : callable, optional
        Gets a LayerStats for each layer.
    stands : ndarray of int64, optional
        With `tell`: by id, how many inputs an input stands for.
    """

    def __init__(
        self,
        chain: Chain,
        buffers: Buffers,
        policy: BlockPolicy,
        *,
        progress: RunProgress,
        tell: Callable[[LayerStats], object] | None = None,
        stands: np.ndarray | None = None,
    ) -> None:
        self._chain, self._buffers, self._policy = chain, buffers, policy
        self._progress, self._tell, self._stands = progress, tell, stands

    def advance(self, task: Task) -> None:
        """Take a block through the layers, until it leaves or its last inputs have moved."""
        policy, layers = self._policy, self._chain.layers
        Y, k, due = task.block, task.k, False
        while k < layers.stop and layers.weights[k - layers.first] is not None:
            if policy.has_failed or policy.takes(k, Y, task, due=due):
                return
            stop, tidy = policy.next_stop(k, task)
            Y, k = self._run(k, stop, task.number, Y, tidy=tidy)
            due = k < stop
            if not len(Y.inputs):
                break
        else:
            policy.leave(k, Y)
        self._buffers.put(Y)

    def _run(self, k: int, stop: int, number: int, Y: Any, *, tidy: bool) -> tuple[Any, int]:
        """Return the block behind layers `k` to before `stop`, or where the chain stopped."""
        began, counts = perf_counter(), None
        if self._progress.is_watched or self._tell is not None:
            counts = np.zeros((stop - k, 5), np.int64)
        Y, reached = self._chain.run(
            Y, k, stop, self._buffers, tidy=tidy, counts=counts, stands=self._stands
        )
        if counts is not None:
            counts = counts[: reached - k]
            self._progress.computed(k, counts[:, 0], len(Y.inputs), self._chain.name)
            if self._tell is not None:
                seconds = perf_counter() - began
                for each in layer_stats(k, counts, number, self._chain.name, seconds):
                    self._tell(each)
        return Y, reached
