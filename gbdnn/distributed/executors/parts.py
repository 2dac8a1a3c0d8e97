"""Answers that workers write into one store, part by part; a second call computes the rest."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn._version import __version__
from gbdnn.distributed.executors.batches import LARGE_PART, computed, cuts, part_size
from gbdnn.distributed.executors.tasks import SentFeatures, Task, sent_network, stays_in_memory
from gbdnn.engine.memory import Budget, layer_bytes, least_memory
from gbdnn.engine.prefetch import cuts as windows
from gbdnn.io.store.fingerprints import of_features, of_network

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.distributed.executors.workers import Workers
    from gbdnn.distributed.stats import BatchStats
    from gbdnn.io.store.features import StoredFeatures
    from gbdnn.model.network import Network

__all__ = ["infer_to_store_over"]

_SHALLOW = 120  # layers
_PART = 16_384
"""Inputs of a part of a shallow network: another pass over its weights costs some 500 inputs."""


def infer_to_store_over(
    net: Network,
    features: MatrixLike,
    path: str | os.PathLike[str],
    workers: Workers,
    *,
    batch: int | None,
    restart: bool,
    stats: Callable[[BatchStats], object] | None,
    progress: Callable[[int, int], object] | None,
    options: dict[str, Any],
) -> StoredFeatures:
    """Write the activations after the last layer into a store; see `gbdnn.infer_to_store`."""
    from gbdnn.io.store.features import open_features
    from gbdnn.io.store.parts import PartWriter

    X = SentFeatures(features, net, workers)
    run = _run(net, X, options)
    memory = options["memory"]
    starts = cuts(X.nrows, 1, batch or _part_size(net, X.nrows, workers, memory)).tolist()
    with (
        PartWriter(path, run, starts, batch=batch, restart=restart) as parts,
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
            network, options = _network(net, memory, int(sizes.max()), options)
        else:
            network = stack.enter_context(sent_network(net, workers, memory))
        done = X.nrows - int(sizes[missing].sum())

        def tasks() -> Iterator[Task]:
            for k in missing:
                rows = X.rows(*parts.starts[k : k + 2])
                yield Task(
                    batch=k, network=network, features=rows, options=options,
                    part=str(parts.part(k)),
                )  # fmt: skip

        if progress is not None:
            progress(done, X.nrows)
        for task, _ in computed(
            workers,
            tasks(),
            in_order=False,
            batches=len(missing),
            stats=stats,
            advice=f"Complete parts are kept in {path}; the same call with a new executor computes"
            " the others",
        ):
            done += int(sizes[task.batch])
            if progress is not None:
                progress(done, X.nrows)
        parts.finish_parts((X.nrows, net.shape[1]), np.dtype(net.infos[0].dtype))
    return open_features(path)


def _run(net: Network, X: SentFeatures, options: dict[str, Any]) -> dict[str, str]:
    """Return what identifies the run: content hashes, options and the version."""
    return {
        "network": of_network(net),
        "features": of_features(X),
        "engine": str(options["engine"]),
        "compress": str(options["compress"]),
        "version": __version__,
    }


def _part_size(net: Network, inputs: int, workers: Workers, memory: int) -> int:
    """Return the default of the least size of a part."""
    if workers.is_caller:
        is_deep = len(net) > _SHALLOW or _is_streamed(net, memory)
        return LARGE_PART if is_deep else _PART
    if net.source is None or stays_in_memory(net, memory):
        return part_size(inputs)
    return min(LARGE_PART, max(part_size(inputs), inputs // workers.count))


def _is_streamed(net: Network, memory: int) -> bool:
    """Whether `infer` reads a network in more than one window."""
    room = Budget.divided(memory, in_memory=False).layers // 2
    return not net.in_memory and len(windows(net.infos, room)) > 1


def _network(
    net: Network, memory: int, inputs: int, options: dict[str, Any]
) -> tuple[Network, dict[str, Any]]:
    """Return the network for parts of up to so many inputs, and their options.

    The caller itself reads once what it would read, in one window, for every part; the memory for
    layers is then taken, if what is left is enough for a part.
    """
    left = memory - sum(map(layer_bytes, net.infos))
    if net.in_memory or _is_streamed(net, memory) or left < least_memory(net.infos, inputs):
        return net, options
    return net.loaded(), {**options, "memory": left}
