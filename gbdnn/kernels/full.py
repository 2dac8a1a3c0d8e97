"""The full form of a layer: a block of inputs, zeros and all, in place.

    Z  = b                         every input starts at the bias
    Z += Y W                       plus_times into Z itself: SuiteSparse's kernel saxpy5
    Y' = min(max(Z, 0), clip)      one pass over the same memory

Y and Z are full and column-wise, W is sparse and column-wise. Starting at the bias is the rule
``all``. It is the rule ``entries`` too, where an input that reaches a neuron by no edge would be
left with nothing: under a ReLU and a bias <= 0, or where the bias is 0.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import graphblas as gb
import numpy as np

if TYPE_CHECKING:
    from gbdnn.kernels.blocks import Block
    from gbdnn.model.layer import Layer
    from gbdnn.model.layer_info import LayerInfo

__all__ = ["FullWeights", "activate", "advance", "is_exact", "multiply", "prepare", "start"]


class FullWeights(NamedTuple):
    """What the full form needs of a layer: column-wise weights, one bias or one per neuron."""

    W: gb.Matrix
    b: float | np.ndarray
    edges: int


def is_exact(layer: LayerInfo) -> bool:
    """Whether the full form gives this layer's answer (there is no block of no neurons)."""
    if 0 in layer.shape:
        return False
    if layer.bias_rule == "all" or layer.largest_bias == 0:
        return True
    return layer.activation == "relu" and layer.highest_bias <= 0


def prepare(layer: Layer) -> FullWeights:
    """Return the layer's weights as they are."""
    return FullWeights(layer._W, layer.bias, layer.edges)


def advance(Y: Block, Z: Block, layer: Layer, weights: FullWeights) -> None:
    """Make `Z` the activations after `layer` of the inputs in `Y`."""
    start(Z, weights)
    multiply(Y, Z, weights)
    activate(Z, layer)


def start(Z: Block, weights: FullWeights) -> None:
    """Z = b."""
    if isinstance(weights.b, np.ndarray):
        Z.array[:] = weights.b[:, np.newaxis]
    else:
        Z.array.fill(weights.b)


def multiply(Y: Block, Z: Block, weights: FullWeights) -> None:
    """Z += Y W."""
    if weights.edges:
        plus, plus_times = _arithmetic(weights.W.dtype.name)
        Z.matrix(plus) << plus_times(Y.matrix @ weights.W)


@cache
def _arithmetic(dtype: str) -> tuple[Any, Any]:
    """Return plus and plus_times of one dtype: to find them takes a third of a call's time."""
    return gb.binary.plus[dtype], gb.semiring.plus_times[dtype]


def activate(Z: Block, layer: Layer) -> None:
    """Y' = min(max(Z, 0), clip)."""
    z = Z.array
    if layer.activation == "relu":
        # Three times as fast as np.maximum.
        np.clip(z, 0, np.inf if layer.clip is None else layer.clip, out=z)
    elif layer.clip is not None:
        np.minimum(z, layer.clip, out=z)
