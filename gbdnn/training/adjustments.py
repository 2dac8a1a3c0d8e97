"""What may change between steps: weights that are shrunk, edges that are moved or removed.

An adjustment is asked after every `every` steps (after every epoch, if that is None), and after the
last step. It changes weights in place, or returns other layers: edges and all that belongs to them
move together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from gbdnn.arrays.arguments import require_method

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from gbdnn.kernels.trainable import TrainableLayer

__all__ = ["Adjustment", "Moment", "require_adjustment"]


@dataclass(frozen=True)
class Moment:
    """Where training stands, for an adjustment."""

    step: int
    """Steps done."""

    steps: int
    """Steps that there will be."""

    learning_rates: np.ndarray
    """Of the steps since the adjustment was asked before, or would have been."""

    random: np.random.Generator
    """The same at the same step of equal runs, whatever happened before."""

    gradient: Callable[[int], np.ndarray]
    """``gradient(k)``: of all weights that layer k could have, shape (ncols, nrows), in the last
    minibatch."""

    @property
    def progress(self) -> float:
        """Part of the training that is done."""
        return self.step / self.steps


class Adjustment(Protocol):
    """A regulariser, or a rule for edges."""

    @property
    def every(self) -> int | None:
        """Steps between two calls; None: an epoch's."""
        ...

    def adjust(self, layers: list[TrainableLayer], moment: Moment) -> list[TrainableLayer]:
        """Return the layers as they go on: the same objects where edges stayed what they are.

        Weights that were changed in place were refreshed, `TrainableLayer.refresh`.
        """
        ...


def require_adjustment(x: Any, what: str) -> None:
    """Raise ArgumentTypeError unless `x` is an adjustment; `what` begins the message."""
    require_method(
        x, "adjust", f"{what} GroupLasso, Magnitude, SET or RigL, or what has their methods"
    )
