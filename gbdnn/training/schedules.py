"""Schedules: what the learning rate is multiplied with, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gbdnn.arrays.checks import require_iterable
from gbdnn.errors import ArgumentError
from gbdnn.training.optimizers import between

__all__ = ["Constant", "Cosine", "Schedule", "Stepwise"]


class Schedule(Protocol):
    """A function of how much of the training is done."""

    def factors(self, progress: np.ndarray) -> np.ndarray:
        """Return a factor for each progress, from 0 (the first step) to less than 1."""
        ...


@dataclass(frozen=True)
class Constant:
    """The optimizer's learning rate at every step.

    Examples
    --------
    >>> import numpy as np
    >>> from gbdnn.training import Constant
    >>> Constant().factors(np.array([0.0, 0.5]))
    array([1., 1.])
    """

    def factors(self, progress: np.ndarray) -> np.ndarray:
        """See `Schedule`."""
        return np.ones(len(progress))


@dataclass(frozen=True)
class Cosine:
    """Half a period of a cosine, from 1 to `final`.

    Parameters
    ----------
    final : float, default 0.0
        The factor at the end, from 0 to 1.
    warmup : float, default 0.0
        Part of the training, from 0 to less than 1, in which the factor first grows from 0.

    Examples
    --------
    >>> import numpy as np
    >>> from gbdnn.training import Cosine
    >>> Cosine().factors(np.array([0.0, 0.5, 0.75])).round(3)
    array([1.   , 0.5  , 0.146])
    """

    final: float = 0.0
    warmup: float = 0.0

    def __post_init__(self) -> None:
        between("final", self.final, 0, 1)
        between("warmup", self.warmup, 0, 1, below=True)

    def factors(self, progress: np.ndarray) -> np.ndarray:
        """See `Schedule`."""
        rest = np.maximum(progress - self.warmup, 0) / (1 - self.warmup)
        found = self.final + (1 - self.final) * (1 + np.cos(np.pi * rest)) / 2
        if self.warmup:
            found = np.where(progress < self.warmup, progress / self.warmup, found)
        return found


@dataclass(frozen=True)
class Stepwise:
    """Multiplied by `factor` at some points of the training.

    Parameters
    ----------
    at : tuple of float, default (1/3, 2/3, 5/6)
        Parts of the training, ascending, from 0 to 1.
    factor : float, default 0.1

    Examples
    --------
    >>> import numpy as np
    >>> from gbdnn.training import Stepwise
    >>> Stepwise(at=(0.5,)).factors(np.array([0.4, 0.6]))
    array([1. , 0.1])
    """

    at: tuple[float, ...] = (1 / 3, 2 / 3, 5 / 6)
    factor: float = 0.1

    def __post_init__(self) -> None:
        between("factor", self.factor, 0, 1, above=True)
        require_iterable(self.at, "at is a list of parts of the training")
        at = tuple(between("at", part, 0, 1) for part in self.at)
        object.__setattr__(self, "at", at)  # an iterator of them is used up
        if list(self.at) != sorted(self.at):
            raise ArgumentError(f"at: parts of the training are ascending, not {self.at}")

    def factors(self, progress: np.ndarray) -> np.ndarray:
        """See `Schedule`."""
        found: np.ndarray = self.factor ** np.searchsorted(self.at, progress, side="right")
        return found
