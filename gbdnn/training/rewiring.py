"""Rewiring: the smallest weights of a layer give their edges to other places.

D. Mocanu et al., "Scalable training of artificial neural networks with adaptive sparse connectivity
inspired by network science", Nature Communications 9, 2018 (SET); U. Evci, T. Gale, J. Menick,
P. Castro, E. Elsen, "Rigging the Lottery: Making All Tickets Winners", ICML 2020 (RigL).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gbdnn.arrays.checks import whole_number
from gbdnn.training.optimizers import between

if TYPE_CHECKING:
    from collections.abc import Callable

    from gbdnn.kernels.trainable import TrainableLayer
    from gbdnn.training.adjustments import StepContext

__all__ = ["SET", "RigL"]

_SAMPLED = 16  # one of so many gradients


@dataclass(frozen=True)
class SET:
    """Sparse evolutionary training: the smallest weights go, edges at random come.

    Parameters
    ----------
    fraction : float, default 0.3
        Of each layer's edges, from 0 to 1, that move each time.
    every : int, optional
        Steps between two times; default: an epoch's. Nothing moves after the last step.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        A value is out of range.

    Notes
    -----
    The number of edges of each layer stays, and no edge comes back at the moment it goes: where
    fewer places are free than edges would move, as many move as there are places. New edges have
    the weight 0, and the optimizer's moments of them are 0; those of the others are kept. Layers
    with all edges stay as they are.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> from gbdnn.training import SET
    >>> X = np.random.default_rng(0).random((200, 8))
    >>> y = (X[:, 0] > X[:, 1]).astype(int)
    >>> net = gbdnn.training.erdos_renyi([8, 16, 2], density=0.2)
    >>> run = gbdnn.train(net, X, y, epochs=30, adjustments=SET(0.3))
    >>> [len(layer.edges) for layer in run.layers] == [info.edges for info in net.infos]
    True
    """

    fraction: float = 0.3
    every: int | None = None

    def __post_init__(self) -> None:
        between("fraction", self.fraction, 0, 1)
        if self.every is not None:
            whole_number(self.every, "every", least=1)

    def adjust(self, layers: list[TrainableLayer], context: StepContext) -> list[TrainableLayer]:
        """See `Adjustment`."""
        if context.progress >= 1:
            return layers

        def grow(_: int, layer: TrainableLayer, count: int) -> np.ndarray:
            return _random_places(layer, count, context.random)

        for k in range(len(layers)):  # a layer's memory is free before the next one is made
            layers[k] = _rewired(k, layers[k], self.fraction, grow)
        return layers


@dataclass(frozen=True)
class RigL:
    """The smallest weights go, edges come where the loss's gradient is largest.

    Parameters
    ----------
    fraction : float, default 0.3
        Of each layer's edges, from 0 to 1, that move the first time. It decays by half a period of
        a cosine: ``fraction (1 + cos(pi progress / until)) / 2``.
    every : int, default 100
        Steps between two times.
    until : float, default 0.75
        Part of the training, more than 0 and at most 1, after which nothing moves.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        A value is out of range.

    Notes
    -----
    The gradient is that of the last minibatch, of all weights that the layer could have: each time
    takes a dense product a layer, and memory for its result. For the rest see `SET`.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> import gbdnn
    >>> from gbdnn.training import RigL
    >>> X, y = load_digits(return_X_y=True)
    >>> net = gbdnn.training.erdos_renyi([64, 100, 10], density=0.1)
    >>> run = gbdnn.train(net, X / 16, y, adjustments=RigL(every=5))
    >>> run.history[-1].accuracy > 0.85
    True
    """

    fraction: float = 0.3
    every: int = 100
    until: float = 0.75

    def __post_init__(self) -> None:
        between("fraction", self.fraction, 0, 1)
        whole_number(self.every, "every", least=1)
        between("until", self.until, 0, 1, above=True)

    def adjust(self, layers: list[TrainableLayer], context: StepContext) -> list[TrainableLayer]:
        """See `Adjustment`."""
        if context.progress >= self.until:
            return layers
        fraction = self.fraction * (1 + math.cos(math.pi * context.progress / self.until)) / 2

        def grow(k: int, layer: TrainableLayer, count: int) -> np.ndarray:
            return _steepest_places(layer, count, context.gradient(k))

        for k in range(len(layers)):  # a layer's memory is free before the next one is made
            layers[k] = _rewired(k, layers[k], fraction, grow)
        return layers


def _rewired(
    k: int,
    layer: TrainableLayer,
    fraction: float,
    grow: Callable[[int, TrainableLayer, int], np.ndarray],
) -> TrainableLayer:
    """Return a layer a fraction of whose edges are where `grow` wants them; or itself."""
    free = layer.nrows * layer.ncols - layer.nedges
    count = min(int(fraction * layer.nedges), free)
    if not count:
        return layer
    kept = np.ones(layer.nedges, bool)
    kept[np.argpartition(np.abs(layer.numbered(layer.weights)), count - 1)[:count]] = False
    numbers = [layer.compact_numbers[kept], grow(k, layer, count)]
    return layer.with_edges(np.sort(np.concatenate(numbers, dtype=np.int64)))


def _random_places(layer: TrainableLayer, count: int, random: np.random.Generator) -> np.ndarray:
    """Return numbers of edges that a layer does not have, each set of them as likely."""
    places = layer.nrows * layer.ncols - layer.nedges
    free = random.choice(places, count, replace=False, shuffle=False)
    # The i-th free place is i + the number of edges before it.
    gaps = layer.numbers - np.arange(layer.nedges)
    found: np.ndarray = free + np.searchsorted(gaps, free, side="right")
    return found


def _steepest_places(layer: TrainableLayer, count: int, gradient: np.ndarray) -> np.ndarray:
    """Return numbers of edges that a layer does not have, with the largest gradients."""
    sizes = np.abs(gradient, out=gradient).ravel()
    sizes[layer.compact_numbers] = -1
    # Only those are partitioned that are no smaller than a value which, as a sample tells, half as
    # many again as needed exceed: a comparison is much faster.
    sample = sizes[::_SAMPLED]
    rank = min(count * 3 // (2 * _SAMPLED) + _SAMPLED, len(sample))
    some = np.flatnonzero(sizes >= np.partition(sample, len(sample) - rank)[len(sample) - rank])
    if len(some) < count:
        some = np.arange(len(sizes))
    found: np.ndarray = some[np.argpartition(sizes[some], len(some) - count)[len(some) - count :]]
    return found
