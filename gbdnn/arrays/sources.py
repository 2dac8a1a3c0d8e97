"""Sources: features that several threads read by ranges of rows.

`as_source` validates the features once. A source has the network's dtype and finite values; only
the rows of `DenseRows` have to be checked by their reader.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeGuard

import numpy as np

from gbdnn.arrays.checks import FEWER_ROWS, finite, floating, require_exact, require_room
from gbdnn.arrays.matrices import as_rows, dtype_of, is_graphblas, is_scipy, shape_of, to_array
from gbdnn.arrays.sparse_rows import SparseRows, fault_of
from gbdnn.errors import ShapeError
from gbdnn.runtime.first_use import gb
from gbdnn.runtime.forks import cached_property
from gbdnn.runtime.ownership import owned

if TYPE_CHECKING:
    from collections.abc import Callable

    from gbdnn.arrays.matrices import MatrixLike

__all__ = [
    "DenseRows", "HyperRows", "RowSource", "as_source", "dense_pays", "is_dense", "is_source",
    "require_columns",
]  # fmt: skip

DENSE = 1 / 16
"""Density from which features, or an answer, are dense."""

_SAMPLE = 64  # rows from which the number of entries is estimated
_AT_ONCE = 256  # rows checked at a time
_COPIED = 1 << 16  # elements of matrices that are copied: each call of GraphBLAS takes 10 us
_MANY_ROWS = 1 << 16  # fewer take little time even if they are empty


class RowSource(Protocol):
    """Rows of features without stored zeros, which threads read by ranges.

    Features in memory, stored features and rows between two layers are sources.
    """

    @property
    def nrows(self) -> int:
        """Number of rows."""

    @property
    def ncols(self) -> int:
        """Number of columns."""

    @property
    def nvals(self) -> int:
        """Number of entries; it may be an estimate."""

    @property
    def dtype(self) -> np.dtype:
        """Dtype of the rows: float32 or float64."""

    @property
    def largest(self) -> float:
        """Upper bound of the absolute values; infinity if unknown."""

    @property
    def dense_rows(self) -> Callable[[int, int], np.ndarray] | None:
        """Function that returns a range of rows as an array; None if the rows are sparse."""

    def sparse_rows(self, start: int, stop: int, /) -> SparseRows:
        """Return rows `start` to `stop` (exclusive), whose ids are their numbers."""


class DenseRows:
    """Rows of an array of any memory order and real dtype, cast to `dtype` when read."""

    def __init__(self, array: np.ndarray, dtype: np.dtype) -> None:
        self.array, self.dtype = array, dtype
        self.nrows, self.ncols = array.shape
        self.is_as_is = array.dtype is dtype and array.flags.carray
        if not self.is_as_is:
            floating(array.dtype, "features")
            require_exact(array, dtype, "features")
            whole = not any(stride % dtype.itemsize for stride in array.strides)
            self.is_as_is = array.dtype == dtype and array.flags.aligned and whole

    @cached_property
    def nvals(self) -> int:
        """Number of entries, estimated from a sample of rows."""
        some = self.array[:: max(1, self.nrows // _SAMPLE)] != 0  # counting numbers is slow
        return round(np.count_nonzero(some) * self.nrows / max(1, len(some)))

    @cached_property
    def largest(self) -> float:
        """Largest absolute value; raises if a value is not finite."""
        largest = 0.0
        for start in range(0, self.nrows, _AT_ONCE):
            rows = self.dense_rows(start, start + _AT_ONCE)
            high, low = float(rows.max(initial=0)), float(rows.min(initial=0))
            if not math.isfinite(high - low):  # a NaN is both the highest and the lowest value
                self.require_finite(start, start + _AT_ONCE)
            largest = max(largest, high, -low)
        return largest

    def dense_rows(self, start: int, stop: int) -> np.ndarray:
        """Return rows `start` to `stop` (exclusive) as an array, a view if possible."""
        rows = self.array[start:stop]
        if self.is_as_is:
            return rows
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return rows.astype(self.dtype)

    def require_finite(self, start: int, stop: int) -> None:
        """Raise if a value in these rows is not finite or does not fit the dtype."""
        rows, n = self.array[start:stop], self.ncols
        finite(rows, self.dtype, "features", place=lambda k: (start + k // n, k % n))

    def sparse_rows(self, start: int, stop: int) -> SparseRows:
        """Return rows `start` to `stop` (exclusive)."""
        rows = as_rows(self.array[start:stop], what="features", dtype=self.dtype)
        return rows.with_ids(np.arange(start, start + rows.nrows))


@dataclass(slots=True, eq=False)
class HeldRows:
    """Sparse rows read from the caller's data: a matrix, a CSR array or a store.

    Parameters
    ----------
    nrows, ncols : int
    read : callable
        ``read(start, stop)`` returns new `SparseRows`.
    nvals : int
    largest : float
        Largest absolute value; infinity if unknown.
    dtype : float32 or float64
        Values are cast to this type.
    in_place : Matrix, optional
        Row-wise, of this dtype, with the rows and maybe stored zeros: for compiled code.
    """

    nrows: int
    ncols: int
    read: Callable[[int, int], SparseRows]
    nvals: int
    largest: float
    dtype: np.dtype
    in_place: gb.Matrix | None = None
    dense_rows: ClassVar[None] = None

    def sparse_rows(self, start: int, stop: int) -> SparseRows:
        """Return rows `start` to `stop` (exclusive)."""
        stop = min(stop, self.nrows)
        rows, ids = self.read(start, stop), np.arange(start, stop)
        values = rows.values[:1] if rows.is_iso else rows.values
        if values.dtype != self.dtype:
            require_exact(values, self.dtype, "features")
            place = SparseRows(rows.indptr, rows.columns, values, rows.ncols, ids).place
            values = finite(values, self.dtype, "features", place=place)
        converted = SparseRows(rows.indptr, rows.columns, values, rows.ncols, ids)
        return converted if values.all() else converted.without_zeros()


class HyperRows(NamedTuple):
    """The rows with entries of a hypersparse matrix of `nrows` rows, and their numbers."""

    rows: SparseRows
    ids: np.ndarray
    nrows: int

    @classmethod
    def of(cls, features: Any, dtype: np.dtype | None = None) -> HyperRows | None:
        """Return the rows of features if they are a hypersparse matrix, or its transpose."""
        if not is_graphblas(features):
            return None
        if features.nrows < _MANY_ROWS:
            return None
        held = features if _is_matrix(features) else features.T
        # As in SuiteSparse: fewer than one in 16 rows have entries.
        if not held.ss.format.startswith("hypercs") and 16 * features.nvals >= features.nrows:
            return None
        A = held.dup() if held is features else features.new()
        arrays = A.ss.export("hypercsr", give_ownership=True, sort=True)
        require_exact(arrays["values"], dtype, "features")
        columns, values = arrays["col_indices"], finite(arrays["values"], dtype, "features")
        rows = SparseRows(arrays["indptr"], columns, values, arrays["ncols"])
        return cls(rows.without_zeros(), arrays["rows"].view(np.int64), arrays["nrows"])

    def expanded(self, Y: gb.Matrix) -> gb.Matrix:
        """Return a matrix of all rows from that of the rows with entries; Y is empty afterwards."""
        rows = SparseRows.from_matrix(Y, self.ids).without_empty_rows()
        values = rows.values[:1].copy() if rows.is_iso else np.ascontiguousarray(rows.values)
        return owned(
            gb.Matrix.ss.import_hypercsr, nrows=self.nrows, ncols=rows.ncols,
            rows=rows.ids.astype(np.uint64), indptr=rows.indptr, col_indices=rows.columns,
            values=values, is_iso=rows.is_iso, sorted_cols=True,
        )  # fmt: skip


def as_source(features: Any, dtype: np.dtype, layer: tuple[int, int] | None = None) -> RowSource:
    """Return features, a result of `as_features`, as a source; raise if they are invalid.

    Arrays, row-wise matrices, CSR arrays and stores are read in place. A full matrix, or a bitmap
    with many entries, is copied to an array. Other matrices are converted. `layer` is the shape of
    the first layer, if the features must fit one.
    """
    X = _source_of(features, dtype)
    if layer is not None:
        require_columns(X.nrows, X.ncols, layer)
    return X


def require_columns(nrows: int, ncols: int, layer: tuple[int, int]) -> None:
    """Raise ShapeError if features of a shape do not fit a first layer."""
    if ncols != layer[0]:
        raise ShapeError(
            f"features are {nrows} x {ncols}, but layer 0 is {layer[0]} x {layer[1]};"
            f" pass features with {layer[0]} column{'s' * (layer[0] != 1)}"
            f"{', such as the transpose' * (nrows == layer[0])}"
            f"{', or transpose the weights, as PyTorch stores them' * (ncols == layer[1])}"
        )


def is_source(x: Any) -> bool:
    """Whether features are sparse rows or stored features, rather than a matrix."""
    return callable(getattr(type(x), "sparse_rows", None))


def dense_pays(elements: float, entries: float) -> bool:
    """Whether features or an answer with this number of entries should be an array."""
    return entries >= DENSE * elements


def _source_of(features: Any, dtype: np.dtype) -> RowSource:
    """Return features of any supported kind as a source."""
    if not isinstance(features, np.ndarray) and is_source(features):
        if features.dtype == dtype:
            return features
        nrows, ncols, read = features.nrows, features.ncols, features.sparse_rows
        return HeldRows(nrows, ncols, read, features.nvals, features.largest, dtype)
    nrows, ncols = shape_of(features, "features")
    if isinstance(features, np.ndarray):
        return DenseRows(np.asarray(features), dtype)
    floating(dtype_of(features), "features")
    require_room(8 * nrows, f"features: {nrows} x {ncols}: row pointers alone", FEWER_ROWS)
    if is_dense(features):
        return DenseRows(to_array(features), dtype)
    return _held(features, dtype) or as_rows(features, what="features", dtype=dtype)


def _held(features: Any, dtype: np.dtype) -> RowSource | None:
    """Return a source that reads a row-wise matrix or CSR array in place, if its values fit."""
    if is_scipy(features) and features.format == "csr" and _is_sound(features):
        indptr, indices, data = features.indptr, features.indices, features.data

        def read(start: int, stop: int) -> SparseRows:
            pointers = indptr[start : stop + 1]
            some = slice(int(pointers[0]), int(pointers[-1]))
            pointers = (pointers - pointers[0]).astype(np.uint64)
            columns = indices[some].astype(np.uint64)
            return SparseRows(pointers, columns, data[some].copy(), features.shape[1])

        nvals = len(indices)
        largest = max(float(data.max(initial=0)), -float(data.min(initial=0)))
    elif _reads_in_place(features):

        def read(start: int, stop: int) -> SparseRows:
            return SparseRows.from_matrix(features[start:stop, :].new(name="rows"))

        nvals, largest = int(features.nvals), _largest_of(features)
    else:
        return None
    if not largest <= float(np.finfo(dtype).max):
        return None
    nrows, ncols = features.shape
    matrix = features if is_graphblas(features) and features.dtype == dtype else None
    return HeldRows(nrows, ncols, read, nvals, largest, dtype, matrix)


def _reads_in_place(features: Any) -> bool:
    """Whether a row-wise matrix is so large that copying it takes longer than reading parts."""
    large = _is_matrix(features) and features.nrows * features.ncols > _COPIED
    return bool(large and features.ss.orientation == "rowwise")


def _is_sound(A: Any) -> bool:
    """Whether the arrays of a CSR array are consistent and its indices ascending."""
    indptr, indices, data = A.indptr, A.indices, A.data
    arrays = all(
        isinstance(each, np.ndarray) and each.ndim == 1 and each.dtype.kind in kinds
        for each, kinds in ((indptr, "iu"), (indices, "iu"), (data, "biuf"))
    )
    fits = arrays and len(indptr) == A.shape[0] + 1 and len(data) == len(indices)
    return fits and fault_of(indptr, indices, A.shape[1]) is None


def _largest_of(X: gb.Matrix) -> float:
    """Return the largest absolute value of a matrix; infinity if a value may not be finite."""
    if dtype_of(X).kind == "b":
        return 1.0
    total, highest, lowest = (
        float(X.reduce_scalar(monoid).new().get(0.0))
        for monoid in (gb.monoid.plus, gb.monoid.max, gb.monoid.min)
    )
    # max and min skip NaN, a sum does not.
    return max(highest, -lowest) if math.isfinite(total) else math.inf


def _is_matrix(features: MatrixLike) -> TypeGuard[gb.Matrix]:
    """Whether features are a ``graphblas.Matrix`` (and not its transpose)."""
    return is_graphblas(features) and type(features).__name__ != "TransposedMatrix"


def is_dense(features: MatrixLike) -> bool:
    """Whether a matrix is full, or a bitmap with many entries."""
    if not _is_matrix(features):
        return False
    kind = features.ss.format
    if kind.startswith("bitmap"):
        return dense_pays(features.nrows * features.ncols, features.nvals)
    return bool(kind.startswith("full"))
