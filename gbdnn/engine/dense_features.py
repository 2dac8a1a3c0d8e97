"""Features as arrays: read by blocks as they are, and checked when a block is made."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from gbdnn.arrays.first_use import complete, gb
from gbdnn.arrays.matrices import as_rows, dtype_of, is_graphblas
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.arrays.threads import engaged
from gbdnn.arrays.values import finite, floating
from gbdnn.kernels import costs

if TYPE_CHECKING:
    from gbdnn.arrays.matrices import MatrixLike

__all__ = ["DenseFeatures", "DenseMatrixFeatures", "as_array", "is_dense"]

_SAMPLE = 64  # rows, or a few more, from which the number of entries is estimated
_AT_ONCE = 256  # rows that are looked at at once


class DenseFeatures:
    """Rows of a caller's array, which is only read: values are checked when a block is made.

    Parameters
    ----------
    array : ndarray, shape (nrows, ncols)
        Real numbers, in any order of memory.
    dtype : float32 or float64
        What rows are cast to.
    """

    def __init__(self, array: np.ndarray, dtype: np.dtype) -> None:
        self._array, self.dtype = array, dtype
        self.nrows, self.ncols = array.shape
        self._as_is = array.dtype is dtype and array.flags.carray
        if not self._as_is:
            floating(array.dtype, "features")
            whole = not any(stride % dtype.itemsize for stride in array.strides)
            self._as_is = array.dtype == dtype and array.flags.aligned and whole

    @property
    def array(self) -> np.ndarray | None:
        """The caller's array; None if there is none."""
        return self._array

    @cached_property
    def nvals(self) -> int:
        """Number of entries, estimated from some rows."""
        some = self._array[:: max(1, self.nrows // _SAMPLE)]
        return round(np.count_nonzero(some) * self.nrows / max(1, len(some)))

    @cached_property
    def largest(self) -> float:
        """The largest absolute value; all are looked at, and refused if they are not finite."""
        found = 0.0
        for start in range(0, self.nrows, _AT_ONCE):
            rows = self.dense_rows(start, start + _AT_ONCE)
            if rows.size:
                found = max(found, float(rows.max()), -float(rows.min()))  # a NaN is passed on
                if not math.isfinite(float(rows.max()) - float(rows.min())):
                    self.require_finite(start, start + _AT_ONCE)
        return found

    def dense_rows(self, start: int, stop: int) -> np.ndarray:
        """Return rows `start` to before `stop` as an array of the dtype, a view where it can be."""
        rows = self._rows(start, stop)
        if self._as_is:
            return rows
        with np.errstate(over="ignore", invalid="ignore"):
            return rows.astype(self.dtype)

    def require_finite(self, start: int, stop: int) -> None:
        """Raise the error if some value among these rows is not finite, or not in the dtype."""
        finite(self._rows(start, stop), self.dtype, "features")

    def sparse_rows(self, start: int, stop: int) -> SparseRows:
        """Return rows `start` to before `stop`, without zeros."""
        rows = as_rows(self._rows(start, stop), what="features", dtype=self.dtype)
        ids = np.arange(start, min(stop, self.nrows))
        return SparseRows(rows.indptr, rows.columns, rows.values, rows.ncols, ids)

    def _rows(self, start: int, stop: int) -> np.ndarray:
        return self._array[start:stop]


class DenseMatrixFeatures(DenseFeatures):
    """Rows of a caller's full or bitmap matrix, of which there is no room for an array.

    Parameters
    ----------
    X : Matrix
        Without pending work.
    dtype : float32 or float64
        What rows are cast to.
    """

    def __init__(self, X: gb.Matrix, dtype: np.dtype) -> None:
        self._X, self.dtype = X, dtype
        self.nrows, self.ncols = int(X.nrows), int(X.ncols)
        self._as_is = dtype_of(X) == dtype

    @property
    def array(self) -> None:
        """There is none."""
        return

    @property
    def nvals(self) -> int:
        """Number of entries."""
        return int(self._X.nvals)

    def _rows(self, start: int, stop: int) -> np.ndarray:
        with engaged(1):  # other threads read other rows
            return as_array(self._X[start : min(stop, self.nrows), :].new(name="rows"))


def is_dense(features: MatrixLike) -> bool:
    """Whether a matrix is full, or a bitmap with enough entries."""
    if not is_graphblas(features) or isinstance(features, gb.core.matrix.TransposedMatrix):
        return False
    complete(features)
    kind = features.ss.format
    if kind.startswith("bitmap"):
        return costs.dense_features_pay(features.nrows * features.ncols, features.nvals)
    return bool(kind.startswith("full"))


def as_array(X: gb.Matrix) -> np.ndarray:
    """Return a full or bitmap matrix as an array, with 0 where nothing is stored."""
    found = X.ss.export()
    values: np.ndarray = found["values"]
    if found["is_iso"]:
        values = np.broadcast_to(values.reshape(1, 1), X.shape)
    if "bitmap" in found:
        values = np.where(found["bitmap"], values, values.dtype.type(0))
    return values
