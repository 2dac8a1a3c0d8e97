"""Training: losses, optimizers, schedules, pruning and rewiring.

``gbdnn.train(net, X, y)`` is the entry point. `train` checks the arguments, `trainer` runs the
epochs, `gbdnn.kernels.steps` computes minibatches, and `checkpoint` stores the resulting `run`.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from gbdnn.runtime.optional import require
from gbdnn.training.adjustments import Adjustment, GroupLasso, InputDropout, StepContext
from gbdnn.training.compaction import CompactNetwork, compact
from gbdnn.training.losses import BinaryCrossEntropy, CrossEntropy, Loss, SquaredError
from gbdnn.training.optimizers import SGD, Adam, Constant, Cosine, Optimizer, Stepwise
from gbdnn.training.patterns import erdos_renyi, initialized, with_ends
from gbdnn.training.rewiring import SET, MagnitudePruning, RigL
from gbdnn.training.run import CurrentEpoch, EpochRecord, TrainingRun

if TYPE_CHECKING:
    from gbdnn.training.estimators import SparseClassifier, SparseRegressor

__all__ = [
    "SET",
    "SGD",
    "Adam",
    "Adjustment",
    "BinaryCrossEntropy",
    "CompactNetwork",
    "Constant",
    "Cosine",
    "CrossEntropy",
    "CurrentEpoch",
    "EpochRecord",
    "GroupLasso",
    "InputDropout",
    "Loss",
    "MagnitudePruning",
    "Optimizer",
    "RigL",
    "SparseClassifier",
    "SparseRegressor",
    "SquaredError",
    "StepContext",
    "Stepwise",
    "TrainingRun",
    "compact",
    "erdos_renyi",
    "initialized",
    "with_ends",
]
if find_spec("sklearn") is None:  # `from gbdnn.training import *` takes what there is
    __all__ = [name for name in __all__ if not name.startswith("Sparse")]
__dir__ = __all__.copy  # dir() lists the public names only

_ESTIMATORS = "gbdnn.training.estimators"


def __getattr__(name: str) -> Any:
    """Import the estimators on first use, because they need scikit-learn."""
    if name in ("SparseClassifier", "SparseRegressor"):
        return getattr(require(_ESTIMATORS, "sklearn", f"{name} needs scikit-learn 1.6"), name)
    raise AttributeError(f"module 'gbdnn.training' has no attribute {name!r}")
