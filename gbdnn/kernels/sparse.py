"""The sparse kernel: a layer in GraphBLAS operations on a sparse matrix of many inputs.

Under a ReLU with one bias for the layer, as in the Sparse DNN Challenge:

    Z  = Y W                       mxm, plus_times
    Z  = Z(Z > -b)                 select, valuegt: ReLU, before the bias is added
    Z  = Z + b                     apply, plus: only to entries that survive
    Y' = min(Z, clip)              apply, min

``x > -b`` and ``x + b > 0`` agree for all finite floating-point numbers. LAGraph adds the bias
first, as a product with a diagonal matrix; so does this module if each neuron has its own bias.
Inputs and weights are row-wise; SuiteSparse multiplies them by Gustavson's method on its OpenMP
threads.

T. Davis, M. Aznaveh, S. Kolodziej, "Write Quick, Run Fast: Sparse Deep Neural Network in 20 Minutes
of Development Time via SuiteSparse:GraphBLAS", HPEC 2019.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbdnn.kernels import costs
from gbdnn.runtime.first_use import gb
from gbdnn.runtime.ownership import owned

if TYPE_CHECKING:
    from collections.abc import Callable

    from gbdnn.arrays.sparse_rows import SparseRows
    from gbdnn.model.layer import Layer
    from gbdnn.model.layer_info import LayerInfo

__all__ = ["SPARSE", "SparseKernel", "SparseWeights"]


class SparseWeights(NamedTuple):
    """Weights and bias of a layer, prepared once.

    Attributes
    ----------
    W : Matrix
        Row-wise weights.
    b : scalar of the layer's dtype or Matrix
        Bias: one number, or a diagonal matrix with a value per neuron.
    fill : Vector, optional
        Values of neurons without an entry (bias rule ``all``); None if they are 0.
    degrees : ndarray
        Number of outgoing edges of each neuron of the previous layer.
    """

    W: gb.Matrix
    b: Any
    fill: gb.Vector | None
    degrees: np.ndarray


class SparseKernel:
    """Product of two sparse matrices in GraphBLAS."""

    name = "sparse"

    def is_exact(self, info: LayerInfo) -> bool:
        """Return True: every layer."""
        return True

    def cost(self, info: LayerInfo, inputs: int, entries: float) -> float:
        """Return the time for all inputs together, in ns."""
        return costs.sparse_layer(inputs, entries, info.edges, info.nrows, info.ncols)

    def prepare(self, layer: Layer) -> SparseWeights:
        """Return row-wise weights and biases."""
        arrays = layer.W.ss.export("csr", sort=True)
        degrees = np.diff(arrays["indptr"].view(np.int64))
        W = owned(gb.Matrix.ss.import_any, **arrays)
        W.wait()  # shared by threads
        dense = np.broadcast_to(np.asarray(layer.bias, layer.dtype), (layer.ncols,))
        b: Any = layer.dtype.type(layer.lowest_bias)
        if b != layer.highest_bias:
            b = owned(gb.Vector.ss.import_full, values=dense).diag(name="D")
            b.wait()
        fill = None
        if layer.revives:
            # Under a ReLU, a neuron without entries has the value of its bias if it is positive.
            neurons = np.flatnonzero(dense > 0 if layer.activation == "relu" else dense)
            fill = gb.Vector.from_coo(neurons, dense[neurons], size=layer.ncols, name="b")
            fill.wait()
        return SparseWeights(W, b, fill, degrees)

    def most_entries(self, rows: SparseRows, layer: Layer) -> np.ndarray:
        """Return an upper bound of the entries of each row after the layer."""
        _, _, fill, degrees = layer.prepared(self.prepare)
        paths = np.concatenate(([0], np.cumsum(degrees[rows.columns.view(np.int64)])))
        found = np.diff(paths[rows.indptr.view(np.int64)])
        return np.minimum(found + (0 if fill is None else fill.nvals), layer.ncols)

    def most_entries_in_all(self, layer: Layer, entries: float, inputs: int) -> float:
        """Return an upper bound of all entries after the layer, from their number before it."""
        _, _, fill, degrees = layer.prepared(self.prepare)
        found = entries * int(degrees.max(initial=0)) + inputs * (0 if fill is None else fill.nvals)
        return min(found, float(inputs) * layer.ncols)

    def advance(
        self, Y: gb.Matrix, layer: Layer, weights: SparseWeights, *,
        check: Callable[[np.ndarray], None] | None = None,
    ) -> gb.Matrix:  # fmt: skip
        """Return the activations after the layer; `Y` is not modified.

        `check` is called with the values of ``Y W + b`` before the ReLU.
        """
        from graphblas import binary, select, semiring

        scalar = layer.dtype.type
        W, b, fill, _ = weights

        # Z = Y W
        Z = semiring.plus_times(Y @ W).new(name="Z")
        if layer.activation == "relu" and fill is None and isinstance(b, scalar):
            if check is not None:  # before the select, which drops NaN and -inf
                with np.errstate(over="ignore"):
                    check(_values(Z) + b)
            # Z = Z(Z > -b)
            Z << select.valuegt(Z, -b)
            # Z += b
            if b:
                Z << binary.plus(Z, b)
        else:
            # Z += b where Z has an entry; a diagonal matrix scales columns in the (any, +) sense
            if not isinstance(b, scalar):
                Z << semiring.any_plus(Z @ b)
            elif b:
                Z << binary.plus(Z, b)
            # Z = b where it has none (rule `all`)
            if fill is not None:
                ones = gb.Vector(Y.dtype, Y.nrows, name="ones")
                ones[:] = scalar(1)
                B = ones.outer(fill, binary.second).new(name="B")
                Z << binary.first(Z | B)
                del B
            if check is not None:
                check(_values(Z))
            # Z = Z(Z > 0), or without the zeros
            keep = select.valuegt if layer.activation == "relu" else select.valuene
            Z << keep(Z, scalar(0))
        # Y' = min(Z, clip)
        if layer.clip is not None:
            Z << binary.min(Z, scalar(layer.clip))
        return Z


def _values(Z: gb.Matrix) -> np.ndarray:
    found: np.ndarray = Z.to_coo(rows=False, columns=False)[2]
    return found


SPARSE = SparseKernel()
