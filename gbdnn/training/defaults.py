"""Defaults of the estimators and of the command line: edges, epochs and minibatches."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from gbdnn.runtime.optional import warn
from gbdnn.training.patterns import erdos_renyi

if TYPE_CHECKING:
    from gbdnn.model.network import Network

__all__ = ["batch", "epochs", "network"]

_INPUTS = 200_000  # of all epochs
# Edges of a layer per neuron on both sides; and edges into a neuron that are too few.
_DEGREE, _FEW = 20, 4


def network(
    sizes: list[int], density: float | None, *, least: float = 0.0, **options: Any
) -> Network:
    """Return a network with 20 (n + m) edges for a layer of n x m, unless `density` is given.

    With `least`, it has this density, or as much more as gives each neuron enough edges. Other
    parameters are those of `erdos_renyi`. Warn about layers with few edges per neuron.
    """
    shapes = list(pairwise(sizes))
    if density is None:
        # A layer has a share of all edges in proportion to n + m under ERK, to n m otherwise.
        is_uniform = bool(least) and options.get("distribution") == "uniform"
        parts = [n * m if is_uniform else n + m for n, m in shapes]
        enough = [_enough(n, m) / part for (n, m), part in zip(shapes, parts, strict=True)]
        edges = (max(enough) if least else _DEGREE) * sum(parts)
        most = max(1, sum(n * m for n, m in shapes))
        density = min(1.0, max(least, 1.01 * edges / most))
    net = erdos_renyi(sizes, density, **options)
    for k, info in enumerate(net.infos):
        if info.edges < _enough(*info.shape):
            warn(
                f"layer {k} has {info.edges / info.ncols:.2g} edges per neuron, too few to"
                " learn from most features; pass a larger density"
            )
    return net


def _enough(n: int, m: int) -> float:
    """Return the number of edges from which a layer of n x m learns from most features."""
    return max(1, min(_FEW, n / 4)) * m


def epochs(inputs: int) -> int:
    """Return the number of epochs for a number of inputs."""
    return min(100, max(20, _INPUTS // max(inputs, 1)))


def batch(inputs: int) -> int:
    """Return the minibatch size; few inputs have small ones, for about 32 steps per epoch."""
    return min(128, max(16, inputs // 512 * 16))
