"""A store that collects sparse rows in memory that returns to the system when it is freed.

The C library keeps freed allocations of some hundred kilobytes, so rows that arrive and are freed
block by block would take twice their memory at the end. Here they are copied to anonymous maps,
which return to the system at once.
"""

from __future__ import annotations

import mmap
import threading

import numpy as np

from gbdnn.arrays.sparse_rows import SparseRows

__all__ = ["RowStore"]

_LEAST = 1 << 20  # bytes of rows that are copied together
_MAPS = 64  # approximate number of copies
_LARGE = 64 << 20  # allocations from this size return to the system anyway


class RowStore:
    """Collects sparse rows in the order in which any threads add them."""

    def __init__(self) -> None:
        self._copied: list[SparseRows] = []
        self._added: list[SparseRows] = []
        self._nbytes = self._nbytes_added = 0
        self._lock = threading.Lock()

    def add(self, rows: SparseRows) -> None:
        """Add rows; they must not be modified afterwards."""
        with self._lock:
            self._added.append(rows)
            self._nbytes_added += rows.nbytes
            if self._nbytes_added >= max(_LEAST, self._nbytes // _MAPS):
                self._copy()

    def rows(self) -> list[SparseRows]:
        """Return the store's own list of all rows; emptying it frees them."""
        with self._lock:
            if self._added:
                self._copy()
            return self._copied

    def _copy(self) -> None:
        is_large = self._nbytes_added >= _LARGE
        self._copied.append(SparseRows.joined(self._added, None if is_large else _mapped))
        self._nbytes += self._nbytes_added
        self._added, self._nbytes_added = [], 0


def _mapped(count: int, dtype: np.dtype) -> np.ndarray:
    """Return an array whose memory returns to the system with it."""
    nbytes = max(1, count * np.dtype(dtype).itemsize)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return np.frombuffer(mmap.mmap(-1, nbytes, flags=flags), dtype, count)
