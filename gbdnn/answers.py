"""What a result says: which inputs have a category, and which neuron answers loudest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import graphblas as gb
import numpy as np

from gbdnn.errors import ArgumentError
from gbdnn.matrices import as_matrix

if TYPE_CHECKING:
    from gbdnn.matrices import MatrixLike

__all__ = ["argmax", "categories"]


def categories(Y: MatrixLike) -> np.ndarray:
    """Return the inputs that have a category: the rows of `Y` with any entry.

    Parameters
    ----------
    Y : Matrix, SciPy sparse or 2-D ndarray, shape (inputs, neurons)
        A result of `infer`. Negative values count, stored zeros do not.

    Returns
    -------
    ndarray of int64, shape (ncategories,)
        0-based ids in ascending order. (The challenge's files count from 1.)

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> gbdnn.categories(np.array([[0.0, 2.0], [0.0, 0.0], [-1.0, 0.0]]))
    array([0, 2])
    """
    Y = as_matrix(Y, what="Y")
    rows, _ = Y.reduce_rowwise(gb.monoid.any).new().to_coo(values=False)
    return rows.astype(np.int64)


def argmax(Y: MatrixLike) -> np.ndarray:
    """Return the column of each row's largest value, where what is not stored counts as 0.

    Parameters
    ----------
    Y : Matrix, SciPy sparse or 2-D ndarray, shape (inputs, neurons)
        A result of `infer`, with at least one neuron.

    Returns
    -------
    ndarray of int64, shape (inputs,)
        0-based; the first column where several are equal, as `numpy.argmax` has it. A row without
        entries gives 0.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> gbdnn.argmax(np.array([[0.0, 2.0], [0.0, 0.0], [-1.0, 0.0], [-1.0, -0.5]]))
    array([1, 0, 1, 1])
    """
    Y = as_matrix(Y, what="Y")
    if Y.ncols == 0:
        raise ArgumentError(f"argmax: Y is {Y.nrows} x 0; there is no column to choose")
    rows, columns, values = (np.asarray(a) for a in Y.to_coo(sort=True))
    columns = columns.astype(np.int64)
    starts = np.searchsorted(rows, np.arange(Y.nrows, dtype=rows.dtype))
    counts = np.diff(np.append(starts, rows.size))

    # The first column that is not stored, its value 0: where columns stop being 0, 1, 2, ...
    place = np.arange(rows.size) - np.repeat(starts, counts)
    best = np.bincount(rows[columns == place].astype(np.int64), minlength=Y.nrows)
    value = np.where(best < Y.ncols, 0.0, -np.inf)

    # The first stored column that holds the row's largest stored value, if that beats 0.
    some = np.flatnonzero(counts)
    if some.size:
        largest = np.maximum.reduceat(values, starts[some])
        hit = np.flatnonzero(values == np.repeat(largest, counts[some]))
        _, first = np.unique(rows[hit], return_index=True)
        wins = largest > value[some]
        best[some[wins]] = columns[hit[first]][wins]
    return best
