"""Properties of the processor: its name, vector instructions and caches."""

from __future__ import annotations

import platform
import subprocess
from functools import cache
from pathlib import Path

__all__ = ["cache_bytes", "name", "vectors"]

_CPUINFO = Path("/proc/cpuinfo")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20}


def name() -> str:
    """Return the processor's model name."""
    if platform.system() == "Darwin":
        sysctl = subprocess.run(
            ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"],
            capture_output=True,
            text=True,
            check=False,
        )
        if sysctl.returncode == 0:
            return sysctl.stdout.strip()
    found = _cpuinfo().get("model name") or platform.processor() or platform.machine()
    return found or "unknown"


def vectors() -> str:
    """Return the vector instructions: ``"AVX-512"``, ``"AVX2"`` or ``"NEON"``."""
    if platform.machine() in ("aarch64", "arm64"):
        return "NEON"
    return "AVX-512" if "avx512f" in _cpuinfo().get("flags", "").split() else "AVX2"


def cache_bytes(level: int, default: int) -> int:
    """Return the size of a core's data cache of a level; `default` if unknown."""
    for each in sorted(_CACHES.glob("index*")):
        try:
            found, kind, size = (
                (each / what).read_text().strip() for what in ("level", "type", "size")
            )
            if int(found) == level and kind != "Instruction":
                return int(size.rstrip("KM")) * _UNITS.get(size[-1], 1)
        except (OSError, ValueError):
            continue
    return default


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
