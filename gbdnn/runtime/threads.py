"""Threads: how many GraphBLAS may use during a call, and work that runs on several at once."""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager, nullcontext, suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING

from gbdnn.runtime.cores import is_binding, usable
from gbdnn.runtime.first_use import gb

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MOST_THREADS", "available", "engaged", "on_threads", "unbind"]

MOST_THREADS = 2**31 - 1  # GraphBLAS holds it in a C int


def engaged(nthreads: int | None) -> AbstractContextManager[object]:
    """Engage a GraphBLAS Context of `nthreads` threads for the length of a ``with`` block.

    None leaves the caller's Context and configuration in force.
    """
    if nthreads is None:
        return nullcontext()
    context: AbstractContextManager[object] = gb.ss.Context(engage=False, nthreads=nthreads)
    return context


def available() -> int:
    """Return the threads that GraphBLAS may use now: the engaged Context's, or the configured."""
    return int(gb.ss.Context(engage=False)["nthreads"])


def unbind() -> None:
    """Let this thread run on all cores of the process, where OpenMP's threads are to be bound.

    They are bound for the products within GraphBLAS. Threads of Python's begin where the one that
    started them is bound, and OpenMP binds each to its first place when it first calls GraphBLAS:
    all would share one core.
    """
    if is_binding() and hasattr(os, "sched_setaffinity"):
        with engaged(1):
            gb.Matrix.from_coo([0], [0], 1.0)[:1, :].new(name="first call")
        with suppress(OSError):
            os.sched_setaffinity(0, usable())


class _Helper:
    """A thread that runs one job after the other."""

    def __init__(self) -> None:
        self.jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._loop, name="gbdnn", daemon=True).start()

    def _loop(self) -> None:
        unbind()
        while True:
            self.jobs.get()()


_idle: list[_Helper] = []  # append and pop are done under Python's lock
os.register_at_fork(after_in_child=_idle.clear)


def on_threads(
    nthreads: int,
    work: Callable[[int], object],
    *,
    stop: Callable[[], object],
    all_needed: bool = False,
) -> None:
    """Call ``work(0)``, ``work(1)``, ... at once, each on a thread of its own; wait for all.

    This thread is one of them, unless `all_needed`; the others are kept for the next call, since
    to start one takes 0.1 ms.

    Parameters
    ----------
    nthreads : int
        How many calls.
    work : callable
        Gets its number.
    stop : callable
        Makes all calls of `work` end soon; called when one of them has raised, or this thread is
        interrupted.
    all_needed : bool
        Whether the calls wait for each other: then all begin, whatever happens to this thread, or
        none does, if a thread cannot be started. Else there may be fewer of them.

    Raises
    ------
    BaseException
        The first one that was raised, when all calls have ended.
    RuntimeError
        A thread that is needed cannot be started.
    """
    helpers: list[_Helper] = []
    first = 0 if all_needed else 1
    try:
        while len(helpers) < nthreads - first:
            helpers.append(_idle.pop() if _idle else _Helper())
    except RuntimeError:
        if all_needed:
            _idle.extend(helpers)
            raise
    errors: list[BaseException] = []
    calls = [_Call(work, k, stop, errors, helper) for k, helper in enumerate(helpers, first)]
    try:
        for call in calls:
            call.begin()
        if not all_needed:
            work(0)
    except BaseException as error:
        errors.append(error)
        for call in calls:  # those that have begun do so once
            call.begin()
        stop()
    for call in calls:
        if not all_needed:
            call.withdraw()
        while not call.has_ended:
            try:
                call.wait()
            except BaseException as error:  # Ctrl-C
                errors.append(error)
                stop()
    if errors:
        raise errors[0]


class _Call:
    """One call of `on_threads`, by a helper."""

    def __init__(
        self,
        work: Callable[[int], object],
        number: int,
        stop: Callable[[], object],
        errors: list[BaseException],
        helper: _Helper,
    ) -> None:
        self._work, self._stop, self._errors, self._helper = work, stop, errors, helper
        self._left = [number]
        self._end = threading.Lock()
        self._end.acquire()
        self.has_ended = False

    def begin(self) -> None:
        self._helper.jobs.put(self._run)

    def withdraw(self) -> None:
        """Have it ended if it has not begun: all the work is done."""
        try:
            self._left.pop()
        except IndexError:
            return
        _idle.append(self._helper)
        self.has_ended = True

    def _run(self) -> None:
        try:
            number = self._left.pop()
        except IndexError:  # withdrawn, or a second time
            return
        try:
            self._work(number)
        except BaseException as error:
            self._errors.append(error)
            self._stop()
        _idle.append(self._helper)
        self.has_ended = True
        self._end.release()

    def wait(self) -> None:
        with self._end:
            pass
