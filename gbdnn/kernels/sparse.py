"""The sparse kernel: GraphBLAS operations on parts of the rows, called by compiled code.

The loop of `gbdnn.kernels.lagraph` is in ``compiled/sparse_loop.c`` here. SuiteSparse multiplies
row-wise matrices by Gustavson's method. Rows do not depend on each other, so each thread takes a
part of them through all layers, in a GraphBLAS Context of one thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbdnn.kernels import costs
from gbdnn.kernels.compiled.graphblas import handle
from gbdnn.kernels.compiled.record import Record
from gbdnn.runtime.first_use import gb
from gbdnn.runtime.ownership import owned

if TYPE_CHECKING:
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
    fill : Matrix, optional
        One row, the values of neurons without an entry (bias rule ``all``); None if they are 0.
    degrees : ndarray
        Number of outgoing edges of each neuron of the previous layer.
    record : Record
        What compiled code reads.
    """

    W: gb.Matrix
    b: Any
    fill: gb.Matrix | None
    degrees: np.ndarray
    record: Record


class SparseKernel:
    """Product of two sparse matrices in GraphBLAS."""

    name = "sparse"

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
            first = np.zeros(len(neurons), np.uint64)
            shape = {"nrows": 1, "ncols": layer.ncols}
            fill = gb.Matrix.from_coo(first, neurons, dense[neurons], **shape, name="b")
            fill.wait()
        is_one = not isinstance(b, gb.Matrix)
        record = Record(
            "loop_layer", layer.dtype, W=handle(W), b=b if is_one else 0,
            D=None if is_one else handle(b), fill=None if fill is None else handle(fill),
            ncols=layer.ncols, relu=layer.activation == "relu", clipped=layer.clip is not None,
            clip=layer.clip or 0, degree=degrees.max(initial=0),
            filled=0 if fill is None else fill.nvals,
        )  # fmt: skip
        return SparseWeights(W, b, fill, degrees, record)

    def most_entries(self, rows: SparseRows, layer: Layer) -> np.ndarray:
        """Return an upper bound of the entries of each row after the layer."""
        _, _, fill, degrees, _ = layer.prepared(self.prepare)
        paths = np.concatenate(([0], np.cumsum(degrees[rows.columns.view(np.int64)])))
        paths_of_rows = np.diff(paths[rows.indptr.view(np.int64)])
        return np.minimum(paths_of_rows + (0 if fill is None else fill.nvals), layer.ncols)

    def most_entries_in_all(self, layer: Layer, entries: float, inputs: int) -> float:
        """Return an upper bound of all entries after the layer, from their number before it."""
        _, _, fill, degrees, _ = layer.prepared(self.prepare)
        bound = entries * int(degrees.max(initial=0)) + inputs * (0 if fill is None else fill.nvals)
        return min(bound, float(inputs) * layer.ncols)


SPARSE = SparseKernel()
