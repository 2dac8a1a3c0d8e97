"""One call of `infer`: rows are queued by layer; each queue runs in the form that is cheaper.

features ── row ranges ──> queue of layer 0
queue k  ── sparse form ─> one or more layers, all its rows as one matrix ──> queue k'
queue k  ── block forms ─> blocks, through as many layers as are at hand ───> queues k'
behind the last layer: finished rows ── stacked, or written in place ──> the answer
"""

from __future__ import annotations

import logging
from functools import partial
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from gbdnn.arrays.first_use import gb
from gbdnn.arrays.sparse_rows import SparseRows, release
from gbdnn.arrays.threads import available
from gbdnn.engine.answer import DenseAnswer, SparseAnswer
from gbdnn.engine.block_run import BlockRun
from gbdnn.engine.choice import FormChoice
from gbdnn.engine.compiled_run import CompiledRun
from gbdnn.engine.duplicates import distinct_at_least, equal_rows
from gbdnn.engine.plan import plan_layers
from gbdnn.engine.prefetch import Prefetch
from gbdnn.engine.scheduler import BlockScheduler
from gbdnn.engine.state import RunState
from gbdnn.engine.stats import LayerStats
from gbdnn.engine.work import current
from gbdnn.errors import ArgumentError
from gbdnn.kernels.blocks import AlignedBlock
from gbdnn.kernels.buffers import Buffers
from gbdnn.kernels.overflow import require_finite
from gbdnn.kernels.sparse import SPARSE

if TYPE_CHECKING:
    from collections.abc import Callable

    from gbdnn.engine.choice import Engine
    from gbdnn.engine.duplicates import Duplicates
    from gbdnn.engine.features import Features
    from gbdnn.engine.memory import Budget
    from gbdnn.engine.plan import ReadyLayer
    from gbdnn.engine.state import Checkpoint, LayerQueue
    from gbdnn.model.network import Network

__all__ = ["Run"]

_TEMPORARIES = 4  # matrices of a layer's entries that the sparse form holds at a time

_log = logging.getLogger("gbdnn.inference")


class Run:
    """One call of `infer`; ``state`` is where it stands.

    Parameters
    ----------
    net : Network
        At least one layer.
    X : Features
        Of the network's dtype.
    engine, callback
        As for `infer`.
    budget : Budget
        Its memory, divided.
    duplicates : Duplicates, optional
        Where equal inputs are computed once.
    """

    def __init__(
        self,
        net: Network,
        X: Features,
        *,
        engine: Engine,
        budget: Budget,
        duplicates: Duplicates | None,
        callback: Callable[[LayerStats], object] | None,
    ) -> None:
        self._net, self._X, self._budget, self._callback = net, X, budget, callback
        self._dtype = net.infos[0].dtype
        self._threads = available()
        self._numbers = count()
        self._choice = FormChoice(net, engine, budget, X.nrows, self._threads)
        self._plans = plan_layers(net, X.largest, self._choice.forms)
        self._prefetch = Prefetch(
            net,
            self._plans,
            reordered=self._choice.reorders,
            memory=budget.layers,
            nthreads=self._threads,
        )
        kind = DenseAnswer if hasattr(X, "dense_rows") else SparseAnswer
        answer = kind(X.nrows, net.shape[1], self._dtype)
        self.state = RunState(len(net), budget.queued, answer, duplicates)
        self._work = current()

    def answer(self, checkpoint: Checkpoint | None = None) -> gb.Matrix:
        """Return the activations after the last layer, a row per input.

        With a checkpoint the run goes on from there, and is written down between two windows.
        """
        saved, merges = None, self.state.duplicates is not None
        if checkpoint is not None:
            saved = checkpoint.restore()
        if saved is None or not saved.is_sound(self._net.infos, self._X.nrows, merges=merges):
            self.state.add(0, self._X)
        else:
            self.state.restore(saved, self._X)
        del saved
        self._work.begin(
            [info.edges for info in self._net.infos],
            {k: queue.inputs for k, queue in self.state.queues.items()},
        )
        self._tally = self._work.tally()
        with self._prefetch:
            while (following := self.state.next()) is not None:
                k, queue, room = following
                if checkpoint is not None:
                    checkpoint.offer(k, self.state)
                plan = self._plans[k]
                form = plan.block_form
                sparse = self._choice.is_sparse(
                    form, plan.info, queue.inputs, queue.entries, dense=queue.is_dense
                )
                name = "sparse" if sparse or form is None else form.name
                _log.debug("layer %d: %s form for %d inputs", k, name, queue.inputs)
                layers = self._prefetch.layers_around(k)
                layers = layers[k - layers[0].plan.k :]
                if sparse:
                    self._sparse(layers, queue)
                else:
                    self._blocks(layers, queue, room)
        Y = self.state.matrix()
        self._work.end()
        return Y

    def _blocks(self, layers: list[ReadyLayer], queue: LayerQueue, room: float) -> None:
        """Take the queue through the layers in blocks; what leaves them is queued."""
        width = self._choice.width(queue.inputs)
        edges = max(ready.plan.info.edges for ready in layers)
        workers, inner = self._choice.workers(queue.inputs, edges)
        _log.debug("blocks of %d inputs, %d side by side, %d threads each", width, workers, inner)
        fused = self._choice.fused
        shapes = [ready.plan.info.shape for ready in layers if ready.plan.block_form is not None]
        scheduler = BlockScheduler(
            layers,
            queue,
            runner=CompiledRun if fused else BlockRun,
            neurons=max(map(max, shapes)) if fused else None,
            room=room,
            inputs=self._X.nrows,
            width=width,
            workers=workers,
            inner=inner,
            buffers=Buffers(self._dtype, self._budget.working, AlignedBlock if fused else None),
            answer=self.state.answer,
            duplicates=self.state.duplicates,
            choice=self._choice,
            numbers=self._numbers,
            work=self._work,
            callback=self._callback,
        )
        for k, left in scheduler.run().items():
            for rows in left:
                self.state.add(k, rows)

    def _sparse(self, layers: list[ReadyLayer], queue: LayerQueue) -> None:
        """Take rows of the queue through the layers as one matrix, as long as that is the form."""
        rows = self._fitting(layers[0], queue)
        self._tally.waits(layers[0].plan.k, -rows.nrows)
        if layers[0].plan.droppable:
            count, rows = rows.nrows, rows.without_empty_rows()
            self._tally.dropped(layers[0].plan.k, count - rows.nrows)
        k, ids, Y, number = layers[0].plan.k, rows.ids, rows.matrix(), next(self._numbers)
        for ready in layers:
            if k > layers[0].plan.k and not self._stays_sparse(ready, Y):
                break
            ids, Y = self._merged(k, ids, Y)
            Y = self._sparse_layer(ready, number, ids, Y)
            k += 1
        left = SparseRows.from_matrix(Y, ids)
        self._tally.waits(k, left.nrows)
        self.state.add(k, left)

    def _sparse_layer(
        self, ready: ReadyLayer, number: int, ids: np.ndarray, Y: gb.Matrix
    ) -> gb.Matrix:
        """Return the activations after one layer; `Y` is freed."""
        began = perf_counter()
        plan, layer = ready.plan, ready.layer
        check = partial(require_finite, plan.k, layer) if plan.may_overflow else None
        Z = SPARSE.advance(Y, layer, layer.prepared(SPARSE.prepare), check=check)
        release(Y)
        self._tally.computed(plan.k, len(ids))
        if self._callback is not None:
            duplicates = self.state.duplicates
            some, _ = Z.reduce_rowwise(gb.monoid.any).new().to_coo(values=False)
            live = ids[some.astype(np.int64)]
            self._callback(
                LayerStats(
                    layer=plan.k,
                    block=number,
                    inputs=len(ids),
                    live=len(live) if duplicates is None else duplicates.represented(live),
                    distinct=len(live),
                    entries=int(Z.nvals),
                    form=SPARSE.name,
                    seconds=perf_counter() - began,
                )
            )
        return Z

    def _stays_sparse(self, ready: ReadyLayer, Y: gb.Matrix) -> bool:
        """Whether activations go on as they are: in this form, within the memory."""
        plan, entries = ready.plan, int(Y.nvals)
        most = SPARSE.most_entries_in_all(ready.layer, entries, Y.nrows)
        if most * self._entry_bytes > self._budget.working:
            return False
        if plan.block_form is None:
            return True
        inputs = Y.nrows
        if plan.droppable:
            inputs = int(Y.reduce_rowwise(gb.monoid.any).new().nvals)
        return self._choice.is_sparse(plan.block_form, plan.info, inputs, entries)

    def _fitting(self, ready: ReadyLayer, queue: LayerQueue) -> SparseRows:
        """Take from the queue as many rows as the sparse form has memory for."""
        layer, memory = ready.layer, self._budget.working
        limit = memory // self._entry_bytes
        guess = SPARSE.most_entries_in_all(layer, queue.entries, queue.inputs) / queue.inputs
        count = max(1, min(queue.inputs, int(limit / max(guess, 1.0))))
        rows = SparseRows.joined([each.rows() for each in queue.take(count)])
        most = np.cumsum(SPARSE.most_entries(rows, layer))
        fits = int(np.searchsorted(most, limit, side="right"))
        if fits == 0:
            raise ArgumentError(
                f"memory={self._budget.total} is too small: an input takes up to"
                f" {int(most[0]) * self._entry_bytes} bytes in the sparse form at layer"
                f" {ready.plan.k}, of the {memory} for activations"
            )
        if fits < rows.nrows:
            queue.put_back(rows.rows(fits, rows.nrows))
            rows = rows.rows(0, fits)
        return rows

    def _merged(self, k: int, ids: np.ndarray, Y: gb.Matrix) -> tuple[np.ndarray, gb.Matrix]:
        """Return the inputs without those that are equal to another one."""
        duplicates = self.state.duplicates
        if duplicates is None or not duplicates.should_check(k):
            return ids, Y
        if not duplicates.record(k, distinct_at_least(Y), Y.nrows):
            return ids, Y
        rows = SparseRows.from_matrix(Y, ids)
        equal = equal_rows(rows)
        if duplicates.record(k, len(equal.stay), rows.nrows):
            duplicates.merge(ids[equal.merged], ids[equal.into])
            self._tally.dropped(k, rows.nrows - len(equal.stay))
            rows = rows.take(equal.stay)
        return rows.ids, rows.matrix()

    @property
    def _entry_bytes(self) -> int:
        return _TEMPORARIES * (8 + self._dtype.itemsize)
