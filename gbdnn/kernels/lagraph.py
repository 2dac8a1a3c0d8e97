"""``engine="lagraph"``: the layers in LAGraph's four GraphBLAS operations, on all inputs at once.

    Z  = Y W                 mxm, plus_times
    Z  = Z D                 mxm, any_plus: the diagonal matrix D adds b to the entries of Z
    Z  = Z(Z > 0)            select, valuegt: ReLU
    Y' = min(Z, clip)        apply, min

Rows of Y are inputs, W(i, j) is the edge from neuron i to neuron j, and all matrices are sparse
and row-wise. SuiteSparse:GraphBLAS divides each operation among its OpenMP threads. This is what a
layer means: the other kernels compute the same, faster.

Under the bias rule ``all``, neurons without an entry get their bias, too. Without a ReLU,
``select`` leaves out zeros.

T. Davis, M. Aznaveh, S. Kolodziej, "Write Quick, Run Fast: Sparse Deep Neural Network in 20 Minutes
of Development Time via SuiteSparse:GraphBLAS", HPEC 2019.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gbdnn.kernels.overflow import require_finite
from gbdnn.runtime.first_use import gb
from gbdnn.runtime.ownership import owned

if TYPE_CHECKING:
    from gbdnn.model.layer import Layer

__all__ = ["NAME", "advance"]

NAME = "lagraph"


class _Weights(NamedTuple):
    """Row-wise weights, a diagonal matrix of biases, and the values of neurons without entries."""

    W: gb.Matrix
    D: gb.Matrix | None
    fill: gb.Vector | None


def prepare(layer: Layer) -> _Weights:
    """Return a layer's weights and biases; None where all values are 0."""
    b = np.array(np.broadcast_to(np.asarray(layer.bias, layer.dtype), layer.ncols))
    W = owned(gb.Matrix.ss.import_any, **layer.W.ss.export("csr", sort=True))
    D = gb.Vector.from_dense(b).diag(name="D") if b.any() else None
    # Under a ReLU, a neuron without entries has the value of its bias if it is positive.
    at = np.flatnonzero(b > 0 if layer.activation == "relu" else b)
    fill = gb.Vector.from_coo(at, b[at], size=layer.ncols) if layer.revives else None
    return _Weights(W, D, fill)


def advance(k: int, layer: Layer, Y: gb.Matrix, *, may_overflow: bool = False) -> gb.Matrix:
    """Return the activations after layer `k`; with `may_overflow`, check ``Y W + b``."""
    from graphblas import binary, select, semiring

    W, D, fill = layer.prepared(prepare)
    scalar = layer.dtype.type  # a Python float would make these operations FP64

    # Z = Y W
    Z = semiring.plus_times(Y @ W).new(name="Y")
    # Z = Z + b on the entries of Z
    if D is not None:
        Z << semiring.any_plus(Z @ D)
    # Z = b elsewhere (rule `all`)
    if fill is not None:
        ones = gb.Vector.from_scalar(scalar(1), Y.nrows, dtype=Y.dtype)
        Z << binary.first(Z | ones.outer(fill, binary.second).new())
    if may_overflow:
        require_finite(k, layer, Z.to_coo(rows=False, columns=False)[2])
    # Z = max(Z, 0), or without the zeros
    keep = select.valuegt if layer.activation == "relu" else select.valuene
    Z << keep(Z, scalar(0))
    # Y' = min(Z, clip)
    if layer.clip is not None:
        Z << binary.min(Z, scalar(layer.clip))
    return Z
