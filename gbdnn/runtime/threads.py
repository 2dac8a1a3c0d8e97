"""Threads: GraphBLAS's number of threads during a call, and a pool of Python threads."""

from __future__ import annotations

import _thread
import ctypes
import os
from _queue import SimpleQueue  # gevent replaces that of `queue`
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gbdnn.errors import ForkError
from gbdnn.runtime.cores import is_binding, usable
from gbdnn.runtime.first_use import gb, will_use
from gbdnn.runtime.forks import at_fork, new_lock, of_threads

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Iterable, Iterator

__all__ = [
    "MOST_THREADS",
    "available",
    "engaged",
    "move_elsewhere",
    "on_threads",
    "restored",
    "share",
    "started",
    "unbind",
]

MOST_THREADS = 2**31 - 1  # a C int in GraphBLAS

_core: Callable[[], int]
try:
    _core = ctypes.CDLL(None).sched_getcpu
except (AttributeError, TypeError):  # on macOS, on Windows
    _core = int


class restored:  # noqa: N801 -- used as a function
    """Engage the GraphBLAS Context of before at the end of a ``with`` block.

    python-graphblas would disengage a Context of its own, and raise if another one is in use, as
    after a signal whose handler raised while that one was disengaged.
    """

    def __enter__(self) -> None:
        self._state: Any = getattr(gb.core.ss.context, "threadlocal", None)  # as in `available`
        self._before = getattr(self._state, "context", None)

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            # The state may name a Context that GraphBLAS does not use yet.
            self._state.context = self._before
            self._before.engage()


class engaged(restored):  # noqa: N801 -- used as a function
    """Engage a GraphBLAS Context with these options for a ``with`` block, within `restored`.

    A handler of signals may raise at any line of this class: `restored` is what then restores the
    number of threads. None as `nthreads` leaves the caller's Context and configuration in force.
    """

    def __init__(self, nthreads: int | None, **options: int) -> None:
        self._options = None if nthreads is None else {"nthreads": nthreads, **options}

    def __enter__(self) -> None:
        super().__enter__()
        if self._options is not None:
            will_use(self._options["nthreads"])
            gb.ss.Context(**self._options)  # GraphBLAS's state keeps it


def available() -> int:
    """Return GraphBLAS's number of threads, of the engaged Context or the configuration."""
    # A new Context has the same number, but takes 13 us. The name is private.
    local = getattr(gb.core.ss.context, "threadlocal", None)
    found = int((local.context if local else gb.ss.Context(engage=False))["nthreads"])
    will_use(found)
    return found


def unbind() -> None:
    """Let this thread run on all cores of the process even if OpenMP binds threads.

    Python threads inherit the binding of the thread that starts them, and OpenMP binds each one to
    its first place at the first call of GraphBLAS, so all of them would share one core.
    """
    if is_binding() and hasattr(os, "sched_setaffinity"):
        # In a forked child that cannot use GraphBLAS, OpenMP will not bind this thread later.
        with suppress(ForkError), restored(), engaged(1):
            gb.Matrix.from_coo([0], [0], 1.0)[:1, :].new(name="first call")
        with suppress(OSError):
            os.sched_setaffinity(0, usable())


def started(work: Callable[[], object]) -> int:
    """Start a daemon thread that calls ``work()``; return its id.

    Raises
    ------
    RuntimeError
        No thread can be started.
    """
    begun: SimpleQueue[Any] = SimpleQueue()

    def run() -> None:
        try:
            unbind()
        except BaseException as error:  # raised in the thread that waits
            begun.put(error)
            return
        begun.put(_thread.get_native_id())
        work()

    of_threads("start_new_thread")(run, ())
    found = begun.get()
    if isinstance(found, BaseException):
        raise found
    return int(found)


def move_elsewhere(ids: Iterable[int], before: set[int]) -> set[int]:
    """Let threads run on the usable cores but the calling thread's, or on all if there is no other.

    Linux often wakes a thread on the core of the thread that wakes it, although another core is
    idle. It would then wait for milliseconds. Return the cores, which were `before` until now.
    """
    cores = usable()
    cores = cores - {_core()} or cores
    if cores != before:
        for each in ids:
            with suppress(OSError):
                os.sched_setaffinity(each, cores)
    return cores


class _Helper:
    """A thread that runs jobs from a queue."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._cores: set[int] = set()
        self._id = started(self._loop)

    def begin(self, job: Callable[[], None]) -> None:
        """Run a job, on another core than the calling thread's."""
        self._cores = move_elsewhere([self._id], self._cores)
        self._jobs.put(job)

    def _loop(self) -> None:
        while True:
            self._jobs.get()()


_idle: list[_Helper] = []  # append and pop are atomic
at_fork(after_in_child=_idle.clear)


def on_threads(nthreads: int, work: Callable[[int], object], *, stop: Callable[[], object]) -> None:
    """Call ``work(0)``, ``work(1)``, ... concurrently, each on its own thread, and wait for all.

    The calling thread runs ``work(0)``. Calls on other threads are omitted if no thread can be
    started, or if they have not begun when ``work(0)`` returns. Threads are kept for the next call,
    because starting one takes 0.1 ms. ``stop()`` makes all calls end soon; it is called if one of
    them raises, or if this thread is interrupted. The first exception is raised after all calls
    have ended.
    """
    helpers: list[_Helper] = []
    try:
        while len(helpers) < nthreads - 1:
            helpers.append(_idle.pop() if _idle else _Helper())
    except BaseException as error:
        if not isinstance(error, RuntimeError):
            _idle.extend(helpers)
            raise
    errors: list[BaseException] = []
    calls = [_Call(work, k, stop, errors, helper) for k, helper in enumerate(helpers, 1)]
    own = [0]

    def end_all() -> None:
        nonlocal errors
        while True:  # again after each exception, also of Ctrl-C
            try:
                for call in calls:
                    call.begin()
                if errors:
                    stop()
                if own:
                    work(own.pop())
                for call in calls:
                    call.withdraw()
                    call.wait()
                return
            except BaseException as error:
                errors += [error]

    try:
        end_all()
    except BaseException as error:  # a second Ctrl-C, after the first one was caught
        errors += [error]
        end_all()
    try:
        if errors:
            raise errors[0]
    finally:
        errors.clear()  # its traceback refers to this frame, which keeps all memory of the call


def share(
    workers: int,
    queue: deque[Any],
    work: Callable[[Iterator[Any]], object],
    *,
    is_full: Callable[[], bool] = lambda: False,
    nthreads: int | None = None,
    **options: int,
) -> None:
    """Call ``work(items)`` on threads, which take items from a queue until ``is_full()``.

    Each thread engages a GraphBLAS Context with these options unless `nthreads` is None: that takes
    50 us, in which other threads wait. After an exception the queue is empty.
    """

    def items() -> Iterator[Any]:
        with suppress(IndexError):  # the queue is empty
            while not is_full():
                yield queue.popleft()

    def run(_: int) -> object:
        if nthreads is None:
            return work(items())
        with restored(), engaged(nthreads, **options):
            return work(items())

    on_threads(min(workers, len(queue)), run, stop=queue.clear)


class _Call:
    """A call of `on_threads` on another thread."""

    def __init__(
        self,
        work: Callable[[int], object],
        number: int,
        stop: Callable[[], object],
        errors: list[BaseException],
        helper: _Helper,
    ) -> None:
        self._work, self._stop, self._errors, self._helper = work, stop, errors, helper
        self._number, self._has_begun = number, False
        self._claim: dict[str, object] = {}  # "by": the run of the call, or whoever withdrew it
        self._end = new_lock()
        self._end.acquire()
        self.has_ended = False

    # An interrupt may fall between any two steps of these three methods; they are then repeated.

    def begin(self) -> None:
        if not self._has_begun:
            self._helper.begin(self._run)
            self._has_begun = True

    def withdraw(self) -> None:
        """Cancel the call if it has not begun, because all work is done."""
        if self._claim.setdefault("by", self) is self and not self.has_ended:
            self.has_ended = True
            _idle.append(self._helper)

    def wait(self) -> None:
        while not self.has_ended:
            with self._end:
                pass

    def _run(self) -> None:
        run = object()
        if self._claim.setdefault("by", run) is not run:  # withdrawn, or already run
            return
        try:
            self._work(self._number)
        except BaseException as error:
            self._errors.append(error)
            self._stop()
        _idle.append(self._helper)
        self.has_ended = True
        self._end.release()
