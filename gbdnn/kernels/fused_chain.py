"""Call the fused kernel's compiled code on blocks, through many layers."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.kernels import costs
from gbdnn.kernels.blocks import LEAVING, AlignedBlock
from gbdnn.kernels.compiled.loading import required
from gbdnn.kernels.compiled.record import Record, address
from gbdnn.kernels.compiled.table import layer_table
from gbdnn.kernels.overflow import non_finite

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gbdnn.kernels.blocks import Buffers
    from gbdnn.kernels.kernel import ChainLayers

__all__ = ["FusedChain"]

CALL = 3e7  # ns of a compiled call, which cannot be interrupted


class FusedChain:
    """See `gbdnn.kernels.kernel.Chain`; all blocks have room for the widest layer.

    Compiled code drops dead inputs: alive ones from the end of a block take their places.
    """

    name = "fused"

    def __init__(self, layers: ChainLayers) -> None:
        self.layers = layers
        infos, _, _, droppable, checked = zip(*layers.plans, strict=True)
        self.neurons = max(max(info.shape) for info in infos)
        self.dtype: np.dtype = infos[0].dtype
        sizes = [(info.edges, *info.shape, self.dtype.itemsize) for info in infos]
        self.costs = [costs.fused_layer(16, *each) for each in sizes]
        table = layer_table(layers.weights, droppable, checked)
        self._plans = [
            Record("plan", table=table, tidy=tidy, edge_cost=costs.speeds().fused,
                   move_cost=costs.MOVE, row_cost=costs.MOVE_ROW)
            for tidy in (False, True)
        ]  # fmt: skip
        self.compiled = required(self.dtype)

    def block(self, buffers: Buffers, k: int, width: int) -> AlignedBlock:
        """Return a block for `width` inputs before layer `k`."""
        found: AlignedBlock = buffers.get(self.neurons, width)
        found.neurons = self.layers.neurons(k)
        return found

    def read(self, Y: AlignedBlock, k: int, rows: SparseRows) -> None:
        """Fill a block with sparse rows."""
        indptr, columns, values, step = self.arrays(rows)
        self.compiled["fill"](
            indptr, columns, values, step, 0, rows.nrows, self.layers.position(k), Y, Y.stride,
            Y.neurons,
        )  # fmt: skip
        Y.inputs = rows.ids.copy()

    def arrays(self, rows: SparseRows) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
        """Return pointers, columns and values of rows, and the step from one value to the next."""
        values = rows.values[:1] if rows.is_iso else rows.values
        return (
            np.ascontiguousarray(rows.indptr, np.uint64),
            np.ascontiguousarray(rows.columns, np.uint64),
            np.ascontiguousarray(values, self.dtype),
            int(not rows.is_iso),
        )

    def plan_of(self, *, tidy: bool) -> Record:
        """Return the layers as compiled code reads them."""
        return self._plans[tidy]

    def read_dense(self, Y: AlignedBlock, k: int, rows: np.ndarray, ids: np.ndarray) -> float:
        """Fill a block with rows of an array of the chain's dtype; return the largest magnitude."""
        size, position = rows.itemsize, self.layers.position(k)
        row_stride, column_stride = rows.strides
        bits = self.compiled["from_dense"](
            rows, row_stride // size, column_stride // size, None, len(rows), position, Y,
            Y.stride, Y.neurons,
        )  # fmt: skip
        Y.inputs = ids
        form, number = ("<i", "<f") if size == 4 else ("<q", "<d")
        (largest,) = struct.unpack(number, struct.pack(form, bits))
        return float(largest)

    def run(
        self, Y: AlignedBlock, first: int, stop: int, buffers: Buffers, *, tidy: bool,
        counts: np.ndarray | None, stands: np.ndarray | None,
    ) -> AlignedBlock:  # fmt: skip
        """Return a block after layers `first` to `stop` (exclusive): one compiled call."""
        Z: AlignedBlock = buffers.get(self.neurons, Y.width)
        first, last = first - self.layers.first, stop - self.layers.first
        ids, statistics = np.ascontiguousarray(Y.inputs), None
        if counts is not None:
            from_first = address(counts) - first * counts.strides[0]
            statistics = np.array([from_first, 0 if stands is None else address(stands)])
        self.compiled["chain"](
            self._plans[tidy], first, last, Y, Z, Y.stride, len(ids), ids, Y.scratch, statistics
        )
        left, in_Z, faulty = Y.scratch[4 * Y.stride :][:3].tolist()
        if in_Z:
            Y, Z = Z, Y
        buffers.put(Z)
        if faulty >= 0:
            raise non_finite(self.layers.first + faulty, self.layers.plans[faulty].info)
        Y.inputs, Y.neurons = ids[:left], self.layers.neurons(stop)
        return Y

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
        found: Any = self.compiled["to_dense"](
            Y, Y.stride, Y.neurons, ids, len(ids), values, Y.neurons, present,
        )  # fmt: skip
        return int(found)

    def _rows(self, Y: AlignedBlock, k: int, first: int, ids: np.ndarray) -> SparseRows:
        inputs, some = len(ids), Y.flat[first:]
        counts = np.empty(inputs, np.int64)
        self.compiled["count"](some, Y.stride, Y.neurons, inputs, counts)
        indptr = np.zeros(inputs + 1, np.int64)
        np.cumsum(counts, out=indptr[1:])
        columns, values = np.empty(indptr[-1], np.uint64), np.empty(indptr[-1], self.dtype)
        places = indptr[:-1].copy()
        self.compiled["extract"](
            some, Y.stride, Y.neurons, self.layers.position(k), inputs, places, columns, values,
        )  # fmt: skip
        return SparseRows(indptr.view(np.uint64), columns, values, Y.neurons, ids)
