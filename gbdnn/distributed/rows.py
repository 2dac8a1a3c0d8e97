"""Sparse rows as processes send them to each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gbdnn.arrays.sparse_rows import SparseRows

__all__ = ["CompactRows"]


@dataclass(frozen=True, slots=True)
class CompactRows:
    """Sparse rows with the smallest integers that hold their indices.

    Attributes
    ----------
    indptr, columns : ndarray of unsigned integers
        As in `SparseRows`, with 8 to 64 bits; `columns` is empty if every row is full.
    values : ndarray
        One value if all entries are equal.
    ncols : int
        Number of columns.
    ids : ndarray of unsigned integers, optional
        Numbers of the inputs, if they do not count from 0.
    """

    indptr: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    ncols: int
    ids: np.ndarray | None = None

    @classmethod
    def of(cls, rows: SparseRows, ids: np.ndarray | None = None) -> CompactRows:
        """Return the rows, with these ids."""
        is_full = rows.nvals == rows.nrows * rows.ncols
        columns = rows.columns[:0] if is_full else rows.columns
        return cls(
            rows.indptr.astype(np.min_scalar_type(rows.nvals)),
            columns.astype(np.min_scalar_type(max(0, rows.ncols - 1))),
            rows.values[:1].copy() if rows.is_iso else np.ascontiguousarray(rows.values),
            rows.ncols,
            None if ids is None else ids.astype(np.min_scalar_type(ids.max(initial=0))),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        arrays = (self.indptr, self.columns, self.values, self.ids)
        return sum(array.nbytes for array in arrays if array is not None)

    def rows(self, ids: np.ndarray | None = None) -> SparseRows:
        """Return sparse rows with these ids, by default their own."""
        indptr, columns = self.indptr.astype(np.uint64), self.columns.astype(np.uint64)
        if len(columns) < indptr[-1]:
            columns = np.tile(np.arange(self.ncols, dtype=np.uint64), len(indptr) - 1)
        if ids is None and self.ids is not None:
            ids = self.ids.astype(np.int64)
        return SparseRows(indptr, columns, self.values, self.ncols, ids)
