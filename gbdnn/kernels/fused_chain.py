"""Layers of the fused kernel for compiled code, and its blocks as rows."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.kernels import costs
from gbdnn.kernels.blocks import LEAVING, AlignedBlock
from gbdnn.kernels.compiled.loading import required
from gbdnn.kernels.compiled.record import Record
from gbdnn.kernels.compiled.table import layer_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gbdnn.kernels.kernel import ChainLayers

__all__ = ["FusedChain"]


class FusedChain:
    """Consecutive layers as compiled code reads them; all blocks have room for the widest layer.

    Attributes
    ----------
    plan : Record
    """

    def __init__(self, layers: ChainLayers) -> None:
        self.layers = layers
        infos, _, _, droppable, checked = zip(*layers.plans, strict=True)
        self.neurons = max(max(info.shape) for info in infos)
        self.dtype: np.dtype = infos[0].dtype
        table = layer_table(layers.weights, droppable, checked, self.dtype)
        self.plan = Record(
            "plan", self.dtype, table=table, tidy=1, edge_cost=costs.speeds().fused,
            move_cost=costs.MOVE, row_cost=costs.MOVE_ROW,
        )  # fmt: skip
        self.compiled = required(self.dtype)

    def read_dense(self, Y: AlignedBlock, k: int, rows: np.ndarray, ids: np.ndarray) -> float:
        """Fill a block with rows of an array of the chain's dtype; return the largest magnitude."""
        size, position = rows.itemsize, self.layers.position(k)
        row_stride, column_stride = rows.strides
        bits = self.compiled.from_dense(
            rows, row_stride // size, column_stride // size, None, len(rows), position, Y.whole,
            Y.stride, Y.neurons,
        )  # fmt: skip
        Y.inputs = ids
        form, number = ("<i", "<f") if size == 4 else ("<q", "<d")
        (largest,) = struct.unpack(number, struct.pack(form, bits))
        return float(largest)

    def rows(self, Y: AlignedBlock, k: int, *, droppable: bool) -> Iterator[SparseRows]:
        """Yield the inputs as sparse rows."""
        line = AlignedBlock.step(self.dtype)  # inputs that compiled code reads together
        step = line * max(1, LEAVING // max(1, line * Y.neurons))
        for first in range(0, len(Y.inputs), step):
            rows = self._rows(Y, k, first, Y.inputs[first : first + step])
            yield rows.without_empty_rows() if droppable else rows

    def write(self, Y: AlignedBlock, values: np.ndarray, present: np.ndarray | None) -> int:
        """Write the inputs to rows of arrays."""
        ids = np.ascontiguousarray(Y.inputs)
        entries: Any = self.compiled.to_dense(
            Y.whole, Y.stride, Y.neurons, ids, len(ids), values, Y.neurons, present,
        )  # fmt: skip
        return int(entries)

    def _rows(self, Y: AlignedBlock, k: int, first: int, ids: np.ndarray) -> SparseRows:
        inputs, some = len(ids), Y.flat[first:]
        counts = np.empty(inputs, np.int64)
        self.compiled.count(some, Y.stride, Y.neurons, inputs, counts)
        indptr = np.zeros(inputs + 1, np.int64)
        np.cumsum(counts, out=indptr[1:])
        columns, values = np.empty(indptr[-1], np.uint64), np.empty(indptr[-1], self.dtype)
        places = indptr[:-1].copy()
        self.compiled.extract(
            some, Y.stride, Y.neurons, self.layers.position(k), inputs, places, columns, values,
        )  # fmt: skip
        return SparseRows(indptr.view(np.uint64), columns, values, Y.neurons, ids)
