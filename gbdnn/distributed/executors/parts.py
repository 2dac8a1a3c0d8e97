"""Write the answers of workers to a store, part by part; an interrupted call can be resumed."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn._version import __version__
from gbdnn.distributed.executors.batches import FEWEST, computed, cuts
from gbdnn.distributed.executors.tasks import SentFeatures, Task, sent_network, stays_in_memory
from gbdnn.engine.sizes import layer_bytes
from gbdnn.io.store.fingerprints import of_features, of_network

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.distributed.executors.workers import Workers
    from gbdnn.io.store.features import StoredFeatures
    from gbdnn.model.network import Network

__all__ = ["infer_to_store_over"]

_PARTS = 64
_PART, _LARGE_PART = 16_384, 65_536
"""Default inputs per part, of shallow networks and of deep or streamed ones.

Each part reads all weights. This costs as much as about 500 inputs in a shallow network, and 7,000
in a deep one in which most inputs die early (4096 neurons, 480 layers, 2 cores: 3.4 s for 20,000
inputs at once, 4.8 s in two parts).
"""

_SHALLOW = 120  # layers


def infer_to_store_over(
    net: Network,
    features: MatrixLike,
    path: str | os.PathLike[str],
    workers: Workers,
    *,
    batch_size: int | None,
    replace: bool,
    progress: Callable[[int, int], object] | None,
    options: dict[str, Any],
) -> StoredFeatures:
    """Write the activations of the last layer to a store; see `gbdnn.infer_to_store`."""
    from gbdnn.io.store.features import open_features
    from gbdnn.io.store.parts import writing_parts

    X = SentFeatures(features, net, workers)
    run = _run(net, X, options)
    memory = options["memory"]
    size = batch_size or workers.batch_size
    starts = cuts(X.nrows, 1, size or _part_size(net, X.nrows, workers, memory)).tolist()
    with (
        writing_parts(path, run, starts, batch=size, replace=replace) as parts,
        ExitStack() as stack,
    ):
        if parts.is_finished:
            if progress is not None:
                progress(X.nrows, X.nrows)
            return open_features(path)
        missing = parts.missing()
        sizes = np.diff(parts.starts)
        network: Any
        if workers.is_caller:
            network = net if _is_streamed(net, memory) else net.loaded()
        else:
            network = stack.enter_context(sent_network(net, workers, memory))
        done = X.nrows - int(sizes[missing].sum())

        def tasks() -> Iterator[Task]:
            for k in missing:
                rows = X.rows(*parts.starts[k : k + 2])
                yield Task(
                    batch=k, network=network, features=rows, options=options,
                    part=str(parts.path(k)),
                )  # fmt: skip

        if progress is not None:
            progress(done, X.nrows)
        for task, _ in computed(workers, tasks(), batches=len(missing)):
            done += int(sizes[task.batch])
            if progress is not None:
                progress(done, X.nrows)
        parts.finish((X.nrows, net.shape[1]), np.dtype(net.infos[0].dtype))
    return open_features(path)


def _run(net: Network, X: SentFeatures, options: dict[str, Any]) -> dict[str, str]:
    """Return the identity of a run: content hashes, options and the version."""
    return {
        "network": of_network(net),
        "features": of_features(X),
        "engine": str(options["engine"]),
        "deduplicate": str(options["deduplicate"]),
        "version": __version__,
    }


def _part_size(net: Network, inputs: int, workers: Workers, memory: int) -> int:
    """Return the default minimum size of a part."""
    if workers.is_caller:
        is_deep = len(net) > _SHALLOW or _is_streamed(net, memory)
        return _LARGE_PART if is_deep else _PART
    size = max(FEWEST, min(_PART, inputs // _PARTS))
    if net.source is None or stays_in_memory(net, memory):
        return size
    return min(_LARGE_PART, max(size, inputs // workers.count))


def _is_streamed(net: Network, memory: int) -> bool:
    """Whether the caller reads the network again for every part, in several windows."""
    return not net.in_memory and sum(map(layer_bytes, net.infos)) > memory // 4
