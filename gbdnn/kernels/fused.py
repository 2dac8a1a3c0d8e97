"""The fused kernel: a block through many layers, each in one pass over its memory.

    Z  = b; Z += Y W               sums stay in registers for all edges of a neuron
    Y' = min(max(Z, 0), clip)      applied before sums are stored, once

The inner loops are compiled by numba and cached on disk (`gbdnn.kernels.compiled`). The full kernel
is the same equation in GraphBLAS: the reference, and the fallback if nothing can be compiled.
"""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.kernels import costs
from gbdnn.kernels.full import FULL
from gbdnn.kernels.fused_chain import FusedChain
from gbdnn.kernels.reorder import reordered
from gbdnn.kernels.worth import Code, library_of
from gbdnn.runtime.machine import machine

if TYPE_CHECKING:
    from gbdnn.kernels.compiled.table import FusedLayer
    from gbdnn.kernels.kernel import Chain, ChainLayers
    from gbdnn.model.layer import Layer
    from gbdnn.model.layer_info import LayerInfo

__all__ = ["FUSED", "FusedKernel"]


class FusedKernel:
    """Sums in registers, in code compiled for the processor."""

    name = "fused"

    def __init__(self) -> None:
        self._codes = {
            (np.dtype(name), one_by_one): Code(
                partial(library_of, name, "single" if one_by_one else "blocks"),
                partial(getattr, costs, price),
                "fused kernel for single inputs" if one_by_one else "fused kernel",
            )
            for name in ("float32", "float64")
            for one_by_one, price in ((False, "COMPILE"), (True, "COMPILE_SMALL"))
        }

    def code(self, dtype: np.dtype, *, one_by_one: bool = False) -> Code:
        """Return the compiled code for a dtype: for blocks, or for inputs `one_by_one`."""
        return self._codes[dtype, one_by_one]

    def is_exact(self, info: LayerInfo) -> bool:
        """Whether initialising with the bias gives the layer's rule."""
        return FULL.is_exact(info)

    def cost(self, info: LayerInfo, inputs: int, entries: float) -> float:
        """Return the time for one block, in ns."""
        return costs.fused_layer(inputs, info.edges, *info.shape, info.dtype.itemsize)

    def where(self) -> dict[str, str]:
        """Return the location of the compiled code for each dtype, and whether it exists."""
        found, suited = {}, "" if machine().has_fma else " (slow: no fused multiply-adds here)"
        for dtype in map(np.dtype, ("float32", "float64")):
            each = library_of(dtype.name, "blocks")
            there = "" if each.is_at_hand else " (not yet compiled)"
            found[dtype.name] = f"{each.file or 'not kept on disk'}{there}{suited}"
        return found

    def keep_code(self, dtype: np.dtype) -> None:
        """Load the code, or compile and store it on disk for later processes."""
        from gbdnn.kernels.compiled.library import cache_folder

        if cache_folder() is not None and self.code(dtype).work_left() < math.inf:
            self.code(dtype).functions()

    def prepare(
        self,
        layer: Layer,
        rows: np.ndarray | None,
        columns: np.ndarray | None,
        *,
        wide: bool = False,
    ) -> FusedLayer:
        """Return columns grouped by pattern, or by panels if `wide`; or a dense layer.

        The part that does not depend on the width is cached on the layer.
        """
        from gbdnn.kernels.compiled.table import prepare_panels

        given, found = _columns(layer, rows, columns), None
        if wide and not costs.dense_layer_pays(layer.edges, *layer.shape):
            found = prepare_panels(*given, layer)
        if found is None:
            found = layer.prepared(_any_width) if rows is None else _prepared(given, layer)
        return found

    def chain(self, layers: ChainLayers) -> Chain:
        """Return consecutive layers."""
        return FusedChain(layers)

    def prepare_single(self, layer: Layer, density: float, count: int) -> list[FusedLayer]:
        """Return the rows of the weights for a single input, in `count` shares of the neurons.

        The shares have about equally many edges. From `density` on, zeros are stored, too.
        """
        from gbdnn.kernels.compiled.table import prepare_rows

        dense = layer.edges >= density * layer.nrows * layer.ncols
        W, parts, between = layer.W, np.arange(1, count) / count * layer.edges, list[int]()
        if count > 1:
            degrees = W.reduce_columnwise("count").new().to_dense(fill_value=0)
            between = np.searchsorted(np.cumsum(degrees), parts).tolist()
        found = []
        for first, last in itertools.pairwise([0, *between, layer.ncols]):
            rows = SparseRows.from_matrix(W[:, first:last].new() if count > 1 else W.dup())
            bias = layer.bias if isinstance(layer.bias, float) else layer.bias[first:last]
            found.append(prepare_rows(rows, bias, layer, first=first, dense=dense))
        return found


FUSED = FusedKernel()


def _columns(
    layer: Layer, rows: np.ndarray | None = None, columns: np.ndarray | None = None
) -> tuple[SparseRows, float | np.ndarray]:
    """Return a layer's columns and bias, with neurons in the given order."""
    if rows is not None and columns is not None:
        return reordered(layer, rows, columns)
    arrays = layer.W.ss.export("csc", sort=True)
    found = arrays["indptr"], arrays["row_indices"], arrays["values"]
    return SparseRows(*found, layer.nrows), layer.bias


def _any_width(layer: Layer) -> FusedLayer:
    """Return the weights for blocks of any width, cached on the layer."""
    return _prepared(_columns(layer), layer)


def _prepared(given: tuple[SparseRows, float | np.ndarray], info: LayerInfo) -> FusedLayer:
    from gbdnn.kernels.compiled.table import prepare, prepare_dense

    dense = costs.dense_layer_pays(info.edges, *info.shape)
    return (prepare_dense if dense else prepare)(*given, info)
