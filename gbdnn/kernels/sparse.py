"""The sparse form of a layer, in LAGraph's four steps: product, bias, select, clip.

Inputs and weights are sparse and row-wise; SuiteSparse multiplies them by Gustavson's method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gbdnn.arrays.sparse_rows import release
from gbdnn.kernels import costs
from gbdnn.runtime.first_use import gb

if TYPE_CHECKING:
    from collections.abc import Callable

    from gbdnn.arrays.sparse_rows import SparseRows
    from gbdnn.model.layer import Layer
    from gbdnn.model.layer_info import LayerInfo

__all__ = ["SPARSE", "SparseForm", "SparseWeights"]


class SparseWeights(NamedTuple):
    """What the sparse form needs of a layer, made once per layer.

    ``W`` are the weights, row-wise; ``D`` the diagonal matrix of the bias, None where all are 0;
    ``b`` the biases that neurons without an entry get too, None where there are none; ``degrees``
    the number of edges that leave each neuron.
    """

    W: gb.Matrix
    D: gb.Matrix | None
    b: gb.Vector | None
    degrees: np.ndarray


class SparseForm:
    """The product of two sparse matrices, in GraphBLAS."""

    name = "sparse"

    def is_exact(self, info: LayerInfo) -> bool:
        """Every layer."""
        return True

    def cost(self, info: LayerInfo, inputs: int, entries: float) -> float:
        """Return ns for all inputs at once."""
        return costs.sparse_layer(inputs, entries, info.edges, info.nrows, info.ncols)

    def prepare(self, layer: Layer) -> SparseWeights:
        """Return row-wise weights and the biases."""
        arrays = layer.W.ss.export("csr", sort=True)
        degrees = np.diff(arrays["indptr"].view(np.int64))
        W = gb.Matrix.ss.import_any(take_ownership=True, **arrays)
        W.wait()  # threads share it
        dense = np.broadcast_to(np.asarray(layer.bias, layer.dtype), (layer.ncols,))
        D = b = None
        if dense.any():
            D = gb.Vector.from_dense(dense).diag(name="D")
            D.wait()
        if layer.revives:
            # Under a ReLU a neuron without entries shows its bias only where that is positive.
            fills = np.flatnonzero(dense > 0 if layer.activation == "relu" else dense)
            b = gb.Vector.from_coo(fills, dense[fills], size=layer.ncols, name="b")
            b.wait()
        return SparseWeights(W, D, b, degrees)

    def most_entries(self, rows: SparseRows, layer: Layer) -> np.ndarray:
        """Return for each row how many entries it has after the layer, at most."""
        _, _, b, degrees = layer.prepared(self.prepare)
        paths = np.concatenate(([0], np.cumsum(degrees[rows.columns.view(np.int64)])))
        found = np.diff(paths[rows.indptr.view(np.int64)])
        return np.minimum(found + (0 if b is None else b.nvals), layer.ncols)

    def most_entries_in_all(self, layer: Layer, entries: float, inputs: int) -> float:
        """Return an upper bound of the entries after the layer that needs no row."""
        _, _, b, degrees = layer.prepared(self.prepare)
        found = entries * int(degrees.max(initial=0)) + inputs * (0 if b is None else b.nvals)
        return min(found, float(inputs) * layer.ncols)

    def advance(
        self,
        Y: gb.Matrix,
        layer: Layer,
        weights: SparseWeights,
        *,
        check: Callable[[np.ndarray], None] | None = None,
    ) -> gb.Matrix:
        """Return the activations after the layer; `Y` is left as it is."""
        from graphblas import binary, select, semiring

        scalar = layer.dtype.type
        W, D, b, _ = weights

        # Z = Y W
        Z = semiring.plus_times(Y @ W).new(name="Z")
        # Z += b where Z has an entry: each column scaled, in the (any, +) sense, by a diagonal
        if D is not None:
            Z << semiring.any_plus(Z @ D)
        # Z = b where it has none: the neurons that nothing reached (rule `all`)
        if b is not None:
            ones = gb.Vector.from_scalar(scalar(1), Y.nrows, dtype=Y.dtype, name="ones")
            B = ones.outer(b, binary.second).new(name="B")
            Z << binary.first(Z | B)
            release(ones, B)
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


SPARSE = SparseForm()
