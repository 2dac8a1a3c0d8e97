"""Compute the true categories of a challenge network independently."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.runtime.optional import require

if TYPE_CHECKING:
    from collections.abc import Callable

    from gbdnn.model.layer import Layer
    from gbdnn.model.network import Network
    from gbdnn.runtime.first_use import gb

    Progress = Callable[[int, int], object]

__all__ = ["scipy_categories"]

# Activations have about ten times as many entries; a block's layer takes about a second.
_BLOCK_ENTRIES = 1_500_000


def scipy_categories(
    network: Network, features: gb.Matrix, *, progress: Progress | None = None
) -> np.ndarray:
    """Return the 0-based categories of a challenge network by SciPy in FP64, ascending.

    Layers have the bias rule ``"entries"``, a ReLU, and nonnegative weights (SciPy drops sums that
    cancel). Inputs without entries are dropped after each layer. ``progress(k, count)`` is called
    at the beginning and after each layer of a block of inputs.
    """
    if progress is not None:
        progress(0, len(network))
    X = _as_csr(features)
    blocks = np.array_split(np.arange(features.nrows), 1 + X.nnz // _BLOCK_ENTRIES)
    groups = []
    for block, alive in enumerate(blocks):
        Y = X[alive]
        for k, layer in enumerate(network):
            Y = _after(layer, Y @ _as_csr(layer.weights), layer.given_bias)
            lives = np.diff(Y.indptr) > 0
            Y, alive = Y[lives], alive[lives]
            if progress is not None:
                progress(block * len(network) + k + 1, len(blocks) * len(network))
        groups.append(alive)
    return np.concatenate(groups)


def left_to_rounding(network: Network, features: gb.Matrix) -> np.ndarray:
    """Return the inputs whose category depends on rounding; parameters as for `scipy_categories`.

    A sum of n products and a bias, in any order, has an error of at most g (sum + abs(bias)), where
    g = n u / (1 - n u), and u is the unit roundoff of the network's dtype (Higham, Accuracy and
    Stability of Numerical Algorithms, section 3.1; weights and activations are >= 0). Lower and
    upper bounds of the activations are propagated through the layers in FP64. An input depends on
    rounding if only its upper bounds give it a category.
    """
    roundoff = (np.finfo(network.dtype or np.float32).eps + np.finfo(np.float64).eps) / 2
    least = most = _as_csr(features)
    for layer in network:
        W = _as_csr(layer.weights)
        n = 2 + int(np.bincount(W.indices, minlength=1).max(initial=0))
        g = n * roundoff / (1 - n * roundoff)
        off = g * np.abs(layer.given_bias)
        least = _after(layer, (1 - g) * (least @ W), layer.given_bias - off)
        most = _after(layer, (1 + g) * (most @ W), layer.given_bias + off)
    return (np.diff(most.indptr) > 0) & (np.diff(least.indptr) == 0)


def _as_csr(matrix: gb.Matrix) -> Any:
    sp = require("scipy.sparse", "files", "the check needs SciPy")
    rows, columns, values = matrix.to_coo()
    return sp.csr_array((values.astype(np.float64), (rows, columns)), shape=matrix.shape)


def _after(layer: Layer, Z: Any, bias: Any) -> Any:
    """Add the bias to the entries of Y W, clip to 0 and the layer's upper bound, drop zeros."""
    Z.data += np.broadcast_to(bias, (layer.ncols,))[Z.indices]
    np.clip(Z.data, 0, layer.clip, out=Z.data)
    Z.eliminate_zeros()
    return Z
