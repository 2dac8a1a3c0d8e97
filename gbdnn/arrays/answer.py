"""The answer of a run: sparse rows, or an array that blocks write to.

Rows are written to an array and a mask of its nonzero values as long as many values are nonzero,
and otherwise added as sparse rows. The array and the mask become the memory of a full or bitmap
matrix.

The C library keeps freed allocations of some hundred kilobytes, so many sparse rows that arrive and
are freed block by block would take twice their memory at the end. They are copied to anonymous
maps, which return to the system at once. The rows of small answers are copied only at the end.
"""

from __future__ import annotations

import mmap
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.checks import gib
from gbdnn.arrays.sources import dense_pays
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.errors import TooLargeError
from gbdnn.runtime.first_use import gb
from gbdnn.runtime.forks import new_lock
from gbdnn.runtime.ownership import owned
from gbdnn.runtime.threads import share

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Answer", "matrix_of"]

_AT_ONCE = 256  # rows copied or converted at a time
_SCANNED = 4096  # rows whose zeros are found at a time
_LEAST = 32 << 20  # bytes of sparse rows from which they are copied to a map
_MAPS = 64  # approximate number of copies
_LARGE = 64 << 20  # allocations from this size return to the system anyway


class Answer:
    """Rows of the last layer; missing rows have no entries.

    Parameters
    ----------
    nrows, ncols : int
    dtype : float32 or float64
    dense : bool, default False
        Whether rows are written to an array until the first ones are known, whose density then
        decides. Otherwise rows are sparse until there are enough entries for an array.
    memory : int
        Bytes up to which rows are taken as dense until the first ones are known.

    Attributes
    ----------
    values, present : ndarray, shape (nrows, ncols), optional
        Activations and mask of the nonzero ones.
    """

    _entries = 0
    _nbytes = _nbytes_added = 0  # of sparse rows that are copied, and that are not yet

    def __init__(
        self, nrows: int, ncols: int, dtype: np.dtype, *, dense: bool = False,
        memory: float = np.inf,
    ) -> None:  # fmt: skip
        self._shape, self._dtype = (nrows, ncols), dtype
        self.values: Any = None
        self.present: Any = None
        self._to_array = dense and nrows * ncols * (dtype.itemsize + 1) <= memory
        self._counts = self._to_array  # the rows until now; otherwise the density of all decides
        self._elements = 0 if self._counts else nrows * ncols
        self._added: list[SparseRows] = []
        self._copied: list[SparseRows] = []
        self._written: list[np.ndarray] = []
        self._lock = new_lock()
        if self._to_array:
            self._allocate()  # early: memory of the call before can be used again

    def add(self, rows: SparseRows) -> None:
        """Add rows, identified by their ids."""
        self.note(rows.nvals, rows.nrows)
        if self._to_array and dense_pays(rows.nrows * rows.ncols, rows.nvals):
            self._put(rows)
            self._written.append(rows.ids)
        else:
            self._keep(rows)

    @property
    def is_array(self) -> bool:
        """Whether rows are written to arrays."""
        return self._to_array

    @property
    def has_rows(self) -> bool:
        """Whether any rows were added or written."""
        return bool(self._added or self._copied or self._written)

    def wrote(self, entries: int, ids: np.ndarray | None = None) -> None:
        """Note that rows of the arrays were written, by default all of them."""
        ids = np.arange(self._shape[0]) if ids is None else ids
        self.note(entries, len(ids))
        self._written.append(ids)

    def arrays(self) -> tuple[Any, Any]:
        """Return `values` and `present` for all rows; zeros take no memory until written."""
        if self.values is None:
            with self._lock:
                self._allocate()
        return self.values, self.present

    def _allocate(self) -> None:
        if self.values is not None:  # by another thread
            return
        try:
            values = np.zeros(self._shape, self._dtype)
            self.present = np.zeros(self._shape, bool)
            self.values = values
        except MemoryError as err:
            needed = np.prod(self._shape, dtype=float) * (self._dtype.itemsize + 1)
            raise TooLargeError(
                f"the result, {self._shape[0]} x {self._shape[1]} with many entries, needs"
                f" {gib(needed)} GiB; use infer_batches or infer_to_store"
            ) from err

    def matrix(self, followed: np.ndarray | None = None, nthreads: int = 1) -> gb.Matrix:
        """Return a matrix whose row i has the id ``followed[i]`` (default: i).

        The matrix is sparse if it has few entries. It takes over the arrays. A large one is copied
        by `nthreads` threads.
        """
        nrows, ncols = self._shape
        rows, entries = self._rows(), self._entries
        if followed is not None:
            entries = int(self._degrees(rows)[followed].sum())
        if not (entries and dense_pays(nrows * ncols, entries)):
            for some in self._written_parts() if entries else ():
                self._keep(SparseRows.from_array(self.values[some], some))
            self.values = self.present = None
            rows = self._rows()
            shape = nrows, ncols, self._dtype
            return SparseRows.stacked(rows, *shape, followed, nthreads).matrix()
        values, present = self.arrays()
        while rows:
            self._put(rows.pop())
        if followed is not None:
            others = np.flatnonzero(followed != np.arange(nrows))
            for start in range(0, len(others), _AT_ONCE):
                some = others[start : start + _AT_ONCE]
                values[some], present[some] = values[followed[some]], present[followed[some]]
        self.values = self.present = None
        return _imported(values, present, entries)

    def _put(self, rows: SparseRows) -> None:
        """Write rows to the arrays."""
        values, present = self.arrays()
        at = np.repeat(rows.ids, rows.degrees), rows.columns.view(np.int64)
        values[at], present[at] = rows.values, True

    def _keep(self, rows: SparseRows) -> None:
        """Store sparse rows; many small ones are copied together."""
        with self._lock:
            self._added.append(rows)
            self._nbytes_added += rows.nbytes
            if self._nbytes_added < max(_LEAST, self._nbytes // _MAPS):
                return
            added, nbytes = self._added, self._nbytes_added
            self._nbytes += nbytes
            self._added, self._nbytes_added = [], 0
        self._copied.append(SparseRows.joined(added, None if nbytes >= _LARGE else _mapped))

    def _rows(self) -> list[SparseRows]:
        """Return the list of all sparse rows; emptying it frees those that were added."""
        self._copied += self._added
        self._added, self._nbytes_added = [], 0
        return self._copied

    def _written_parts(self) -> Iterator[np.ndarray]:
        """Yield the ids of the rows in the array, some at a time."""
        for ids in self._written:
            for at in range(0, len(ids), _AT_ONCE):
                yield ids[at : at + _AT_ONCE]

    def _degrees(self, rows: Sequence[SparseRows]) -> np.ndarray:
        """Return the number of entries of each row."""
        degrees = np.zeros(self._shape[0], np.int64)
        for part in rows:
            degrees[part.ids] = part.degrees
        for some in self._written_parts():
            degrees[some] = np.count_nonzero(self.present[some], axis=1)
        return degrees

    def note(self, entries: int, inputs: int) -> None:
        """Add to the numbers of entries and of inputs."""
        with self._lock:
            self._to_array = self.takes(entries, inputs)
            self._entries += entries
            self._elements += self._counts * inputs * self._shape[1]

    def takes(self, entries: int, inputs: int) -> bool:
        """Return whether more rows with these entries would be written to arrays."""
        entries += self._entries
        elements = self._elements + self._counts * inputs * self._shape[1]
        return entries > 0 and dense_pays(elements, entries)


def matrix_of(values: np.ndarray, *, nthreads: int = 1) -> gb.Matrix:
    """Return an array as a matrix without stored zeros, taking ownership.

    The matrix is sparse if it has few entries.
    """
    present = np.empty(values.shape, bool)
    if len(values) <= _SCANNED:
        entries = int(np.count_nonzero(np.not_equal(values, 0, out=present)))
    else:
        counts = list[Any]()

        def find(starts: Iterator[int]) -> None:
            for start in starts:
                some = slice(start, start + _SCANNED)
                counts.append(np.count_nonzero(np.not_equal(values[some], 0, out=present[some])))

        share(nthreads, deque(range(0, len(values), _SCANNED)), find)
        entries = int(sum(counts))
    if not entries or not dense_pays(values.size, entries):
        return SparseRows.from_array(values).matrix()
    return _imported(values, present, entries)


def _imported(values: np.ndarray, present: np.ndarray, entries: int) -> gb.Matrix:
    if entries == values.size:
        return owned(gb.Matrix.ss.import_fullr, values=values)
    return owned(gb.Matrix.ss.import_bitmapr, values=values, bitmap=present, nvals=entries)


def _mapped(count: int, dtype: np.dtype) -> np.ndarray:
    """Return an array whose memory returns to the system with it."""
    nbytes = max(1, count * np.dtype(dtype).itemsize)
    private: Any = {"flags": mmap.MAP_PRIVATE} if hasattr(mmap, "MAP_PRIVATE") else {}
    return np.frombuffer(mmap.mmap(-1, nbytes, **private), dtype, count)
