"""Training: losses, optimisers, schedules, and what changes a network's structure.

``gbdnn.train(net, X, y)`` is the call. `train` checks what it is given, `session` goes through
epochs, `loop` through minibatches, `gbdnn.kernels.steps` computes them; `run` is what comes out,
`checkpoint` keeps it in a file.
"""

from gbdnn.training.adjustments import Adjustment, Moment
from gbdnn.training.gradients import LossGradient, gradients
from gbdnn.training.losses import CrossEntropy, SquaredError
from gbdnn.training.optimisers import SGD, Adam
from gbdnn.training.patterns import erdos_renyi, initialised
from gbdnn.training.run import EpochRecord, TrainingRun
from gbdnn.training.schedules import Constant, Cosine, Stepwise

__all__ = [
    "SGD",
    "Adam",
    "Adjustment",
    "Constant",
    "Cosine",
    "CrossEntropy",
    "EpochRecord",
    "LossGradient",
    "Moment",
    "SquaredError",
    "Stepwise",
    "TrainingRun",
    "erdos_renyi",
    "gradients",
    "initialised",
]
