"""Blocks of inputs, side by side, through layers in a block form.

    read     inputs, a block at a time, from sparse rows or from an array
    layer    the next activations, in the layer's block form
    compact  an input without entries is dead and is dropped; the living of a block move to the
             survivor block of the layer they are at, and a full survivor block is the next task
    leave    activations before a layer that is cheaper in the sparse form become sparse rows again;
             so do those after the last layer, or they are written into the answer

Inputs die fast in deep networks: carrying the dead along costs a share of every layer, compaction
costs a pass over the block. By the ski-rental rule a block is compacted once the wasted work
exceeds the cost of compaction: at most twice what the best moment would have cost (2-competitive).
That the dead are dropped is KK-SpDNN's trimming of zeros, and the zero-row filter of the cuSPARSE
champion; that survivors of many blocks go on together keeps the blocks full.

Every thread takes the deepest block that is ready, or else new inputs; when both run out, the
shallowest survivor block is shared out. A block form computes each input by itself, so its
activations do not depend on which others are in its block.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from gbdnn.arrays.first_use import gb
from gbdnn.arrays.row_store import RowStore
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.engine.survivors import SurvivorBlock
from gbdnn.kernels import costs
from gbdnn.kernels.blocks import padded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gbdnn.engine.answer import Answer
    from gbdnn.engine.choice import FormChoice
    from gbdnn.engine.duplicates import Duplicates
    from gbdnn.engine.plan import ReadyLayer
    from gbdnn.engine.state import LayerQueue, RowRange
    from gbdnn.engine.stats import LayerStats
    from gbdnn.engine.work import Work
    from gbdnn.kernels.buffers import Buffers

__all__ = ["BlockScheduler", "Runner", "Task"]

_POLL = 0.001  # seconds between two looks for work
_AT_ONCE = 16  # blocks whose rows are read at once,
_READING = 16  # and the part of the memory for blocks that these rows may take in all


class Task(NamedTuple):
    """A block that is ready to go through the layers from `k` on."""

    k: int
    number: int
    block: Any
    fresh: bool  # as it was read: no input has left it or joined it


class Runner(Protocol):
    """What takes one thread's blocks through the layers."""

    def read(self, rows: SparseRows, /) -> Any:
        """Return inputs as a block."""
        ...

    def read_dense(self, rows: np.ndarray, ids: np.ndarray, /) -> Any:
        """Return rows of an array as a block."""
        ...

    def advance(self, task: Task, /) -> None:
        """Take a block through the layers, until it leaves or its last inputs have moved."""
        ...


class BlockScheduler:
    """Takes inputs through layers in blocks.

    Parameters
    ----------
    layers : sequence of ReadyLayer
        Consecutive layers; inputs leave behind the last one at the latest.
    queue : LayerQueue
        The inputs, as they are before the first of the layers.
    room : float
        Bytes of inputs that may leave beyond those that have been read. When there are more, no
        inputs are read any longer, though a block has been: the rest stays in the queue.
    runner : callable
        Makes a Runner for a thread.
    neurons : int, optional
        For how many neurons all blocks have room; default: each has as many as its layer.
    inputs : int
        Of the whole run.
    width : int
        Inputs per block.
    workers, inner : int
        Blocks side by side, and threads within a layer.
    buffers : Buffers
        Where blocks come from.
    answer : Answer
        Where blocks may leave their activations behind the last layer.
    duplicates : Duplicates, optional
        Records inputs that follow another one; without it none does.
    choice : FormChoice
        Tells when a block leaves for the sparse form.
    numbers : iterator of int
        Numbers blocks.
    work : Work
        Where threads tell what they have done.
    callback : callable, optional
        Gets a LayerStats per block and layer, in the thread that calls `run`.
    """

    def __init__(
        self,
        layers: Sequence[ReadyLayer],
        queue: LayerQueue,
        *,
        runner: Callable[[BlockScheduler], Runner],
        neurons: int | None,
        room: float,
        inputs: int,
        width: int,
        workers: int,
        inner: int,
        buffers: Buffers,
        answer: Answer,
        duplicates: Duplicates | None,
        choice: FormChoice,
        numbers: Iterator[int],
        work: Work,
        callback: Callable[[LayerStats], object] | None,
    ) -> None:
        self.layers = {ready.plan.k: ready for ready in layers}
        self.inputs, self.width = inputs, width
        self.buffers, self.duplicates, self.choice = buffers, duplicates, choice
        self.answer, self.work, self._tally = answer, work, work.tally("survivors")
        self.first = layers[0]
        self._runner = runner
        self._neurons = neurons
        self._entry_bytes = 8 + layers[0].layer.dtype.itemsize
        self._queue = queue
        self._workers, self._inner = workers, inner
        self._callback = callback
        self._records: deque[LayerStats] = deque()
        self._numbers = numbers
        self._caller = threading.current_thread()
        # Under the lock:
        self._lock = threading.Condition()
        self._room = room
        self._has_read = False
        self._ready: list[Task] = []
        self._read: deque[SparseRows] = deque()  # rows of blocks to be made
        self._survivors: dict[int, SurvivorBlock] = {}
        self._at: dict[int, int] = {}  # the layer that each thread with a task is at
        self._left: dict[int, RowStore] = {}
        self._error: BaseException | None = None

    def run(self) -> dict[int, list[SparseRows]]:
        """Take all inputs as far as block forms go; return them by the layer they are at."""
        helpers: list[threading.Thread] = []
        try:
            for n in range(1, self._workers):
                helper = threading.Thread(target=self._work, name=f"gbdnn-{n}", daemon=True)
                helper.start()
                helpers.append(helper)
            self._work()
        except BaseException as error:  # no further thread can be started
            self._fail(error)
        for helper in helpers:
            while helper.is_alive():
                try:
                    helper.join()
                except BaseException as error:  # Ctrl-C: the helpers end before it goes on
                    self._fail(error)
        self.buffers.release()
        if self._error is not None:
            raise self._error
        self._tell()
        return {k: left.rows() for k, left in self._left.items()}

    # Threads and tasks

    def _work(self) -> None:
        """Run tasks until there are none; the first error ends all threads."""
        chunk = {} if self._inner == 1 else {"chunk": 4096}
        try:
            with gb.ss.Context(engage=False, nthreads=self._inner, **chunk):
                run = self._runner(self)
                while (task := self._next_task(run)) is not None:
                    run.advance(task)
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

    def _next_task(self, run: Runner) -> Task | None:
        """Return the deepest ready block, or new inputs, or the shallowest survivors."""
        me = threading.get_ident()
        while True:
            with self._lock:
                if self._error is not None:
                    return None
                readable = self._queue.inputs and (self._room >= 0 or not self._has_read)
                if not (self._ready or self._read or readable):
                    self._share_out()
                if self._ready:
                    task = self._ready.pop(_deepest(self._ready))
                    self._at[me] = task.k
                    return task
                if self._read or readable:
                    self._at[me] = self.first.plan.k
                    ranges = [] if self._read else self._take()
                    rows = self._read.popleft() if self._read else None
                    break
                if not self._at:
                    return None
                self._lock.wait(_POLL)
            self._tell()
        if rows is None and len(ranges) == 1 and ranges[0].is_dense:
            (few,) = ranges
            block = run.read_dense(few.dense_rows(), np.arange(few.start, few.stop))
        else:
            block = run.read(self._split(ranges) if rows is None else rows)
        with self._lock:
            number = next(self._numbers)
        return Task(self.first.plan.k, number, block, fresh=True)

    def _take(self) -> list[RowRange]:
        """Take inputs for several blocks from the queue: to read them at once takes less time."""
        self._has_read = True
        blocks = -(-self._queue.inputs // self.width)
        each = self._queue.entries / self._queue.inputs * self.width * self._entry_bytes
        most = min(_AT_ONCE, self.buffers.budget / (_READING * self._workers * max(each, 1)))
        several = 1 if self._queue.is_dense else min(int(most), blocks // (4 * self._workers))
        ranges = self._queue.take(self.width * max(1, several))
        self._room += sum(each.nbytes for each in ranges)
        return ranges

    def _split(self, ranges: list[RowRange]) -> SparseRows:
        """Read inputs; return those of the first block, the others are for whoever is next."""
        rows = SparseRows.joined([each.rows() for each in ranges])
        starts = range(0, rows.nrows, self.width)
        first, *others = (rows.rows(a, min(a + self.width, rows.nrows)) for a in starts)
        with self._lock:
            self._read.extend(others)
            self._lock.notify_all()
        return first

    def _share_out(self) -> None:
        """Make the shallowest survivors ready, a part for each thread, if no more will join."""
        k = min(self._survivors, default=None)
        if k is None or k >= min(self._at.values(), default=k + 1):
            return
        block = self._survivors.pop(k).block
        count = len(block.inputs)
        idle = self._workers - len(self._at)
        parts = max(1, min(idle, count // costs.NARROWEST_COMFORTABLE))
        for each in np.array_split(np.arange(count), parts):
            part = self.new_block(block.neurons, len(each))
            part.array[:, : len(each)] = block.array[:, each[0] : each[-1] + 1]
            part.array[:, len(each) :] = 0
            part.inputs = block.inputs[each]
            self._ready.append(Task(k, next(self._numbers), part, fresh=False))
        self.buffers.put(block)
        self._lock.notify_all()

    # What a block run needs and reports

    def new_block(self, neurons: int, width: int) -> Any:
        """Return a block for so many inputs; its content is arbitrary."""
        if self._neurons is None:
            return self.buffers.get(neurons, padded(width))
        block = self.buffers.get(self._neurons, self.width)
        block.neurons = neurons
        return block

    @property
    def has_failed(self) -> bool:
        """Whether threads are to end."""
        return self._error is not None

    @property
    def records(self) -> bool:
        """Whether anybody wants to know what was done."""
        return self._callback is not None

    def reached(self, k: int) -> None:
        """Note that this thread's block is at layer `k`."""
        self._at[threading.get_ident()] = k

    def record(self, stats: LayerStats) -> None:
        """Keep a record for the callback, and call it if this is the caller's thread."""
        self._records.append(stats)
        self._tell()

    def _tell(self) -> None:
        if self._callback is not None and threading.current_thread() is self._caller:
            while self._records:
                self._callback(self._records.popleft())

    def has_room_for_survivors(self, k: int, neurons: int) -> bool:
        """Whether there is a survivor block of layer `k`, or memory for one."""
        with self._lock:
            return k in self._survivors or self.buffers.has_room(
                self._neurons or neurons, 2 * self.width
            )

    def add_survivors(
        self, k: int, array: np.ndarray, inputs: np.ndarray, marks: np.ndarray | None
    ) -> None:
        """Move columns to the survivor block of layer `k`; when it is full, the next takes them.

        ``marks`` are the columns' fingerprints, if equal ones are to become one.
        """
        while len(inputs):
            with self._lock:
                if k not in self._survivors:
                    self._survivors[k] = SurvivorBlock(self.new_block(len(array), self.width))
                survivors = self._survivors[k]
                if self.duplicates is not None and marks is not None:
                    other = survivors.merge(array, inputs, marks, self.duplicates)
                    if len(other) < len(inputs):
                        self._tally.waits(k, len(other) - len(inputs))
                        self._tally.dropped(k, len(inputs) - len(other))
                        array, inputs, marks = array[:, other], inputs[other], marks[other]
                if not len(inputs):
                    return
                where = survivors.reserve(inputs)
                if survivors.is_full:
                    del self._survivors[k]
            survivors.fill(where, array)  # beside other threads that fill it, too
            with self._lock:
                survivors.filled(where, marks)
                if survivors.is_ready:
                    task = Task(k, next(self._numbers), survivors.block, fresh=False)
                    self._ready.append(task)
                    self._lock.notify()
            fits = where.stop - where.start
            array, inputs = array[:, fits:], inputs[fits:]
            marks = None if marks is None else marks[fits:]

    def leave(self, k: int, rows: SparseRows, *, queued: bool) -> None:
        """Take rows that go on outside, queued at layer `k` or finished."""
        if not queued:
            self.answer.add(rows)
            return
        with self._lock:
            if k not in self._left:
                self._left[k] = RowStore(rows.ncols, rows.dtype)
            self._room -= rows.nbytes
        self._left[k].add(rows)


def _deepest(tasks: list[Task]) -> int:
    return max(range(len(tasks)), key=lambda at: tasks[at].k)
