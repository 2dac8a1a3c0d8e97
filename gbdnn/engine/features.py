"""Features as a run reads them: some rows at a time, by the threads that compute.

A caller's matrix that has its rows at hand, a row-wise ``graphblas.Matrix`` or SciPy's CSR, is read
where it is: nothing is copied but the rows of a block, at the moment they are wanted. So are
features in a store. All else is converted first.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gbdnn.arrays.arguments import as_number
from gbdnn.arrays.checked_rows import checked_rows, fault_of, without_zeros
from gbdnn.arrays.first_use import complete, gb
from gbdnn.arrays.matrices import as_rows, dtype_of, is_graphblas, is_scipy, shape_of
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.arrays.values import finite, floating, require_room, whole_number
from gbdnn.engine.dense_features import (
    DenseFeatures,
    DenseMatrixFeatures,
    as_array,
    is_dense,
)
from gbdnn.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from gbdnn.model.layer_info import LayerInfo
    from gbdnn.model.network import Network

__all__ = ["ConvertedFeatures", "Features", "MatrixFeatures", "as_features", "bytes_copied"]


_ROUNDING = 1e-6  # of a value, by a cast


class Features(Protocol):
    """What a run reads its inputs from, row range by row range and from several threads at once.

    A store's features are of this kind (`gbdnn.io.open_features`), and so may be a caller's own.
    Features that have a method ``dense_rows(start, stop)`` too are read as arrays where that pays.
    What they return is cast, and checked, unless they have ``is_checked = True`` and a ``dtype``,
    the network's: then it is believed, by compiled code too.
    """

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
        """Return rows `start` to before `stop`, in their order, and finite."""
        ...


class MatrixFeatures:
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
        self._X, self._dtype = X, dtype
        self.largest = largest
        self.nrows, self.ncols, self.nvals = int(X.nrows), int(X.ncols), int(X.nvals)
        self._is_iso = bool(X.ss.is_iso)

    def sparse_rows(self, start: int, stop: int) -> SparseRows:
        """Return rows `start` to before `stop`, without stored zeros."""
        ids = np.arange(start, stop)
        rows = SparseRows.from_matrix(self._X[start:stop, :].new(name="rows"), ids)
        if rows.dtype != self._dtype:
            values = (rows.values[:1] if rows.is_iso else rows.values).astype(self._dtype)
            rows = SparseRows(rows.indptr, rows.columns, values, rows.ncols, ids)
        if (rows.values[:1] if self._is_iso else rows.values).all():
            return rows
        found = without_zeros(rows)
        return SparseRows(found.indptr, found.columns, found.values, found.ncols, ids)


class ScipyFeatures:
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
        self._arrays, self._dtype, self.largest = (X.indptr, X.indices, X.data), dtype, largest
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
        return checked_rows(rows, ids, self.ncols, self._dtype, "features")


class ConvertedFeatures:
    """Rows that were made of a caller's matrix."""

    is_checked = True

    def __init__(self, rows: SparseRows) -> None:
        self._rows, self.dtype = rows, rows.dtype
        self.nrows, self.ncols, self.nvals = rows.nrows, rows.ncols, rows.nvals
        self.largest, self.nbytes = rows.largest, rows.nbytes

    def sparse_rows(self, start: int, stop: int) -> SparseRows:
        """Return rows `start` to before `stop`."""
        return self._rows.rows(start, stop)


class _CallersFeatures:
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


class _CallersArrays(_CallersFeatures):
    """The same, which can be had as arrays too."""

    def dense_rows(self, start: int, stop: int) -> np.ndarray:
        what, rows = self._between(start, stop), self._features.dense_rows(start, stop)
        shape = (min(stop, self.nrows) - start, self.ncols)
        if not isinstance(rows, np.ndarray) or rows.shape != shape:
            raise ShapeError(f"{what}: {getattr(rows, 'shape', type(rows))}, not {shape}")
        return finite(rows, self.dtype, what)


def as_features(features: Any, net: Network, room: float = math.inf) -> Features:
    """Return the features in the network's dtype, or say why they do not fit.

    An array of at most `room` bytes may be made of them.
    """
    first = net.infos[0]
    dtype = first.dtype
    if type(features) is np.ndarray and features.ndim == 2:
        _require_fit(features.shape[0], features.shape[1], first)
        return DenseFeatures(features, dtype)
    if hasattr(features, "sparse_rows"):
        if getattr(features, "is_checked", False) and features.dtype == dtype:
            found: Features = features
        else:
            kind = _CallersArrays if hasattr(features, "dense_rows") else _CallersFeatures
            found = kind(features, dtype)
        _require_fit(found.nrows, found.ncols, first)
        return found
    nrows, ncols = shape_of(features, "features")
    _require_fit(nrows, ncols, first)
    require_room(8 * nrows, f"features: {nrows} x {ncols}: row pointers alone")
    if not is_graphblas(features) and not is_scipy(features):
        return DenseFeatures(np.asarray(features), dtype)
    if is_dense(features):
        if nrows * ncols * dtype_of(features).itemsize <= room:
            return DenseFeatures(as_array(features), dtype)
        return DenseMatrixFeatures(features, dtype)
    if (held := _read_where_it_is(features, dtype)) is not None:
        return held
    return ConvertedFeatures(as_rows(features, what="features", dtype=dtype))


def bytes_copied(X: Features, features: Any) -> int:
    """Return the bytes of what `as_features` made of a caller's matrix."""
    if isinstance(X, ConvertedFeatures) and X is not features:
        return X.nbytes
    array = X.array if isinstance(X, DenseFeatures) and is_graphblas(features) else None
    return 0 if array is None else array.nbytes


def _require_fit(nrows: int, ncols: int, first: LayerInfo) -> None:
    if ncols != first.shape[0]:
        raise ShapeError(
            f"features are {nrows} x {ncols} but layer 0, {first.nrows} x {first.ncols},"
            f" reads {first.nrows} neurons"
        )


def _read_where_it_is(features: Any, dtype: np.dtype) -> Features | None:
    """Return a matrix whose rows are at hand, and whose values are finite in the dtype."""
    floating(dtype_of(features), "features")
    if not features.shape[0]:
        return None
    if is_scipy(features):
        if features.format != "csr" or not _has_ascending_indices(features):
            return None
        largest = _largest_of(features.data)
        kind: Any = ScipyFeatures
    else:
        if isinstance(features, gb.core.matrix.TransposedMatrix):
            return None
        complete(features)
        if features.ss.orientation != "rowwise":
            return None
        largest = _largest(features)
        kind = MatrixFeatures
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
