"""What is decided where the blocks of a queued run stop.

    merge    inputs whose activations are equal, bit for bit, become one
    move     where few inputs of a block are left, the living move to the survivor block of the
             layer: a full survivor block is the next task, so that blocks stay full
    leave    activations before a layer that is cheaper in the sparse form become sparse rows again

Dropping dead inputs is also done by the zero-row filter of the 2019 cuSPARSE champion. Survivors of
many blocks are computed together, which keeps the blocks full.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.engine.duplicates import equal_columns, fingerprints, is_meeting
from gbdnn.kernels.blocks import any_bit, sample

if TYPE_CHECKING:
    from gbdnn.engine.block_run import Task
    from gbdnn.engine.plan import Window
    from gbdnn.engine.scheduler import BlockScheduler

__all__ = ["Stops"]

_EARLY = 3  # layers behind each of which a block that was just read may leave for the sparse form
_FEW = 0.75  # of a block's width: fewer inputs move to survivors


class Stops:
    """The decisions about blocks; see `gbdnn.engine.block_run.BlockPolicy`.

    Parameters
    ----------
    scheduler : BlockScheduler
        Whose blocks they are.
    window : Window
        The layers.
    """

    def __init__(self, scheduler: BlockScheduler, window: Window) -> None:
        self._scheduler, self._window, self._chain = scheduler, window, window.blocks
        run = scheduler.run
        self._buffers, self._choice, self._progress = scheduler.buffers, run.choice, run.progress
        self._answer, self._duplicates = run.answer, run.duplicates

    @property
    def has_failed(self) -> bool:
        """Whether another thread has failed."""
        return self._scheduler.has_failed

    def next_stop(self, k: int, task: Task) -> tuple[int, bool]:
        """Return the next layer before which something is to be decided."""
        self._scheduler.reached(k)
        stop = k + 1
        early = task.fresh and k < task.k + _EARLY and self._choice.blocks_may_leave
        while not (early or is_meeting(stop) or stop == self._window.stop):
            if not self._window.plan(stop).in_blocks:
                break
            stop += 1
        return stop, is_meeting(stop)

    def takes(self, k: int, Y: Any, task: Task, *, due: bool) -> bool:
        """Merge, move, or let a block leave."""
        if k == task.k:
            return False
        meeting = is_meeting(k)
        if meeting and self._has_duplicates(k, Y) and self._move(k, Y, merge=True):
            return True
        if (due or (meeting and self._few_live(k, Y, task))) and self._move(k, Y):
            return True
        # Only as it was read, and not before it has done a layer: whoever reads the same inputs
        # decides alike, and comes to an end. The layers are the same with a callback.
        decides = task.fresh and len(Y.inputs) == task.inputs and (k <= task.k + _EARLY or meeting)
        if decides and self._choice.leaves(self._window.plan(k), Y):
            self.leave(k, Y)
            self._buffers.put(Y)
            return True
        return False

    def leave(self, k: int, Y: Any) -> None:
        """Turn a block's inputs into sparse rows before layer `k`, or write them to the answer."""
        finished = k == self._scheduler.run.layers
        if finished and self._answer.is_dense:
            self._answer.write(partial(self._chain.write, Y))
            return
        left = 0
        for rows in self._chain.rows(Y, k, droppable=self._is_droppable(k)):
            left += rows.nrows
            if rows.nrows:
                self._scheduler.leave(k, rows, queued=not finished)
        self._progress.dropped(k, len(Y.inputs) - left)

    def _is_droppable(self, k: int) -> bool:
        window = self._window
        return window.plan(k).droppable if k < window.stop else window.plan(k - 1).droppable_after

    def _has_duplicates(self, k: int, Y: Any) -> bool:
        """Whether so many of a block's inputs look equal that it is worth to merge them."""
        if self._duplicates is None or not self._duplicates.should_check(k):
            return False
        distinct = len(np.unique(fingerprints(sample(Y.filled))))
        return self._duplicates.record(k, distinct, len(Y.inputs))

    def _few_live(self, k: int, Y: Any, task: Task) -> bool:
        """Whether few inputs of a block are left, and are not all that it was read with."""
        count = len(Y.inputs)
        if not self._chain.drops_in_place and self._is_droppable(k):
            count = int(np.count_nonzero(any_bit(sample(Y.filled))))  # from below
        return count <= _FEW * self._scheduler.width and not (task.fresh and count == task.inputs)

    def _move(self, k: int, Y: Any, *, merge: bool = False) -> bool:
        """Move the living of a block to the survivors before layer `k`, equal ones as one.

        Returns False, and leaves the block as it is, if there is no memory for survivors.
        """
        count, duplicates = len(Y.inputs), self._duplicates
        keep = np.arange(count)
        if not self._chain.drops_in_place and self._is_droppable(k):
            keep = np.flatnonzero(any_bit(Y.filled))
        if len(keep) and not self._scheduler.has_room_for_survivors(k, Y.neurons):
            return False
        marks = None
        if len(keep) and duplicates is not None and (merge or duplicates.always):
            marks = fingerprints(np.ascontiguousarray(sample(Y.filled)))[keep]
            equal = equal_columns(Y.array, marks, keep)
            if merge:
                duplicates.record(k, len(equal.stay), len(keep))
            duplicates.merge(Y.inputs[keep[equal.merged]], Y.inputs[keep[equal.into]])
            keep, marks = keep[equal.stay], marks[equal.stay]
        self._progress.dropped(k, count - len(keep))
        if len(keep) == count:
            self._scheduler.add_survivors(k, Y.filled, Y.inputs, marks)
        elif len(keep):
            # np.take is fast into contiguous memory only: it goes by way of a block of its own.
            scratch = self._chain.block(self._buffers, k, Y.width)
            moved = scratch.flat[: Y.neurons * len(keep)].reshape(-1, len(keep))
            np.take(Y.array, keep, axis=1, out=moved, mode="wrap")
            self._scheduler.add_survivors(k, moved, Y.inputs[keep], marks)
            self._buffers.put(scratch)
        self._buffers.put(Y)
        return True
