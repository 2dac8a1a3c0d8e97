"""Interfaces of kernels.

The sparse kernel computes a layer for all inputs as one sparse matrix. A *block kernel* computes
blocks, dense activations of a group of inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from gbdnn.model.layer_info import LayerInfo

__all__ = [
    "BlockKernel",
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
        Whether it is compiled for the processor, and also takes blocks through a single window.
    at_once : int
        Blocks that a thread holds at the same time.
    """

    is_compiled: bool = False
    at_once: int = 5

    def is_exact(self, info: LayerInfo) -> bool:
        """Whether initialising with the bias gives the layer's rule."""
        return starts_at_bias(info)

    def width(self, neurons: int, itemsize: int, inputs: int, threads: int) -> int:
        """Return the number of inputs per block for layers of up to `neurons` neurons."""

    def step(self, dtype: np.dtype) -> int:
        """Return the least number of inputs of a block."""

    def size(self, neurons: int, width: int, dtype: np.dtype) -> int:
        """Return the size of a block in bytes."""

    def threads(self, nthreads: int, blocks: int) -> tuple[int, int]:
        """Divide threads into concurrent blocks and threads within each product."""


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
