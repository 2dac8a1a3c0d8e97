"""Features as a run reads them: some rows at a time, by the threads that compute.

A caller's ``graphblas.Matrix`` of the network's dtype is read where it is: nothing is copied but
the rows of a block, at the moment they are wanted. All else is converted first.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import graphblas as gb
import numpy as np

from gbdnn.arrays.matrices import as_compressed, dtype_of, is_graphblas, require_room, shape_of
from gbdnn.arrays.sparse_rows import SparseRows, rows_of_arrays, rows_of_matrix
from gbdnn.errors import ShapeError

if TYPE_CHECKING:
    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.model.network import Network

__all__ = ["Features", "as_features"]


class Features:
    """Rows of a caller's matrix, which is only read.

    Parameters
    ----------
    X : Matrix
        Row-wise, of the network's dtype, finite.
    largest : float
        The largest absolute value.

    Attributes
    ----------
    inputs : ndarray
        The ids of the inputs, 0 to nrows - 1.
    nvals : int
        Number of entries.
    """

    def __init__(self, X: gb.Matrix, largest: float) -> None:
        self._X = X
        self.largest = largest
        self.inputs = np.arange(X.nrows)
        self.nvals = int(X.nvals)
        self._is_iso = bool(X.ss.is_iso)

    def rows(self, start: int, stop: int) -> SparseRows:
        """Return rows `start` to `stop`, without stored zeros."""
        rows = self._X[start:stop, :].new(name="rows")
        piece = rows_of_matrix(rows, self.inputs[start:stop])
        values = piece.values[:1] if self._is_iso else piece.values
        if (values == 0).any():
            zero = piece.values.dtype.type(0)
            return rows_of_matrix(gb.select.valuene(piece.matrix(), zero).new(), piece.inputs)
        return piece


def as_features(features: MatrixLike, net: Network) -> Features | SparseRows:
    """Return the features in the network's dtype, or say why they do not fit."""
    nrows, ncols = shape_of(features, "features")
    first = net.infos[0]
    if ncols != first.nrows:
        raise ShapeError(
            f"features are {nrows} x {ncols} but layer 0, {first.nrows} x {first.ncols},"
            f" reads {first.nrows} neurons"
        )
    require_room(8 * nrows, f"features: {nrows} x {ncols}: row pointers alone")
    if _is_readable(features, net.dtype):
        largest = _largest(features)
        if math.isfinite(largest):
            return Features(features, largest)
    return rows_of_arrays(as_compressed(features, what="features", dtype=net.dtype), ncols)


def _is_readable(features: MatrixLike, dtype: np.dtype | None) -> bool:
    """Whether rows can be taken from a matrix as it is."""
    return (
        is_graphblas(features)
        and not isinstance(features, gb.core.matrix.TransposedMatrix)
        and dtype_of(features) == dtype
        and features.ss.orientation == "rowwise"
        and features.nrows > 0
    )


def _largest(X: gb.Matrix) -> float:
    """Return the largest absolute value, 0 if there is none; not finite if some value is not."""
    X.wait()  # threads that read a matrix with work pending would all do it
    total, highest, lowest = (
        X.reduce_scalar(monoid).new().get(0.0)
        for monoid in (gb.monoid.plus, gb.monoid.max, gb.monoid.min)
    )
    # max and min pass over a NaN; a sum does not (where it overflows, the values are looked at).
    return max(highest, -lowest) if math.isfinite(total) else math.inf
