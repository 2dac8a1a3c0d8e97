"""Layers of the fused kernel for compiled code, and its blocks as rows."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.kernels import costs
from gbdnn.kernels.compiled.loading import required
from gbdnn.kernels.compiled.record import Record
from gbdnn.kernels.compiled.table import layer_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gbdnn.kernels.blocks import AlignedBlock
    from gbdnn.kernels.fused_run import WaitingBlock
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
            move_cost=costs.MOVE, row_cost=costs.MOVE_ROW,
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

    def read_dense(self, Y: AlignedBlock, k: int, rows: np.ndarray, ids: np.ndarray) -> float:
        """Fill a block with rows of an array of the chain's dtype; return the largest magnitude."""
        size, position = rows.itemsize, self.position(k)
        row_stride, column_stride = rows.strides
        bits = self.compiled.from_dense(
            rows, row_stride // size, column_stride // size, None, len(rows), position, Y.whole,
            Y.stride, Y.neurons,
        )  # fmt: skip
        Y.inputs = ids
        form, number = ("<i", "<f") if size == 4 else ("<q", "<d")
        (largest,) = struct.unpack(number, struct.pack(form, bits))
        return float(largest)

    def write(self, Y: AlignedBlock, values: np.ndarray, present: np.ndarray | None) -> int:
        """Write the inputs to rows of arrays."""
        ids = np.ascontiguousarray(Y.inputs)
        entries: Any = self.compiled.to_dense(
            Y.whole, Y.stride, Y.neurons, ids, len(ids), values, Y.neurons, present,
        )  # fmt: skip
        return int(entries)

    def rows(self, Y: WaitingBlock, k: int) -> SparseRows:
        """Return the inputs of a block before layer `k` as sparse rows."""
        inputs = len(Y.inputs)
        counts = np.empty(inputs, np.int64)
        self.compiled.count(Y.flat, Y.stride, Y.neurons, inputs, counts)
        indptr = np.zeros(inputs + 1, np.int64)
        np.cumsum(counts, out=indptr[1:])
        columns, values = np.empty(indptr[-1], np.uint64), np.empty(indptr[-1], self.dtype)
        self.compiled.extract(
            Y.flat, Y.stride, Y.neurons, self.position(k), inputs, indptr[:-1].copy(), columns,
            values,
        )  # fmt: skip
        return SparseRows(indptr.view(np.uint64), columns, values, Y.neurons, Y.inputs)
