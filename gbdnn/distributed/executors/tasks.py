"""Tasks: batches of inputs, as sent by the caller and computed by a worker.

A stored network or store of features is sent as its path and checksum. A worker caches the two most
recently used networks with their prepared weights. Rows in memory are sent as `CompactRows`.
Threads of the caller's process get the objects themselves.
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.matrices import as_features
from gbdnn.arrays.sources import as_source
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.distributed.rows import CompactRows
from gbdnn.distributed.stats import BatchStats
from gbdnn.engine.progress import RunProgress, current, watched
from gbdnn.engine.run import infer_network
from gbdnn.engine.sizes import layer_bytes
from gbdnn.errors import ArgumentError, MissingFileError
from gbdnn.model.network import Network
from gbdnn.runtime.forks import new_lock
from gbdnn.runtime.threads import engaged, restored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gbdnn.distributed.executors.workers import Workers
    from gbdnn.io.store.features import StoredFeatures
    from gbdnn.io.store.folder import Address
    from gbdnn.model.network import NetworkSource

__all__ = [
    "SentFeatures",
    "Task",
    "compute",
    "require_readable",
    "sent_network",
    "stays_in_memory",
    "stored",
]

_LOADED = 8  # times `memory`: larger networks are streamed


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One batch, as it is submitted.

    Attributes
    ----------
    batch : int
        Its number, from 0.
    network : NetworkSource or Network
        The network, or where the worker reads it.
    features : CompactRows, StoredRange, ndarray, or what `infer` takes
        The inputs.
    options : dict
        Options of `infer_network`.
    part : str, optional
        Index of the part of a store into which the worker writes the answer; by default the answer
        is returned.
    """

    batch: int
    network: NetworkSource | Network
    features: Any
    options: dict[str, Any]
    part: str | None = None


@dataclass(frozen=True, slots=True)
class StoredRange:
    """Consecutive rows of a store, which the worker reads."""

    address: Address
    start: int
    stop: int


class SentFeatures:
    """The features of one call, of which each task gets some rows.

    Attributes
    ----------
    nrows : int
        Number of inputs.
    source : object, optional
        Where another process reads them; None if they are in memory.
    start : int
        Their first row in the store.
    """

    def __init__(self, features: Any, net: Network, workers: Workers | None = None) -> None:
        features = as_features(features, "features")
        X: Any = as_source(features, net.infos[0].dtype, net.infos[0].shape)
        self.nrows, self._X = X.nrows, X
        self.source = getattr(features, "source", None)
        self.start = getattr(features, "start", 0)
        self._stored: Any = None  # read by threads of this process
        if self.source is not None and workers is not None and workers.shares_memory:
            self._stored = getattr(features, "features", features)
        self._all: SparseRows | None = None
        self._array: np.ndarray | None = None
        if isinstance(features, np.ndarray):
            self._array = features  # its dtype may be smaller than the network's
        elif X.dense_rows is not None:
            self._array = X.dense_rows(0, X.nrows)

    def rows(self, start: int, stop: int) -> Any:
        """Return the features of a task for rows `start` to `stop` (exclusive)."""
        if self.source is not None:
            start, stop = self.start + start, self.start + stop
            if self._stored is not None:
                return self._stored[start:stop]
            return StoredRange(self.source, start, stop)
        if self._array is not None:
            return self._array[start:stop]
        return CompactRows.of(self._X.sparse_rows(start, stop))

    def take(self, ids: np.ndarray) -> Any:
        """Return the features of a task for rows with these ids; all rows are kept in memory."""
        if self._array is not None:
            return self._array[ids]
        if self._all is None:
            self._all = self._X.sparse_rows(0, self.nrows)
        return CompactRows.of(self._all.take(ids))


def stays_in_memory(net: Network, memory: int) -> bool:
    """Whether a worker loads all layers of a network; otherwise it streams them."""
    return net.in_memory or sum(map(layer_bytes, net.infos)) <= _LOADED * memory


def require_readable(net: Network, workers: Workers) -> None:
    """Raise ArgumentError if the workers cannot read the network."""
    if net.source is None and not (workers.shares_memory or workers.are_processes_here):
        raise ArgumentError(
            "the network is in memory, and the workers may be on other machines; save it to a file"
            " system that they share and load it from there: gbdnn.save(net, folder); net ="
            " gbdnn.load(folder)"
        )


@contextmanager
def sent_network(net: Network, workers: Workers, memory: int) -> Iterator[Network | NetworkSource]:
    """Yield the form in which a task holds a network: itself for threads, otherwise its source."""
    require_readable(net, workers)
    if workers.shares_memory:
        yield net.loaded() if stays_in_memory(net, memory) else net
        return
    with stored(net) as net:
        source: Any = net.source
        yield source


@contextmanager
def stored(net: Network) -> Iterator[Network]:
    """Yield the network from its store, or from a temporary store on this machine."""
    if net.source is not None:
        yield net
        return
    from gbdnn.io.store.folder import Reader
    from gbdnn.io.store.network import read_network, write_network

    with tempfile.TemporaryDirectory(prefix="gbdnn-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "network"
        write_network(net, path)
        yield read_network(Reader(path))


def compute(task: Task) -> tuple[CompactRows | None, BatchStats]:
    """Compute one batch; return the answer, or None if it was written, and a record."""
    began = perf_counter()
    options = task.options
    with restored(), engaged(options["nthreads"]):
        net = _network(task.network, options["memory"])
        X = as_source(_features(task.features), net.infos[0].dtype, net.infos[0].shape)
    work = current() if current().is_watched else RunProgress()
    before = dict(work.kernels)
    with watched(work):
        Y = infer_network(net, X, **options)
    rows = SparseRows.from_matrix(Y)
    inputs, alive, entries = rows.nrows, int((rows.degrees > 0).sum()), rows.nvals
    sent = None
    if task.part is None:
        sent = CompactRows.of(rows)
    else:
        from gbdnn.io.store.parts import write_part

        write_part(task.part, rows.matrix())
    return sent, BatchStats(
        batch=task.batch,
        worker=f"{socket.gethostname()}-{os.getpid()}-{threading.get_native_id()}",
        inputs=inputs,
        alive=alive,
        entries=entries,
        seconds=perf_counter() - began,
        bytes=int(getattr(task.features, "nbytes", 0)) + (0 if sent is None else sent.nbytes),
        threads=options["nthreads"],
        kernels={kernel: edges - before.get(kernel, 0) for kernel, edges in work.kernels.items()},
        done=0,
        batches=None,
    )


_READING = new_lock()  # one thread of a worker reads, the others wait for it


def _network(sent: NetworkSource | Network, memory: int) -> Network:
    if isinstance(sent, Network):
        return sent
    with _READING:
        return _read_network(sent, memory)


@lru_cache(maxsize=2)
def _read_network(source: NetworkSource, memory: int) -> Network:
    net: Network = _opened(source.network)
    return net.loaded() if stays_in_memory(net, memory) else net


@lru_cache(maxsize=2)
def _read_features(address: Address) -> StoredFeatures:
    from gbdnn.io.store.features import StoredFeatures

    return StoredFeatures(_opened(address.reader))


def _features(sent: Any) -> Any:
    """Return the features of a task in the form that `as_source` takes."""
    if isinstance(sent, CompactRows):
        return sent.rows(np.arange(len(sent.indptr) - 1))
    if not isinstance(sent, StoredRange):
        return as_features(sent, "features")
    with _READING:
        features = _read_features(sent.address)
    return features[sent.start : sent.stop]


def _opened(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except MissingFileError as err:
        raise MissingFileError(
            f"worker on {socket.gethostname()}: {err}; every worker reads the store by its path,"
            " which must be in a file system that all of them share"
        ) from err
