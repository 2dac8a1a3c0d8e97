"""The fused kernel: a block through many layers, each in one pass over its memory.

    Z  = b; Z += Y W               sums stay in registers for all edges of a neuron
    Y' = min(max(Z, 0), clip)      applied before sums are stored, once

The inner loops are C (`gbdnn.kernels.compiled`). The full kernel is the same equation in GraphBLAS:
the reference, and the fallback on processors for which the installation has no library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.kernels import costs
from gbdnn.kernels.blocks import AlignedBlock
from gbdnn.kernels.compiled.table import prepare, prepare_dense, prepare_panels, prepare_rows
from gbdnn.kernels.kernel import BlockKernel
from gbdnn.kernels.reorder import reordered

if TYPE_CHECKING:
    import numpy as np

    from gbdnn.kernels.compiled.table import FusedLayer
    from gbdnn.model.layer import Layer
    from gbdnn.model.layer_info import LayerInfo

__all__ = ["FUSED", "FusedKernel"]


class FusedKernel(BlockKernel):
    """Sums in registers, in compiled code."""

    name, is_compiled, at_once = "fused", True, 4

    def width(self, neurons: int, itemsize: int, inputs: int, threads: int) -> int:
        """Return the number of inputs per block for layers of up to `neurons` neurons."""
        return costs.fused_width(neurons, itemsize, inputs, threads)

    def step(self, dtype: np.dtype) -> int:
        """Return the least number of inputs of a block."""
        return AlignedBlock.step(dtype)

    def size(self, neurons: int, width: int, dtype: np.dtype) -> int:
        """Return the size of a block in bytes."""
        return AlignedBlock.size(neurons, width, dtype)

    def cost(self, info: LayerInfo, inputs: int, entries: float) -> float:
        """Return the time for one block, in ns."""
        return costs.fused_layer(inputs, info.edges, *info.shape, info.dtype.itemsize)

    def prepare(
        self, layer: Layer, rows: np.ndarray | None, columns: np.ndarray | None, *,
        wide: bool = False,
    ) -> FusedLayer:  # fmt: skip
        """Return columns grouped by pattern, or by panels if `wide`; or a dense layer.

        The part that does not depend on the width is cached on the layer.
        """
        wide = wide and not costs.dense_layer_pays(layer.edges, *layer.shape)
        wide = wide and costs.panel_rows(layer.edges, *layer.shape) < layer.nrows
        if not wide and rows is None:
            return layer.prepared(_any_width)
        given = _columns(layer, rows, columns)
        panels = prepare_panels(*given, layer) if wide else None
        if panels is None and rows is None:
            return layer.prepared(_any_width)
        return panels or _prepared(given, layer)

    def prepare_single(self, layer: Layer, density: float) -> FusedLayer:
        """Return the rows of the weights for a single input; from `density` on with zeros, too."""
        dense = layer.edges >= density * layer.nrows * layer.ncols
        return prepare_rows(SparseRows.from_matrix(layer.W.dup()), layer.bias, layer, dense=dense)


FUSED = FusedKernel()


def _columns(
    layer: Layer, rows: np.ndarray | None = None, columns: np.ndarray | None = None
) -> tuple[SparseRows, float | np.ndarray]:
    """Return a layer's columns and bias, with neurons in the given order."""
    if rows is not None and columns is not None:
        return reordered(layer, rows, columns)
    arrays = layer.W.ss.export("csc", sort=True)
    csc = arrays["indptr"], arrays["row_indices"], arrays["values"]
    return SparseRows(*csc, layer.nrows), layer.bias


def _any_width(layer: Layer) -> FusedLayer:
    """Return the weights for blocks of any width, cached on the layer."""
    return _prepared(_columns(layer), layer)


def _prepared(given: tuple[SparseRows, float | np.ndarray], info: LayerInfo) -> FusedLayer:
    dense = costs.dense_layer_pays(info.edges, *info.shape)
    return (prepare_dense if dense else prepare)(*given, info)
