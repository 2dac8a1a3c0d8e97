"""Binding the process to physical cores, for measurements."""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gbdnn.errors import ArgumentError
from gbdnn.runtime.cores import is_binding, usable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["bound", "compact"]

_CPUS = Path("/sys/devices/system/cpu")
_TASKS = Path("/proc/self/task")


def compact(among: Iterable[int], cpus: Path = _CPUS) -> list[int]:
    """Return logical processors in the order in which threads use them.

    One processor of each physical core comes first, in the order of NUMA nodes, then sockets; the
    cores' other hardware threads (SMT) follow in the same order. `cpus` is the kernel's folder.
    """
    places = []
    threads: dict[tuple[int, ...], int] = defaultdict(int)  # of a core
    for cpu in sorted(among):
        folder = cpus / f"cpu{cpu}"
        node = min((int(each.name[4:]) for each in folder.glob("node[0-9]*")), default=0)
        core = node, _number(folder, "physical_package_id"), _number(folder, "core_id", cpu)
        places.append((threads[core], *core, cpu))
        threads[core] += 1
    return [place[-1] for place in sorted(places)]


def _number(cpu: Path, name: str, missing: int = 0) -> int:
    with suppress(OSError, ValueError):
        return int((cpu / "topology" / name).read_text())
    return missing


@contextmanager
def bound(nthreads: int) -> Iterator[None]:
    """Bind all threads of this process to `nthreads` processors, chosen by `compact`.

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
    order = compact(usable())
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
