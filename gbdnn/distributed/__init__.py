"""Computation on many processes and machines: executors and MPI.

`executors` runs batches of inputs on the workers of any executor, for ``gbdnn.infer(net, X,
executor=ex)``, ``gbdnn.infer_batches`` and ``gbdnn.infer_to_store``. `mpi` divides the layers among
ranks for `pipeline`. `rows` are the sparse rows that both send, `stats` their records.
"""

from gbdnn.distributed.executors.workers import Workers
from gbdnn.distributed.mpi.pipeline import pipeline
from gbdnn.distributed.stats import BatchStats, balance

__all__ = ["BatchStats", "Workers", "balance", "pipeline"]
__dir__ = __all__.copy  # dir() lists the public names only
