"""Calls of compiled code that several threads compute together.

    together(3, functions(dtype).steps, job)

Helpers wait for the next call in compiled code, where they need no lock of Python. A call on three
threads takes two of them along, and a call that begins while all are in use starts further ones.

If PyTorch is there and uses libgomp, as on Linux, calls of the main thread on most of its threads
run on these: they spin for a while after each of its operations, and helpers would wait for a core.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections import defaultdict
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.kernels.compiled.loading import of_any_processor, required
from gbdnn.kernels.compiled.record import Record, constant
from gbdnn.runtime.forks import at_fork
from gbdnn.runtime.threads import move_elsewhere, started

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ALONE", "openmp_team", "startable", "taken", "together"]

ALONE = Record("threads", None, count=1)
_MAIN = threading.main_thread()


def together(
    threads: int, function: Callable[..., int], *given: Any, all_needed: bool = False
) -> None:
    """Call a compiled function, whose last argument is a record of threads.

    Parameters
    ----------
    threads : int
        Fewer take part if no others can be started.
    function : callable
    *given : Any
        All arguments but the last one.
    all_needed : bool, default False
        Whether each thread has work of its own, and all of them are waited for.

    Raises
    ------
    RuntimeError
        `all_needed`, and not enough threads can be started.
    """
    if threads == 1:
        function(*given, ALONE)
        return
    openmp = openmp_team(threads)
    if openmp is not None and function(*given, openmp):
        return
    team = _team(threads)
    try:
        if all_needed and team.threads < threads:
            raise RuntimeError(f"can't start {threads} threads")
        function(*given, team.prepared(threads, all_needed=all_needed))
    finally:
        _put(team)


def in_slices(record: Record, threads: int, dtype: np.dtype, between: Callable[[], object]) -> int:
    """Compute a ``struct run`` until it needs something; return its status.

    Helpers go on while the caller returns from compiled code, after each slice of time, and calls
    ``between()``; handlers of signals run then, too. After an exception all threads leave the run,
    which is useless then.
    """
    compiled, running = required(dtype), constant("RUNNING")
    given = ALONE if threads == 1 else openmp_team(threads)
    status = -1 if given is None else running
    while given is not None and status == running:
        status = compiled.run(record, given)
        between()
    if status >= 0:
        return status
    team = _team(threads)
    # Helpers may use the record's arrays until they have left, whatever a handler raises.
    _used[id(record)] = record
    is_over, errors, given = False, list[BaseException](), team.prepared(threads)
    while not is_over:  # again after each exception, also of Ctrl-C
        try:
            if errors:
                record.kept["counters"][constant("STOP")] = 1
                compiled.leave_run(record, given)
            while not errors and (status := compiled.run(record, given)) == running:
                between()
            is_over = True
        except BaseException as error:
            errors.append(error)
    del _used[id(record)]
    _put(team)
    try:
        if errors:
            raise errors[0]
    finally:
        errors.clear()  # its traceback refers to this frame, which keeps all memory of the call
    between()
    return status


def startable(threads: int) -> int:
    """Return how many threads `together` can use, from 1 to `threads`."""
    if threads == 1:
        return 1
    team = _team(threads)
    _put(team)
    return min(threads, team.threads)


def _team(threads: int) -> _Team:
    """Take an idle team for this number of threads, or make one."""
    size = _size(threads)
    team: _Team = taken(_idle[size], partial(_Team, size))
    return team


def _put(team: _Team) -> None:
    if team.threads > 1:
        _idle[_size(team.threads)].append(team)


def _size(threads: int) -> int:
    """Return the next power of two: few sizes have few helpers in all."""
    return 1 << (threads - 1).bit_length()


def taken(idle: list[Any], make: Callable[[], Any]) -> Any:
    """Take an object from a list, or make one; `pop` and `append` of a list are atomic."""
    try:
        return idle.pop()
    except IndexError:
        return make()


class _Team:
    """The caller of each call, and helpers, up to `threads` in all; one call at a time.

    Calls on fewer threads leave the other helpers out.
    """

    def __init__(self, threads: int) -> None:
        compiled: Any = of_any_processor(np.dtype(np.float32))  # as for other numbers
        team = taken(_unused, compiled.open_team)
        if not team:
            raise MemoryError("no memory for a team of threads")
        self._may_move = partial(compiled.may_move, team)
        self._cores: set[int] = set()
        self._ids: list[int] = []
        with suppress(RuntimeError):  # no further thread can be started
            while len(self._ids) < threads - 1:
                self._ids.append(started(partial(compiled.assist, team, 1 + len(self._ids))))
        self.threads = 1 + len(self._ids)
        if self.threads == 1:  # each call may try again
            _unused.append(team)
        self._record = Record("threads", None, team=team)

    def prepared(self, threads: int, *, all_needed: bool = False) -> Record:
        """Return the record of threads for a call of compiled code, which follows."""
        count = min(threads, self.threads)
        if self._may_move(count):
            self._cores = move_elsewhere(self._ids, self._cores)
        self._record.set(count=count, all_needed=int(all_needed))
        return self._record


_used: dict[int, Record] = {}
_idle: dict[int, list[_Team]] = defaultdict(list)  # by size
_unused: list[Any] = []  # teams without helpers
at_fork(after_in_child=lambda: _idle.clear())  # helpers are not copied


def _libgomp() -> dict[str, int]:
    """Return the members of a record of threads that are functions of libgomp."""
    names = {
        "parallel": "GOMP_parallel", "number": "omp_get_thread_num",
        "size": "omp_get_num_threads", "most": "omp_get_max_threads",
    }  # fmt: skip
    try:
        openmp = ctypes.CDLL("libgomp.so.1", os.RTLD_NOLOAD)
        calls = {name: getattr(openmp, names[name]) for name in names}
    except (AttributeError, OSError):  # on macOS, or another OpenMP
        return {}
    return {name: ctypes.cast(call, ctypes.c_void_p).value or 0 for name, call in calls.items()}


_functions: dict[str, int] = {}  # of libgomp; empty before the first call that looks for them
_teams: dict[int, Record] = {}  # by number of threads
at_fork(after_in_child=lambda: _functions.update(parallel=0))


def openmp_team(threads: int) -> Record | None:
    """Return PyTorch's threads if a call of this thread takes most of them."""
    torch = sys.modules.get("torch")
    usual = getattr(torch, "get_num_threads", int)()
    if not threads <= usual < 2 * threads or threading.current_thread() is not _MAIN:
        return None
    if not _functions:
        _functions.update(_libgomp() or {"parallel": 0})
    if not _functions["parallel"]:
        return None
    if threads not in _teams:
        _teams[threads] = Record("threads", None, count=threads, **_functions)
    _teams[threads].set(usual=usual)
    return _teams[threads]
