"""The machine as one value: vector instructions, caches and cores.

``machine()`` reads it once. Nothing else in gbdnn asks the processor, so that choices for any
machine can be tested on any other.
"""

from __future__ import annotations

import ctypes
import os
import platform
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from gbdnn.runtime.cores import cores

__all__ = ["Machine", "machine", "memory", "processor_name"]

_CPUINFO = Path("/proc/cpuinfo")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20}
# The kernel's names of what x86-64-v3 and x86-64-v4 add.
_AVX2 = {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}
_AVX512 = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_USUAL = 32 << 10, 512 << 10, 32 << 20  # bytes of the caches if the system does not tell


class Machine(NamedTuple):
    """The properties of a machine on which choices and compiled code depend.

    Attributes
    ----------
    vectors : {"AVX-512", "AVX2", "NEON"}
        Vector instructions that choices count on.
    caches : tuple of int
        Bytes of a core's data caches of levels 1 to 3; without a third level, those of the second.
    cores : int
        Cores available to this process, by affinity and quota.
    level : {"AVX-512", "AVX2", "NEON", ""}
        Vector instructions of the compiled kernels that this processor runs; empty if there are
        none for it.
    """

    vectors: str
    caches: tuple[int, int, int]
    cores: int
    level: str


def machine() -> Machine:
    """Return this machine, read at the first call."""
    global _current
    if _current is None:  # threads that read it twice find the same
        _current = _read()
    return _current


_current: Machine | None = None


def memory() -> int | None:
    """Return the bytes of this machine's memory; None where Python does not know it (Windows)."""
    with suppress(AttributeError, OSError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def processor_name() -> str:
    """Return the processor's model name, on other systems than Linux what Python knows of it."""
    known = _cpuinfo().get("model name") or platform.processor() or platform.machine()
    return known or "unknown"


def _read() -> Machine:
    flags = _flags()
    if platform.machine() in ("aarch64", "arm64"):
        level = "NEON"
    elif flags >= _AVX2:
        level = "AVX-512" if flags >= _AVX2 | _AVX512 else "AVX2"
    else:
        level = ""
    return Machine(level or "AVX2", _caches(), cores(), level)


def _flags() -> set[str]:
    """Return names of instructions, as in /proc/cpuinfo; on Windows, those of two levels."""
    windows: Any = getattr(ctypes, "windll", None)
    if windows is None:
        return set(_cpuinfo().get("flags", "").split())
    has = windows.kernel32.IsProcessorFeaturePresent
    return {*(_AVX2 if has(40) else ()), *(_AVX512 if has(41) else ())}  # AVX2, AVX512F


def _caches() -> tuple[int, int, int]:
    """Return the sizes of a core's data caches."""
    found: dict[int, int] = {}
    for each in sorted(_CACHES.glob("index*")):
        with suppress(OSError, ValueError):
            level, kind, size = (
                (each / what).read_text().strip() for what in ("level", "type", "size")
            )
            if kind != "Instruction":
                found[int(level)] = int(size.rstrip("KM")) * _UNITS.get(size[-1], 1)
    first, second = (found.get(level, _USUAL[level - 1]) for level in (1, 2))
    return first, second, found.get(3, second if 2 in found else _USUAL[2])


@cache
def _cpuinfo() -> dict[str, str]:
    """Return the first entry of /proc/cpuinfo; nothing on other systems than Linux."""
    found: dict[str, str] = {}
    if _CPUINFO.exists():
        for line in _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if not line.strip() and found:
                break
            found.setdefault(key.strip(), value.strip())
    return found
