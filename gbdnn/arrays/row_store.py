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

__all__ = ["RowStore", "pages"]

_CHUNK = 1 << 20  # minimum bytes of rows in one map
_CHUNKS = 64  # approximate number of maps
_LARGE = 64 << 20  # allocations from this size return to the system anyway


class RowStore:
    """Collects rows of `ncols` columns in the order in which any threads add them."""

    def __init__(self, ncols: int, dtype: np.dtype) -> None:
        self._ncols, self._dtype = ncols, dtype
        self._rows: list[SparseRows] = []
        self._chunk: _Chunk | None = None
        self._nbytes = 0  # of rows in chunks
        self._lock = threading.Lock()

    def add(self, rows: SparseRows) -> None:
        """Add rows; they must not be modified afterwards."""
        with self._lock:
            if rows.nbytes >= _LARGE:
                self._rows.append(rows)
                return
            if self._chunk is None or not self._chunk.has_room(rows.nvals):
                self._close()
                room = max(_CHUNK, self._nbytes // _CHUNKS) // (8 + self._dtype.itemsize)
                self._chunk = _Chunk(max(rows.nvals, room), self._dtype)
            self._chunk.add(rows)
            self._nbytes += rows.nbytes

    def rows(self) -> list[SparseRows]:
        """Return the store's own list of all rows; emptying it frees them."""
        with self._lock:
            self._close()
            return self._rows

    def _close(self) -> None:
        if self._chunk is not None:
            self._rows.append(self._chunk.rows(self._ncols))
            self._chunk = None


class _Chunk:
    """Rows whose entries share a map."""

    def __init__(self, entries: int, dtype: np.dtype) -> None:
        self._columns, self._values = pages(entries, np.dtype(np.uint64)), pages(entries, dtype)
        self._ids: list[np.ndarray] = []
        self._degrees: list[np.ndarray] = []
        self._entries = 0

    def has_room(self, entries: int) -> bool:
        return self._entries + entries <= len(self._columns)

    @property
    def nbytes(self) -> int:
        return self._entries * (8 + self._values.itemsize)

    def add(self, rows: SparseRows) -> None:
        entries = slice(self._entries, self._entries + rows.nvals)
        self._columns[entries] = rows.columns
        self._values[entries] = rows.values
        self._ids.append(rows.ids.copy())
        self._degrees.append(rows.degrees)
        self._entries = entries.stop

    def rows(self, ncols: int) -> SparseRows:
        ids = np.concatenate(self._ids)
        indptr = np.zeros(len(ids) + 1, np.int64)
        np.cumsum(np.concatenate(self._degrees), out=indptr[1:])
        columns, values = self._columns[: self._entries], self._values[: self._entries]
        return SparseRows(indptr.view(np.uint64), columns, values, ncols, ids)


def pages(count: int, dtype: np.dtype) -> np.ndarray:
    """Return an array of zeros whose memory returns to the system with the array."""
    nbytes = max(1, count * dtype.itemsize)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return np.frombuffer(mmap.mmap(-1, nbytes, flags=flags), dtype, count)
