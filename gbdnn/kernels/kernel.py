"""Interfaces of kernels.

The sparse kernel computes a layer for all inputs as one sparse matrix. A *block kernel* computes
blocks, dense activations of a group of inputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np

    from gbdnn.model.layer_info import LayerInfo

__all__ = [
    "BlockKernel",
    "LayerPlan",
    "starts_at_bias",
]


class BlockKernel(Protocol):
    """A kernel that computes ``Y' = min(max(Y W + b, 0), clip)`` on blocks, and what it needs.

    Attributes
    ----------
    name : str
        Name in `LayerStats` and in the ``engine`` option of `infer`.
    is_compiled : bool
        Whether it is compiled for the processor, and also takes blocks through a single window.
        Otherwise several threads may compute a product.
    at_once : int
        Blocks that a thread holds at the same time.
    """

    name: str
    is_compiled: bool = False
    at_once: int = 5

    def is_exact(self, info: LayerInfo) -> bool:
        """Whether initialising with the bias gives the layer's rule."""
        return starts_at_bias(info)

    def cost(self, info: LayerInfo, inputs: int, entries: float, /) -> float:
        """Return the time of one thread for all inputs, with `entries` in total, in ns."""

    def width(self, neurons: int, itemsize: int, inputs: int, threads: int) -> int:
        """Return the number of inputs per block for layers of up to `neurons` neurons."""

    def step(self, dtype: np.dtype) -> int:
        """Return the least number of inputs of a block."""

    def size(self, neurons: int, width: int, dtype: np.dtype) -> int:
        """Return the size of a block in bytes."""


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
