"""Resident memory of this process, current and maximum, without pages of mapped files."""

from __future__ import annotations

import resource
import sys
import threading
from pathlib import Path
from typing import Self

_STATUS = Path("/proc/self/status")
_PAUSE = 0.01  # seconds between samples


class Peak:
    """Sample the memory a hundred times per second during a ``with`` block.

    Attributes
    ----------
    most : int or None
        Maximum in bytes. If the system does not report resident memory, the maximum since the start
        of the process, including mapped files.
    """

    most: int | None

    def __enter__(self) -> Self:
        self.most, self._end = now(), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        if self.most is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        if self.most is None:
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            self.most = most if sys.platform == "darwin" else most * 1024
        else:
            self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(_PAUSE):
            self.most = max(self.most or 0, now() or 0)


def now() -> int | None:
    """Return the resident bytes without mapped files, or None if they are not reported."""
    if not _STATUS.exists():
        return None
    for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return None


def mib(size: int | None) -> str:
    """Return bytes as text in MiB."""
    return "unknown" if size is None else f"{size / 2**20:,.0f} MiB"
