"""When preparing or compiling is worth its time: the ski-rental rule.

Work is done without it until the work has cost as much. So the total is at most twice that of the
best decision, whatever follows.
"""

from __future__ import annotations

import math

__all__ = ["Investment"]


class Investment:
    """Work that went without something that costs time once; it may belong to an object."""

    def __init__(self, of: object = None) -> None:
        self._work = 0.0

    def left(self, price: float) -> float:
        """Return the work from which it pays to spend `price`, in the same unit."""
        return max(0.0, price - self._work)

    def went_without(self, work: float) -> None:
        """Record work that was done without."""
        self._work += work

    def made(self) -> None:
        """Record that the price was paid."""
        self._work = math.inf
