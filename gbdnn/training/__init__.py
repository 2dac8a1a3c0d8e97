"""Training: losses, optimisers, schedules, and what changes a network's structure.

``gbdnn.train(net, X, y)`` is the call. `train` checks what it is given, `session` goes through
epochs, `loop` through minibatches, `gbdnn.kernels.steps` computes them; `run` is what comes out,
`checkpoint` keeps it in a file.
"""

from gbdnn.training.adjustments import Adjustment, Moment
from gbdnn.training.compaction import CompactNetwork, compact
from gbdnn.training.gradients import LossGradient, gradients
from gbdnn.training.losses import CrossEntropy, SquaredError
from gbdnn.training.optimisers import SGD, Adam
from gbdnn.training.patterns import erdos_renyi, initialised, with_ends
from gbdnn.training.pruning import Magnitude
from gbdnn.training.recipes import StructuredRun, fssl
from gbdnn.training.regularisers import GroupLasso
from gbdnn.training.rewiring import SET, RigL
from gbdnn.training.run import EpochRecord, TrainingRun
from gbdnn.training.schedules import Constant, Cosine, Stepwise

__all__ = [
    "SET",
    "SGD",
    "Adam",
    "Adjustment",
    "CompactNetwork",
    "Constant",
    "Cosine",
    "CrossEntropy",
    "EpochRecord",
    "GroupLasso",
    "LossGradient",
    "Magnitude",
    "Moment",
    "RigL",
    "SquaredError",
    "Stepwise",
    "StructuredRun",
    "TrainingRun",
    "compact",
    "erdos_renyi",
    "fssl",
    "gradients",
    "initialised",
    "with_ends",
]
