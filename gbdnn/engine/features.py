"""Features as a run reads them: some rows at a time, by the threads that compute.

A caller's ``graphblas.Matrix`` of the network's dtype is read where it is: nothing is copied but
the rows of a block, at the moment they are wanted. So are features in a store. All else is
converted first.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gbdnn.arrays.first_use import complete, gb
from gbdnn.arrays.matrices import as_rows, dtype_of, is_graphblas, is_scipy, shape_of
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.arrays.values import finite, require_room
from gbdnn.engine.dense_features import (
    DenseFeatures,
    DenseMatrixFeatures,
    as_array,
    is_dense,
)
from gbdnn.errors import ShapeError

if TYPE_CHECKING:
    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.model.layer_info import LayerInfo
    from gbdnn.model.network import Network

__all__ = ["ConvertedFeatures", "Features", "MatrixFeatures", "as_features", "bytes_copied"]


class Features(Protocol):
    """What a run reads its inputs from, row range by row range and from several threads at once.

    A store's features are of this kind (`gbdnn.io.open_features`), and so may be a caller's own.
    Features that have a method ``dense_rows(start, stop)`` too are read as arrays where that pays.
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
        """Return rows `start` to before `stop`, finite and without stored zeros."""
        ...


class MatrixFeatures:
    """Rows of a caller's matrix, which is only read.

    Parameters
    ----------
    X : Matrix
        Row-wise, of the network's dtype, finite, without pending work.
    largest : float
        The largest absolute value.
    """

    def __init__(self, X: gb.Matrix, largest: float) -> None:
        self._X = X
        self.largest = largest
        self.nrows, self.ncols, self.nvals = int(X.nrows), int(X.ncols), int(X.nvals)
        self._is_iso = bool(X.ss.is_iso)

    def sparse_rows(self, start: int, stop: int) -> SparseRows:
        """Return rows `start` to before `stop`, without stored zeros."""
        ids = np.arange(start, stop)
        rows = SparseRows.from_matrix(self._X[start:stop, :].new(name="rows"), ids)
        if (rows.values[:1] if self._is_iso else rows.values).all():
            return rows
        zero = rows.dtype.type(0)
        return SparseRows.from_matrix(gb.select.valuene(rows.matrix(), zero).new(), ids)


class ConvertedFeatures:
    """Rows that were made of a caller's matrix."""

    def __init__(self, rows: SparseRows) -> None:
        self._rows, self.dtype = rows, rows.dtype
        self.nrows, self.ncols, self.nvals = rows.nrows, rows.ncols, rows.nvals
        self.largest = rows.largest

    def sparse_rows(self, start: int, stop: int) -> SparseRows:
        """Return rows `start` to before `stop`."""
        return self._rows.rows(start, stop)


class _Cast:
    """Features in another dtype than the network's."""

    def __init__(self, features: Features, dtype: np.dtype) -> None:
        self._features, self._dtype = features, dtype
        self.nrows, self.ncols, self.nvals = features.nrows, features.ncols, features.nvals
        self.largest = features.largest

    def sparse_rows(self, start: int, stop: int) -> SparseRows:
        rows = self._features.sparse_rows(start, stop)
        values = finite(rows.values[:1] if rows.is_iso else rows.values, self._dtype, "features")
        return SparseRows(rows.indptr, rows.columns, values, rows.ncols, rows.ids)


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
        _require_fit(features.nrows, features.ncols, first)
        return features if _dtype(features) == dtype else _Cast(features, first.dtype)
    nrows, ncols = shape_of(features, "features")
    _require_fit(nrows, ncols, first)
    require_room(8 * nrows, f"features: {nrows} x {ncols}: row pointers alone")
    if not is_graphblas(features) and not is_scipy(features):
        return DenseFeatures(np.asarray(features), dtype)
    if is_dense(features):
        if nrows * ncols * dtype_of(features).itemsize <= room:
            return DenseFeatures(as_array(features), dtype)
        return DenseMatrixFeatures(features, dtype)
    if _is_readable(features, dtype):
        largest = _largest(features)
        if math.isfinite(largest):
            return MatrixFeatures(features, largest)
    return ConvertedFeatures(as_rows(features, what="features", dtype=dtype))


def bytes_copied(X: Features, features: Any) -> int:
    """Return the bytes of the array that `as_features` made of a dense matrix."""
    array = X.array if isinstance(X, DenseFeatures) and is_graphblas(features) else None
    return 0 if array is None else array.nbytes


def _dtype(features: Features) -> np.dtype | None:
    return getattr(features, "dtype", None)


def _require_fit(nrows: int, ncols: int, first: LayerInfo) -> None:
    if ncols != first.shape[0]:
        raise ShapeError(
            f"features are {nrows} x {ncols} but layer 0, {first.nrows} x {first.ncols},"
            f" reads {first.nrows} neurons"
        )


def _is_readable(features: MatrixLike, dtype: np.dtype | None) -> bool:
    """Whether rows can be taken from a matrix as it is."""
    if not is_graphblas(features) or isinstance(features, gb.core.matrix.TransposedMatrix):
        return False
    complete(features)
    return (
        dtype_of(features) == dtype and features.ss.orientation == "rowwise" and features.nrows > 0
    )


def _largest(X: gb.Matrix) -> float:
    """Return the largest absolute value, 0 if there is none; not finite if some value is not."""
    total, highest, lowest = (
        X.reduce_scalar(monoid).new().get(0.0)
        for monoid in (gb.monoid.plus, gb.monoid.max, gb.monoid.min)
    )
    # max and min pass over a NaN; a sum does not (where it overflows, the values are looked at).
    return max(highest, -lowest) if math.isfinite(total) else math.inf
