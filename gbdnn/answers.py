"""Evaluation of results: inputs with a category, and each input's largest activation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.checks import FEWER_ROWS, finite, floating, require_room, whole_number
from gbdnn.arrays.matrices import (
    as_features,
    as_matrix,
    as_rows,
    dtype_of,
    is_graphblas,
    shape_of,
    to_array,
)
from gbdnn.arrays.sources import HyperRows, is_dense, is_source
from gbdnn.errors import ArgumentError
from gbdnn.runtime.first_use import complete, gb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gbdnn.arrays.sparse_rows import SparseRows

__all__ = ["argmax", "categories"]

_AT_ONCE = 1 << 14  # rows of a store


def categories(Y: Any) -> np.ndarray:
    """Return the inputs that have a category: the rows of `Y` with a nonzero.

    Parameters
    ----------
    Y : Matrix, SciPy sparse, 2-D ndarray or StoredFeatures, shape (inputs, neurons)
        A result of `infer` or `infer_to_store`; a Vector or 1-D array is one input. Stores are read
        block by block.

    Returns
    -------
    ndarray of int64, shape (ncategories,)
        0-based ids in ascending order. (The challenge's files contain 1-based ids.)

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> gbdnn.categories(np.array([[0.0, 2.0], [0.0, 0.0], [-1.0, 0.0]]))
    array([0, 2])
    """
    Y = as_features(Y, "Y")
    if is_source(Y):
        ids = [block.ids[block.degrees > 0] for block in _blocks(Y)]
        return np.concatenate([np.zeros(0, np.int64), *ids])
    if is_graphblas(Y):
        # Keep the format: the row pointers of a hypersparse matrix may not fit into memory.
        complete(Y)
        Y = Y.dup()
        _, _, values = Y.to_coo(rows=False, columns=False)
        finite(values, None, "Y", place=lambda k: [ids[k] for ids in Y.to_coo(values=False)[:2]])
        Y = gb.select.valuene(Y, values.dtype.type(0)).new()
    else:
        Y = as_matrix(Y, what="Y", dtype=np.dtype(np.float64))
    rows, _ = Y.reduce_rowwise(gb.monoid.any).new().to_coo(values=False)
    return rows.astype(np.int64)


def argmax(Y: Any, *, dead: int = 0) -> np.ndarray:
    """Return the column of each row's largest value; values that are not stored are 0.

    Parameters
    ----------
    Y : Matrix, SciPy sparse, 2-D ndarray or StoredFeatures, shape (inputs, neurons)
        As for `categories`, with at least one neuron.
    dead : int, default 0
        Returned for rows without entries other than 0, which have no largest value: those that
        `categories` does not return. -1 distinguishes them from class 0.

    Returns
    -------
    ndarray of int64, shape (inputs,)
        0-based; the first of equal values, as in `numpy.argmax`; `dead` for rows without entries.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> gbdnn.argmax(np.array([[0.0, 2.0], [0.0, 0.0], [-1.0, 0.0], [-1.0, -0.5]]))
    array([1, 0, 1, 1])
    >>> gbdnn.argmax(np.array([[0.0, 2.0], [0.0, 0.0]]), dead=-1)
    array([ 1, -1])
    """
    if dead := whole_number(dead, "dead", least=-1):
        alive, columns = categories(Y), argmax(Y)
        chosen = np.full(len(columns), dead)
        chosen[alive] = columns[alive]
        return chosen
    Y = as_features(Y, "Y")
    is_stored = is_source(Y)
    nrows, ncols = (Y.nrows, Y.ncols) if is_stored else shape_of(Y, "Y")
    if ncols == 0:
        raise ArgumentError(f"argmax: Y is {nrows} x 0; at least one column is required")
    if isinstance(Y, np.ndarray) or is_dense(Y):
        values = np.asarray(Y) if isinstance(Y, np.ndarray) else to_array(Y)
        floating(values.dtype, "Y")
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            finite(values, None, "Y")
        return np.argmax(values, axis=1)
    if is_stored:
        return np.concatenate([np.zeros(0, np.int64), *map(_argmax, _blocks(Y))])
    own = dtype_of(Y)  # integers stay integers: FP32 cannot represent all of them
    dtype = own if own.kind in "biu" else None
    require_room(8 * nrows, f"argmax: Y is {nrows} x {ncols}: its rows", FEWER_ROWS)
    if (hyper := HyperRows.of(Y, dtype)) is not None:
        chosen = np.zeros(nrows, np.int64)
        chosen[hyper.ids] = _argmax(hyper.rows)
        return chosen
    return _argmax(as_rows(Y, what="Y", dtype=dtype))


def _blocks(Y: Any) -> Iterator[Any]:
    starts = range(0, Y.nrows, _AT_ONCE)
    return (Y.sparse_rows(k, min(k + _AT_ONCE, Y.nrows)) for k in starts)


def _argmax(rows_of_Y: SparseRows) -> np.ndarray:
    nrows, ncols = rows_of_Y.nrows, rows_of_Y.ncols
    columns, values = rows_of_Y.columns.view(np.int64), rows_of_Y.values
    starts, counts = rows_of_Y.indptr[:-1].view(np.int64), rows_of_Y.degrees
    rows = np.repeat(np.arange(nrows), counts)

    # The first column that is not stored (0): where the columns differ from 0, 1, 2, ...
    place = np.arange(rows.size) - np.repeat(starts, counts)
    best = np.bincount(rows[columns == place], minlength=nrows)
    value = np.where(best < ncols, 0.0, -np.inf)

    # The first column with the row's largest stored value, if that exceeds 0.
    some = np.flatnonzero(counts)
    if some.size:
        largest = np.maximum.reduceat(values, starts[some])
        hit = np.flatnonzero(values == np.repeat(largest, counts[some]))
        _, first = np.unique(rows[hit], return_index=True)
        wins = largest > value[some]
        best[some[wins]] = columns[hit[first]][wins]
    return best
