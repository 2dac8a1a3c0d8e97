"""Many processes and machines, on engines that exist: executors and MPI.

``gbdnn.infer(net, X, executor=ex)``, ``gbdnn.infer_batches`` and ``gbdnn.infer_to_store`` are the
calls. `executors` knows what workers there are, `batches` cuts inputs into batches, `flow` submits
them and takes their answers, `worker` computes one where the weights are kept, `whole` and `parts`
put answers together, `stats` tells what each worker did.

``gbdnn.pipeline`` is the other way: layers over the ranks of MPI. `pipeline` is the call, `cuts`
chooses which layers a rank holds, `stage` computes them, `links` carries rows between ranks,
`agree` makes an error on one rank one on all.
"""

from gbdnn.distributed.executors import Workers
from gbdnn.distributed.stats import Balance, BatchStats, RankStats, Spread, balance

__all__ = ["Balance", "BatchStats", "RankStats", "Spread", "Workers", "balance"]


def __dir__() -> list[str]:
    """Show what is public, and that alone."""
    return sorted(__all__)
