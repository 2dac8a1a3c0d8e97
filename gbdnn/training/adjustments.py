"""Adjustments: changes of weights or edges between training steps, such as the group lasso.

An adjustment is called after every `every` steps (if None, after every epoch) and after the last
step. It changes weights in place or returns layers with other edges.

W. Wen et al., "Learning Structured Sparsity in Deep Neural Networks", NeurIPS 2016; N. Parikh,
S. Boyd, "Proximal Algorithms", Foundations and Trends in Optimization 1, 2014, section 6.5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from gbdnn.arrays.checks import require_method, whole_number
from gbdnn.training.optimizers import between

if TYPE_CHECKING:
    from collections.abc import Callable

    from gbdnn.kernels.trainable import TrainableLayer

__all__ = [
    "Adjustment",
    "GroupLasso",
    "StepContext",
    "end_of",
    "require_adjustment",
]


@dataclass(frozen=True)
class StepContext:
    """State of training that is passed to an adjustment.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> X = np.random.default_rng(0).random((200, 8))
    >>> y = (X[:, 0] > X[:, 1]).astype(int)
    >>> net = gbdnn.training.erdos_renyi([8, 16, 2], density=0.5)
    >>> class Watch:
    ...     every = None  # called after every epoch
    ...     def adjust(self, layers, context):
    ...         print(f"{context.progress:.0%} done")
    ...         return layers
    >>> run = gbdnn.train(net, X, y, epochs=2, adjustments=Watch())
    50% done
    100% done
    """

    step: int
    """Number of steps done."""

    steps: int
    """Number of steps of the whole call."""

    learning_rates: np.ndarray
    """Learning rates of the steps since the previous call."""

    random: np.random.Generator
    """Generator that depends on the seed and the step only."""

    gradient: Callable[[int], np.ndarray]
    """``gradient(k)`` returns the gradient of the last minibatch with respect to all possible
    weights of layer k, shape (ncols, nrows)."""

    @property
    def progress(self) -> float:
        """Fraction of the training that is done."""
        return self.step / self.steps


class Adjustment(Protocol):
    """Interface of regularisers and of rules that move or remove edges.

    An adjustment that removes edges or neurons should have an attribute `end`: the fraction of the
    training after which it does not. With ``patience=``, no epoch before counts as the best; 1
    refuses ``patience=``.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> X = np.random.default_rng(0).random((200, 8))
    >>> y = (X[:, 0] > X[:, 1]).astype(int)
    >>> net = gbdnn.training.erdos_renyi([8, 16, 2], density=0.5)
    >>> class Limit:
    ...     every = 1  # called after every step
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
        """Number of steps between two calls; None for one call per epoch."""

    def adjust(self, layers: list[TrainableLayer], context: StepContext) -> list[TrainableLayer]:
        """Return the layers to continue with; unchanged layers may be the same objects.

        The list may be changed in place. Call ``layer.refresh()`` after changing weights in place;
        ``layer.with_edges(numbers)`` returns a layer with other edges. The number of an edge is
        ``column * nrows + row``. ``layer.numbers`` are in ascending order,
        ``layer.numbered(layer.weights)`` are the weights in that order, and
        ``context.gradient(k).ravel()`` is indexed by number.
        """


@dataclass(frozen=True)
class GroupLasso:
    """Group lasso on the incoming and the outgoing weights of each neuron.

        loss + strength * sum over groups of sqrt(size of the group) * norm of the group

    Groups are the columns of all layers except the last (outputs are exempt), and the rows of all
    layers (inputs are not exempt). All weights of a group become 0 together, and `compact` removes
    the neuron.

    Parameters
    ----------
    strength : float
        At least 0. A suitable value depends on the scale of the inputs; 2e-4 to 1e-3 for images
        with mean 0 and variance 1.
    every : int, default 4
        Steps between two proximal steps. The total shrinkage does not depend on it.
    negligible : float, default 1e-4
        After the last training step, groups with a root mean square weight below this value are
        set to 0. During training, gradient noise keeps them from reaching 0; therefore
        ``patience=`` is refused.

    Notes
    -----
    The proximal step is the group soft threshold, applied to columns, then to rows::

        W_g = max(0, 1 - t / norm(W_g)) W_g;   t = strength sqrt(size of g) sum of learning rates

    over the steps since the previous one. Use `SGD`: Adam scales the steps of the weights, but not
    the proximal ones, and removes less at the same accuracy. The size of a group counts its edges,
    including those of weight 0, which are kept and may change again. Biases are not penalised.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> import gbdnn
    >>> from gbdnn.training import SGD, GroupLasso
    >>> X, y = load_digits(return_X_y=True)
    >>> net = gbdnn.training.erdos_renyi([64, 100, 10], density=1)
    >>> lasso = GroupLasso(0.02)
    >>> run = gbdnn.train(net, X / 16, y, batch_size=32, optimizer=SGD(), adjustments=lasso)
    >>> run.network.edges < 0.5 * net.edges
    True
    """

    end: ClassVar[float] = 1.0

    strength: float
    every: int = 4
    negligible: float = 1e-4

    def __post_init__(self) -> None:
        between("strength", self.strength, 0, math.inf, below=True)
        whole_number(self.every, "every", least=1)
        between("negligible", self.negligible, 0, math.inf, below=True)

    def adjust(self, layers: list[TrainableLayer], context: StepContext) -> list[TrainableLayer]:
        """See `Adjustment`."""
        threshold = self.strength * float(context.learning_rates.sum())
        least = self.negligible if context.progress >= 1 else 0.0
        for k, layer in enumerate(layers):
            if k < len(layers) - 1:
                _shrink(layer, 0, threshold, least)
            _shrink(layer, 1, threshold, least)
            layer.refresh()
        return layers


def end_of(adjustment: Adjustment) -> float:
    """Return the fraction of the training after which an adjustment removes nothing."""
    return float(getattr(adjustment, "end", 0))


def require_adjustment(x: Any, what: str) -> None:
    """Raise ArgumentTypeError, starting with `what`, unless `x` is an adjustment."""
    kinds = "GroupLasso, MagnitudePruning, SET, RigL or an object with their methods"
    require_method(x, "adjust", f"{what} {kinds}")


def _shrink(layer: TrainableLayer, axis: int, threshold: float, least: float) -> None:
    """Shrink the weights into each neuron (axis 0) or from each neuron before (axis 1)."""
    shape = layer.ncols, layer.nrows
    if layer.is_dense:
        W = layer.weights.reshape(shape)
        squares = np.einsum(f"cr,cr->{'cr'[axis]}", W, W)
        degrees = np.full(shape[axis], shape[1 - axis])
        W *= np.expand_dims(_factors(squares, degrees, threshold, least), 1 - axis)
        return
    groups = layer.rows if axis else layer.columns
    degrees = np.bincount(groups, minlength=shape[axis])
    squares = np.bincount(groups, np.square(layer.weights), shape[axis])
    factors = _factors(squares, degrees, threshold, least).astype(layer.weights.dtype)
    layer.weights *= factors[groups]


def _factors(
    squares: np.ndarray, degrees: np.ndarray, threshold: float, least: float
) -> np.ndarray:
    """Return ``max(0, 1 - t / norm)`` of groups with these sums of squares.

    The factor is 0 if the norm is 0 or the root mean square is below `least`.
    """
    norms, roots = np.sqrt(squares), np.sqrt(degrees)
    limits = (threshold * roots).astype(norms.dtype)
    over = (norms > limits) & (norms >= least * roots)
    factors = np.zeros_like(norms)
    factors[over] = 1 - limits[over] / norms[over]
    return factors
