"""What may change between steps: weights that are shrunk, edges that are moved or removed.

An adjustment is asked after every `every` steps (after every epoch, if that is None), and after the
last step. It changes weights in place, or returns other layers: edges and all that belongs to them
move together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from gbdnn.arrays.checks import require_method

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from gbdnn.kernels.trainable import TrainableLayer

__all__ = ["Adjustment", "StepContext", "require_adjustment"]


@dataclass(frozen=True)
class StepContext:
    """Where training stands, for an adjustment.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> X = np.random.default_rng(0).random((200, 8))
    >>> y = (X[:, 0] > X[:, 1]).astype(int)
    >>> net = gbdnn.training.erdos_renyi([8, 16, 2], density=0.5)
    >>> class Watch:
    ...     every = None  # asked after every epoch
    ...     def adjust(self, layers, context):
    ...         print(f"{context.progress:.0%} done")
    ...         return layers
    >>> run = gbdnn.train(net, X, y, epochs=2, adjustments=Watch())
    50% done
    100% done
    """

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
    """A regulariser, or a rule for edges.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> X = np.random.default_rng(0).random((200, 8))
    >>> y = (X[:, 0] > X[:, 1]).astype(int)
    >>> net = gbdnn.training.erdos_renyi([8, 16, 2], density=0.5)
    >>> class Limit:
    ...     every = 1  # asked after every step
    ...     def adjust(self, layers, context):
    ...         for layer in layers:
    ...             np.clip(layer.weights, -1, 1, out=layer.weights)
    ...             layer.refresh()
    ...         return layers
    >>> run = gbdnn.train(net, X, y, epochs=2, adjustments=Limit())
    >>> bool(max(abs(layer.weights).max() for layer in run.layers) <= 1)
    True
    """

    @property
    def every(self) -> int | None:
        """Steps between two calls; None: an epoch's."""
        ...

    def adjust(self, layers: list[TrainableLayer], context: StepContext) -> list[TrainableLayer]:
        """Return the layers as they go on: the same objects where edges stayed what they are.

        The list may be changed, too: a layer that was replaced in it is freed at once.
        Weights that were changed in place were refreshed, `TrainableLayer.refresh`; other edges are
        had by ``layer.with_edges(numbers)``. An edge's number is ``column * nrows + row``:
        ``layer.numbers`` are those of the edges, ascending, ``layer.numbered(layer.weights)`` the
        weights in that order, and ``context.gradient(k).ravel()`` has all in it.
        """
        ...


def require_adjustment(x: Any, what: str) -> None:
    """Raise ArgumentTypeError unless `x` is an adjustment; `what` begins the message."""
    require_method(
        x, "adjust", f"{what} GroupLasso, MagnitudePruning, SET or RigL, or what has their methods"
    )
