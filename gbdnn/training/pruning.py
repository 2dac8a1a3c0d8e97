"""Magnitude pruning: the smallest weights go, more and more of them.

M. Zhu, S. Gupta, "To prune, or not to prune: exploring the efficacy of pruning for model
compression", arXiv:1710.01878, 2017.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from gbdnn.arrays.checks import as_word, whole_number
from gbdnn.errors import ArgumentError
from gbdnn.training.optimizers import between

if TYPE_CHECKING:
    from gbdnn.kernels.trainable import TrainableLayer
    from gbdnn.training.adjustments import StepContext

__all__ = ["MagnitudePruning"]

Scope = Literal["network", "layer"]


@dataclass(frozen=True)
class MagnitudePruning:
    """Gradual pruning: the edges of the smallest weights are removed, to a density at the end.

    Parameters
    ----------
    density : float
        Edges over those that there could be, more than 0 and at most 1, from `end` on.
    begin, end : float, default 0.0 and 0.75
        Parts of the training between which edges are removed; after it the others are fine-tuned.
    every : int, default 100
        Steps between two times; once more after the last step of the training.
    scope : {"network", "layer"}, default "network"
        Where weights are compared: in the whole network, whose density it is then, or in each
        layer.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        A value is out of range, or `end` is before `begin`.

    Notes
    -----
    The density falls by a cubic, fast as long as there are many edges to choose from::

        density + (1 - density) (1 - (progress - begin) / (end - begin))^3

    A network that is sparser than that keeps its edges until it no longer is. Moments of edges that
    stay are kept. A layer keeps the edge of its largest weight, whatever the others weigh.

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
            raise ArgumentError(f"end, {self.end:g}, is before begin, {self.begin:g}")
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


def _pruned(layers: list[TrainableLayer], density: float) -> list[TrainableLayer]:
    """Return layers with at most this density together, and at least an edge each."""
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
        if not some.all():  # a layer's memory is free before the next one is made
            layers[k] = layers[k].with_edges(layers[k].compact_numbers[some])
    return layers
