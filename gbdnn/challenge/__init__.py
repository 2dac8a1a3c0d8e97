"""The Sparse DNN Graph Challenge: problems, outcomes, machine information and published times."""

from gbdnn.challenge.outcome import Outcome, run
from gbdnn.challenge.problems import Problem, generated, official
from gbdnn.challenge.published import PUBLISHED, Rate

__all__ = ["PUBLISHED", "Outcome", "Problem", "Rate", "generated", "official", "run"]
__dir__ = __all__.copy  # dir() lists the public names only
