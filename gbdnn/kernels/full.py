"""The full kernel: a layer on a dense block of inputs, in place.

    Z  = b                         initialise with the bias
    Z += Y W                       plus_times into Z; SuiteSparse's kernel saxpy5
    Y' = min(max(Z, 0), clip)      one pass over the same memory

Y and Z are full and column-wise, W is sparse and column-wise. Initialising with the bias is the
bias rule ``all``. It also gives the rule ``entries`` if neurons that no edge reaches become 0:
under a ReLU and a bias <= 0, or with bias 0.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.kernels import costs
from gbdnn.kernels.blocks import Block, require_in_place
from gbdnn.kernels.full_chain import FullChain
from gbdnn.kernels.kernel import BlockKernel
from gbdnn.kernels.reorder import reordered
from gbdnn.runtime.first_use import gb

if TYPE_CHECKING:
    from collections.abc import Callable

    from gbdnn.kernels.kernel import Chain, ChainLayers
    from gbdnn.model.layer import Layer
    from gbdnn.model.layer_info import LayerInfo

__all__ = ["FULL", "FullKernel", "FullWeights"]


class FullWeights(NamedTuple):
    """Column-wise weights of a layer, and one bias or one per neuron."""

    W: gb.Matrix
    b: float | np.ndarray


class FullKernel(BlockKernel):
    """Product of a full with a sparse matrix in GraphBLAS."""

    name = "full"
    block = Block

    def cost(self, info: LayerInfo, inputs: int, entries: float) -> float:
        """Return the time for one block, in ns."""
        return costs.full_layer(inputs, info.edges, info.ncols, info.dtype.itemsize)

    def threads(self, nthreads: int, blocks: int, width: int, edges: int) -> tuple[int, int]:
        """Divide threads into concurrent blocks and threads within each product."""
        return costs.inner_threads(nthreads, blocks, width, edges)

    def prepare(
        self, layer: Layer, rows: np.ndarray | None, columns: np.ndarray | None, *,
        wide: bool = False,
    ) -> FullWeights:  # fmt: skip
        """Return column-wise weights and the bias, reordered; the same for blocks of any width."""
        if rows is None or columns is None:
            return FullWeights(layer.W, layer.bias)
        of_W, b = reordered(layer, rows, columns)
        # SuiteSparse's kernel is faster if each edge has its own value.
        each = SparseRows(of_W.indptr, of_W.columns, np.array(of_W.values), layer.nrows)
        return FullWeights(each.matrix(transposed=True), b)

    def chain(self, layers: ChainLayers) -> Chain:
        """Return consecutive layers."""
        require_in_place(layers.plans[0].info.dtype.name)
        return FullChain(layers, self)

    def advance(
        self, Y: Block, Z: Block, layer: LayerInfo, weights: FullWeights, *,
        check: Callable[[np.ndarray], None] | None = None,
    ) -> None:  # fmt: skip
        """Compute the layer; `check` gets ``Y W + b``."""
        start(Z, weights.b)
        multiply(Y, Z, weights.W)
        if check is not None:
            check(Z.filled)
        activate(Z, layer)


FULL = FullKernel()


def start(Z: Block, b: float | np.ndarray) -> None:
    """Z = b."""
    if isinstance(b, np.ndarray):
        Z.array[:] = b[:, np.newaxis]
    else:
        Z.array.fill(b)


def multiply(Y: Block, Z: Block, W: gb.Matrix) -> None:
    """Z += Y W."""
    if W.nvals:
        plus, plus_times = _arithmetic(W.dtype.name)
        Z.matrix(plus) << plus_times(Y.matrix @ W)


@cache
def _arithmetic(dtype: str) -> tuple[Any, Any]:
    """Return plus and plus_times of a dtype; looking them up takes a third of a call's time."""
    return gb.binary.plus[dtype], gb.semiring.plus_times[dtype]


def activate(Z: Block, layer: LayerInfo) -> None:
    """Y' = min(max(Z, 0), clip).

    In NumPy, because GraphBLAS's max and min on a full matrix take 4.0 ns an element each, and
    np.clip does both in 0.24 ns (Zen 1, one thread, SuiteSparse:GraphBLAS 9.4.5 and 10.1.1).
    """
    z = Z.array
    if layer.activation == "relu":
        # Three times as fast as np.maximum.
        np.clip(z, 0, np.inf if layer.clip is None else layer.clip, out=z)
    elif layer.clip is not None:
        np.minimum(z, layer.clip, out=z)
