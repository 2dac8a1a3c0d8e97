"""Training: losses, optimizers, schedules, pruning and rewiring.

``gbdnn.train(net, X, y)`` is the entry point. `train` checks the arguments, `trainer` runs the
epochs, `gbdnn.kernels.steps` computes minibatches, and `checkpoint` stores the resulting `run`.
"""

from gbdnn.kernels.trainable import TrainableLayer
from gbdnn.training.adjustments import Adjustment, GroupLasso, StepContext
from gbdnn.training.checkpoint import read_run, write_run
from gbdnn.training.compaction import compact
from gbdnn.training.losses import Loss
from gbdnn.training.optimizers import SGD, Adam, Constant, Cosine, Optimizer, Schedule, Stepwise
from gbdnn.training.patterns import erdos_renyi, initialized, with_ends
from gbdnn.training.rewiring import SET, MagnitudePruning, RigL
from gbdnn.training.run import EpochRecord, TrainingRun

__all__ = [
    "SET",
    "SGD",
    "Adam",
    "Adjustment",
    "Constant",
    "Cosine",
    "EpochRecord",
    "GroupLasso",
    "Loss",
    "MagnitudePruning",
    "Optimizer",
    "RigL",
    "Schedule",
    "StepContext",
    "Stepwise",
    "TrainableLayer",
    "TrainingRun",
    "compact",
    "erdos_renyi",
    "initialized",
    "read_run",
    "with_ends",
    "write_run",
]
__dir__ = __all__.copy  # dir() lists the public names only
