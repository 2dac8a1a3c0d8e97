"""Rules that move or remove edges between training steps.

D. Mocanu et al., Nature Communications 9, 2018 (SET); U. Evci et al., "Rigging the Lottery", ICML
2020 (RigL); M. Zhu, S. Gupta, "To prune, or not to prune", arXiv:1710.01878 (magnitude pruning).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from gbdnn.arrays.checks import as_word, whole_number
from gbdnn.errors import ArgumentError
from gbdnn.runtime.first_use import shown
from gbdnn.training.adjustments import require_adjustment
from gbdnn.training.optimizers import between
from gbdnn.training.patterns import random_edges

if TYPE_CHECKING:
    from collections.abc import Callable

    from gbdnn.kernels.trainable import Pattern, TrainableLayer
    from gbdnn.training.adjustments import Adjustment, StepContext

__all__ = [
    "SET",
    "MagnitudePruning",
    "RewiringName",
    "RigL",
    "adjustments_named",
    "random_places",
    "replaced_edges",
    "steepest_places",
]

RewiringName = Literal["set", "rigl"]
Scope = Literal["network", "layer"]

_SAMPLED = 16  # sampling interval of gradients


@dataclass(frozen=True)
class SET:
    """Sparse evolutionary training: replace the smallest weights by random edges.

    Parameters
    ----------
    fraction : float, default 0.3
        Fraction of each layer's edges to move each time, from 0 to 1.
    every : int, optional
        Steps between two moves (default: one epoch). No edges move after the last step.

    Notes
    -----
    Each layer keeps its number of edges. Removed edges are not added again in the same step, so a
    dense layer does not change. New edges start with weight and moments 0.

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

        def grow(_: int, layer: Pattern, count: int) -> np.ndarray:
            return random_places(layer, count, context.random)

        return _rewired(layers, self.fraction, grow)


@dataclass(frozen=True)
class RigL:
    """Replace the smallest weights by edges where the gradient of the loss is largest.

    Parameters
    ----------
    fraction : float, default 0.3
        Fraction of each layer's edges to move the first time, from 0 to 1. It decays by
        ``fraction (1 + cos(pi progress / until)) / 2``.
    every : int, default 100
        Steps between two moves.
    until : float, default 0.75
        Fraction of the training after which no edges move, more than 0 and at most 1.

    Notes
    -----
    The gradient of the last minibatch with respect to all possible weights requires a dense matrix
    product, and memory for its result, per layer. See also `SET`.

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

        def grow(k: int, layer: Pattern, count: int) -> np.ndarray:
            return steepest_places(layer, count, context.gradient(k))

        return _rewired(layers, fraction, grow)


@dataclass(frozen=True)
class MagnitudePruning:
    """Gradual magnitude pruning: remove the smallest weights until a density is reached.

    Parameters
    ----------
    density : float
        Final density (edges divided by possible edges), reached at `end`; more than 0, at most 1.
    begin, end : float, default 0.0 and 0.75
        Fractions of the training between which edges are removed.
    every : int, default 100
        Steps between two removals. The last removal is after the last step.
    scope : {"network", "layer"}, default "network"
        Whether weights are compared, and `density` is reached, in the whole network or in each
        layer.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        A value is out of range, or `end` is before `begin`.

    Notes
    -----
    The density decreases as a cubic function, fastest at the beginning::

        density + (1 - density) (1 - (progress - begin) / (end - begin))^3

    A network that is sparser than this keeps its edges. Each layer keeps at least its largest
    weight.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> from gbdnn.training import MagnitudePruning
    >>> X = np.random.default_rng(0).random((200, 8))
    >>> y = (X[:, 0] > X[:, 1]).astype(int)
    >>> net = gbdnn.training.erdos_renyi([8, 15, 2], density=1)
    >>> run = gbdnn.train(net, X, y, epochs=30, adjustments=MagnitudePruning(0.2, every=2))
    >>> net.edges, run.network.edges
    (150, 30)
    """

    density: float
    begin: float = 0.0
    end: float = 0.75
    every: int = 100
    scope: Scope = "network"

    def __post_init__(self) -> None:
        between("density", self.density, 0, 1, above=True)
        between("begin", self.begin, 0, 1)
        between("end", self.end, 0, 1)
        whole_number(self.every, "every", least=1)
        if self.begin > self.end:
            raise ArgumentError(f"end={self.end:g} must not be less than begin={self.begin:g}")
        as_word(self.scope, "scope", get_args(Scope))

    def adjust(self, layers: list[TrainableLayer], context: StepContext) -> list[TrainableLayer]:
        """See `Adjustment`."""
        density = self._density_at(context.progress)
        if self.scope == "network":
            return _pruned(layers, density)
        for k in range(len(layers)):
            layers[k : k + 1] = _pruned([layers[k]], density)
        return layers

    def _density_at(self, progress: float) -> float:
        if progress < self.begin:
            return 1.0
        if progress >= self.end:
            return self.density
        left = 1 - (progress - self.begin) / (self.end - self.begin)
        return self.density + (1 - self.density) * left**3


def adjustments_named(rewire: Any) -> tuple[Adjustment, ...]:
    """Return the adjustments for None, ``"set"``, ``"rigl"``, an adjustment or a list of them."""
    if rewire is None:
        return ()
    if isinstance(rewire, str):
        if rewire not in get_args(RewiringName):
            raise ArgumentError(f'rewire must be "set" or "rigl", not {shown(rewire)}')
        return (SET() if rewire == "set" else RigL(),)
    rules = tuple(rewire) if isinstance(rewire, list | tuple) else (rewire,)
    for rule in rules:
        require_adjustment(rule, 'rewire must be "set", "rigl",')
    return rules


def _rewired(
    layers: list[TrainableLayer],
    fraction: float,
    grow: Callable[[int, Pattern, int], np.ndarray],
) -> list[TrainableLayer]:
    """Replace the smallest edges of each layer by those of `grow`; other layers are unchanged."""
    for k, layer in enumerate(layers):
        weights = layer.numbered(layer.weights)
        kept, new = replaced_edges(layer, weights, fraction, partial(grow, k))
        if len(new):
            numbers = [layer.compact_numbers[kept], new]
            layers[k] = layer.with_edges(np.sort(np.concatenate(numbers, dtype=np.int64)))
        del layer  # frees its memory before the next one is made
    return layers


def replaced_edges(
    layer: Pattern,
    weights: np.ndarray,
    fraction: float,
    grow: Callable[[Pattern, int], np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Return which edges are kept, those of the largest weights, and the numbers of new edges."""
    kept, free = np.ones(layer.nedges, bool), layer.nrows * layer.ncols - layer.nedges
    if not (count := min(int(fraction * layer.nedges), free)):
        return kept, np.zeros(0, np.int64)
    kept[np.argpartition(np.abs(weights), count - 1)[:count]] = False
    return kept, grow(layer, count).astype(np.int64)


def random_places(layer: Pattern, count: int, random: np.random.Generator) -> np.ndarray:
    """Return numbers of missing edges, drawn uniformly."""
    places = layer.nrows * layer.ncols - layer.nedges
    free = random_edges(places, count, random)
    # The i-th free place is i + the number of edges before it.
    gaps = layer.numbers - np.arange(layer.nedges)
    return free + np.searchsorted(gaps, free, side="right")


def steepest_places(layer: Pattern, count: int, gradient: np.ndarray) -> np.ndarray:
    """Return numbers of the missing edges with the largest gradients."""
    sizes = np.abs(gradient, out=gradient).ravel()
    sizes[layer.compact_numbers] = -1
    # Partition only gradients above a value that, estimated from a sample, 1.5 times as many as
    # needed exceed. Comparing is much faster than partitioning.
    sample = sizes[::_SAMPLED]
    rank = min(count * 3 // (2 * _SAMPLED) + _SAMPLED, len(sample))
    some = np.flatnonzero(sizes >= np.partition(sample, len(sample) - rank)[len(sample) - rank])
    if len(some) < count:
        some = np.arange(len(sizes))
    return some[np.argpartition(sizes[some], len(some) - count)[len(some) - count :]]


def _pruned(layers: list[TrainableLayer], density: float) -> list[TrainableLayer]:
    """Return layers with this total density, each with at least one edge."""
    possible = sum(layer.nrows * layer.ncols for layer in layers)
    count = sum(layer.nedges for layer in layers) - round(density * possible)
    if count <= 0:
        return layers
    sizes = np.concatenate([np.abs(layer.numbered(layer.weights)) for layer in layers])
    starts = np.cumsum([0, *(layer.nedges for layer in layers)])
    for first, end in pairwise(starts.tolist()):
        if end > first:
            sizes[first + np.argmax(sizes[first:end])] = np.inf
    kept = np.ones(len(sizes), bool)
    kept[np.argpartition(sizes, count - 1)[:count]] = False
    kept |= np.isinf(sizes)
    for k, some in enumerate(np.split(kept, starts[1:-1])):
        if not some.all():  # frees a layer's memory before the next one is made
            layers[k] = layers[k].with_edges(layers[k].compact_numbers[some])
    return layers
