"""What travels between a caller and its workers: networks, features and answers, as few bytes.

A stored network or store of features travels as its path and checksum; rows in memory with indices
of as many bits as the number of columns needs, an eighth to a half of those of a pickled matrix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from gbdnn.arrays.matrices import as_held
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.engine.sources import as_source
from gbdnn.errors import ArgumentError

if TYPE_CHECKING:
    from gbdnn.distributed.executors.workers import Workers
    from gbdnn.model.network import Network, NetworkSource

T = TypeVar("T")

__all__ = [
    "CompactRows",
    "Here",
    "SentFeatures",
    "StoredRange",
    "as_sent",
    "bytes_of",
    "network_to_send",
]


@dataclass(frozen=True, slots=True)
class CompactRows:
    """Sparse rows with the smallest indices that their numbers fit into.

    Between ranks (`gbdnn.distributed.mpi.transport`), and between a caller and its workers.

    Attributes
    ----------
    indptr, columns : ndarray of unsigned integers
        As in `SparseRows`, of 8 to 64 bits; no columns where every row is full.
    values : ndarray
        A single one where all entries have it.
    ncols : int
        Number of columns.
    ids : ndarray of unsigned integers, optional
        The inputs' numbers, if they are not those from 0.
    """

    indptr: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    ncols: int
    ids: np.ndarray | None = None

    @classmethod
    def of(cls, rows: SparseRows, ids: np.ndarray | None = None) -> CompactRows:
        """Return the rows, with these ids."""
        is_full = rows.nvals == rows.nrows * rows.ncols
        columns = rows.columns[:0] if is_full else rows.columns
        return cls(
            rows.indptr.astype(np.min_scalar_type(rows.nvals)),
            columns.astype(np.min_scalar_type(max(0, rows.ncols - 1))),
            rows.values[:1].copy() if rows.is_iso else np.ascontiguousarray(rows.values),
            rows.ncols,
            None if ids is None else ids.astype(np.min_scalar_type(ids.max(initial=0))),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        ids = 0 if self.ids is None else self.ids.nbytes
        return self.indptr.nbytes + self.columns.nbytes + self.values.nbytes + ids

    def rows(self, ids: np.ndarray | None = None) -> SparseRows:
        """Return them as sparse rows with these ids, by default their own."""
        indptr, columns = self.indptr.astype(np.uint64), self.columns.astype(np.uint64)
        if len(columns) < indptr[-1]:
            columns = np.tile(np.arange(self.ncols, dtype=np.uint64), len(indptr) - 1)
        if ids is None and self.ids is not None:
            ids = self.ids.astype(np.int64)
        return SparseRows(indptr, columns, self.values, self.ncols, ids)


@dataclass(frozen=True, slots=True)
class StoredRange:
    """Rows of a store, which the worker reads: a range, or the ones with these ids."""

    source: Any
    start: int
    stop: int
    ids: np.ndarray | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the ids."""
        return 0 if self.ids is None else int(self.ids.nbytes)


@dataclass(frozen=True, slots=True, eq=False)
class Here(Generic[T]):
    """What threads of the caller's process share: a network, or stored features.

    What a thread reads of it is kept by it, and freed with it.
    """

    shared: T


def bytes_of(features: Any) -> int:
    """Return how many bytes of features a task holds."""
    return int(getattr(features, "nbytes", 0))


def network_to_send(net: Network, workers: Workers) -> Here[Network] | NetworkSource:
    """Return what a task holds of a network: itself among threads, else where it is stored."""
    if workers.shares_memory:
        return Here(net)
    if net.source is None:
        raise ArgumentError(
            "executor= with a network that is not in a store, and workers that may be on other"
            " machines: its weights would go with every batch. Save it where all workers can read"
            " it, and load it: gbdnn.save(net, folder); net = gbdnn.load(folder)"
        )
    return net.source


class SentFeatures:
    """Features of one call, of which workers get some rows each.

    Parameters
    ----------
    features : MatrixLike, or stored features
        As for `infer`.
    net : Network
        Whose first layer reads them.
    workers : Workers, optional
        Who gets them.
    room : float
        Bytes for an array that is made of a matrix with many entries, as `infer` makes one.

    Attributes
    ----------
    nrows : int
        Number of inputs.
    source : object, optional
        Of the store that the features are in; None for those in memory.
    start : int
        The first of its rows.
    """

    def __init__(
        self,
        features: Any,
        net: Network,
        workers: Workers | None = None,
        room: float = math.inf,
    ) -> None:
        features = as_held(features, "features")
        X: Any = as_source(features, net, room=room)
        self.nrows = X.nrows
        self._array: np.ndarray | None = None
        if isinstance(features, np.ndarray):
            self._array = features  # its own dtype may be the smaller one
        elif hasattr(X, "dense_rows"):
            self._array = X.dense_rows(0, X.nrows)
        self._X, self.source, self.start = X, None, 0
        self._sent: Any = None
        if hasattr(features, "source"):  # in a store: all, or some of its rows
            self.source, self.start = features.source, getattr(features, "start", 0)
            shares_memory = workers is not None and workers.shares_memory
            whole = getattr(features, "features", features)
            self._sent = Here(whole) if shares_memory else features.source

    def read_in_full(self) -> int:
        """Return the values that a worker reads for any batch of scattered rows, if they are many.

        A store is read part by part, and the last part is kept: 0 where there is one part alone,
        and for rows in memory.
        """
        if self.source is None:
            return 0
        from gbdnn.io.store.features import PART

        nvals = int(self._X.nvals)
        return nvals if max(nvals, self.nrows) > PART else 0

    def rows(self, start: int, stop: int) -> Any:
        """Return what a task holds of rows `start` to before `stop`."""
        if self.source is not None:
            return StoredRange(self._sent, self.start + start, self.start + stop)
        if self._array is not None:
            return self._array[start:stop]
        return CompactRows.of(self._X.sparse_rows(start, stop))

    def take(self, ids: np.ndarray) -> Any:
        """Return what a task holds of some rows."""
        if self.source is not None:
            within = self.start + ids
            small = within.astype(np.min_scalar_type(self.start + self.nrows))
            return StoredRange(self._sent, int(within[0]), int(within[-1]) + 1, small)
        if self._array is not None:
            return self._array[ids]
        return CompactRows.of(taken(self._X, ids))


def as_sent(features: Any, net: Network) -> Any:
    """Return what a task holds of all rows of some features."""
    found = SentFeatures(features, net)
    return found.rows(0, found.nrows)


def taken(features: Any, ids: np.ndarray, step: int = 1 << 14) -> SparseRows:
    """Return the rows with these ascending ids, read range by range."""
    found = []
    for start in range(int(ids[0]) if len(ids) else 0, int(ids[-1]) + 1 if len(ids) else 0, step):
        some = ids[np.searchsorted(ids, start) : np.searchsorted(ids, start + step)]
        if len(some):
            rows = features.sparse_rows(start, min(start + step, features.nrows))
            found.append(rows.take(some - start))
    return SparseRows.joined(found) if found else features.sparse_rows(0, 0)
