"""The fused form: a block through many layers, each in one pass over its memory.

    Z  = b; Z += Y W               every neuron's sums stay in registers for all its edges
    Y' = min(max(Z, 0), clip)      before they are stored, once

The inner loops are compiled by numba, which python-graphblas requires, and kept on disk
(`gbdnn.kernels.compiled`). The full form is the same equation in GraphBLAS: its definition, and the
form to take where nothing can be compiled.
"""

from __future__ import annotations

import logging
import struct
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.errors import MissingPackageError
from gbdnn.kernels import costs
from gbdnn.kernels.blocks import AlignedBlock
from gbdnn.kernels.full import FULL
from gbdnn.kernels.reorder import reordered

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gbdnn.kernels.compiled.table import FusedLayer
    from gbdnn.model.layer import Layer
    from gbdnn.model.layer_info import LayerInfo

__all__ = ["FUSED", "FusedChain", "FusedForm", "FusedSingle"]

_log = logging.getLogger("gbdnn.inference")


class FusedForm:
    """Sums in registers, compiled for the processor at hand."""

    name = "fused"
    new_block = AlignedBlock

    def __init__(self) -> None:
        self._loaded: set[np.dtype] = set()
        self._fault: dict[np.dtype, str] = {}
        self._work: dict[np.dtype, float] = {}

    def is_exact(self, info: LayerInfo) -> bool:
        """Whether starting at the bias is the layer's rule."""
        return FULL.is_exact(info)

    def cost(self, info: LayerInfo, inputs: int, entries: float) -> float:
        """Return ns for one block."""
        return costs.fused_layer(inputs, info.edges, *info.shape)

    def is_worth_loading(self, dtype: np.dtype, work: float) -> bool:
        """Whether compiled code is there, or due: see `costs.COMPILE`.

        Parameters
        ----------
        dtype : float32 or float64
        work : float
            Estimated ns of the run in another form. Without compiled code on disk, it is compiled
            once the runs of this process have taken longer than that (the ski-rental rule).
        """
        if dtype in self._loaded:
            return True
        if not self._is_at_hand(dtype):
            work += self._work.get(dtype, 0.0)
            # While one thread compiles, others go on without.
            self._work[dtype] = work if work <= costs.COMPILE else 0.0
            if work <= costs.COMPILE:
                return False
        return self._load(dtype) is None

    def code(self) -> dict[str, str]:
        """Return for each dtype where its compiled code is kept, and whether it is there."""
        from gbdnn.kernels.compiled.functions import library

        found = {}
        for name in ("float32", "float64"):
            each = library(name)
            there = "" if each.is_at_hand else " (not yet compiled)"
            found[name] = f"{each.file or 'not kept on disk'}{there}"
        return found

    def load(self, dtype: np.dtype) -> None:
        """Load or compile the code.

        Raises
        ------
        MissingPackageError
            numba is missing, or not one that this code knows.
        """
        if (fault := self._load(dtype)) is not None:
            raise MissingPackageError(f"engine='fused' needs a working numba: {fault}")

    def _is_at_hand(self, dtype: np.dtype) -> bool:
        try:
            from gbdnn.kernels.compiled.functions import library

            return library(dtype.name).is_at_hand
        except Exception:
            return False

    def _load(self, dtype: np.dtype) -> str | None:
        """Return why there is no compiled code; None if there is."""
        if dtype not in self._fault and dtype not in self._loaded:
            try:
                from gbdnn.kernels.compiled.functions import functions

                functions(dtype.name)
                self._loaded.add(dtype)
            except Exception as error:
                self._fault[dtype] = f"{type(error).__name__}: {error}"
                _log.debug("no fused form: %s", self._fault[dtype])
        return self._fault.get(dtype)

    def prepare(
        self, layer: Layer, rows: np.ndarray | None, columns: np.ndarray | None
    ) -> FusedLayer:
        """Return the columns, those of equal patterns side by side, or a dense layer."""
        from gbdnn.kernels.compiled.table import prepare, prepare_dense

        make = prepare_dense if costs.dense_layer_pays(layer.edges, *layer.shape) else prepare
        if rows is None or columns is None:
            arrays = layer.W.ss.export("csc", sort=True)
            found = arrays["indptr"], arrays["row_indices"], arrays["values"]
            return make(SparseRows(*found, layer.nrows), layer.bias, layer)
        return make(*reordered(layer, rows, columns), layer)

    def prepare_single(self, layer: Layer) -> FusedLayer:
        """Return the rows, for a single input."""
        from gbdnn.kernels.compiled.table import prepare_dense_rows, prepare_rows

        dense = costs.dense_layer_pays(layer.edges, *layer.shape, single=True)
        arrays = layer.W.ss.export("csr", sort=True)
        found = arrays["indptr"], arrays["col_indices"], arrays["values"]
        rows = SparseRows(*found, layer.ncols)
        return (prepare_dense_rows if dense else prepare_rows)(rows, layer.bias, layer)

    def advance(
        self,
        Y: AlignedBlock,
        Z: AlignedBlock,
        layer: Layer,
        weights: FusedLayer,
        *,
        check: Callable[[np.ndarray], None] | None = None,
    ) -> None:
        """Compute one layer; a run takes many at once, by a `FusedChain`."""
        chain = FusedChain([weights], [False], layer.dtype)
        if chain.run(0, 1, Y, Z, tidy=False)[2] >= 0 and check is not None:
            check(np.array([np.nan], layer.dtype))


FUSED = FusedForm()


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
        # Features may be a caller's own; compiled code believes what it is told.
        indptr, columns = (
            np.ascontiguousarray(each, np.uint64) for each in (rows.indptr, rows.columns)
        )
        values = rows.values[:1] if rows.is_iso else rows.values
        values = np.ascontiguousarray(values, block.array.dtype)
        if len(columns) and columns.max() >= block.neurons:
            raise IndexError(f"features: an entry in column {columns.max()} of {block.neurons}")
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
        self, first: int, last: int, Y: AlignedBlock, Z: AlignedBlock, *, tidy: bool
    ) -> tuple[AlignedBlock, AlignedBlock, int]:
        """Take a block through layers `first` to `last`, counted from the first of the chain.

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
            costs.MOVE_ROW, int(tidy), self._state.ctypes.data, 0,
        )  # fmt: skip
        left, in_Z, _, faulty, _ = self._state.tolist()
        if in_Z:
            Y, Z = Z, Y
        Y.inputs = ids[:left]
        Y.neurons = self._table.layers[last - 1].ncols
        return Y, Z, faulty

    def sparse_rows(
        self, block: AlignedBlock, position: np.ndarray | None, *, droppable: bool
    ) -> SparseRows:
        """Return a block's inputs, those without entries only if they may not be dropped."""
        inputs = len(block.inputs)
        counts = np.empty(inputs, np.int64)
        self._compiled["count"](
            block.address, block.stride, block.neurons, inputs, counts.ctypes.data
        )
        indptr = np.zeros(inputs + 1, np.int64)
        np.cumsum(counts, out=indptr[1:])
        columns = np.empty(indptr[-1], np.uint64)
        values = np.empty(indptr[-1], block.array.dtype)
        places = indptr[:-1].copy()
        self._compiled["extract"](
            block.address, block.stride, block.neurons, _address(position), inputs,
            places.ctypes.data, columns.ctypes.data, values.ctypes.data,
        )  # fmt: skip
        rows = SparseRows(indptr.view(np.uint64), columns, values, block.neurons, block.inputs)
        return rows.without_empty_rows() if droppable else rows


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
    if len(_natural) < size:
        _natural = np.arange(2 * size)
    return _natural


_natural = np.arange(1024)


def _address(array: np.ndarray | None) -> int:
    return 0 if array is None else int(array.ctypes.data)
