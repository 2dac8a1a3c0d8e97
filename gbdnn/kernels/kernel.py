"""Interfaces of kernels.

The sparse kernel computes a layer for all inputs as one sparse matrix. A *block kernel* computes
blocks, dense activations of a group of inputs; a `Chain` computes consecutive layers on a block.
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
    """A method to compute ``Y' = min(max(Y W + b, 0), clip)``."""

    name: str
    """Name in `LayerStats` and in the ``engine`` option of `infer`."""

    def is_exact(self, info: LayerInfo, /) -> bool:
        """Whether the kernel computes this layer exactly."""
        ...

    def cost(self, info: LayerInfo, inputs: int, entries: float, /) -> float:
        """Return the time of one thread for all inputs, with `entries` in total, in ns."""
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
        """Return the weights in the kernel's layout, with neurons in the given order.

        The results do not depend on `wide` (`costs.is_wide`), to the bit.
        """
        ...

    def chain(self, layers: ChainLayers, /) -> Chain:
        """Return consecutive layers with prepared weights; blocks are `Block` if not fused."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainLayers:
    """Consecutive layers of a chain; all sequences have one item per layer.

    Attributes
    ----------
    first : int
        Number of the first layer in the network.
    infos : sequence of LayerInfo
    weights : sequence
        As prepared by the kernel; None for layers that it does not compute.
    droppable : sequence of bool
        Whether inputs without entries after the layer may be dropped.
    checked : sequence of bool
        Whether a sum may leave the dtype's range.
    positions : sequence of ndarray or None
        Row ``positions[k][i]`` of a block before the layer holds neuron i; None if row i does.
    """

    first: int
    infos: Sequence[LayerInfo]
    weights: Sequence[Any]
    droppable: Sequence[bool]
    checked: Sequence[bool]
    positions: Sequence[np.ndarray | None]

    @property
    def stop(self) -> int:
        """Number of the layer after the last one."""
        return self.first + len(self.infos)

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
        ...

    def read(self, Y: Any, k: int, rows: SparseRows) -> None:
        """Fill a block before layer `k` with sparse rows."""
        ...

    def read_dense(self, Y: Any, k: int, rows: np.ndarray, ids: np.ndarray) -> float:
        """Fill a block before layer `k` with rows of an array.

        Return the largest magnitude: infinite or NaN if a value is not finite, 0 if the kernel does
        not compute it.
        """
        ...

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
        ...

    def rows(self, Y: Any, k: int, *, droppable: bool) -> Iterator[SparseRows]:
        """Yield a block's inputs before layer `k` as sparse rows, some at a time.

        With `droppable`, inputs without entries are omitted.
        """
        ...

    def write(self, Y: Any, values: np.ndarray, present: np.ndarray | None) -> int:
        """Write a block's inputs to the rows ``Y.inputs`` of C-ordered arrays.

        ``present`` is set to the mask of nonzero values. Return their number.
        """
        ...
