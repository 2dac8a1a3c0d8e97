"""The full form over many inputs: blocks, threads, and pools of survivors.

    read     inputs, a block at a time, from sparse rows
    layer    Z = b, Z += Y W, Y = min(max(Z, 0), clip)
    gather   an input without entries is dead and leaves; the living of a block join the pool of
             the layer they are at, and a pool with a block's worth of inputs is the next block
    leave    activations after the last layer, or before one that wants the sparse form, become
             sparse rows again

Inputs die fast in deep networks: carrying the dead along costs a share of every product, gathering
the living costs a pass over the block. A block carries its dead until they have cost as much as a
gather would (rent until you could have bought): at most twice what the best moment would have cost.
That the dead leave is KK-SpDNN's trimming of zeros, and the zero-row filter of the cuSPARSE
champion; that survivors of many blocks go on together keeps the blocks full.

Every thread takes the deepest block that is ready, or else new inputs; when both run out, the
shallowest pool is shared out. The kernel computes each input by itself, so its activations do not
depend on which others are in its block.
"""

from __future__ import annotations

import threading
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import graphblas as gb
import numpy as np

from gbdnn.arrays.sparse_rows import any_bit, fill_block, joined, lives, rows_of_block
from gbdnn.engine import costs
from gbdnn.engine.duplicates import equal_columns, fingerprints
from gbdnn.engine.stats import LayerStats
from gbdnn.engine.survivors import SurvivorBlock
from gbdnn.kernels import full
from gbdnn.kernels.blocks import padded
from gbdnn.kernels.overflow import require_finite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gbdnn.arrays.sparse_rows import SparseRows
    from gbdnn.engine.duplicates import Duplicates
    from gbdnn.engine.plan import ReadyLayer
    from gbdnn.engine.queues import LayerQueue, RowRange
    from gbdnn.kernels.blocks import Block, Buffers

__all__ = ["BlockScheduler"]

_LONGEST_PAUSE = 4  # layers between two looks for the dead
_POLL = 0.001  # seconds between two looks for work


class _Task(NamedTuple):
    """A block that is ready to go through the layers from `k` on."""

    k: int
    number: int
    block: Block
    fresh: bool  # as it was read: no input has left it or joined it


class BlockScheduler:
    """Takes inputs through layers in the full form.

    Parameters
    ----------
    stages : sequence of ReadyLayer
        Consecutive layers; inputs leave behind the last one at the latest.
    queue : LayerQueue
        The inputs, as they are before layer `first`.
    first : int
        The first layer.
    room : float
        Bytes of inputs that may leave beyond those that have been read. When there are more, no
        inputs are read any longer, though a block has been: the rest stays in the queue.
    width : int
        Inputs per block.
    workers, inner : int
        Blocks side by side, and threads within a product.
    buffers : Buffers
        Where blocks come from.
    merges : Duplicates, optional
        Takes note of inputs that go on as one; without it none do.
    may_leave : bool
        Whether a block may leave where the sparse form is cheaper, too.
    numbers : iterator of int
        Numbers blocks.
    callback : callable, optional
        Gets a LayerStats per block and layer, in the thread that calls `run`.
    """

    def __init__(
        self,
        stages: Sequence[ReadyLayer],
        queue: LayerQueue,
        first: int,
        *,
        room: float,
        width: int,
        workers: int,
        inner: int,
        buffers: Buffers,
        merges: Duplicates | None,
        may_leave: bool,
        numbers: Iterator[int],
        callback: Callable[[LayerStats], object] | None,
    ) -> None:
        self._stages = {stage.k: stage for stage in stages}
        self._queue = queue
        self._first = first
        self._width = width
        self._workers = workers
        self._inner = inner
        self._buffers = buffers
        self._merges = merges
        self._may_leave = may_leave
        self._callback = callback
        self._told: deque[LayerStats] = deque()
        self._numbers = numbers
        self._caller = threading.current_thread()
        # Under the lock:
        self._lock = threading.Condition()
        self._room = room
        self._has_read = False
        self._ready: list[_Task] = []
        self._pools: dict[int, SurvivorBlock] = {}
        self._at: dict[int, int] = {}  # the layer that each thread with a task is at
        self._left: dict[int, list[SparseRows]] = {}
        self._error: BaseException | None = None

    def run(self) -> dict[int, list[SparseRows]]:
        """Take all inputs as far as the full form goes; return them by the layer they are at."""
        helpers = [
            threading.Thread(target=self._work, name=f"gbdnn-{n}", daemon=True)
            for n in range(1, self._workers)
        ]
        for helper in helpers:
            helper.start()
        self._work()
        for helper in helpers:
            while helper.is_alive():
                try:
                    helper.join()
                except BaseException as error:  # Ctrl-C: the helpers end before it goes on
                    self._fail(error)
        self._buffers.release()
        if self._error is not None:
            raise self._error
        self._tell()
        return self._left

    # Who does what

    def _work(self) -> None:
        """Run tasks until there are none; the first error ends all threads."""
        chunk = {} if self._inner == 1 else {"chunk": 4096}
        try:
            with gb.ss.Context(engage=False, nthreads=self._inner, **chunk):
                while (task := self._next_task()) is not None:
                    self._advance(task)
                    with self._lock:
                        del self._at[threading.get_ident()]
                        self._lock.notify_all()
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Make all threads end; the first error counts."""
        with self._lock:
            self._error = self._error or error
            self._lock.notify_all()

    def _next_task(self) -> _Task | None:
        """Return the deepest ready block, or new inputs, or what the shallowest pool holds."""
        me = threading.get_ident()
        while True:
            with self._lock:
                if self._error is not None:
                    return None
                readable = self._queue.inputs and (self._room >= 0 or not self._has_read)
                if not (self._ready or readable):
                    self._share_out()
                if self._ready:
                    task = self._ready.pop(_deepest(self._ready))
                    self._at[me] = task.k
                    return task
                if readable:
                    self._at[me] = self._first
                    self._has_read = True
                    spans = self._queue.take(self._width)
                    self._room += sum(span.nbytes for span in spans)
                    break
                if not self._at:
                    return None
                self._lock.wait(_POLL)
            self._tell()
        return self._new_block(spans)

    def _share_out(self) -> None:
        """Make the shallowest pool's inputs ready, if no thread will add to it: a part for each."""
        k = min(self._pools, default=None)
        if k is None or k >= min(self._at.values(), default=k + 1):
            return
        pool = self._pools.pop(k).block
        count = len(pool.inputs)
        idle = self._workers - len(self._at)
        parts = max(1, min(idle, count // costs.NARROWEST_COMFORTABLE))
        for each in np.array_split(np.arange(count), parts):
            part = self._buffers.get(pool.neurons, padded(len(each)))
            part.array[:, : len(each)] = pool.array[:, each[0] : each[-1] + 1]
            part.array[:, len(each) :] = 0
            part.inputs = pool.inputs[each]
            self._ready.append(_Task(k, self._number(), part, fresh=False))
        self._buffers.put(pool)
        self._lock.notify_all()

    def _number(self) -> int:
        return next(self._numbers)

    def _tell(self) -> None:
        """Hand what has been done to the callback, in the caller's thread."""
        if self._callback is not None and threading.current_thread() is self._caller:
            while self._told:
                self._callback(self._told.popleft())

    # What is done

    def _new_block(self, spans: list[RowRange]) -> _Task:
        """Read inputs into a block."""
        stage = self._stages[self._first]
        piece = joined([span.rows() for span in spans])
        block = self._buffers.get(stage.layer.nrows, padded(len(piece.inputs)))
        fill_block(block, piece, stage.place)
        with self._lock:
            number = self._number()
        return _Task(self._first, number, block, fresh=True)

    def _advance(self, task: _Task) -> None:
        """Take a block through the layers, until it leaves or its last inputs are pooled."""
        Y = task.block
        # Those just read are taken to live: where few neurons are on, the sample would miss them.
        waste, look, pause = 0.0, task.k + task.fresh, 1
        k = task.k
        while (stage := self._stages.get(k)) is not None:
            if self._error is not None:
                return
            if not stage.full_is_exact:
                self._leave(stage.k, Y, stage.place, droppable=stage.droppable)
                return
            self._at[threading.get_ident()] = stage.k
            if stage.k >= look:
                count = len(Y.inputs)
                living = _living(Y) if stage.droppable else count
                # Where nothing has died, there is no hurry to look again.
                look = stage.k + (1 if living < count else pause)
                pause = 1 if living < count else min(2 * pause, _LONGEST_PAUSE)
                if living < count:
                    # Rent, until it has cost as much as to buy.
                    waste += costs.full_layer(count - living, stage.layer.edges, stage.layer.ncols)
                    if waste > costs.gather(Y.neurons, count, living):
                        waste = 0.0
                        living = self._gather(stage, Y)
                        if living == 0:
                            return
                # Where a pool was shared out, equal inputs are one already.
                if stage.k > task.k and self._repeats(stage.k, Y):
                    living = self._gather(stage, Y, merge=True)
                    if living == 0:
                        return
                # Only as it was read, and not before it has done a layer: whoever reads the same
                # inputs decides alike, and comes to an end.
                fresh = task.fresh and living == count
                if fresh and self._may_leave and _is_sparse(Y, stage):
                    self._leave(stage.k, Y, stage.place, droppable=stage.droppable)
                    return
            Y = self._layer(stage, task.number, Y)
            k += 1
        last = self._stages[k - 1]
        self._leave(k, Y, None, droppable=last.droppable_after, waits=not last.is_last)

    def _layer(self, stage: ReadyLayer, number: int, Y: Block) -> Block:
        """Return the block after a layer."""
        began = perf_counter()
        layer, weights = stage.layer, stage.weights
        Z = self._buffers.get(layer.ncols, Y.width)
        Z.inputs = Y.inputs
        full.start(Z, weights)
        full.multiply(Y, Z, weights)
        if stage.may_overflow:
            require_finite(stage.k, layer, Z.filled)
        full.activate(Z, layer)
        self._buffers.put(Y)
        if self._callback is not None:
            self._told.append(self._stats(stage.k, number, Z, perf_counter() - began))
            self._tell()
        return Z

    def _stats(self, k: int, number: int, block: Block, seconds: float) -> LayerStats:
        live = block.inputs[lives(block)]
        return LayerStats(
            layer=k,
            block=number,
            inputs=len(block.inputs),
            live=len(live) if self._merges is None else self._merges.represented(live),
            distinct=len(live),
            entries=int(np.count_nonzero(block.filled)),
            form="full",
            seconds=seconds,
        )

    def _repeats(self, k: int, block: Block) -> bool:
        """Whether so many of a block's inputs look equal that it is worth to merge them."""
        if self._merges is None or not self._merges.should_check(k):
            return False
        distinct = len(np.unique(fingerprints(_sample(block.filled))))
        return self._merges.record(k, distinct, len(block.inputs))

    def _gather(self, stage: ReadyLayer, block: Block, *, merge: bool = False) -> int:
        """Move the living of a block to the pool of the layer, equal ones as one.

        Returns
        -------
        int
            How many live, if the block is to go on as it is: it has no dead (and nothing to
            `merge`), or a pool no room. 0 if all have died or have moved.
        """
        count = len(block.inputs)
        live = np.flatnonzero(lives(block)) if stage.droppable else np.arange(count)
        if len(live) == count and not merge:
            return count
        if len(live) == 0:
            self._buffers.put(block)
            return 0
        with self._lock:
            has_room = self._buffers.has_room(block.neurons, 2 * self._width)
            if stage.k not in self._pools and not has_room:
                return len(live)
        marks = None
        if self._merges is not None and (merge or self._merges.always):
            marks = fingerprints(_sample(block.filled))[live]
            equal = equal_columns(block.array, marks, live)
            if merge:
                self._merges.record(stage.k, len(equal.stay), len(live))
            self._merges.merge(block.inputs[live[equal.merged]], block.inputs[live[equal.into]])
            live, marks = live[equal.stay], marks[equal.stay]
        # np.take is fast into contiguous memory only: it goes by way of a block of its own.
        scratch = self._buffers.get(block.neurons, block.width)
        moved = scratch.array.reshape(-1)[: block.neurons * len(live)].reshape(-1, len(live))
        np.take(block.array, live, axis=1, out=moved, mode="wrap")
        inputs = block.inputs[live]
        self._buffers.put(block)
        self._pool(stage.k, moved, inputs, marks)
        self._buffers.put(scratch)
        return 0

    def _pool(
        self, k: int, array: np.ndarray, inputs: np.ndarray, marks: np.ndarray | None
    ) -> None:
        """Add columns to the pool of layer `k`; when it is full, the next one takes them."""
        while True:
            with self._lock:
                if k not in self._pools:
                    self._pools[k] = SurvivorBlock(self._buffers.get(len(array), self._width))
                pool = self._pools[k]
                if self._merges is not None and marks is not None:
                    other = pool.merge(array, inputs, marks, self._merges)
                    if len(other) < len(inputs):
                        array, inputs, marks = array[:, other], inputs[other], marks[other]
                if not len(inputs):
                    return
                where = pool.reserve(inputs)
                if pool.is_full:
                    del self._pools[k]
            pool.fill(where, array)  # beside others that fill it, too
            with self._lock:
                pool.filled(where, marks)
                if pool.is_ready:
                    self._ready.append(_Task(k, self._number(), pool.block, fresh=False))
                    self._lock.notify()
            fits = where.stop - where.start
            array, inputs = array[:, fits:], inputs[fits:]
            marks = None if marks is None else marks[fits:]
            if not len(inputs):
                return

    def _leave(
        self,
        k: int,
        block: Block,
        place: np.ndarray | None,
        *,
        droppable: bool,
        waits: bool = True,
    ) -> None:
        """Turn a block's inputs back into sparse rows, at layer `k`; the dead only if they may."""
        keep = np.flatnonzero(lives(block)) if droppable else np.arange(len(block.inputs))
        if len(keep):
            piece = rows_of_block(block, place, keep)
            with self._lock:
                self._left.setdefault(k, []).append(piece)
                self._room -= piece.nbytes if waits else 0
        self._buffers.put(block)


def _deepest(tasks: list[_Task]) -> int:
    return max(range(len(tasks)), key=lambda at: tasks[at].k)


def _sample(array: np.ndarray) -> np.ndarray:
    """Return activations at one neuron in sixteen, at some 64 at least."""
    return array[:: min(16, max(1, len(array) // 64))]


def _living(block: Block) -> int:
    """Estimate, from below, how many inputs of a block live."""
    return int(np.count_nonzero(any_bit(_sample(block.filled))))


def _is_sparse(block: Block, stage: ReadyLayer) -> bool:
    """Whether the sparse form is clearly the cheaper one, the way there included."""
    sample, layer, inputs = _sample(block.filled), stage.layer, len(block.inputs)
    entries = np.count_nonzero(sample) * block.neurons / max(len(sample), 1)
    sparse = costs.sparse_layer(inputs, entries, layer.edges, layer.nrows, layer.ncols)
    sparse += costs.CONVERT * entries
    return bool(2 * sparse < costs.full_layer(inputs, layer.edges, layer.ncols))
