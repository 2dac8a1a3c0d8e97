"""Answers returned to the caller: of one call of `infer`, and batch by batch."""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.distributed.executors.batches import cuts, dealt
from gbdnn.distributed.executors.in_flight import computed
from gbdnn.distributed.executors.readable import readable
from gbdnn.distributed.executors.worker import Task
from gbdnn.distributed.messages import SentFeatures, as_sent, network_to_send
from gbdnn.engine.answer import SparseAnswer
from gbdnn.errors import naming

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import graphblas as gb

    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.distributed.executors.workers import Workers
    from gbdnn.distributed.stats import BatchStats
    from gbdnn.model.network import Network

__all__ = ["infer_batches_over", "infer_over"]

_ADVICE = (
    "With a new executor the call can be repeated; gbdnn.infer_to_store keeps what is done, and"
    " goes on"
)


def infer_over(
    net: Network,
    features: MatrixLike,
    workers: Workers,
    *,
    batch: int | None,
    stats: Callable[[BatchStats], object] | None,
    options: dict[str, Any],
) -> gb.Matrix:
    """Return the activations after the last layer; see `gbdnn.infer`."""
    network = network_to_send(net, workers)
    X = SentFeatures(features, net, workers, options["memory"] // 2)
    starts = cuts(X.nrows, workers.expected(X.nrows), batch)
    deal = dealt(X.nrows) if workers.is_hashed else None
    if deal is not None and len(starts) > 2 and (values := X.read_in_full()):
        warnings.warn(
            f"order='hashed': all {values:,} values of the store are read for each of"
            f" {len(starts) - 1} batches; a store whose inputs are dealt as it is written takes"
            " order='given'",
            RuntimeWarning,
            stacklevel=3,
        )

    def ids(k: int) -> np.ndarray:
        start, stop = starts[k], starts[k + 1]
        return np.arange(start, stop) if deal is None else np.sort(deal[start:stop])

    def tasks() -> Iterator[Task]:
        for k, (start, stop) in enumerate(pairwise(starts)):
            rows = X.rows(int(start), int(stop)) if deal is None else X.take(ids(k))
            yield Task(batch=k, network=network, features=rows, options=options)

    results = computed(
        workers, tasks(), in_order=False, batches=len(starts) - 1, stats=stats, advice=_ADVICE
    )
    answer = SparseAnswer(X.nrows, net.shape[1], np.dtype(net.infos[0].dtype))
    for task, result in results:
        if result.rows is not None:
            answer.add(result.rows.rows(ids(task.batch)))
        del result
    return answer.matrix(None)


def infer_batches_over(
    net: Network,
    batches: Iterator[MatrixLike],
    workers: Workers,
    *,
    stats: Callable[[BatchStats], object] | None,
    options: dict[str, Any],
) -> Iterator[gb.Matrix]:
    """Yield the activations after the last layer, batch by batch; see `gbdnn.infer_batches`."""
    network: Any = None

    def tasks() -> Iterator[Task]:
        for k, features in enumerate(batches):
            with naming(f"batch {k}"):
                sent = features if workers.shares_memory else as_sent(features, net)
            yield Task(batch=k, network=network, features=sent, options=options)

    with readable(net, workers) as stored:
        network = network_to_send(stored, workers)
        for _, result in computed(
            workers, tasks(), in_order=True, batches=None, stats=stats, advice=_ADVICE
        ):
            if result.rows is not None:
                yield result.rows.rows().matrix()
