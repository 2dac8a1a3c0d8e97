"""Binding the process to physical cores, for measurements."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gbdnn.errors import ArgumentError
from gbdnn.runtime.cores import is_binding, usable
from gbdnn.runtime.topology import ordered

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["bound"]

_TASKS = Path("/proc/self/task")


@contextmanager
def bound(nthreads: int, *, scatter: bool = False) -> Iterator[None]:
    """Bind all threads of this process to the first `nthreads` processors of `ordered`.

    Threads that are started in the ``with`` block inherit the binding. At the end, every thread
    gets its affinity back, and new threads get that of the calling thread.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise ArgumentError("pin= needs Linux")
    if is_binding():
        raise ArgumentError(
            "pin= cannot be combined with OMP_PROC_BIND, OMP_PLACES or GOMP_CPU_AFFINITY, by which"
            " OpenMP binds threads itself"
        )
    order = ordered(usable(), scatter=scatter)
    if nthreads > len(order):
        raise ArgumentError(f"pin= needs {nthreads} processors, but there are {len(order)}")
    own, before = os.sched_getaffinity(0), {task: _affinity(task) for task in _tasks()}
    try:
        for task in before:
            _bind(task, set(order[:nthreads]))
        yield
    finally:
        for task in _tasks():
            _bind(task, before.get(task) or own)


def _tasks() -> list[int]:
    return [int(task.name) for task in _TASKS.iterdir()]


def _affinity(task: int) -> set[int]:
    with suppress(OSError):  # the thread has ended
        return os.sched_getaffinity(task)
    return set()


def _bind(task: int, cpus: set[int]) -> None:
    with suppress(OSError):
        os.sched_setaffinity(task, cpus)
