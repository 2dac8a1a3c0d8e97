"""The Sparse DNN Graph Challenge: problems, outcomes and machine information."""

from gbdnn.challenge.outcome import Outcome, run
from gbdnn.challenge.problems import Problem, generate, load

__all__ = ["Outcome", "Problem", "generate", "load", "run"]
__dir__ = __all__.copy  # dir() lists the public names only
