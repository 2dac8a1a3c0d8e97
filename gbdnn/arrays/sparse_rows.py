"""Sparse rows with ids, the common format of activations, features and weights.

Features are split into ranges of rows, blocks are converted back to sparse rows, finished rows are
stacked into the result, and stores contain them in shards. The columns of a matrix are the sparse
rows of its transpose.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.runtime.first_use import gb
from gbdnn.runtime.ownership import owned
from gbdnn.runtime.threads import share

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Self

__all__ = ["SparseRows", "fault_of"]

_SHARED = 1 << 20  # entries from which several threads copy
_COPIERS = 8  # such threads; each holds one of some 64 blocks in addition to its copy


class SparseRows:
    """Rows in compressed form (CSR), with the ids of the rows.

    Parameters
    ----------
    indptr : ndarray of uint64, shape (nrows + 1,)
        The entries of row r are ``indptr[r]:indptr[r + 1]``.
    columns : ndarray of uint64, shape (nvals,)
        Ascending within a row.
    values : ndarray, shape (nvals,) or (1,)
        One per entry. A single value is the value of all entries, stored once with a stride of 0.
    ncols : int
        Number of columns.
    ids : ndarray of int64, shape (nrows,), optional
        The rows' ids. Default: 0 to nrows - 1.
    """

    __slots__ = ("_ids", "columns", "indptr", "ncols", "values")
    dense_rows = None  # see `gbdnn.arrays.sources.RowSource`

    def __init__(
        self,
        indptr: np.ndarray,
        columns: np.ndarray,
        values: np.ndarray,
        ncols: int,
        ids: np.ndarray | None = None,
    ) -> None:
        self.indptr, self.columns, self.ncols, self._ids = indptr, columns, ncols, ids
        self.values = np.broadcast_to(values, columns.shape) if len(values) == 1 else values

    @classmethod
    def from_matrix(cls, A: gb.Matrix, ids: np.ndarray | None = None) -> Self:
        """Return the rows of a matrix, taking ownership: it is empty afterwards."""
        arrays = A.ss.export("csr", give_ownership=True, sort=True)
        return cls(arrays["indptr"], arrays["col_indices"], arrays["values"], arrays["ncols"], ids)

    @classmethod
    def from_array(cls, A: np.ndarray, ids: np.ndarray | None = None) -> Self:
        """Return the rows of an array, without zeros."""
        major, minor = np.nonzero(A)
        indptr = np.zeros(len(A) + 1, np.uint64)
        np.cumsum(np.bincount(major, minlength=len(A)), out=indptr[1:])
        return cls(indptr, minor.astype(np.uint64), A[major, minor], A.shape[1], ids)

    def __getattr__(self, name: str) -> Any:
        if name in SparseRows.__slots__:
            raise RuntimeError("the arrays of these rows now belong to a graphblas.Matrix")
        raise AttributeError(name)

    @property
    def nrows(self) -> int:
        """Number of rows."""
        return len(self.indptr) - 1

    @property
    def nvals(self) -> int:
        """Number of entries."""
        return len(self.columns)

    @property
    def dtype(self) -> np.dtype:
        """Dtype of the values."""
        return self.values.dtype

    @property
    def is_iso(self) -> bool:
        """Whether all entries share one stored value."""
        return self.nvals > 0 and self.values.strides == (0,)

    @property
    def ids(self) -> np.ndarray:
        """The rows' ids."""
        if self._ids is None:
            self._ids = np.arange(self.nrows)
        return self._ids

    @property
    def nbytes(self) -> int:
        """Size of the arrays in bytes."""
        values = self.dtype.itemsize if self.is_iso else self.values.nbytes
        return self.indptr.nbytes + self.columns.nbytes + int(values)

    @property
    def largest(self) -> float:
        """The largest absolute value, or 0 without entries."""
        values = self.values[:1] if self.is_iso else self.values
        return max(float(values.max(initial=0)), -float(values.min(initial=0)))

    @property
    def degrees(self) -> np.ndarray:
        """Number of entries of each row, int64."""
        return np.diff(self.indptr.view(np.int64))

    def place(self, k: int) -> tuple[Any, Any]:
        """Return the id of the row, and the column, of an entry."""
        row = np.searchsorted(self.indptr, np.uint64(k), side="right") - 1
        return self.ids[row], self.columns[k]

    def matrix(self, *, transposed: bool = False) -> gb.Matrix:
        """Move the arrays into a new row-wise matrix, or into the column-wise transpose.

        Later accesses to these rows raise RuntimeError.
        """
        nrows, ncols, is_iso = self.nrows, self.ncols, self.is_iso and self.nvals > 0
        arrays = {"indptr": self.indptr, "is_iso": is_iso}
        arrays["values"] = self.values[:1].copy() if is_iso else np.ascontiguousarray(self.values)
        columns = self.columns
        for name in self.__slots__:
            delattr(self, name)
        if transposed:
            return owned(
                gb.Matrix.ss.import_csc, nrows=ncols, ncols=nrows, row_indices=columns,
                sorted_rows=True, **arrays,
            )  # fmt: skip
        return owned(
            gb.Matrix.ss.import_csr, nrows=nrows, ncols=ncols, col_indices=columns,
            sorted_cols=True, **arrays,
        )  # fmt: skip

    def dense(self) -> np.ndarray:
        """Return the rows as a dense array."""
        array = np.zeros((self.nrows, self.ncols), self.dtype)
        at = np.repeat(np.arange(self.nrows), self.degrees)
        array[at, self.columns.view(np.int64)] = self.values
        return array

    def sparse_rows(self, start: int, stop: int) -> SparseRows:
        """Return the rows ``start:stop`` as views, except for `indptr`."""
        first, last = int(self.indptr[start]), int(self.indptr[stop])
        ids = np.arange(start, stop) if self._ids is None else self._ids[start:stop]
        indptr = self.indptr[start : stop + 1] - self.indptr[start]
        columns, values = self.columns[first:last], self.values[first:last]
        return SparseRows(indptr, columns, values, self.ncols, ids)

    def with_ids(self, ids: np.ndarray | None = None) -> SparseRows:
        """Return the same rows with other ids, by default from 0."""
        return SparseRows(self.indptr, self.columns, self.values, self.ncols, ids)

    def parts(self, most: int) -> Iterator[SparseRows]:
        """Yield parts of at most `most` entries and rows, but at least one row."""
        start = 0
        while start < self.nrows:
            fits = np.searchsorted(self.indptr, self.indptr[start] + np.uint64(most), side="right")
            stop = max(start + 1, min(int(fits) - 1, start + most))
            yield self.sparse_rows(start, stop)
            start = stop

    def take(self, rows: np.ndarray, ids: np.ndarray | None = None) -> SparseRows:
        """Return the given rows in the given order, with repetitions.

        They keep their ids unless `ids` is given.
        """
        starts = self.indptr.view(np.int64)
        indptr = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(self.degrees[rows], out=indptr[1:])
        some = rows[starts[rows + 1] > starts[rows]]
        stretches = list(zip(starts[some].tolist(), starts[some + 1].tolist(), strict=True))
        columns, values = (
            np.concatenate([array[:0], *(array[a:b] for a, b in stretches)])
            for array in (self.columns, self.values)
        )
        ids = self.ids[rows] if ids is None else ids
        return SparseRows(indptr.view(np.uint64), columns, values, self.ncols, ids)

    def without_empty_rows(self) -> SparseRows:
        """Return the rows that have an entry."""
        some = np.flatnonzero(self.indptr[1:] > self.indptr[:-1])
        if len(some) == self.nrows:
            return self
        indptr = np.concatenate((self.indptr[some], self.indptr[-1:]))
        return SparseRows(indptr, self.columns, self.values, self.ncols, self.ids[some])

    def without_zeros(self) -> SparseRows:
        """Return the rows without stored zeros; `self` must not be used afterwards."""
        ids, zero = self._ids, self.dtype.type(0)
        return SparseRows.from_matrix(gb.select.valuene(self.matrix(), zero).new(), ids)

    @staticmethod
    def joined(blocks: Sequence[SparseRows], empty: Any = None) -> SparseRows:
        """Return the concatenated rows of one or more blocks, with their ids.

        They are copied to arrays of `empty` (default: `numpy.empty`, unless there is one block).
        """
        if len(blocks) == 1 and empty is None:
            return blocks[0]
        nrows, nvals = sum(b.nrows for b in blocks), sum(b.nvals for b in blocks)
        ncols, dtype = blocks[0].ncols, blocks[0].dtype
        rows = SparseRows.collected(blocks, nrows, nvals, ncols, dtype, empty or np.empty)
        rows._ids = np.concatenate([block.ids for block in blocks])
        return rows

    @staticmethod
    def collected(
        blocks: Iterable[SparseRows],
        nrows: int,
        nvals: int,
        ncols: int,
        dtype: np.dtype,
        empty: Any = np.empty,
    ) -> SparseRows:
        """Return the concatenated rows of blocks, with ids from 0.

        `nrows` and `nvals` are totals. Blocks are consumed one by one. A shared value remains
        shared if all blocks have the same.
        """
        indptr, columns = np.zeros(nrows + 1, np.uint64), empty(nvals, np.uint64)
        iso: np.ndarray | None = None
        values: np.ndarray | None = None
        row = entry = 0
        for block in blocks:
            n = block.nvals
            indptr[row + 1 : row + block.nrows + 1] = block.indptr[1:] + np.uint64(entry)
            columns[entry : entry + n] = block.columns
            if n and values is None:
                if block.is_iso and (iso is None or iso == block.values[0]):
                    iso = block.values[:1].copy()
                else:
                    values = empty(nvals, dtype)
                    values[:entry] = 0 if iso is None else iso
            if values is not None:
                values[entry : entry + n] = block.values
            row, entry = row + block.nrows, entry + n
        if values is None:
            values = np.empty(0, dtype) if iso is None else iso
        return SparseRows(indptr, columns, values, ncols)

    @staticmethod
    def stacked(
        blocks: list[SparseRows],
        nrows: int,
        ncols: int,
        dtype: np.dtype,
        followed: np.ndarray | None = None,
        nthreads: int = 1,
    ) -> SparseRows:
        """Return rows 0 to nrows - 1 in the order of their ids; missing rows are empty.

        The list is emptied, so that a thread frees each block before it copies the next one. If
        ``followed`` is given, row i is the one with the id ``followed[i]``.
        """
        if (
            followed is None
            and len(blocks) == 1
            and np.array_equal(blocks[0].ids, np.arange(nrows))
        ):
            return blocks.pop()
        degrees = np.zeros(nrows, np.int64)
        for block in blocks:
            degrees[block.ids] = block.degrees
        indptr = np.zeros(nrows + 1, np.int64)
        np.cumsum(degrees if followed is None else degrees[followed], out=indptr[1:])
        columns, values = np.empty(indptr[-1], np.uint64), np.empty(indptr[-1], dtype)
        nthreads = min(nthreads, _COPIERS) if len(values) >= _SHARED else 1

        def copy(rest: Iterator[SparseRows]) -> None:
            for block in rest:
                for first, last, to in _stretches(block, indptr):
                    columns[to : to + last - first] = block.columns[first:last]
                    values[to : to + last - first] = block.values[first:last]
                del block

        def repeat(rest: Iterator[np.ndarray]) -> None:
            for stretches in rest:
                for first, to, n in stretches.tolist():
                    columns[to : to + n] = columns[first : first + n]
                    values[to : to + n] = values[first : first + n]

        queue = deque(blocks)
        blocks.clear()
        share(nthreads, queue, copy)
        if followed is not None:
            others = np.flatnonzero((followed != np.arange(nrows)) & (degrees[followed] > 0))
            given = followed[others]
            stretches = np.column_stack((indptr[given], indptr[others], degrees[given]))
            share(nthreads, deque(np.array_split(stretches, 4 * nthreads)), repeat)
        return SparseRows(indptr.view(np.uint64), columns, values, ncols)


def _stretches(block: SparseRows, indptr: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Yield start, stop and target of the entries of each run of consecutive rows."""
    if not block.nrows:
        return
    starts, to = block.indptr.view(np.int64), indptr[block.ids]
    breaks = np.flatnonzero(to[1:] != indptr[1:][block.ids[:-1]]) + 1
    begins = np.concatenate(([0], breaks))
    ends = np.concatenate((breaks, [block.nrows]))
    yield from zip(starts[begins].tolist(), starts[ends].tolist(), to[begins].tolist(), strict=True)


def fault_of(pointers: np.ndarray, indices: np.ndarray, across: int) -> str | None:
    """Return a description of the fault in pointers and indices of CSR rows, or None."""
    n = len(indices)
    if pointers[0] != 0 or pointers[-1] != n or (pointers[1:] < pointers[:-1]).any():
        return f"the pointers do not ascend from 0 to {n}"
    if not n:
        return None
    if indices.max() >= across or indices.min() < 0:
        bad = indices.max() if indices.min() >= 0 else indices.min()
        return f"index {bad} is not from 0 to {across - 1}"
    ascending = indices[1:] > indices[:-1]
    starts = pointers[(pointers > 0) & (pointers < n)]
    ascending[starts - starts.dtype.type(1)] = True  # from one row or column to the next
    return None if ascending.all() else "indices are not strictly ascending"
