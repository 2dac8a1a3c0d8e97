"""Many processes and machines, on engines that exist: batches of inputs over an executor.

``gbdnn.infer(net, X, executor=ex)``, ``gbdnn.infer_batches`` and ``gbdnn.infer_to_store`` are the
calls. `executors` knows what workers there are, `batches` cuts inputs into batches, `flow` submits
them and takes their answers, `worker` computes one where the weights are kept, `whole` and `parts`
put answers together, `stats` tells what each worker did.
"""

from gbdnn.distributed.stats import Balance, BatchStats, Spread, balance

__all__ = ["Balance", "BatchStats", "Spread", "balance"]
