"""The machine as one value: vector instructions, caches, cores, and the target of LLVM.

``machine()`` reads it once. Nothing else in gbdnn asks the processor, so that choices for any
machine can be tested on any other.
"""

from __future__ import annotations

import platform
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gbdnn.runtime.cores import cores

__all__ = ["Machine", "machine", "processor_name"]

_CPUINFO = Path("/proc/cpuinfo")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20}
_USUAL = 32 << 10, 512 << 10, 32 << 20  # bytes of the caches if the system does not tell


class Machine(NamedTuple):
    """The properties of a machine on which choices and compiled code depend.

    Attributes
    ----------
    vectors : {"AVX-512", "AVX2", "NEON"}
        Vector instructions.
    caches : tuple of int
        Bytes of a core's data caches of levels 1 to 3; without a third level, those of the second.
    cores : int
        Cores available to this process, by affinity and quota.
    cpu, features : str
        LLVM's name of the processor, and its features. Empty without llvmlite.
    has_fma : bool
        Whether multiply-adds are one instruction; otherwise each calls the C library.
    """

    vectors: str
    caches: tuple[int, int, int]
    cores: int
    cpu: str
    features: str
    has_fma: bool


def machine() -> Machine:
    """Return this machine, read at the first call."""
    global _current
    if _current is None:  # threads that read it twice find the same
        _current = _read()
    return _current


_current: Machine | None = None


def processor_name() -> str:
    """Return the processor's model name, on other systems than Linux what Python knows of it."""
    known = _cpuinfo().get("model name") or platform.processor() or platform.machine()
    return known or "unknown"


def _read() -> Machine:
    kind, flags = platform.machine(), _cpuinfo().get("flags", "").split()
    is_arm, is_x86 = kind in ("aarch64", "arm64"), kind in ("x86_64", "AMD64", "i386", "i686")
    vectors = "NEON" if is_arm else "AVX-512" if "avx512f" in flags else "AVX2"
    try:
        import llvmlite.binding as llvm
    except ImportError:
        cpu, features, has_fma = "", "", True
    else:
        found = llvm.get_host_cpu_features()
        cpu, features = llvm.get_host_cpu_name(), found.flatten()
        has_fma = not is_x86 or bool(found.get("fma"))
    return Machine(vectors, _caches(), cores(), cpu, features, has_fma)


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
