"""What a reader of a measurement needs to know of the machine, by the files of the Linux kernel."""

from __future__ import annotations

import os
import platform
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gbdnn.runtime.cores import cores, usable
from gbdnn.runtime.machine import memory, processor_name

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["described", "ordered", "physical_cores"]

_CPUS = Path("/sys/devices/system/cpu")
_SETTINGS = ("GOMP_", "KMP_", "OMP_")


class _Place(NamedTuple):
    """Where a logical processor is, and how many of its core come before it."""

    thread: int
    node: int
    socket: int
    core: int
    cpu: int


def _places(among: Iterable[int], cpus: Path) -> list[_Place]:
    places = []
    threads: dict[tuple[int, ...], int] = defaultdict(int)  # of a core
    for cpu in sorted(among):
        folder = cpus / f"cpu{cpu}"
        node = min((int(each.name[4:]) for each in folder.glob("node[0-9]*")), default=0)
        topology = folder / "topology"
        socket = _number(topology / "physical_package_id") or 0
        core = _number(topology / "core_id")
        key = node, socket, cpu if core is None else core
        places.append(_Place(threads[key], *key, cpu))
        threads[key] += 1
    return sorted(places)


def ordered(among: Iterable[int], *, scatter: bool = False, cpus: Path = _CPUS) -> list[int]:
    """Return logical processors in the order in which threads use them.

    One processor of each physical core comes first; the cores' other hardware threads (SMT)
    follow. Cores are in the order of NUMA nodes, then sockets; with `scatter`, nodes take turns.
    `cpus` is the kernel's folder.
    """
    places = _places(among, cpus)
    if scatter:
        turn: dict[tuple[int, int], int] = defaultdict(int)
        keys = {}
        for place in places:
            keys[place] = place.thread, turn[place[:2]], place.node
            turn[place[:2]] += 1
        places.sort(key=keys.__getitem__)
    return [place.cpu for place in places]


def physical_cores() -> int:
    """Return the number of physical cores available to this process, by affinity and quota."""
    there = {place[1:4] for place in _places(usable(), _CPUS)}
    return min(cores(), len(there) or cores())


def described(cpus: Path = _CPUS) -> dict[str, Any]:
    """Return information on this machine; what the system does not tell is None.

    Returns
    -------
    dict
        ``processor``, ``cores`` available to this process, ``memory_gib`` and ``system``;
        ``sockets``, ``physical_cores``, ``threads_per_core`` and ``numa_nodes`` of the processors
        in the affinity mask of this process, ``affinity``; ``caches`` of the first of them, with
        size and the processors that share each; ``governor`` of its clock rate; ``hypervisor``,
        whether this is a virtual machine; ``quota``, cores to which a container is limited; and
        ``settings``, environment variables of OpenMP.
    """
    mine = sorted(usable())
    places = _places(mine, cpus)
    per_core: dict[tuple[int, ...], int] = defaultdict(int)
    for place in places:
        per_core[place[1:4]] += 1
    first = cpus / f"cpu{mine[0] if mine else 0}"
    limited, there, nbytes = cores(), cores(limited=False), memory()
    return {
        "processor": processor_name(),
        "cores": limited,
        "memory_gib": None if nbytes is None else round(nbytes / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "sockets": len({place.socket for place in places}) or None,
        "physical_cores": len(per_core) or None,
        "threads_per_core": max(per_core.values(), default=None),
        "numa_nodes": len({place.node for place in places}) or None,
        "affinity": _ranges(mine) or None,
        "caches": dict(map(_cache, sorted((first / "cache").glob("index*")))) or None,
        "governor": _text(first / "cpufreq" / "scaling_governor"),
        "hypervisor": _hypervisor(),
        "quota": limited if limited < there else None,
        "settings": {k: v for k, v in sorted(os.environ.items()) if k.startswith(_SETTINGS)},
    }


def _cache(folder: Path) -> tuple[str, str]:
    names = "level", "type", "size", "shared_cpu_list"
    level, kind, size, shared = (_text(folder / name) or "?" for name in names)
    return f"L{level} {kind}", f"{size}, processors {shared}"


def _ranges(numbers: list[int]) -> str:
    """Return sorted numbers as the kernel writes lists of processors, such as ``0-3,8``."""
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    pairs = zip(starts, ends, strict=True)
    return ",".join(f"{a}-{b}" if b > a else str(a) for a, b in pairs)


def _hypervisor() -> bool | None:
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        return " hypervisor" in text.partition("\n\n")[0]
    return None


def _text(file: Path) -> str | None:
    with suppress(OSError):
        return file.read_text(encoding="utf-8").strip()
    return None


def _number(file: Path) -> int | None:
    text = _text(file)
    return int(text) if text and text.lstrip("-").isdigit() else None
