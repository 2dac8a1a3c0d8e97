"""Bytes that this process has in memory, now and at most."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def now() -> int | None:
    """Return the resident bytes; None where the system does not tell them."""
    return _field("VmRSS")


def peak() -> int:
    """Return the most resident bytes since the start, or since `forget_peak`."""
    high = _field("VmHWM")
    if high is not None:
        return high
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def forget_peak() -> bool:
    """Let `peak` count from now on; False where that cannot be had (it needs Linux)."""
    try:
        _CLEAR.write_text("5")
    except OSError:
        return False
    return True


def mib(size: int | None) -> str:
    """Return bytes as MiB, for people."""
    return "unknown" if size is None else f"{size / 2**20:,.0f} MiB"


def _field(name: str) -> int | None:
    if not _STATUS.exists():
        return None
    for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return None
