"""One call of `infer`: inputs wait, layer by layer, and go on in the form that is the cheaper one.

The sparse form takes inputs through one layer, the full form through as many as it is good for, or
as there are in the window of layers whose weights are at hand.
"""

from __future__ import annotations

import logging
from functools import partial
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Literal

from gbdnn.arrays.sparse_rows import joined, rows_of_matrix, stack
from gbdnn.arrays.threads import available
from gbdnn.engine import costs
from gbdnn.engine.duplicates import Duplicates, equal_rows
from gbdnn.engine.plan import stages
from gbdnn.engine.prefetch import Prefetch
from gbdnn.engine.queues import LayerQueues
from gbdnn.engine.scheduler import BlockScheduler
from gbdnn.engine.stats import LayerStats
from gbdnn.errors import ArgumentError
from gbdnn.kernels import sparse
from gbdnn.kernels.blocks import Buffers
from gbdnn.kernels.overflow import require_finite

if TYPE_CHECKING:
    from collections.abc import Callable

    import graphblas as gb

    from gbdnn.arrays.sparse_rows import SparseRows
    from gbdnn.engine.features import Features
    from gbdnn.engine.plan import LayerPlan, ReadyLayer
    from gbdnn.engine.queues import LayerQueue
    from gbdnn.model.network import Network

__all__ = ["Engine", "Run"]

Engine = Literal["auto", "sparse", "full"]

_log = logging.getLogger("gbdnn.inference")


class Run:
    """One call of `infer`: inputs wait, as sparse rows, at the layer that is their next."""

    def __init__(
        self,
        net: Network,
        X: Features | SparseRows,
        engine: Engine,
        memory: int,
        merges: Duplicates | None,
        callback: Callable[[LayerStats], object] | None,
    ) -> None:
        self._merges = merges
        self._net, self._engine, self._callback = net, engine, callback
        self._X, self._dtype = X, net.infos[0].dtype
        self._threads = available()
        self._blocks = count()
        self._neurons = max(max(info.shape) for info in net.infos)
        self._stages = stages(net, X.largest)
        # For blocks, and as much for what waits. Weights that are read as the run goes get as much
        # as both.
        self._memory = memory if net.in_memory else memory // 4
        self._windows = Prefetch(
            net,
            self._stages,
            renumbered=costs.renumbering_pays(len(X.inputs)),
            memory=memory // 2,
            nthreads=self._threads,
        )

    def answer(self) -> gb.Matrix:
        """Return the activations after the last layer, a row per input."""
        waiting = LayerQueues(len(self._stages), self._memory)
        waiting.begin(self._X)
        with self._windows:
            while (following := waiting.next()) is not None:
                self._onward(*following, waiting)
        same_as = None if self._merges is None else self._merges.same_as()
        inputs, ncols = self._X.inputs, self._net.shape[1]
        return stack(waiting.done, inputs, ncols, self._dtype, same_as).matrix()

    def _onward(self, k: int, queue: LayerQueue, room: float, waiting: LayerQueues) -> None:
        """Take inputs on from layer `k`, in the form that is to be; they wait where it ends."""
        form = self._form(self._stages[k], queue.inputs, queue.entries)
        _log.debug("layer %d: %s form for %d inputs", k, form, queue.inputs)
        window = self._windows.layers_around(k)
        if form == "sparse":
            stage = window[k - window[0].k]
            piece = joined([span.rows() for span in queue.take(self._rows_at_once())])
            waiting.add(k + 1, self._sparse(stage, piece))
        else:
            for at, pieces in self._full(window, k, queue, room).items():
                for piece in pieces:
                    waiting.add(at, piece)

    def _form(self, stage: LayerPlan, inputs: int, entries: float) -> str:
        """Return the form in which so many inputs, with so many entries in all, take the layer."""
        if not stage.full_is_exact:
            return "sparse"
        if self._engine != "auto":
            return self._engine
        info = stage.info
        width = min(self._width(inputs), max(inputs, 1))
        blocks = -(-inputs // width)
        cheap = costs.sparse_layer(inputs, entries, info.edges, info.nrows, info.ncols)
        dear = blocks * costs.full_layer(width, info.edges, info.ncols)
        return "sparse" if cheap < dear + costs.CONVERT * entries else "full"

    def _sparse(self, stage: ReadyLayer, piece: SparseRows) -> SparseRows:
        """Return the inputs after one layer in the sparse form."""
        began = perf_counter()
        k, layer = stage.k, stage.layer
        if stage.droppable:
            piece = piece.without_empty_rows()
        if self._merges is not None and self._merges.should_check(k):
            piece = self._merged(k, piece)
        check = partial(require_finite, k, layer) if stage.may_overflow else None
        Y = sparse.advance(piece.matrix(), layer, layer.prepared(sparse.prepare), check)
        after = rows_of_matrix(Y, piece.inputs)
        if self._callback is not None:
            live = after.inputs[after.indptr[1:] > after.indptr[:-1]]
            self._callback(
                LayerStats(
                    layer=k,
                    block=next(self._blocks),
                    inputs=len(after.inputs),
                    live=len(live) if self._merges is None else self._merges.represented(live),
                    distinct=len(live),
                    entries=after.nvals,
                    form="sparse",
                    seconds=perf_counter() - began,
                )
            )
        return after

    def _merged(self, k: int, piece: SparseRows) -> SparseRows:
        """Return the inputs without those that are equal to another one."""
        if self._merges is None:
            return piece
        equal = equal_rows(piece)
        if not self._merges.record(k, len(equal.stay), len(piece.inputs)):
            return piece
        self._merges.merge(piece.inputs[equal.merged], piece.inputs[equal.into])
        return piece.take(equal.stay)

    def _full(
        self, window: list[ReadyLayer], k: int, queue: LayerQueue, room: float
    ) -> dict[int, list[SparseRows]]:
        """Return the inputs after as many layers as the full form is good for, by layer."""
        width = self._width(queue.inputs)
        edges = max(stage.info.edges for stage in window if stage.k >= k)
        blocks = -(-queue.inputs // width)
        workers, inner = costs.inner_threads(self._threads, blocks, width, edges)
        workers = max(1, min(workers, self._memory // self._block_bytes(width)))
        _log.debug("blocks of %d inputs, %d side by side, %d threads each", width, workers, inner)
        return BlockScheduler(
            window,
            queue,
            k,
            room=room,
            width=width,
            workers=workers,
            inner=inner,
            buffers=Buffers(self._dtype, self._memory),
            merges=self._merges,
            may_leave=self._engine == "auto",
            numbers=self._blocks,
            callback=self._callback,
        ).run()

    def _width(self, inputs: int) -> int:
        """Return the inputs per block: what suits the caches and is within the memory."""
        width = costs.block_width(self._neurons, self._dtype.itemsize, inputs)
        while width > 16 and self._block_bytes(width) > self._memory:
            width -= 32
        if self._block_bytes(width) > self._memory:
            raise ArgumentError(
                f"memory={self._memory} is too small: a block of {width} inputs at"
                f" {self._neurons} neurons takes {self._block_bytes(width)} bytes"
            )
        return width

    def _block_bytes(self, width: int) -> int:
        """Return the bytes that a thread works in: a block, the next one, and one to gather by."""
        return 3 * width * self._neurons * self._dtype.itemsize

    def _rows_at_once(self) -> int:
        """Return how many inputs a layer in the sparse form takes: a few full rows of each fit."""
        row = 4 * self._neurons * (8 + self._dtype.itemsize)
        if row > self._memory:
            raise ArgumentError(
                f"memory={self._memory} is too small: an input at {self._neurons} neurons takes up"
                f" to {row} bytes in the sparse form"
            )
        return self._memory // row
