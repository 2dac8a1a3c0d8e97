"""The answer of a run: stacked sparse rows, or an array that blocks write to.

Dense features have a dense answer: an array and a mask of its nonzero values. Both become the
memory of a full or bitmap matrix, or are converted to a sparse one if few values are nonzero.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.matrices import as_matrix
from gbdnn.arrays.row_store import RowStore
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.kernels import costs
from gbdnn.runtime.first_use import gb

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DenseAnswer", "SparseAnswer"]

_AT_ONCE = 256  # rows copied at a time


class SparseAnswer:
    """Sparse rows, stacked at the end; missing rows have no entries."""

    is_dense = False

    def __init__(self, nrows: int, ncols: int, dtype: np.dtype) -> None:
        self._shape, self._dtype = (nrows, ncols), dtype
        self._rows = RowStore(ncols, dtype)

    def add(self, rows: SparseRows) -> None:
        """Add rows, identified by their ids."""
        self._rows.add(rows)

    def matrix(self, followed: np.ndarray | None) -> gb.Matrix:
        """Return a matrix whose row i has the id ``followed[i]`` (default: i)."""
        rows = self._rows.rows()
        return SparseRows.stacked(rows, *self._shape, self._dtype, followed).matrix()


class DenseAnswer:
    """Rows of an array.

    Attributes
    ----------
    values : ndarray, shape (nrows, ncols)
        Activations, in the caller's memory if given; 0 where nothing was written.
    present : ndarray of bool, shape (nrows, ncols), optional
        Mask of nonzero values; needed by `matrix` only.
    entries : int
        Number of nonzero values.
    """

    is_dense = True

    def __init__(
        self,
        nrows: int,
        ncols: int,
        dtype: np.dtype,
        *,
        values: np.ndarray | None = None,
        with_present: bool = True,
    ) -> None:
        # The system allocates pages of zeros only when they are written.
        self.values = np.zeros((nrows, ncols), dtype) if values is None else values
        if values is not None:
            values.fill(0)
        self.present: Any = np.zeros((nrows, ncols), bool) if with_present else None
        self.entries = 0
        self._lock = threading.Lock()

    def write(self, to_rows: Callable[[np.ndarray, np.ndarray | None], int]) -> None:
        """Call a function that writes rows to `values` and `present` and returns its entries."""
        entries = to_rows(self.values, self.present)
        with self._lock:
            self.entries += entries

    def note_entries(self) -> None:
        """Compute `present` and `entries` from `values`."""
        if self.present is not None:
            np.not_equal(self.values, 0, out=self.present)
            self.entries = int(np.count_nonzero(self.present))

    def add(self, rows: SparseRows) -> None:
        """Add rows, identified by their ids."""
        at = np.repeat(rows.ids, rows.degrees), rows.columns.view(np.int64)
        self.values[at] = rows.values
        self.present[at] = True
        with self._lock:
            self.entries += rows.nvals

    def matrix(self, followed: np.ndarray | None = None, *, sparse: bool = False) -> gb.Matrix:
        """Return a matrix whose row i has the id ``followed[i]`` (default: i).

        The matrix is sparse if `sparse` or if it has few entries. It takes over the arrays.
        """
        values, present, entries = self.values, self.present, self.entries
        if followed is not None:
            others = np.flatnonzero(followed != np.arange(len(followed)))
            for at in range(0, len(others), _AT_ONCE):
                some = others[at : at + _AT_ONCE]
                values[some], present[some] = values[followed[some]], present[followed[some]]
                entries += int(np.count_nonzero(present[some]))
        del self.values, self.present
        if sparse or not entries or not costs.dense_pays(values.size, entries):
            return as_matrix(values, what="the answer")
        if entries == values.size:
            return gb.Matrix.ss.import_fullr(values, take_ownership=True)
        return gb.Matrix.ss.import_bitmapr(
            values=values, bitmap=present, nvals=entries, take_ownership=True
        )
