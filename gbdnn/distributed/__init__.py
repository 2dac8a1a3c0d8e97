"""Many processes and machines, on engines that exist: executors and MPI.

``gbdnn.infer(net, X, executor=ex)``, ``gbdnn.infer_batches`` and ``gbdnn.infer_to_store`` share
batches of inputs out over workers (`executors`), ``gbdnn.pipeline`` shares out layers over ranks
(`mpi`). `messages` are what travels, `held_layers` the layers that a process computes on, `stats`
tell what each worker or rank did.
"""

from gbdnn.distributed.executors.workers import Workers
from gbdnn.distributed.stats import Balance, BatchStats, RankStats, Spread, balance

__all__ = ["Balance", "BatchStats", "RankStats", "Spread", "Workers", "balance"]


def __dir__() -> list[str]:
    """Show what is public, and that alone."""
    return sorted(__all__)
