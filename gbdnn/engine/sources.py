"""Sources of rows: features as a run reads them, some rows at a time, by the threads that compute.

A caller's array is read where it is, and so is a matrix that has its rows at hand, a row-wise
``graphblas.Matrix`` or SciPy's CSR: nothing is copied but the rows of a block, at the moment they
are wanted. So are features in a store. All else is converted first.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gbdnn.arrays.checked_rows import checked_rows, fault_of, without_zeros
from gbdnn.arrays.checks import as_number, finite, floating, require_room, whole_number
from gbdnn.arrays.matrices import as_held, as_rows, dtype_of, is_graphblas, is_scipy, shape_of
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.errors import ArgumentError, ShapeError
from gbdnn.kernels import costs
from gbdnn.runtime.first_use import complete, gb
from gbdnn.runtime.threads import engaged

if TYPE_CHECKING:
    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.model.layer_info import LayerInfo
    from gbdnn.model.network import Network

__all__ = [
    "DenseMatrixRows",
    "DenseRows",
    "MatrixRows",
    "RowSource",
    "ScipyRows",
    "as_array",
    "as_source",
    "bytes_copied",
    "dense_rows_of",
    "is_dense",
]

_SAMPLE = 64  # rows, or a few more, from which the number of entries is estimated
_AT_ONCE = 256  # rows that are looked at at once
_ROUNDING = 1e-6  # of a value, by a cast


class RowSource(Protocol):
    """What a run reads its inputs from, row range by row range and from several threads at once.

    A store's features are of this kind (`gbdnn.io.open_features`), and so may be a caller's own.
    Features that have a method ``dense_rows(start, stop)`` too are read as arrays where that pays.
    What they return is cast, and checked, unless they have ``is_checked = True`` and a ``dtype``,
    the network's: then it is believed, by compiled code too.
    """

    @property
    def dtype(self) -> np.dtype:
        """Of the values."""
        ...

    @property
    def nrows(self) -> int:
        """Number of inputs."""
        ...

    @property
    def ncols(self) -> int:
        """Neurons of the first layer."""
        ...

    @property
    def nvals(self) -> int:
        """Number of entries."""
        ...

    @property
    def largest(self) -> float:
        """The largest absolute value; infinity where it is not known."""
        ...

    def sparse_rows(self, start: int, stop: int) -> SparseRows:
        """Return rows `start` to before `stop`, with these ids, in their order, and finite."""
        ...


class DenseRows:
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


class DenseMatrixRows(DenseRows):
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


class MatrixRows:
    """Rows of a caller's matrix, which is only read.

    Parameters
    ----------
    X : Matrix
        Row-wise, finite, without pending work.
    largest : float
        The largest absolute value.
    dtype : float32 or float64
        What values are cast to; they fit.
    """

    def __init__(self, X: gb.Matrix, largest: float, dtype: np.dtype) -> None:
        self._X, self.dtype = X, dtype
        self.largest = largest
        self.nrows, self.ncols, self.nvals = int(X.nrows), int(X.ncols), int(X.nvals)
        self._is_iso = bool(X.ss.is_iso)

    def sparse_rows(self, start: int, stop: int) -> SparseRows:
        """Return rows `start` to before `stop`, without stored zeros."""
        ids = np.arange(start, stop)
        rows = SparseRows.from_matrix(self._X[start:stop, :].new(name="rows"), ids)
        if rows.dtype != self.dtype:
            values = (rows.values[:1] if rows.is_iso else rows.values).astype(self.dtype)
            rows = SparseRows(rows.indptr, rows.columns, values, rows.ncols, ids)
        if (rows.values[:1] if self._is_iso else rows.values).all():
            return rows
        found = without_zeros(rows)
        return SparseRows(found.indptr, found.columns, found.values, found.ncols, ids)


class ScipyRows:
    """Rows of a caller's CSR array, which is only read.

    Parameters
    ----------
    X : scipy.sparse.csr_array or csr_matrix
        With ascending indices.
    largest : float
        The largest absolute value.
    dtype : float32 or float64
        What values are cast to.
    """

    def __init__(self, X: Any, largest: float, dtype: np.dtype) -> None:
        self._arrays, self.dtype, self.largest = (X.indptr, X.indices, X.data), dtype, largest
        self.nrows, self.ncols, self.nvals = int(X.shape[0]), int(X.shape[1]), len(X.indices)

    def sparse_rows(self, start: int, stop: int) -> SparseRows:
        """Return rows `start` to before `stop`, without stored zeros."""
        indptr, indices, data = self._arrays
        ids = np.arange(start, min(stop, self.nrows))
        pointers = indptr[start : start + len(ids) + 1]
        first, last = int(pointers[0]), int(pointers[-1])
        # Copies, which nobody else changes.
        rows = SparseRows(
            (pointers - pointers[0]).astype(np.uint64),
            indices[first:last].astype(np.uint64),
            data[first:last],
            self.ncols,
        )
        return checked_rows(rows, ids, self.ncols, self.dtype, "features")


class _CallersRows:
    """Features of a caller's own, in the network's dtype: what they return is checked."""

    def __init__(self, features: Any, dtype: np.dtype) -> None:
        self._features, self.dtype = features, dtype
        self.nrows, self.ncols, self.nvals = (
            whole_number(getattr(features, name, None), f"features: {name}", least=0)
            for name in ("nrows", "ncols", "nvals")
        )
        self.largest = as_number(getattr(features, "largest", None), "features: largest")

    def sparse_rows(self, start: int, stop: int) -> SparseRows:
        ids = np.arange(start, min(stop, self.nrows))
        what, rows = self._between(start, stop), self._features.sparse_rows(start, stop)
        found = checked_rows(rows, ids, self.ncols, self.dtype, what)
        if found.largest > self.largest * (1 + _ROUNDING):
            raise ArgumentError(
                f"{what}: a value of {found.largest:g}; largest is {self.largest:g}"
            )
        return found

    def _between(self, start: int, stop: int) -> str:
        return f"features: rows {start} to before {stop}"


class _CallersArrays(_CallersRows):
    """The same, which can be had as arrays too."""

    def dense_rows(self, start: int, stop: int) -> np.ndarray:
        what, rows = self._between(start, stop), self._features.dense_rows(start, stop)
        shape = (min(stop, self.nrows) - start, self.ncols)
        if not isinstance(rows, np.ndarray) or rows.shape != shape:
            raise ShapeError(f"{what}: {getattr(rows, 'shape', type(rows))}, not {shape}")
        return finite(rows, self.dtype, what)


def as_source(features: Any, net: Network, room: float = math.inf) -> RowSource:
    """Return the features in the network's dtype, or say why they do not fit.

    An array of at most `room` bytes may be made of them.
    """
    first = net.infos[0]
    dtype = first.dtype
    features = as_held(features, "features")
    if type(features) is np.ndarray and features.ndim == 2:
        _require_fit(features.shape[0], features.shape[1], first)
        return DenseRows(features, dtype)
    if hasattr(features, "sparse_rows"):
        if getattr(features, "is_checked", False) and features.dtype == dtype:
            found: RowSource = features
        else:
            kind = _CallersArrays if hasattr(features, "dense_rows") else _CallersRows
            found = kind(features, dtype)
        _require_fit(found.nrows, found.ncols, first)
        return found
    nrows, ncols = shape_of(features, "features")
    _require_fit(nrows, ncols, first)
    require_room(8 * nrows, f"features: {nrows} x {ncols}: row pointers alone")
    if not is_graphblas(features) and not is_scipy(features):
        return DenseRows(np.asarray(features), dtype)
    if is_dense(features):
        if nrows * ncols * dtype_of(features).itemsize <= room:
            return DenseRows(as_array(features), dtype)
        return DenseMatrixRows(features, dtype)
    if (held := _read_where_it_is(features, dtype)) is not None:
        return held
    return as_rows(features, what="features", dtype=dtype)


def bytes_copied(X: RowSource, features: Any) -> int:
    """Return the bytes of what `as_source` made of a caller's matrix."""
    if isinstance(X, SparseRows) and X is not features:
        return X.nbytes
    array = X.array if isinstance(X, DenseRows) and is_graphblas(features) else None
    return 0 if array is None else array.nbytes


def _require_fit(nrows: int, ncols: int, first: LayerInfo) -> None:
    if ncols != first.shape[0]:
        raise ShapeError(
            f"features are {nrows} x {ncols} but layer 0, {first.nrows} x {first.ncols},"
            f" reads {first.nrows} neurons"
        )


def _read_where_it_is(features: Any, dtype: np.dtype) -> RowSource | None:
    """Return a matrix whose rows are at hand, and whose values are finite in the dtype."""
    floating(dtype_of(features), "features")
    if not features.shape[0]:
        return None
    if is_scipy(features):
        if features.format != "csr" or not _has_ascending_indices(features):
            return None
        largest = _largest_of(features.data)
        kind: Any = ScipyRows
    else:
        if isinstance(features, gb.core.matrix.TransposedMatrix):
            return None
        complete(features)
        if features.ss.orientation != "rowwise":
            return None
        largest = _largest(features)
        kind = MatrixRows
    return kind(features, largest, dtype) if largest <= np.finfo(dtype).max else None


def _has_ascending_indices(A: Any) -> bool:
    """Whether the arrays of a CSR array are what they should be."""
    indptr, indices, data = A.indptr, A.indices, A.data
    arrays = all(
        isinstance(each, np.ndarray) and each.ndim == 1 and each.dtype.kind in kinds
        for each, kinds in ((indptr, "iu"), (indices, "iu"), (data, "biuf"))
    )
    fits = arrays and len(indptr) == A.shape[0] + 1 and len(data) == len(indices)
    return fits and fault_of(indptr, indices, A.shape[1]) is None


def _largest_of(values: np.ndarray) -> float:
    """Return the largest absolute value of an array, 0 if there is none; NaN if there is one."""
    return max(float(values.max(initial=0)), -float(values.min(initial=0)))


def _largest(X: gb.Matrix) -> float:
    """Return the largest absolute value, 0 if there is none; not finite if some value is not."""
    if dtype_of(X).kind == "b":
        return 1.0
    total, highest, lowest = (
        float(X.reduce_scalar(monoid).new().get(0.0))
        for monoid in (gb.monoid.plus, gb.monoid.max, gb.monoid.min)
    )
    # max and min pass over a NaN; a sum does not (where it overflows, the values are looked at).
    return max(highest, -lowest) if math.isfinite(total) else math.inf


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


def dense_rows_of(X: RowSource) -> DenseRows | None:
    """Return rows as an array for a direct run: dense ones, or few rows made dense; else None."""
    if isinstance(X, DenseRows):
        sparse = X.nrows > costs.FEW_INPUTS and not costs.dense_features_pay(
            costs.SPARSEST * X.nrows * X.ncols, X.nvals
        )
        return None if sparse else X
    if X.nrows <= costs.FEW_INPUTS and X.nrows * X.ncols <= costs.FEW_ELEMENTS:
        rows = X.sparse_rows(0, X.nrows)
        return DenseRows(rows.dense(), rows.dtype)
    return None
