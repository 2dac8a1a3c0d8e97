"""Answers written by the workers: parts of one store, of which a second call computes the rest."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.matrices import as_columns
from gbdnn.arrays.values import whole_number
from gbdnn.distributed.batches import cuts, part_size
from gbdnn.distributed.flow import computed
from gbdnn.distributed.sent import CompactRows, SentFeatures, StoredRange, network_to_send
from gbdnn.distributed.worker import Task

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.distributed.executors import Workers
    from gbdnn.distributed.stats import BatchStats
    from gbdnn.io.store.features import StoredFeatures
    from gbdnn.model.network import Network

__all__ = ["infer_to_store_over"]


def infer_to_store_over(
    net: Network,
    features: MatrixLike,
    path: str | os.PathLike[str],
    workers: Workers,
    *,
    ahead: int | None,
    batch: int | None,
    stats: Callable[[BatchStats], object] | None,
    options: dict[str, Any],
) -> StoredFeatures:
    """Write the activations after the last layer into a store; see `gbdnn.infer_to_store`."""
    from gbdnn.io.store.features import open_features
    from gbdnn.io.store.parts import PartWriter

    network = network_to_send(net, workers)
    X = SentFeatures(features, net)
    size = part_size(X.nrows) if batch is None else whole_number(batch, "batch", least=1)
    starts = cuts(X.nrows, 1, size).tolist()
    ranges = list(pairwise(starts))
    with PartWriter(path, _key(net, X, ranges, options)) as parts:
        if parts.is_finished:
            return open_features(path)
        missing = [k for k, (start, stop) in enumerate(ranges) if not parts.has(k, stop - start)]

        def tasks() -> Iterator[Task]:
            for k in missing:
                yield Task(
                    batch=k, network=network, features=X.rows(*ranges[k]), options=options,
                    folder=str(parts.folder(k)),
                )  # fmt: skip

        for _ in computed(
            workers,
            tasks(),
            ahead=ahead,
            in_order=False,
            batches=len(missing),
            stats=stats,
            advice=f"Complete parts are kept in {path}: the same call, with a new executor,"
            " computes the others",
        ):
            pass
        parts.finish(len(ranges), (X.nrows, net.shape[1]), np.dtype(net.infos[0].dtype))
    return open_features(path)


def _key(
    net: Network, X: SentFeatures, ranges: list[tuple[int, int]], options: dict[str, Any]
) -> str:
    """Return a checksum of all that the parts' content follows from.

    A store stands for its content by the checksum of its index; what is in memory is read.
    """
    from gbdnn.io.store.index import checksum

    decisive = {name: options.get(name) for name in ("engine", "compress", "memory")}
    words = [repr(ranges), repr(decisive)]
    words.append(repr(net.source) if net.source else "".join(_weights(net, checksum)))
    for start, stop in ranges:
        words += _content(X.rows(start, stop), checksum)
    return checksum("\n".join(words).encode())


def _weights(net: Network, checksum: Callable[[Any], str]) -> Iterator[str]:
    for k, layer in enumerate(net):
        columns = as_columns(layer.W, what=f"layer {k}")
        yield repr((layer.shape, layer.bias_rule, layer.activation, layer.clip))
        for array in (columns.indptr, columns.columns, columns.values, np.asarray(layer.bias)):
            yield f"{array.dtype}{checksum(np.ascontiguousarray(array))}"


def _content(sent: Any, checksum: Callable[[Any], str]) -> list[str]:
    if isinstance(sent, StoredRange):
        return [repr(sent)]
    compact = isinstance(sent, CompactRows)
    arrays = [sent.indptr, sent.columns, sent.values] if compact else [sent]
    return [f"{a.dtype}{a.shape}{checksum(np.ascontiguousarray(a))}" for a in arrays]
