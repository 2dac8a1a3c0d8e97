"""Calls of the fused form's compiled code: blocks, and single inputs, through many layers.

Compiled code gets addresses and believes what it is told.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.kernels import costs
from gbdnn.kernels.blocks import LEAVING, AlignedBlock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gbdnn.kernels.compiled.table import FusedLayer

__all__ = ["FusedChain", "FusedSingle"]


class FusedChain:
    """Consecutive layers as compiled code reads them, and one thread's scratch memory.

    Parameters
    ----------
    layers : sequence of FusedLayer
    droppable : sequence of bool
        For each layer whether inputs without an activation after it may be dropped.
    dtype : float32 or float64
    checked : sequence of bool, optional
        For each layer whether its sums may leave the dtype's range; default: all are checked.
    """

    def __init__(
        self,
        layers: Sequence[FusedLayer],
        droppable: Sequence[bool],
        dtype: np.dtype,
        checked: Sequence[bool] | None = None,
    ) -> None:
        from gbdnn.kernels.compiled.functions import functions
        from gbdnn.kernels.compiled.table import LayerTable

        self.dtype = dtype
        checked = [True] * len(layers) if checked is None else checked
        self._table = LayerTable(layers, droppable, checked)
        self._compiled = functions(dtype.name)
        self._state = np.zeros(5, np.int64)

    def fill(self, block: AlignedBlock, rows: SparseRows, position: np.ndarray | None) -> None:
        """Put sparse rows into a block; neuron i goes to ``position[i]``."""
        indptr, columns = (
            np.ascontiguousarray(each, np.uint64) for each in (rows.indptr, rows.columns)
        )
        values = rows.values[:1] if rows.is_iso else rows.values
        values = np.ascontiguousarray(values, block.array.dtype)
        self._compiled["fill"](
            indptr.ctypes.data, columns.ctypes.data, values.ctypes.data, int(not rows.is_iso), 0,
            rows.nrows, _address(position), block.address, block.stride, block.neurons,
        )  # fmt: skip
        block.inputs = rows.ids.copy()

    def from_dense(
        self, block: AlignedBlock, rows: np.ndarray, position: np.ndarray | None
    ) -> float:
        """Put rows of an array of the chain's dtype into a block; return the largest magnitude.

        It is infinite, or NaN, if a value is not finite.
        """
        size = rows.itemsize
        natural = natural_order(max(block.neurons, block.stride))
        row_stride, column_stride = rows.strides
        bits = self._compiled["from_dense"](
            rows.ctypes.data, row_stride // size, column_stride // size, len(rows),
            _address(natural if position is None else position), _address(natural),
            block.address, block.stride, block.neurons,
        )  # fmt: skip
        form, number = ("<i", "<f") if size == 4 else ("<q", "<d")
        (largest,) = struct.unpack(number, struct.pack(form, bits))
        return float(largest)

    def to_dense(self, block: AlignedBlock, values: np.ndarray, present: np.ndarray | None) -> int:
        """Write a block's inputs to the rows ``block.inputs`` of arrays in C order.

        ``present`` tells which values are not 0. Returns how many are not.
        """
        natural = natural_order(max(block.neurons, block.stride))
        ids = np.ascontiguousarray(block.inputs)
        found: Any = self._compiled["to_dense"](
            block.address, block.stride, block.neurons, _address(ids), _address(natural),
            len(ids), _address(values), block.neurons, _address(present),
        )  # fmt: skip
        return int(found)

    def run(
        self,
        first: int,
        last: int,
        Y: AlignedBlock,
        Z: AlignedBlock,
        *,
        tidy: bool,
        counts: np.ndarray | None = None,
        stands: np.ndarray | None = None,
    ) -> tuple[AlignedBlock, AlignedBlock, int]:
        """Take a block through layers `first` to `last`, counted from the first of the chain.

        To a row of `counts` for each layer, of int64, are added the inputs computed at it; with
        `stands`, by id how many inputs an input stands for, also those that live after it, how many
        they stand for, their entries, and ticks of a clock.

        Returns
        -------
        (AlignedBlock, AlignedBlock, int)
            The block with the activations, the other one, and the layer in which a sum was not
            finite, or -1. Dead inputs are dropped on the way by the ski-rental rule; `tidy` leaves
            none at the end.
        """
        ids, count = np.ascontiguousarray(Y.inputs), len(Y.inputs)
        scratch = AlignedBlock(4, Y.stride, np.dtype(np.int64))
        self._compiled["chain"](
            self._table.address, first, last, Y.address, Z.address, Y.stride, count,
            ids.ctypes.data, scratch.address, costs.EDGE_FUSED, costs.MOVE_FUSED,
            costs.MOVE_ROW, int(tidy), self._state.ctypes.data,
            _address(counts) - 40 * first if counts is not None else 0, _address(stands),
        )  # fmt: skip
        left, in_Z, _, faulty, _ = self._state.tolist()
        if in_Z:
            Y, Z = Z, Y
        Y.inputs = ids[:left]
        Y.neurons = self._table.layers[last - 1].ncols
        return Y, Z, faulty

    def sparse_rows(
        self, block: AlignedBlock, position: np.ndarray | None, *, droppable: bool
    ) -> Iterator[SparseRows]:
        """Yield a block's inputs, those without entries only if they may not be dropped."""
        step = max(1, LEAVING // max(1, block.neurons))
        for first in range(0, len(block.inputs), step):
            rows = self._sparse_rows(block, position, first, block.inputs[first : first + step])
            yield rows.without_empty_rows() if droppable else rows

    def _sparse_rows(
        self, block: AlignedBlock, position: np.ndarray | None, first: int, ids: np.ndarray
    ) -> SparseRows:
        inputs = len(ids)
        address = block.address + first * self.dtype.itemsize
        counts = np.empty(inputs, np.int64)
        self._compiled["count"](address, block.stride, block.neurons, inputs, counts.ctypes.data)
        indptr = np.zeros(inputs + 1, np.int64)
        np.cumsum(counts, out=indptr[1:])
        columns = np.empty(indptr[-1], np.uint64)
        values = np.empty(indptr[-1], block.array.dtype)
        places = indptr[:-1].copy()
        self._compiled["extract"](
            address, block.stride, block.neurons, _address(position), inputs,
            places.ctypes.data, columns.ctypes.data, values.ctypes.data,
        )  # fmt: skip
        return SparseRows(indptr.view(np.uint64), columns, values, block.neurons, ids)


class FusedSingle:
    """One input at a time through all layers; not to be used by two threads at once.

    Parameters
    ----------
    layers : sequence of FusedLayer
        As `FusedForm.prepare_single` makes them.
    neurons : int
        Of the widest layer.
    dtype : float32 or float64
    """

    def __init__(self, layers: Sequence[FusedLayer], neurons: int, dtype: np.dtype) -> None:
        from gbdnn.kernels.compiled.functions import functions
        from gbdnn.kernels.compiled.table import LayerTable

        self._table = LayerTable(layers, [False] * len(layers), [False] * len(layers))
        self._y, self._z = np.empty(neurons, dtype), np.empty(neurons, dtype)
        y, z = _address(self._y), _address(self._z)
        self._run = partial(
            functions(dtype.name)["single"], self._table.address, 0, len(layers), y, z
        )
        self._nrows = int(self._table.layers[0].record[0])
        self._last = (self._z if len(layers) % 2 else self._y)[: layers[-1].ncols]

    def run(self, x: np.ndarray, out: np.ndarray) -> int:
        """Write the activations after the last layer.

        Returns
        -------
        int
            -1; the layer in which a sum was not finite; or the number of layers if a value of `x`
            is not finite.
        """
        self._y[: self._nrows] = x
        faulty: Any = self._run()
        out[:] = self._last
        return int(faulty)


def natural_order(size: int) -> np.ndarray:
    """Return 0, 1, 2, ..., at least `size` of them: kept, and not to be changed."""
    global _natural
    found = _natural  # other threads may replace it at any time
    if len(found) < size:
        found = _natural = np.arange(2 * size)
    return found


_natural = np.arange(1024)


def _address(array: np.ndarray | None) -> int:
    return 0 if array is None else int(array.ctypes.data)
