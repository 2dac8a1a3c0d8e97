"""The Sparse DNN Graph Challenge: problems, outcomes, the machine, and published times."""

from gbdnn.challenge.machine import machine, versions
from gbdnn.challenge.outcome import Outcome, run
from gbdnn.challenge.problems import Problem, generated, official, training_images
from gbdnn.challenge.published import PUBLISHED, Rate
from gbdnn.challenge.scipy_check import scipy_categories

__all__ = [
    "PUBLISHED",
    "Outcome",
    "Problem",
    "Rate",
    "generated",
    "machine",
    "official",
    "run",
    "scipy_categories",
    "training_images",
    "versions",
]


def __dir__() -> list[str]:
    """Show what is public, and that alone."""
    return sorted(__all__)
