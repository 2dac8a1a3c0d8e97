"""A network in memory, for workers that are other processes: a temporary store that they read."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gbdnn.io.store.network import read_network, write_network
from gbdnn.io.store.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gbdnn.distributed.executors.workers import Workers
    from gbdnn.model.network import Network

__all__ = ["readable"]


@contextmanager
def readable(network: Network, workers: Workers | None = None) -> Iterator[Network]:
    """Give the network as workers can read it: from its store, or from a temporary one.

    Of `workers` only processes of this machine need one, and can read it.
    """
    if network.source is not None or not (workers is None or workers.are_processes_here):
        yield network
        return
    with tempfile.TemporaryDirectory(prefix="gbdnn-") as folder:
        path = Path(folder) / "network"
        write_network(network, path, None)
        yield read_network(Reader(path))
