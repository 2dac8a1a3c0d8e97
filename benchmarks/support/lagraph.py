"""LAGraph's loop of SpDNN inference, in four GraphBLAS calls per layer.

    Z  = Y W                plus_times
    Z  = Z D                min_plus, D diagonal: adds the bias to the entries of Z
    Z  = Z(Z > 0)           select
    Y' = min(Z, clip)

All matrices are sparse and row-wise; inputs are rows. gbdnn is compared with this loop, so do not
change it.

T. Davis, M. Aznaveh, S. Kolodziej, "Write Quick, Run Fast: Sparse Deep Neural Network in 20 Minutes
of Development Time via SuiteSparse:GraphBLAS", HPEC 2019.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import graphblas as gb
import loops
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gbdnn import Network


class Prepared(NamedTuple):
    """Row-wise weights, a diagonal bias matrix for each layer, and the upper limit."""

    weights: Sequence[gb.Matrix]
    biases: Sequence[gb.Matrix]
    clip: np.float32


def prepare(network: Network) -> Prepared:
    """Return a network for `infer`, in FP32, with the upper limit of the first layer."""

    def diagonal(n: int, bias: object) -> gb.Matrix:
        return gb.Vector.from_dense(np.full(n, bias, np.float32)).diag(name="D")

    one = cache(diagonal)
    return Prepared(
        [loops.rowwise(layer.weights) for layer in network],
        [(one if np.isscalar(W.bias) else diagonal)(W.ncols, W.bias) for W in network],
        np.float32(np.inf if network[0].clip is None else network[0].clip),
    )


def infer(network: Prepared, X: gb.Matrix) -> gb.Matrix:
    """Return the activations after the last layer, using the engaged Context's threads."""
    from graphblas import binary, select, semiring

    zero = np.float32(0)
    Y = X
    for W, D in zip(network.weights, network.biases, strict=True):
        Z = semiring.plus_times(Y @ W).new()
        Z << semiring.min_plus(Z @ D)
        Z << select.valuegt(Z, zero)
        Z << binary.min(Z, network.clip)
        Y = Z
    Y.wait()
    return Y


def categories(network: Prepared, parts: Sequence[gb.Matrix], nthreads: int) -> np.ndarray:
    """Return the categories of all batches, the inputs with an entry after the last layer."""
    return loops.categories(lambda X: loops.living(infer(network, X)), parts, nthreads)
