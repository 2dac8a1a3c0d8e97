"""What a worker does: one batch, on a network that it reads once and keeps prepared.

A worker keeps few networks, the ones used last, by the checksums of their stores: a store that was
saved anew is another network. Among threads of the caller's process the caller's network keeps what
was read of it.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import OrderedDict
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.distributed.held_layers import HeldLayers
from gbdnn.distributed.messages import CompactRows, Here, StoredRange, bytes_of, taken
from gbdnn.engine.memory import layer_bytes
from gbdnn.engine.progress import RunProgress, current, watched
from gbdnn.engine.run import infer_network
from gbdnn.errors import MissingFileError
from gbdnn.kernels.fused import FUSED
from gbdnn.model.network import Network
from gbdnn.runtime.cores import cores
from gbdnn.runtime.threads import engaged

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from gbdnn.model.network import NetworkSource

__all__ = ["BatchResult", "Task", "compute", "stays_in_memory"]

_KEPT = 2
_LOADED = 8
"""A network is kept in memory if it takes at most so many times `memory`; else it is streamed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One batch, as it is submitted.

    Attributes
    ----------
    batch : int
        Its number, from 0.
    network : NetworkSource, Here[Network] or Network
        The network; of a Network itself, no layer is loaded beyond what a run needs.
    features : CompactRows, StoredRange, ndarray, or what `infer` takes
        The inputs.
    options : dict
        Of `infer`.
    folder : str, optional
        Where the worker writes the answer, a part of a store; by default it is returned.
    is_told : bool
        Whether somebody wants to know which forms compute.
    """

    batch: int
    network: NetworkSource | Here[Network] | Network
    features: Any
    options: dict[str, Any]
    folder: str | None = None
    is_told: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """The answer to one batch, and what it took; attributes as in `BatchStats`."""

    rows: CompactRows | None
    worker: str
    host: str
    inputs: int
    living: int
    entries: int
    seconds: float
    loading: float
    bytes: int
    threads: int
    cores: int
    forms: dict[str, int]
    compiling: float


class _Kept:
    """The results of a few functions, the ones used last, by a key."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self._found: OrderedDict[Any, Any] = OrderedDict()

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return what was made for the key; threads wait for the one that makes it."""
        with self._lock:
            if key not in self._found:
                while len(self._found) >= self._most:
                    self._found.popitem(last=False)
                self._found[key] = make()
            self._found.move_to_end(key)
            return self._found[key]


_NETWORKS, _FEATURES = _Kept(_KEPT), _Kept(_KEPT)


def stays_in_memory(net: Network, memory: int) -> bool:
    """Whether a worker keeps all layers of a network in memory; else it streams them."""
    return net.in_memory or sum(map(layer_bytes, net.infos)) <= _LOADED * memory


def compute(task: Task) -> BatchResult:
    """Compute one batch."""
    began = perf_counter()
    with engaged(task.options["nthreads"]):
        net = _network(task.network, task.options["memory"])
    loading = perf_counter() - began
    before = FUSED.seconds_compiling(net.dtype)
    with watched(RunProgress() if task.is_told else current()) as work:
        Y = infer_network(net, _features(task.features), **task.options)
    inputs, rows = int(Y.nrows), SparseRows.from_matrix(Y)
    living, entries = int((rows.degrees > 0).sum()), rows.nvals
    sent = None
    if task.folder is None:
        sent = CompactRows.of(rows)
    else:
        from gbdnn.io.store.parts import write_part

        write_part(task.folder, rows.matrix())
    return BatchResult(
        rows=sent,
        worker=f"{socket.gethostname()}-{os.getpid()}-{threading.get_native_id()}",
        host=socket.gethostname(),
        inputs=inputs,
        living=living,
        entries=entries,
        seconds=perf_counter() - began,
        loading=loading,
        bytes=bytes_of(task.features) + bytes_of(sent),
        threads=task.options["nthreads"],
        cores=cores(),
        forms=work.forms if task.is_told else {},
        compiling=FUSED.seconds_compiling(net.dtype) - before,
    )


def _network(given: NetworkSource | Here[Network] | Network, memory: int) -> Network:
    """Return the network, in memory if it is not too large."""
    if isinstance(given, Network):
        return given
    if isinstance(given, Here):
        net = given.shared
        reads = not net.in_memory and stays_in_memory(net, memory)
        return net.prepared(HeldLayers(0, len(net))) if reads else net

    def read() -> Network:
        net = _opened(given.network)
        return net.loaded() if stays_in_memory(net, memory) else net

    found: Network = _NETWORKS.get((given, memory), read)
    return found


def _features(given: Any) -> Any:
    """Return features as `infer` takes them."""
    if isinstance(given, CompactRows):
        return given.rows().matrix()
    if not isinstance(given, StoredRange):
        return given
    if isinstance(given.source, Here):
        stored = given.source.shared
    else:
        stored = _FEATURES.get(given.source, lambda: _opened(given.source.features))
    if given.ids is None:
        return stored[given.start : given.stop]
    ids: np.ndarray = given.ids.astype("int64")
    return taken(stored, ids).matrix()


def _opened(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except MissingFileError as err:
        raise MissingFileError(
            f"worker on {socket.gethostname()}: {err} (every worker reads the store by its path:"
            " it has to be in a file system that all of them share)"
        ) from err
