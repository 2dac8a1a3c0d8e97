"""Layers of the fused kernel for compiled code, and its blocks as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.kernels import costs
from gbdnn.kernels.compiled.loading import required
from gbdnn.kernels.compiled.record import Record
from gbdnn.kernels.compiled.table import layer_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gbdnn.kernels.kernel import LayerPlan

__all__ = ["FusedChain"]


class FusedChain:
    """Consecutive layers as compiled code reads them; all sequences have one item per layer.

    Parameters
    ----------
    first : int
        Number of the first layer in the network.
    plans : sequence of LayerPlan
    weights : sequence
        As prepared by the kernel; None for layers that it does not compute.
    positions : sequence of ndarray or None
        Row ``positions[k][i]`` of a block before the layer holds neuron i; None if row i does.

    Attributes
    ----------
    neurons : int
        Of the widest layer.
    plan : Record
    """

    def __init__(
        self, first: int, plans: Sequence[LayerPlan], weights: Sequence[Any],
        positions: Sequence[np.ndarray | None],
    ) -> None:  # fmt: skip
        self.first, self.plans, self.weights, self.positions = first, plans, weights, positions
        infos, _, _, droppable, checked = zip(*plans, strict=True)
        self.neurons = max(max(info.shape) for info in infos)
        self.dtype: np.dtype = infos[0].dtype
        table = layer_table(weights, droppable, checked, self.dtype)
        self.plan = Record(
            "plan", self.dtype, table=table, tidy=1, edge_cost=costs.speeds().fused,
            read_cost=costs.EDGE, move_cost=costs.MOVE, row_cost=costs.MOVE_ROW,
        )  # fmt: skip
        self.compiled = required(self.dtype)

    @property
    def stop(self) -> int:
        """Number of the layer after the last one."""
        return self.first + len(self.plans)

    def unchecked(self) -> FusedChain:
        """Return the chain without checks of sums."""
        plans = [plan._replace(may_overflow=False) for plan in self.plans]
        return FusedChain(self.first, plans, self.weights, self.positions)

    def position(self, k: int) -> np.ndarray | None:
        """Return the rows of the neurons in a block before layer `k`; None if in natural order."""
        return self.positions[k - self.first] if k < self.stop else None

    def rows(self, k: int, Y: np.ndarray, ids: np.ndarray) -> SparseRows:
        """Return the inputs of a block before layer `k`, neurons x stride, as sparse rows."""
        (neurons, stride), inputs = Y.shape, len(ids)
        indptr = np.zeros(inputs + 1, np.int64)
        self.compiled.count(Y, stride, neurons, inputs, indptr[1:])
        np.cumsum(indptr, out=indptr)
        columns, values = np.empty(indptr[-1], np.uint64), np.empty(indptr[-1], self.dtype)
        self.compiled.extract(
            Y, stride, neurons, self.position(k), inputs, indptr[:-1].copy(), columns, values,
        )  # fmt: skip
        return SparseRows(indptr.view(np.uint64), columns, values, neurons, ids)
