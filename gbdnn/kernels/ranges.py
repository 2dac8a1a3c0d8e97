"""Ranges of rows that threads compute in compiled code, one after the other.

Compiled code takes the next range from a shared counter, without Python's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gbdnn.kernels.compiled.record import Record
from gbdnn.runtime.threads import on_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Ranges", "compute"]

_MOST = 32  # ranges of a compiled call, which cannot be interrupted


class Ranges(Record):
    """Ranges of rows, from each of `first` to each of `last` (exclusive)."""

    def __init__(self, first: np.ndarray, last: np.ndarray) -> None:
        ends = np.column_stack((first, last)).astype(np.int64)
        self.count, self.begun = len(ends), np.zeros(1, np.int64)
        super().__init__("ranges", None, ends=ends, count=self.count, most=_MOST, next=self.begun)


def compute(
    work: Sequence[tuple[Record, Ranges]],
    begin: Callable[[], Callable[[Record, Ranges], int]],
    nthreads: int,
) -> bool:
    """Compute all ranges of records; return whether all sums are finite.

    Each thread calls ``begin()`` once, and the function that it returns with records and ranges.
    """
    flags: list[int] = []

    def run(_: int) -> None:
        call = begin()
        for made, ranges in work:
            while ranges.begun[0] < ranges.count:
                flags.append(call(made, ranges))

    def stop() -> None:
        for _, ranges in work:
            ranges.begun[0] = ranges.count

    most = sum(ranges.count for _, ranges in work)
    on_threads(min(nthreads, most), run, stop=stop)
    return not any(flags)
