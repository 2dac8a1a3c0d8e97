"""One thread's blocks on their way through the layers in the fused form: many layers a call."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from gbdnn.engine.block_run import BlockRun
from gbdnn.engine.duplicates import is_meeting
from gbdnn.engine.stats import LayerStats
from gbdnn.kernels.fused_chain import FusedChain
from gbdnn.kernels.overflow import non_finite

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gbdnn.arrays.sparse_rows import SparseRows
    from gbdnn.engine.scheduler import BlockScheduler, Task
    from gbdnn.kernels.blocks import AlignedBlock

__all__ = ["CompiledRun"]

_EARLY = 3  # layers after which a block that was just read may leave for the sparse form
_FEW = 0.75  # of a block's width: fewer inputs move to survivors


class CompiledRun(BlockRun):
    """What a thread does with its tasks.

    Between two meetings a block is on its own: the compiled code drops its dead. At a meeting,
    blocks of which few inputs are left move them to the survivors of the layer.
    """

    def __init__(self, scheduler: BlockScheduler) -> None:
        super().__init__(scheduler)
        ready = [scheduler.layers[k] for k in sorted(scheduler.layers)]
        fused = [each for each in ready if each.plan.block_form is not None]
        self._stands: np.ndarray | None = None
        if scheduler.records:
            found = scheduler.duplicates
            self._stands = np.ones(scheduler.inputs, np.int64) if found is None else found.weights
        self._index = {each.plan.k: at for at, each in enumerate(fused)}
        self._chain = FusedChain(
            [each.weights for each in fused],
            [each.plan.droppable_after for each in fused],
            ready[0].layer.dtype,
            [each.plan.may_overflow for each in fused],
        )

    def read(self, rows: SparseRows) -> AlignedBlock:
        """Return inputs as a block."""
        first = self._scheduler.first
        block: AlignedBlock = self._scheduler.new_block(first.layer.nrows, self._scheduler.width)
        self._chain.fill(block, rows, first.position)
        return block

    def read_dense(self, rows: np.ndarray, ids: np.ndarray) -> AlignedBlock:
        """Return rows of an array as a block."""
        first = self._scheduler.first
        block: AlignedBlock = self._scheduler.new_block(first.layer.nrows, self._scheduler.width)
        self._chain.from_dense(block, rows, first.position)
        block.inputs = ids
        return block

    def advance(self, task: Task) -> None:
        """Take a block through the layers, until it leaves or its last inputs have moved."""
        scheduler = self._scheduler
        self._tally.waits(task.k, -len(task.block.inputs))
        Y, k, count = task.block, task.k, len(task.block.inputs)
        while (ready := scheduler.layers.get(k)) is not None:
            plan = ready.plan
            if scheduler.has_failed:
                return
            if plan.block_form is None:
                self._leave(k, Y, ready.position, droppable=plan.droppable)
                return
            scheduler.reached(k)
            if k > task.k and is_meeting(k):
                if self._has_duplicates(k, Y) and self._compact(ready, Y, merge=True) == 0:
                    return
                if self._meets(k, Y):
                    return
            # Only as it was read, and not before it has done a layer: whoever reads the same inputs
            # decides alike, and comes to an end. The layers are the same with a callback.
            decides = task.k < k <= task.k + _EARLY or (k > task.k and is_meeting(k))
            untouched = task.fresh and len(Y.inputs) == count
            if decides and untouched and scheduler.choice.leaves(plan.block_form, plan.info, Y):
                self._leave(k, Y, ready.position, droppable=plan.droppable)
                return
            stop = self._stop(k, early=task.fresh and k < task.k + _EARLY)
            Y = self._layers(k, stop, task.number, Y)
            if not len(Y.inputs):
                self._buffers.put(Y)
                return
            k = stop
        last = scheduler.layers[k - 1].plan
        self._leave(k, Y, None, droppable=last.droppable_after, queued=not last.is_last)

    def _meets(self, k: int, Y: AlignedBlock) -> bool:
        """Move the inputs of a block to the survivors before layer `k`, if few are left."""
        if len(Y.inputs) > _FEW * self._scheduler.width:
            return False
        if not self._scheduler.has_room_for_survivors(k, Y.neurons):
            return False
        self._tally.waits(k, len(Y.inputs))
        self._scheduler.add_survivors(k, Y.filled, Y.inputs, None)
        self._buffers.put(Y)
        return True

    def _stop(self, k: int, *, early: bool) -> int:
        """Return the next layer before which something is to be decided."""
        scheduler = self._scheduler
        single = early and scheduler.choice.blocks_may_leave
        stop = k + 1
        while not single and stop in self._index:
            if is_meeting(stop):
                break
            stop += 1
        return stop

    def _layers(self, k: int, stop: int, number: int, Y: AlignedBlock) -> AlignedBlock:
        """Return the block after layers `k` to before `stop`."""
        began = perf_counter()
        first = self._index[k]
        Z = self._scheduler.new_block(Y.neurons, Y.width)
        counts = np.zeros((stop - k, 5), np.int64)
        Y, Z, faulty = self._chain.run(
            first,
            first + stop - k,
            Y,
            Z,
            tidy=is_meeting(stop),
            counts=counts,
            stands=self._stands,
        )
        self._buffers.put(Z)
        if faulty >= 0:
            ready = self._scheduler.layers[k + faulty - first]
            raise non_finite(ready.plan.k, ready.layer)
        self._tally.chain(k, counts[:, 0], len(Y.inputs))
        if self._scheduler.records:
            self._tell(k, number, counts.tolist(), perf_counter() - began)
        return Y

    def _tell(self, k: int, number: int, counts: list[list[int]], seconds: float) -> None:
        """Tell the callback what layer `k` and those behind it did, in one compiled call."""
        total = sum(each[4] for each in counts)
        for at, (inputs, distinct, live, entries, ticks) in enumerate(counts):
            plan = self._scheduler.layers[k + at].plan
            if inputs and plan.block_form is not None:
                self._scheduler.record(
                    LayerStats(
                        layer=plan.k,
                        block=number,
                        inputs=inputs,
                        live=live,
                        distinct=distinct,
                        entries=entries,
                        form=plan.block_form.name,
                        seconds=seconds * (ticks / total if total else 1 / len(counts)),
                    )
                )

    def _write(self, block: AlignedBlock, values: np.ndarray, present: np.ndarray) -> int:
        return self._chain.to_dense(block, values, present)

    def _rows(
        self, block: AlignedBlock, position: np.ndarray | None, *, droppable: bool
    ) -> Iterator[SparseRows]:
        return self._chain.sparse_rows(block, position, droppable=droppable)
