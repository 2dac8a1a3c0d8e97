"""One thread's blocks on their way through the layers: advance, compact, leave."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.engine.choice import sample
from gbdnn.engine.duplicates import equal_columns, fingerprints
from gbdnn.engine.stats import LayerStats
from gbdnn.kernels import costs
from gbdnn.kernels.blocks import any_bit, dense_rows, fill, fill_dense, living, sparse_rows
from gbdnn.kernels.overflow import require_finite

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gbdnn.arrays.sparse_rows import SparseRows
    from gbdnn.engine.plan import ReadyLayer
    from gbdnn.engine.scheduler import BlockScheduler, Task
    from gbdnn.kernels.blocks import Block
    from gbdnn.kernels.form import BlockForm

__all__ = ["BlockRun"]

_LONGEST_PAUSE = 4  # layers between two looks for the dead


class BlockRun:
    """What a thread does with its tasks.

    Parameters
    ----------
    scheduler : BlockScheduler
        Whose tasks they are.
    """

    def __init__(self, scheduler: BlockScheduler) -> None:
        self._scheduler = scheduler
        self._buffers, self._duplicates = scheduler.buffers, scheduler.duplicates
        self._tally = scheduler.work.tally()

    def read(self, rows: SparseRows) -> Any:
        """Return inputs as a block."""
        first = self._scheduler.first
        block = self._scheduler.new_block(first.layer.nrows, rows.nrows)
        fill(block, rows, first.position)
        return block

    def read_dense(self, rows: np.ndarray, ids: np.ndarray) -> Any:
        """Return rows of an array as a block."""
        first = self._scheduler.first
        block = self._scheduler.new_block(first.layer.nrows, len(rows))
        fill_dense(block, rows, ids, first.position)
        return block

    def advance(self, task: Task) -> None:
        """Take a block through the layers, until it leaves or its last inputs are compacted."""
        self._tally.waits(task.k, -len(task.block.inputs))
        Y, k = task.block, task.k
        # Those just read are taken to live: where few neurons are on, the sample would miss them.
        waste, look, pause = 0.0, task.k + task.fresh, 1
        while (ready := self._scheduler.layers.get(k)) is not None:
            if self._scheduler.has_failed:
                return
            plan = ready.plan
            form = plan.block_form
            if form is None:
                self._leave(k, Y, ready.position, droppable=plan.droppable)
                return
            self._scheduler.reached(k)
            if k >= look:
                count = len(Y.inputs)
                live = _living(Y) if plan.droppable else count
                # Where nothing has died, there is no hurry to look again.
                look = k + (1 if live < count else pause)
                pause = 1 if live < count else min(2 * pause, _LONGEST_PAUSE)
                if live < count:
                    # The ski-rental rule.
                    waste += form.cost(plan.info, count - live, 0)
                    if waste > costs.gather(Y.neurons, count, live):
                        waste = 0.0
                        live = self._compact(ready, Y)
                        if live == 0:
                            return
                # Where survivors were shared out, equal inputs are one already.
                if k > task.k and self._has_duplicates(k, Y):
                    live = self._compact(ready, Y, merge=True)
                    if live == 0:
                        return
                # Only as it was read, and not before it has done a layer: whoever reads the same
                # inputs decides alike, and comes to an end.
                if (
                    task.fresh
                    and live == count
                    and self._scheduler.choice.leaves(form, plan.info, Y)
                ):
                    self._leave(k, Y, ready.position, droppable=plan.droppable)
                    return
            Y = self._layer(ready, form, task.number, Y)
            k += 1
        last = self._scheduler.layers[k - 1].plan
        self._leave(k, Y, None, droppable=last.droppable_after, queued=not last.is_last)

    def _layer(self, ready: ReadyLayer, form: BlockForm, number: int, Y: Block) -> Block:
        """Return the block after a layer."""
        began = perf_counter()
        plan, layer = ready.plan, ready.layer
        check = partial(require_finite, plan.k, layer) if plan.may_overflow else None
        Z = self._buffers.get(layer.ncols, Y.width)
        Z.inputs = Y.inputs
        form.advance(Y, Z, layer, ready.weights, check=check)
        self._buffers.put(Y)
        self._tally.computed(plan.k, len(Z.inputs))
        if self._scheduler.records:
            self._record(ready, number, len(Z.inputs), Z, perf_counter() - began)
        return Z

    def _record(
        self, ready: ReadyLayer, number: int, inputs: int, block: Any, seconds: float
    ) -> None:
        """Tell the callback what a layer did."""
        form, duplicates = ready.plan.block_form, self._duplicates
        on = block.filled != 0
        live = block.inputs[any_bit(on)]
        self._scheduler.record(
            LayerStats(
                layer=ready.plan.k,
                block=number,
                inputs=inputs,
                live=len(live) if duplicates is None else duplicates.represented(live),
                distinct=len(live),
                entries=int(np.count_nonzero(on)),
                form="" if form is None else form.name,
                seconds=seconds,
            )
        )

    def _has_duplicates(self, k: int, block: Block) -> bool:
        """Whether so many of a block's inputs look equal that it is worth to merge them."""
        if self._duplicates is None or not self._duplicates.should_check(k):
            return False
        distinct = len(np.unique(fingerprints(sample(block.filled))))
        return self._duplicates.record(k, distinct, len(block.inputs))

    def _compact(self, ready: ReadyLayer, block: Any, *, merge: bool = False) -> int:
        """Move the living of a block to the survivors of the layer, equal ones as one.

        Returns
        -------
        int
            How many live, if the block stays as it is: it has no dead (and nothing to `merge`), or
            there is no room for survivors. 0 if all have died or have moved.
        """
        k, count, duplicates = ready.plan.k, len(block.inputs), self._duplicates
        live = np.flatnonzero(living(block)) if ready.plan.droppable else np.arange(count)
        if len(live) == count and not merge:
            return count
        if len(live) == 0:
            self._tally.dropped(k, count)
            self._buffers.put(block)
            return 0
        if not self._scheduler.has_room_for_survivors(k, block.neurons):
            return len(live)
        marks = None
        if duplicates is not None and (merge or duplicates.always):
            marks = fingerprints(np.ascontiguousarray(sample(block.filled)))[live]
            equal = equal_columns(block.array, marks, live)
            if merge:
                duplicates.record(k, len(equal.stay), len(live))
            duplicates.merge(block.inputs[live[equal.merged]], block.inputs[live[equal.into]])
            live, marks = live[equal.stay], marks[equal.stay]
        self._tally.dropped(k, count - len(live))
        self._tally.waits(k, len(live))
        # np.take is fast into contiguous memory only: it goes by way of a block of its own.
        scratch = self._scheduler.new_block(block.neurons, block.width)
        moved = scratch.flat[: block.neurons * len(live)].reshape(-1, len(live))
        np.take(block.array, live, axis=1, out=moved, mode="wrap")
        inputs = block.inputs[live]
        self._buffers.put(block)
        self._scheduler.add_survivors(k, moved, inputs, marks)
        self._buffers.put(scratch)
        return 0

    def _leave(
        self,
        k: int,
        block: Block,
        position: np.ndarray | None,
        *,
        droppable: bool,
        queued: bool = True,
    ) -> None:
        """Turn a block's inputs into sparse rows at layer `k`, or write them where they stay."""
        answer = self._scheduler.answer
        if not queued and answer.is_dense:
            answer.write(partial(self._write, block))
            self._buffers.put(block)
            return
        left = 0
        for rows in self._rows(block, position, droppable=droppable):
            left += rows.nrows
            if rows.nrows:
                self._scheduler.leave(k, rows, queued=queued)
        self._tally.dropped(k, len(block.inputs) - left)
        self._tally.waits(k, left)
        self._buffers.put(block)

    def _write(self, block: Any, values: np.ndarray, present: np.ndarray) -> int:
        return dense_rows(block, values, present)

    def _rows(
        self, block: Any, position: np.ndarray | None, *, droppable: bool
    ) -> Iterator[SparseRows]:
        keep = np.flatnonzero(living(block)) if droppable else np.arange(len(block.inputs))
        return sparse_rows(block, position, keep)


def _living(block: Block) -> int:
    """Estimate, from below, how many inputs of a block live."""
    return int(np.count_nonzero(any_bit(sample(block.filled))))
