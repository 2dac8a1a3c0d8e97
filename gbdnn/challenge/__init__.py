"""The Sparse DNN Graph Challenge: problems, outcomes, machine information and published times."""

from gbdnn.challenge.outcome import Outcome, run
from gbdnn.challenge.problems import Problem, generated, official
from gbdnn.challenge.published import PUBLISHED, Rate
from gbdnn.io.challenge.network import read_challenge_network

__all__ = [
    "PUBLISHED",
    "Outcome",
    "Problem",
    "Rate",
    "generated",
    "official",
    "read_challenge_network",
    "run",
]


def __dir__() -> list[str]:
    """List the public names only."""
    return sorted(__all__)
