"""Which cores this process may use: by its affinity, and by the quota of its control group."""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

__all__ = ["cores", "is_binding", "usable"]

_BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY")

_SELF = Path("/proc/self/cgroup")
_MOUNTED = Path("/sys/fs/cgroup")


def cores(*, bound: bool = True, limited: bool = True) -> int:
    """Return how many cores there are for this process, at least 1.

    Parameters
    ----------
    bound : bool
        Whether cores count that this process is not bound to; other processes of the machine may
        be bound to them.
    limited : bool
        Whether the quota counts.

    Returns
    -------
    int

    Notes
    -----
    A container's share of the processors is a quota of its control group (Linux, version 1 or 2):
    microseconds of all cores within each period; part of a core counts as one.
    """
    there = (bound and len(usable())) or os.cpu_count() or 1
    quota = _quota(_SELF, _MOUNTED) if limited else None
    return there if quota is None else max(1, min(there, math.ceil(quota)))


def usable() -> set[int]:
    """Return the numbers of the cores that threads of this process may run on; none on macOS.

    An OpenMP runtime that is to bind threads (``OMP_PROC_BIND``, ``OMP_PLACES``) binds the one that
    calls it, and all that this one starts afterwards, to a single place: that does not count.
    """
    now = _affinity()
    return _AT_FIRST if is_binding() and now < _AT_FIRST else now


def is_binding() -> bool:
    """Whether OpenMP's threads are to be bound."""
    return any(os.environ.get(name, "false").lower() not in ("", "false") for name in _BINDING)


def _affinity() -> set[int]:
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return affinity(0) if affinity else set()


_AT_FIRST = _affinity()


def _quota(of_process: Path, mounted: Path) -> float | None:
    """Return the smallest quota of a process's control group and those it is in, in cores."""
    found = []
    with contextlib.suppress(OSError, ValueError):
        for line in of_process.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                top, read = mounted, _of_version_2
            elif "cpu" in controllers.split(","):
                top, read = mounted / "cpu", _of_version_1
            else:
                continue
            # A path from outside the container does not exist in it; its root does.
            inner = [part for part in path.split("/") if part]
            for depth in range(len(inner) + 1):
                folder = top.joinpath(*inner[:depth])
                with contextlib.suppress(OSError, ValueError):  # no such file, "max"
                    quota, period = read(folder)
                    if quota > 0 and period > 0:
                        found.append(quota / period)
    return min(found, default=None)


def _of_version_2(folder: Path) -> tuple[int, int]:
    quota, period = (folder / "cpu.max").read_text(encoding="utf-8").split()
    return int(quota), int(period)


def _of_version_1(folder: Path) -> tuple[int, int]:
    """Return quota and period; a quota of -1 is none."""
    quota, period = (
        int((folder / f"cpu.cfs_{name}_us").read_text(encoding="utf-8"))
        for name in ("quota", "period")
    )
    return quota, period
