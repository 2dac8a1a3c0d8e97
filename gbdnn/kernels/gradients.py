"""Gradients of a network's weights in GraphBLAS, equation by equation.

    Z = Y W + b;   Y' = min(max(Z, 0), clip)       forward, every layer's activations kept
    D = D' W'^T  where 0 < Y < clip                 backward
    dW<W.S> = Y^T D;   db = sum of D over inputs    on the pattern of W alone

Activations and their gradients are full matrices, inputs x neurons. This is the reference of
`gbdnn.kernels.steps`, whose compiled code is about twenty times as fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gbdnn.runtime.first_use import gb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gbdnn.model.layer import Layer

__all__ = ["LayerGradient", "backward", "forward"]


class LayerGradient(NamedTuple):
    """Gradient of a layer's weights and biases."""

    W: gb.Matrix
    """Matrix with the shape and pattern of the weights."""

    b: np.ndarray
    """Array of shape (ncols,)."""


def forward(layers: Sequence[Layer], X: np.ndarray) -> list[gb.Matrix]:
    """Return the activations before the first and after each layer.

    Parameters
    ----------
    layers : sequence of Layer
        With the bias rule ``"all"``.
    X : ndarray of the layers' dtype, shape (inputs, neurons)
    """
    binary, semiring = gb.binary, gb.semiring
    activations = [gb.Matrix.from_dense(X)]
    for layer in layers:
        name = layer.dtype.name
        Y, b = activations[-1], np.broadcast_to(np.asarray(layer.bias, X.dtype), (layer.ncols,))
        # Z = b; Z += Y W
        Z = gb.Matrix.from_dense(np.repeat(b[np.newaxis], len(X), axis=0))
        Z(binary.plus[name]) << semiring.plus_times[name](Y @ layer.W)
        # Y' = min(max(Z, 0), clip)
        if layer.activation == "relu":
            Z << binary.max[name](Z, X.dtype.type(0))
        if layer.clip is not None:
            Z << binary.min[name](Z, X.dtype.type(layer.clip))
        activations.append(Z)
    return activations


def backward(
    layers: Sequence[Layer], activations: Sequence[gb.Matrix], gradient: np.ndarray
) -> list[LayerGradient]:
    """Return the gradient of each layer's weights and biases.

    `activations` are those of `forward`; `gradient` is that of the loss with respect to the last
    ones, shape (inputs, outputs).
    """
    monoid, semiring = gb.monoid, gb.semiring
    D = gb.Matrix.from_dense(gradient)
    found: list[LayerGradient] = []
    for k in reversed(range(len(layers))):
        layer, name = layers[k], layers[k].dtype.name
        D = _passed(D, activations[k + 1], layer)
        # dW<W.S> = Y^T D, which is 0 where no input reaches an edge
        dW = gb.Matrix(layer.dtype, layer.nrows, layer.ncols)
        dW(layer.W.S) << layer.dtype.type(0)
        dW(layer.W.S, gb.binary.plus[name]) << semiring.plus_times[name](activations[k].T @ D)
        # db = sum of D over inputs
        sums = D.reduce_columnwise(monoid.plus[name]).new()
        db = sums.to_dense(fill_value=layer.dtype.type(0), dtype=name)
        found.append(LayerGradient(dW, db))
        # D = D' W'^T
        if k:
            D = semiring.plus_times[name](D @ layer.W.T).new()
    return found[::-1]


def _passed(D: gb.Matrix, Y: gb.Matrix, layer: Layer) -> gb.Matrix:
    """Return D where the activation is differentiable and not constant: between its limits."""
    select, zero = gb.select, layer.dtype.type(0)
    if layer.activation == "relu":
        D = D.dup(mask=select.valuegt(Y, zero).new().S)
    if layer.clip is not None:
        D = D.dup(mask=select.valuelt(Y, layer.dtype.type(layer.clip)).new().S)
    return D
