"""Sparse rows that are appended, block by block, to memory that grows in place."""

from __future__ import annotations

import numpy as np

from gbdnn.arrays.sparse_rows import SparseRows

__all__ = ["GrowingRows"]


class GrowingRows:
    """Rows one below the other; a block is copied once, to where it stays.

    The C library moves pages of a large array, not its content, when it grows: blocks need not be
    kept until the number of entries is known.

    Parameters
    ----------
    nrows : int
        Number of rows that there will be.
    ncols : int
    dtype : float32 or float64
    """

    def __init__(self, nrows: int, ncols: int, dtype: np.dtype) -> None:
        self._ncols, self._row = ncols, 0
        self._indptr = np.zeros(nrows + 1, np.uint64)
        self._columns = np.empty(0, np.uint64)
        self._values = np.empty(0, dtype)

    def append(self, indptr: np.ndarray, columns: np.ndarray, values: np.ndarray) -> None:
        """Append rows in compressed form, with indices of any integer dtype.

        Parameters
        ----------
        indptr : ndarray, shape (rows + 1,)
            Begins at 0.
        columns : ndarray, shape (entries,)
        values : ndarray, shape (entries,) or (1,)
        """
        rows, before, entries = len(indptr) - 1, len(self._columns), len(columns)
        for each in (self._columns, self._values):
            each.resize(before + entries, refcheck=False)
        self._columns[before:] = columns
        self._values[before:] = values
        self._indptr[self._row + 1 : self._row + rows + 1] = indptr[1:]
        self._indptr[self._row + 1 : self._row + rows + 1] += np.uint64(before)
        self._row += rows

    def rows(self) -> SparseRows:
        """Return all rows, which are no longer held here."""
        indptr, columns, values = self._indptr, self._columns, self._values
        del self._indptr, self._columns, self._values
        if len(values) == 1:
            values = values.copy()
        return SparseRows(indptr, columns, values, self._ncols)
