"""Blocks of inputs, side by side, through a window of layers.

Every thread takes the deepest block that is ready, or else new inputs; when both run out, the
shallowest survivors go on as they are. Once all inputs have been read, a thread takes no more than
its share of those that are left. A block form computes each input by itself, so its activations do
not depend on which others are in its block.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.row_store import RowStore
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.engine.block_run import BlockRun, Task
from gbdnn.engine.survivors import SurvivorBlock
from gbdnn.kernels import costs
from gbdnn.runtime.first_use import gb
from gbdnn.runtime.threads import on_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gbdnn.engine.answer import Answer
    from gbdnn.engine.block_run import BlockPolicy
    from gbdnn.engine.choice import FormChoice
    from gbdnn.engine.duplicates import Duplicates
    from gbdnn.engine.plan import Window
    from gbdnn.engine.progress import RunProgress
    from gbdnn.engine.queues import LayerQueue, RowRange
    from gbdnn.engine.stats import LayerStats

__all__ = ["BlockScheduler", "RunSetting"]

_POLL = 0.001  # seconds between two looks for work
_AT_ONCE = 16  # blocks whose rows are read at once,
_READING = 16  # and the part of the memory for blocks that these rows may take in all


@dataclass(frozen=True, kw_only=True)
class RunSetting:
    """What the parts of a queued run share.

    Attributes
    ----------
    layers, inputs : int
        Of the whole run.
    choice : FormChoice
    answer : Answer
        Where finished rows go.
    duplicates : Duplicates, optional
        Records inputs that follow another one; without it none does.
    progress : RunProgress
    callback : callable, optional
        Gets a LayerStats per block and layer, in the caller's thread.
    numbers : iterator of int
        Numbers blocks.
    """

    layers: int
    inputs: int
    choice: FormChoice
    answer: Answer
    duplicates: Duplicates | None
    progress: RunProgress
    callback: Callable[[LayerStats], object] | None
    numbers: Iterator[int] = field(default_factory=count)

    def stands(self) -> np.ndarray:
        """Return by id how many inputs an input stands for; it goes on to change."""
        if self.duplicates is None:
            return np.ones(self.inputs, np.int64)
        return self.duplicates.weights


class BlockScheduler:
    """Takes inputs through a window of layers in blocks.

    Parameters
    ----------
    run : RunSetting
    window : Window
        The layers; inputs leave behind the last one at the latest.
    queue : LayerQueue
        The inputs, as they are before `first`.
    policy : callable
        Returns a thread's decisions about the blocks of this scheduler, in this window.
    first : int
        The layer of the window that is the first one.
    room : float
        Bytes of inputs that may leave beyond those that have been read. When there are more, no
        inputs are read any longer, though a block has been: the rest stays in the queue.
    """

    def __init__(
        self,
        run: RunSetting,
        window: Window,
        queue: LayerQueue,
        policy: Callable[[BlockScheduler, Window], BlockPolicy],
        first: int,
        room: float,
    ) -> None:
        choice = run.choice
        self.run, self._window, self._queue, self._policy = run, window, queue, policy
        self._chain = window.blocks
        self._first, self.width = first, choice.width(queue.inputs)
        self._workers, self._inner = choice.workers(
            queue.inputs, max(plan.info.edges for plan in window.plans)
        )
        self.buffers = choice.buffers(self.width)
        self._entry_bytes = 8 + choice.dtype.itemsize
        self._records: deque[LayerStats] = deque()
        self._caller = threading.current_thread()
        # Under the lock:
        self._lock = threading.Condition()
        self._room = room
        self._has_read = False
        self._ready: list[Task] = []
        self._read: deque[SparseRows] = deque()  # rows of blocks to be made
        self._survivors: dict[int, SurvivorBlock] = {}
        self._at: dict[int, int] = {}  # the layer that each thread with a task is at
        self._taken = 0  # inputs of these tasks
        self._left: dict[int, RowStore] = {}
        self.has_failed = False

    def __repr__(self) -> str:
        sizes = f"{self._workers} side by side, {self._inner} threads each"
        return f"blocks of {self.width} inputs, {sizes}"

    def advanced(self) -> dict[int, list[SparseRows]]:
        """Take all inputs as far as block forms go; return them by the layer they are at."""
        try:
            on_threads(self._workers, self._work, stop=self._fail)
        finally:
            self.buffers.release()
        self._tell()
        return {k: left.rows() for k, left in self._left.items()}

    # Threads and tasks

    def _work(self, _: int) -> None:
        """Run tasks until there are none."""
        chunk = {} if self._inner == 1 else {"chunk": 4096}
        run, told = self.run, self.run.callback is not None
        blocks = BlockRun(
            self._chain, self.buffers, self._policy(self, self._window),
            progress=run.progress, tell=self._record if told else None,
            stands=run.stands() if told else None,
        )  # fmt: skip
        with gb.ss.Context(engage=False, nthreads=self._inner, **chunk):
            while (task := self._next_task()) is not None:
                blocks.advance(task)
                with self._lock:
                    del self._at[threading.get_ident()]
                    self._taken -= task.inputs
                    self._lock.notify_all()

    def _fail(self) -> None:
        """Make all threads end."""
        with self._lock:
            self.has_failed = True
            self._lock.notify_all()

    def _next_task(self) -> Task | None:
        """Return the deepest ready block, or new inputs, or the shallowest survivors."""
        me = threading.get_ident()
        while True:
            with self._lock:
                if self.has_failed:
                    return None
                readable = self._queue.inputs and (self._room >= 0 or not self._has_read)
                if not (self._ready or self._read or readable):
                    self._gather_survivors()
                if self._ready:
                    task = self._ready.pop(_deepest(self._ready))
                    if not (self._read or readable):
                        task = self._share(task)
                    self._at[me] = task.k
                    self._taken += task.inputs
                    return task
                if self._read or readable:
                    self._at[me] = self._first
                    ranges = [] if self._read else self._take()
                    rows = self._read.popleft() if self._read else None
                    break
                if not self._at:
                    return None
                self._lock.wait(_POLL)
            self._tell()
        return self._new_task(ranges, rows)

    def _new_task(self, ranges: list[RowRange], rows: SparseRows | None) -> Task:
        """Return inputs as a block: rows, or those of some ranges."""
        k = self._first
        if rows is None and len(ranges) == 1 and ranges[0].is_dense:
            (few,) = ranges
            array = few.dense_rows()
            block = self._chain.block(self.buffers, k, len(array))
            self._chain.read_dense(block, k, array, np.arange(few.start, few.stop))
        else:
            rows = self._split(ranges) if rows is None else rows
            block = self._chain.block(self.buffers, k, rows.nrows)
            self._chain.read(block, k, rows)
        with self._lock:
            self._taken += len(block.inputs)
            return self._task(k, block, fresh=True)

    def _task(self, k: int, block: Any, *, fresh: bool) -> Task:
        return Task(k, next(self.run.numbers), block, fresh, len(block.inputs))

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
        first, *others = (rows.sparse_rows(a, min(a + self.width, rows.nrows)) for a in starts)
        with self._lock:
            self._read.extend(others)
            self._lock.notify_all()
        return first

    def _gather_survivors(self) -> None:
        """Make the shallowest survivors ready, if no more will join."""
        k = min(self._survivors, default=None)
        if k is not None and k < min(self._at.values(), default=k + 1):
            self._ready.append(self._task(k, self._survivors.pop(k).block, fresh=False))

    def _share(self, task: Task) -> Task:
        """Return a share of the last inputs: a block, or a part of it; the rest is ready."""
        count, least = task.inputs, costs.NARROWEST_COMFORTABLE
        left = self._taken + count + sum(each.inputs for each in self._ready)
        share = max(least, -(-left // self._workers))
        if count - share < least or not self.buffers.has_room(
            task.block.neurons, self.width, count=2
        ):
            return task
        for at in (slice(share, count), slice(share)):
            part = self._chain.block(self.buffers, task.k, len(task.block.inputs[at]))
            part.inputs = task.block.inputs[at]
            part.array[:, : len(part.inputs)] = task.block.array[:, at]
            part.array[:, len(part.inputs) :] = 0
            self._ready.append(self._task(task.k, part, fresh=False))
        self.buffers.put(task.block)
        self._lock.notify_all()
        return self._ready.pop()

    # What blocks need and report

    def reached(self, k: int) -> None:
        """Note that this thread's block is at layer `k`."""
        self._at[threading.get_ident()] = k

    def _record(self, stats: LayerStats) -> None:
        """Keep a record for the callback, and call it if this is the caller's thread."""
        self._records.append(stats)
        self._tell()

    def _tell(self) -> None:
        callback = self.run.callback
        if callback is not None and threading.current_thread() is self._caller:
            while self._records:
                callback(self._records.popleft())

    def has_room_for_survivors(self, k: int, neurons: int) -> bool:
        """Whether there is a survivor block of layer `k`, or memory for one."""
        with self._lock:
            return k in self._survivors or self.buffers.has_room(neurons, self.width, count=2)

    def add_survivors(
        self, k: int, array: np.ndarray, inputs: np.ndarray, marks: np.ndarray | None
    ) -> None:
        """Move columns to the survivor block of layer `k`; when it is full, the next takes them.

        ``marks`` are the columns' fingerprints, if equal ones are to become one.
        """
        while len(inputs):
            with self._lock:
                if k not in self._survivors:
                    self._survivors[k] = SurvivorBlock(
                        self._chain.block(self.buffers, k, self.width)
                    )
                survivors = self._survivors[k]
                if self.run.duplicates is not None and marks is not None:
                    other = survivors.merge(array, inputs, marks, self.run.duplicates)
                    self.run.progress.dropped(k, len(inputs) - len(other))
                    if len(other) < len(inputs):
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
                    self._ready.append(self._task(k, survivors.block, fresh=False))
                    self._lock.notify()
            fits = where.stop - where.start
            array, inputs = array[:, fits:], inputs[fits:]
            marks = None if marks is None else marks[fits:]

    def leave(self, k: int, rows: SparseRows, *, queued: bool) -> None:
        """Take rows that go on outside, queued at layer `k` or finished."""
        if not queued:
            self.run.answer.add(rows)
            return
        with self._lock:
            if k not in self._left:
                self._left[k] = RowStore(rows.ncols, rows.dtype)
            self._room -= rows.nbytes
        self._left[k].add(rows)


def _deepest(tasks: list[Task]) -> int:
    return max(range(len(tasks)), key=lambda at: tasks[at].k)
