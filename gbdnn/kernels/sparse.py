"""The sparse form of a layer, in LAGraph's four steps: product, bias, select, clip.

Inputs and weights are sparse and row-wise; SuiteSparse multiplies them by Gustavson's method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import graphblas as gb
import numpy as np

from gbdnn.arrays.matrices import oriented

if TYPE_CHECKING:
    from collections.abc import Callable

    from gbdnn.model.layer import Layer

__all__ = ["SparseWeights", "advance", "prepare"]


class SparseWeights(NamedTuple):
    """What the sparse form needs of a layer, made once per layer.

    ``W`` are the weights, row-wise; ``D`` the diagonal matrix of the bias, None where all are 0;
    ``b`` the biases that neurons without an entry get too, None where there are none.
    """

    W: gb.Matrix
    D: gb.Matrix | None
    b: gb.Vector | None


def prepare(layer: Layer) -> SparseWeights:
    """Return the layer's weights and biases as `advance` wants them."""
    W = oriented(layer._W, "rowwise")
    dense = np.broadcast_to(np.asarray(layer.bias, layer.dtype), (layer.ncols,))
    D = b = None
    if dense.any():
        D = gb.Vector.from_dense(dense).diag(name="D")
    if layer.revives:
        # Under a ReLU a neuron without entries shows its bias only where that is positive.
        fills = np.flatnonzero(dense > 0 if layer.activation == "relu" else dense)
        b = gb.Vector.from_coo(fills, dense[fills], size=layer.ncols, name="b")
    return SparseWeights(W, D, b)


def advance(
    Y: gb.Matrix,
    layer: Layer,
    weights: SparseWeights,
    check: Callable[[np.ndarray], None] | None = None,
) -> gb.Matrix:
    """Return the activations after `layer`; `check` sees Z's values before the activation."""
    from graphblas import binary, select, semiring

    scalar = layer.dtype.type
    W, D, b = weights

    # Z = Y W
    Z = semiring.plus_times(Y @ W).new(name="Z")
    # Z += b where Z has an entry: each column scaled, in the (any, +) sense, by a diagonal matrix
    if D is not None:
        Z << semiring.any_plus(Z @ D)
    # Z = b where it has none: the neurons that nothing reached (rule `all`)
    if b is not None:
        ones = gb.Vector.from_scalar(scalar(1), Y.nrows, dtype=Y.dtype, name="ones")
        B = ones.outer(b, binary.second).new(name="B")
        Z << binary.first(Z | B)
    if check is not None:
        check(Z.to_coo(rows=False, columns=False)[2])
    # Y' = max(Z, 0): what is not positive is not stored
    if layer.activation == "relu":
        Z << select.valuegt(Z, scalar(0))
    else:
        Z << select.valuene(Z, scalar(0))
    # Y' = min(Y', clip)
    if layer.clip is not None:
        Z << binary.min(Z, scalar(layer.clip))
    return Z
