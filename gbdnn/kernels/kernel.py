"""Interfaces of kernels.

The sparse kernel computes a layer for all inputs as one sparse matrix. A *block kernel* computes
blocks, dense activations of a group of inputs; a `Chain` computes consecutive layers on a block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from gbdnn.kernels import costs
from gbdnn.kernels.blocks import AlignedBlock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np

    from gbdnn.arrays.sparse_rows import SparseRows
    from gbdnn.kernels.blocks import Block, Buffers
    from gbdnn.model.layer import Layer
    from gbdnn.model.layer_info import LayerInfo

__all__ = [
    "BlockKernel",
    "Chain",
    "ChainLayers",
    "Kernel",
    "LayerPlan",
    "starts_at_bias",
]


class Kernel(Protocol):
    """A method to compute ``Y' = min(max(Y W + b, 0), clip)``."""

    name: str
    """Name in `LayerStats` and in the ``engine`` option of `infer`."""

    def is_exact(self, info: LayerInfo, /) -> bool:
        """Whether the kernel computes this layer exactly."""

    def cost(self, info: LayerInfo, inputs: int, entries: float, /) -> float:
        """Return the time of one thread for all inputs, with `entries` in total, in ns."""


class BlockKernel(Kernel, Protocol):
    """A kernel that computes on blocks, and what it needs for them.

    Attributes
    ----------
    is_compiled : bool
        Whether it is compiled code, which also takes blocks through a single window.
    block : type
        Type of its blocks.
    one_shape : bool
        Whether all blocks of a run have the same shape.
    at_once : int
        Blocks that a thread holds at the same time.
    stops : tuple of int
        Layers before which the first windows end.
    """

    is_compiled: bool = False
    block: type[Block | AlignedBlock] = AlignedBlock
    one_shape: bool = False
    at_once: int = 5
    stops: tuple[int, ...] = (3, 5, 8, 12, 18)

    def is_exact(self, info: LayerInfo) -> bool:
        """Whether initialising with the bias gives the layer's rule."""
        return starts_at_bias(info)

    def width(self, neurons: int, itemsize: int, inputs: int, threads: int) -> int:
        """Return the number of inputs per block for layers of up to `neurons` neurons."""
        return costs.block_width(neurons, itemsize, inputs)

    def is_wide(self, width: int, itemsize: int) -> bool:
        """Whether weights are prepared for wide blocks."""
        return False

    def threads(self, nthreads: int, blocks: int, width: int, edges: int) -> tuple[int, int]:
        """Divide threads into concurrent blocks and threads within each product."""
        return min(nthreads, blocks), 1

    def prepare(
        self, layer: Layer, rows: np.ndarray | None, columns: np.ndarray | None, /, *,
        wide: bool = False,
    ) -> Any:  # fmt: skip
        """Return the weights in the kernel's layout, with neurons in the given order.

        The results do not depend on `wide` (`costs.is_wide`), to the bit.
        """

    def chain(self, layers: ChainLayers, /) -> Chain:
        """Return consecutive layers with prepared weights."""


def starts_at_bias(info: LayerInfo) -> bool:
    """Whether sums that start at the bias follow the layer's rule (and no side is empty)."""
    if 0 in info.shape:
        return False
    if info.bias_rule == "all" or info.largest_bias == 0:
        return True
    return info.activation == "relu" and info.highest_bias <= 0


class LayerPlan(NamedTuple):
    """Properties of a layer that a run needs without its weights.

    Attributes
    ----------
    info : LayerInfo
    in_blocks : bool
        Whether the run's block kernel computes the layer exactly.
    droppable, droppable_after : bool
        Whether an input without entries before, or after, the layer stays empty to the end.
    may_overflow : bool
        Whether a sum may leave the dtype's range.
    """

    info: LayerInfo
    in_blocks: bool
    droppable: bool
    droppable_after: bool
    may_overflow: bool


@dataclass(frozen=True, slots=True)
class ChainLayers:
    """Consecutive layers of a chain; all sequences have one item per layer.

    Attributes
    ----------
    first : int
        Number of the first layer in the network.
    plans : sequence of LayerPlan
    weights : sequence
        As prepared by the kernel; None for layers that it does not compute.
    positions : sequence of ndarray or None
        Row ``positions[k][i]`` of a block before the layer holds neuron i; None if row i does.
    """

    first: int
    plans: Sequence[LayerPlan]
    weights: Sequence[Any]
    positions: Sequence[np.ndarray | None]

    @property
    def stop(self) -> int:
        """Number of the layer after the last one."""
        return self.first + len(self.plans)

    def neurons(self, k: int) -> int:
        """Return the number of neurons before layer `k`, or after the last one."""
        at = k - self.first
        return self.plans[at].info.nrows if k < self.stop else self.plans[-1].info.ncols

    def position(self, k: int) -> np.ndarray | None:
        """Return the rows of the neurons in a block before layer `k`; None if in natural order."""
        return self.positions[k - self.first] if k < self.stop else None


class Chain(Protocol):
    """Consecutive layers that are computed on blocks; shared by threads.

    Layers are identified by their numbers in the network.
    """

    name: str
    """Name of the kernel."""
    layers: ChainLayers

    def block(self, buffers: Buffers, k: int, width: int) -> Any:
        """Return a block from the pool for `width` inputs before layer `k`."""

    def read(self, Y: Any, k: int, rows: SparseRows) -> None:
        """Fill a block before layer `k` with sparse rows."""

    def read_dense(self, Y: Any, k: int, rows: np.ndarray, ids: np.ndarray) -> float:
        """Fill a block before layer `k` with rows of an array.

        Return the largest magnitude: infinite or NaN if a value is not finite, 0 if the kernel does
        not compute it.
        """

    def run(
        self, Y: Any, first: int, stop: int, buffers: Buffers, *, tidy: bool,
        counts: np.ndarray | None, stands: np.ndarray | None,
    ) -> Any:  # fmt: skip
        """Return a block after layers `first` to `stop` (exclusive); `Y` is consumed.

        Inputs without entries are dropped if this saves time.

        Parameters
        ----------
        buffers : Buffers
            Pool of blocks.
        tidy : bool
            Whether to drop droppable inputs without entries after the last layer (the full kernel:
            only if there are many).
        counts : ndarray of int64, shape (stop - first, 5), optional
            Statistics to increment per layer: inputs computed and, with `stands`, distinct live
            inputs, live inputs, entries, and clock ticks.
        stands : ndarray of int64, optional
            Number of inputs that each id represents.

        Raises
        ------
        NonFiniteError
        """

    def rows(self, Y: Any, k: int, *, droppable: bool) -> Iterator[SparseRows]:
        """Yield a block's inputs before layer `k` as sparse rows, some at a time.

        With `droppable`, inputs without entries are omitted.
        """

    def write(self, Y: Any, values: np.ndarray, present: np.ndarray | None) -> int:
        """Write a block's inputs to the rows ``Y.inputs`` of C-ordered arrays.

        ``present`` is set to the mask of nonzero values. Return their number.
        """
