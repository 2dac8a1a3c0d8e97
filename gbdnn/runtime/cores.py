"""The cores available to this process, by its CPU affinity and its cgroup quota."""

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
    """Return the number of cores available to this process, at least 1.

    `bound` respects the CPU affinity of the process, `limited` the quota of a container: that of
    its control group (Linux cgroups, version 1 or 2), in microseconds per period; fractions of a
    core are rounded up.
    """
    there = (bound and len(usable())) or os.cpu_count() or 1
    quota = _quota(_SELF, _MOUNTED) if limited else None
    return there if quota is None else max(1, min(there, math.ceil(quota)))


def usable() -> set[int]:
    """Return the cores in the CPU affinity of this process; none on macOS.

    An OpenMP runtime that binds threads (``OMP_PROC_BIND``, ``OMP_PLACES``) binds the calling
    thread, and the threads that it starts later, to a single place. That binding is ignored.
    """
    now = _affinity()
    return _AT_FIRST if is_binding() and now < _AT_FIRST else now


def is_binding() -> bool:
    """Whether OpenMP is configured to bind threads."""
    return any(os.environ.get(name, "false").lower() not in ("", "false") for name in _BINDING)


def _affinity() -> set[int]:
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return affinity(0) if affinity else set()


_AT_FIRST = _affinity()


def _quota(of_process: Path, mounted: Path) -> float | None:
    """Return the smallest quota of a process's control group and its ancestors, in cores."""
    found = []
    with contextlib.suppress(OSError, ValueError):
        for line in of_process.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                top, names = mounted, ["cpu.max"]
            elif "cpu" in controllers.split(","):  # version 1, where a quota of -1 means no limit
                top, names = mounted / "cpu", ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
            else:
                continue
            # The path may be that outside the container, which does not exist inside.
            inner = [part for part in path.split("/") if part]
            for depth in range(len(inner) + 1):
                folder = top.joinpath(*inner[:depth])
                with contextlib.suppress(OSError, ValueError):  # no such file, "max"
                    text = " ".join((folder / name).read_text("utf-8") for name in names)
                    quota, period = map(int, text.split())
                    if quota > 0 and period > 0:
                        found.append(quota / period)
    return min(found, default=None)
