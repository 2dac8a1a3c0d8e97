"""Inputs in minibatches: some rows of features, in any order, as an array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gbdnn.distributed.rows import taken
from gbdnn.engine.sources import DenseRows, as_source
from gbdnn.io.store import features

if TYPE_CHECKING:
    from gbdnn.arrays.sparse_rows import SparseRows
    from gbdnn.engine.sources import RowSource
    from gbdnn.model.network import Network

__all__ = ["MEMORY", "Inputs", "StoredInputs", "as_inputs"]

MEMORY = 4 << 30
"""Bytes for rows of a store, by default."""

_COPIES = 3  # of rows that are put together


class Inputs(Protocol):
    """Features that minibatches are taken from."""

    nrows: int

    @property
    def array(self) -> np.ndarray | None:
        """All features as an array of the network's dtype, if that is what they are."""
        ...

    def take(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Write some rows into an array of shape (rows, neurons)."""
        ...


class ArrayInputs:
    """Rows of a caller's array, which is only read.

    Parameters
    ----------
    array : ndarray, shape (inputs, neurons)
        Finite.
    dtype : float32 or float64
        What rows are cast to.
    """

    def __init__(self, array: np.ndarray, dtype: np.dtype) -> None:
        self._array, self._dtype = array, dtype
        self.nrows = len(array)
        whole = not any(stride % dtype.itemsize for stride in array.strides)
        as_it_is = array.dtype == dtype and array.dtype.isnative and array.flags.aligned and whole
        self.array = array if as_it_is else None

    def take(self, rows: np.ndarray, out: np.ndarray) -> None:
        """See `Inputs`."""
        out[:] = self._array[rows]


class SparseInputs:
    """Sparse rows; a minibatch of them becomes an array.

    Parameters
    ----------
    rows : SparseRows
    """

    array = None

    def __init__(self, rows: SparseRows) -> None:
        self.nrows = rows.nrows
        self._starts, self._degrees = rows.indptr.view(np.int64)[:-1], rows.degrees
        self._columns, self._values = rows.columns.view(np.int64), rows.values

    def take(self, rows: np.ndarray, out: np.ndarray) -> None:
        """See `Inputs`."""
        degrees = self._degrees[rows]
        ends = np.cumsum(degrees)
        at = np.repeat(self._starts[rows] - ends + degrees, degrees) + np.arange(degrees.sum())
        out[:] = 0
        out[np.repeat(np.arange(len(rows)), degrees), self._columns[at]] = self._values[at]


class StoredInputs:
    """Rows of a store, which is read in order for as many minibatches at a time as there is room.

    Parameters
    ----------
    rows : RowSource
    memory : int
        Bytes for the rows that are held at a time, and for putting them together.
    """

    array = None

    def __init__(self, rows: RowSource, memory: int) -> None:
        self.nrows, self._source = rows.nrows, rows
        self._room = max(1, memory * rows.nrows // max(1, _COPIES * _nbytes(rows)))
        # Rows that are read at a time: as many entries as a part of a store has.
        self._step = max(1, min(1 << 14, features.PART * rows.nrows // max(1, int(rows.nvals))))
        self._ids = self._following = np.arange(0)

    def expect(self, rows: np.ndarray) -> None:
        """Hear which rows will be taken, in this order, a minibatch after the other."""
        self._following = rows

    def take(self, rows: np.ndarray, out: np.ndarray) -> None:
        """See `Inputs`."""
        if not np.isin(rows, self._ids).all():
            self._hold = SparseInputs(taken(self._source, rows[:0]))  # what was held is freed
            room = max(1, self._room // len(rows)) * len(rows)  # whole minibatches
            expected = np.array_equal(self._following[: len(rows)], rows)
            some, self._following = np.split(self._following if expected else rows, [room])
            self._ids = np.sort(some)
            self._hold = SparseInputs(taken(self._source, self._ids, self._step))
        self._hold.take(np.searchsorted(self._ids, rows), out)


def as_inputs(X: Any, net: Network, memory: int) -> Inputs:
    """Return features to take minibatches from, or raise what is wrong with them.

    Sparse features stay sparse; those of a store are read at once if they fit into so many bytes; a
    dense matrix is read as an array.
    """
    source = as_source(X, net)
    dtype = net.infos[0].dtype
    if isinstance(source, DenseRows):
        source.largest  # noqa: B018 -- looks at all values, and refuses those that are not finite
        array = source.array
        if array is not None:
            return ArrayInputs(array, dtype)
    if hasattr(X, "sparse_rows") and _COPIES * _nbytes(source) > memory:
        return StoredInputs(source, memory)
    return SparseInputs(source.sparse_rows(0, source.nrows))


def _nbytes(rows: RowSource) -> int:
    return 8 * rows.nrows + (8 + rows.dtype.itemsize) * int(rows.nvals)
