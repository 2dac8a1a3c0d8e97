"""A problem on the workers of an executor: what is done before the clock starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gbdnn.distributed.executors.batches import cuts
from gbdnn.distributed.executors.workers import workers_of
from gbdnn.inference import infer_batches

if TYPE_CHECKING:
    import graphblas as gb
    import numpy as np

    from gbdnn.distributed import BatchStats
    from gbdnn.model.network import Network

__all__ = ["batches_over", "warmed"]

_ROUNDS = 20  # of two batches a worker; one that has not had any is taken to be starting still


def batches_over(inputs: int, executor: Any) -> np.ndarray:
    """Return where the batches of `infer` over an executor begin, and the number of inputs."""
    return cuts(inputs, workers_of(executor).count)


def warmed(network: Network, features: gb.Matrix, executor: Any, options: dict[str, Any]) -> int:
    """Have every worker compute a batch of the run's size; return how many workers there are.

    Then processes are started, and weights are read and prepared, as they are in a second call.
    """
    count = workers_of(executor).count
    stop = int(batches_over(features.nrows, executor)[1])
    batch = features[:stop, :].new()
    seen: set[str] = set()

    def add(record: BatchStats) -> None:
        seen.add(record.worker)

    for _ in range(_ROUNDS):
        for _ in infer_batches(
            network, [batch] * (2 * count), executor=executor, stats=add, **options
        ):
            pass
        if len(seen) >= count:
            break
    return count
