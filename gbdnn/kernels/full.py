"""The full kernel: GraphBLAS products of full blocks and sparse weights, called by compiled code.

    Z  = b                         initialise with the bias
    Z += Y W                       plus_times into Z; SuiteSparse's kernel saxpy5
    Y' = min(max(Z, 0), clip)      one pass over the same memory

The loop is in ``compiled/full_loop.c``. Y and Z are full and column-wise, W is sparse and
column-wise. Each thread takes a part of the rows through all layers, as in the sparse kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gbdnn.kernels import costs
from gbdnn.kernels.compiled.graphblas import handle
from gbdnn.kernels.compiled.record import Record
from gbdnn.kernels.kernel import BlockKernel
from gbdnn.runtime.first_use import gb
from gbdnn.runtime.ownership import owned

if TYPE_CHECKING:
    from gbdnn.model.layer import Layer
    from gbdnn.model.layer_info import LayerInfo

__all__ = ["FULL", "FullKernel", "FullWeights"]


class FullWeights(NamedTuple):
    """Column-wise weights of a layer, and what compiled code reads."""

    W: gb.Matrix
    record: Record


class FullKernel(BlockKernel):
    """Product of a full with a sparse matrix in GraphBLAS."""

    name = "full"

    def cost(self, info: LayerInfo, inputs: int, entries: float) -> float:
        """Return the time for one block, in ns."""
        return costs.full_layer(inputs, info.edges, info.ncols, info.dtype.itemsize)

    def width(self, neurons: int, itemsize: int, inputs: int, threads: int) -> int:
        """Return the number of inputs per block."""
        return costs.block_rows(inputs, threads)

    def step(self, dtype: np.dtype) -> int:
        """Return the least number of inputs of a block."""
        return 16

    def size(self, neurons: int, width: int, dtype: np.dtype) -> int:
        """Return the size of a block in bytes."""
        panel = costs.panel_width(neurons, dtype.itemsize)
        whole = (width - 1) // panel * panel
        return neurons * (whole + costs.padded(width - whole)) * dtype.itemsize

    def prepare(self, layer: Layer) -> FullWeights:
        """Return column-wise weights and the bias."""
        W = layer.W
        if W.ss.is_iso:  # SuiteSparse's kernel is faster if each edge has its own value
            arrays = W.ss.export("csc", sort=True)
            values = np.repeat(arrays["values"], W.nvals)
            W = owned(gb.Matrix.ss.import_any, **arrays | {"values": values, "is_iso": False})
        W.wait()  # shared by threads
        is_one = isinstance(layer.bias, float)
        record = Record(
            "loop_layer", layer.dtype, W=handle(W), ncols=layer.ncols, edges=layer.edges,
            relu=layer.activation == "relu", clipped=layer.clip is not None, clip=layer.clip or 0,
            b=layer.bias if is_one else 0,
            biases=None if is_one else np.ascontiguousarray(layer.bias, layer.dtype),
        )  # fmt: skip
        return FullWeights(W, record)


FULL = FullKernel()
