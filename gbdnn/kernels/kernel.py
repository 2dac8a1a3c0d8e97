"""What a kernel provides, so that another kernel is one more module.

The sparse kernel takes all inputs through a layer as one sparse matrix. A *block kernel* computes
on blocks, dense activations of some inputs: a `Chain` takes a block through consecutive layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np

    from gbdnn.arrays.sparse_rows import SparseRows
    from gbdnn.kernels.blocks import Buffers
    from gbdnn.model.layer import Layer
    from gbdnn.model.layer_info import LayerInfo

__all__ = ["BlockKernel", "Chain", "ChainLayers", "Kernel"]


class Kernel(Protocol):
    """A way to compute ``Y' = min(max(Y W + b, 0), clip)``."""

    name: str
    """As `LayerStats` and the ``engine`` of `infer` call it."""

    def is_exact(self, info: LayerInfo, /) -> bool:
        """Whether the kernel computes this layer exactly."""
        ...

    def cost(self, info: LayerInfo, inputs: int, entries: float, /) -> float:
        """Return the ns of one thread for so many inputs with so many entries in all."""
        ...


class BlockKernel(Kernel, Protocol):
    """A kernel that computes on blocks."""

    def prepare(
        self,
        layer: Layer,
        rows: np.ndarray | None,
        columns: np.ndarray | None,
        /,
        *,
        wide: bool = False,
    ) -> Any:
        """Return the weights as the kernel needs them, neurons in the order given (None: as is).

        They give the same bits whether they are for `wide` blocks (`costs.is_wide`) or not.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainLayers:
    """Consecutive layers of a chain, with an item for each in every sequence.

    Attributes
    ----------
    first : int
        The number of the first layer in the network.
    infos : sequence of LayerInfo
    weights : sequence
        As the kernel prepares them; None for a layer that it does not compute.
    droppable : sequence of bool
        Whether inputs without an activation behind the layer may be dropped.
    checked : sequence of bool
        Whether a sum may leave the dtype's range.
    positions : sequence of ndarray or None
        In a block before the layer, neuron i stands at ``positions[k][i]``; None if at i.
    """

    first: int
    infos: Sequence[LayerInfo]
    weights: Sequence[Any]
    droppable: Sequence[bool]
    checked: Sequence[bool]
    positions: Sequence[np.ndarray | None]

    @property
    def stop(self) -> int:
        """The number behind the last layer's."""
        return self.first + len(self.infos)

    def position(self, k: int) -> np.ndarray | None:
        """Return where neurons stand in a block before layer `k`; None if in their own order."""
        return self.positions[k - self.first] if k < self.stop else None


class Chain(Protocol):
    """Consecutive layers that blocks go through; threads share it.

    Layers are called by their numbers in the network.
    """

    name: str
    """The kernel's."""
    layers: ChainLayers

    def block(self, buffers: Buffers, k: int, width: int) -> Any:
        """Return a block of the buffers for `width` inputs before layer `k`."""
        ...

    def read(self, Y: Any, k: int, rows: SparseRows) -> None:
        """Fill a block before layer `k` with sparse rows."""
        ...

    def read_dense(self, Y: Any, k: int, rows: np.ndarray, ids: np.ndarray) -> float:
        """Fill a block before layer `k` with rows of an array.

        Returns the largest magnitude, which is infinite or NaN if a value is not finite, or 0 if
        the kernel does not look at it.
        """
        ...

    def run(
        self, Y: Any, first: int, stop: int, buffers: Buffers, *, tidy: bool,
        counts: np.ndarray | None, stands: np.ndarray | None,
    ) -> Any:  # fmt: skip
        """Return a block after layers `first` to before `stop`; `Y` is given up.

        Inputs without entries are dropped on the way where that saves time.

        Parameters
        ----------
        buffers : Buffers
            The memory of blocks.
        tidy : bool
            Whether inputs without entries after the last layer are dropped, if they may be: all, or
            in the full kernel if there are many.
        counts : ndarray of int64, shape (stop - first, 5), optional
            Incremented, for each layer, by the inputs computed; with `stands` also by those of them
            that live after it, the inputs that these stand for, their entries, and ticks of a
            clock.
        stands : ndarray of int64, optional
            How many inputs each id stands for.

        Raises
        ------
        NonFiniteError
        """
        ...

    def rows(self, Y: Any, k: int, *, droppable: bool) -> Iterator[SparseRows]:
        """Yield a block's inputs before layer `k` as sparse rows, some at a time.

        Inputs without entries are left out if they are `droppable`.
        """
        ...

    def write(self, Y: Any, values: np.ndarray, present: np.ndarray | None) -> int:
        """Write a block's inputs to the rows ``Y.inputs`` of arrays in C order.

        ``present`` marks the values that are not 0. Returns how many are not.
        """
        ...
