"""The fused kernel: a block through many layers, each in one pass over its memory.

    Z  = b; Z += Y W               every neuron's sums stay in registers for all its edges
    Y' = min(max(Z, 0), clip)      before they are stored, once

The inner loops are compiled by numba and kept on disk (`gbdnn.kernels.compiled`). The full kernel
is the same equation in GraphBLAS: its definition, and the kernel to take if nothing can be
compiled.
"""

from __future__ import annotations

import threading
import warnings
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.errors import MissingPackageError
from gbdnn.kernels import costs
from gbdnn.kernels.full import FULL
from gbdnn.kernels.reorder import reordered

if TYPE_CHECKING:
    from gbdnn.kernels.compiled.table import FusedLayer
    from gbdnn.model.layer import Layer
    from gbdnn.model.layer_info import LayerInfo

__all__ = ["FUSED", "FusedKernel"]


class FusedKernel:
    """Sums in registers, compiled for the processor at hand."""

    name = "fused"

    def __init__(self) -> None:
        self._loaded: set[np.dtype] = set()
        self._fault: dict[np.dtype, str] = {}
        self._without: dict[np.dtype, float] = {}  # ns of runs in another kernel
        self._loading = threading.Lock()

    def is_exact(self, info: LayerInfo) -> bool:
        """Whether starting at the bias is the layer's rule."""
        return FULL.is_exact(info)

    def cost(self, info: LayerInfo, inputs: int, entries: float) -> float:
        """Return ns for one block."""
        return costs.fused_layer(inputs, info.edges, *info.shape, info.dtype.itemsize)

    def is_due(self, dtype: np.dtype, work: float) -> bool:
        """Whether a run of so much work is to take compiled code: `has_loaded` then tells.

        Parameters
        ----------
        dtype : float32 or float64
        work : float
            Estimated ns of the run in another kernel. Without compiled code on disk, it is compiled
            once the runs of this process have taken longer than that (the ski-rental rule, with
            `costs.COMPILE`); while one thread compiles, others go on without.
        """
        if dtype in self._loaded:
            return True
        if dtype in self._fault or not self._is_suited:
            return False
        if self._is_at_hand(dtype):
            return True
        enough = self._without.get(dtype, 0.0) + work > costs.COMPILE
        return enough and not self._loading.locked()

    def went_without(self, dtype: np.dtype, work: float) -> None:
        """Note that a run of so much work takes another kernel."""
        self._without[dtype] = self._without.get(dtype, 0.0) + work

    def has_loaded(self, dtype: np.dtype) -> bool:
        """Whether there is compiled code; it is loaded, or compiled, and a failure warned of once.

        After a failure this process goes on without; the next one tries again.
        """
        first = dtype not in self._fault
        if (fault := self._load(dtype)) is not None and first:
            text = f"no fused kernel, which would take less time: {fault}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        return fault is None

    def code(self) -> dict[str, str]:
        """Return for each dtype where its compiled code is kept, and whether it is there."""
        from gbdnn.kernels.compiled.functions import library

        found, suited = {}, "" if self._is_suited else " (slow: no fused multiply-adds here)"
        for name in ("float32", "float64"):
            each = library(name)
            there = "" if each.is_at_hand else " (not yet compiled)"
            found[name] = f"{each.file or 'not kept on disk'}{there}{suited}"
        return found

    def seconds_compiling(self, dtype: np.dtype | None) -> float:
        """Return what this process took to compile the code; 0 if it was on disk, or not needed."""
        if dtype is None or dtype not in self._loaded:
            return 0.0
        from gbdnn.kernels.compiled.functions import library

        return library(dtype.name).seconds

    def load(self, dtype: np.dtype) -> None:
        """Load or compile the code.

        Raises
        ------
        MissingPackageError
            numba is missing, or not one that this code knows.
        """
        if (fault := self._load(dtype)) is not None:
            raise MissingPackageError(f"engine='fused' needs a working numba: {fault}")

    def keep_code(self, dtype: np.dtype) -> None:
        """Have the code at hand, compiled now, where it is kept on disk for later processes."""
        from gbdnn.kernels.compiled.library import cache_folder

        if cache_folder() is not None and self.is_due(dtype, np.inf):
            self.has_loaded(dtype)

    @cached_property
    def _is_suited(self) -> bool:
        """Whether the processor gains by this kernel."""
        try:
            from gbdnn.kernels.compiled.library import has_fma

            return has_fma()
        except ImportError:
            return True  # it is tried, and fails, where it is due

    def _is_at_hand(self, dtype: np.dtype) -> bool:
        try:
            from gbdnn.kernels.compiled.functions import library

            return library(dtype.name).is_at_hand
        except Exception:
            return False

    def _load(self, dtype: np.dtype) -> str | None:
        """Return why there is no compiled code; None if there is."""
        with self._loading:
            if dtype not in self._fault and dtype not in self._loaded:
                try:
                    from gbdnn.kernels.compiled.functions import functions

                    functions(dtype.name)
                    self._loaded.add(dtype)
                except Exception as error:
                    self._fault[dtype] = f"{type(error).__name__}: {error}"
        return self._fault.get(dtype)

    def prepare(
        self,
        layer: Layer,
        rows: np.ndarray | None,
        columns: np.ndarray | None,
        *,
        wide: bool = False,
    ) -> FusedLayer:
        """Return the columns, those of equal patterns side by side, or by panels; or a dense layer.

        A layer keeps what blocks of any width have in common.
        """
        from gbdnn.kernels.compiled.table import prepare_panels

        given, found = _columns(layer, rows, columns), None
        if wide and not costs.dense_layer_pays(layer.edges, *layer.shape):
            found = prepare_panels(*given, layer)
        if found is None:
            found = layer.prepared(_any_width) if rows is None else _prepared(given, layer)
        return found

    def prepare_single(self, layer: Layer) -> FusedLayer:
        """Return the rows, for a single input."""
        from gbdnn.kernels.compiled.table import prepare_dense_rows, prepare_rows

        dense = costs.dense_layer_pays(layer.edges, *layer.shape, single=True)
        arrays = layer.W.ss.export("csr", sort=True)
        found = arrays["indptr"], arrays["col_indices"], arrays["values"]
        rows = SparseRows(*found, layer.ncols)
        return (prepare_dense_rows if dense else prepare_rows)(rows, layer.bias, layer)


FUSED = FusedKernel()


def _columns(
    layer: Layer, rows: np.ndarray | None = None, columns: np.ndarray | None = None
) -> tuple[SparseRows, float | np.ndarray]:
    """Return a layer's columns and bias, neurons in the order given."""
    if rows is not None and columns is not None:
        return reordered(layer, rows, columns)
    arrays = layer.W.ss.export("csc", sort=True)
    found = arrays["indptr"], arrays["row_indices"], arrays["values"]
    return SparseRows(*found, layer.nrows), layer.bias


def _any_width(layer: Layer) -> FusedLayer:
    """Return the weights for blocks of any width; the layer keeps them."""
    return _prepared(_columns(layer), layer)


def _prepared(given: tuple[SparseRows, float | np.ndarray], info: LayerInfo) -> FusedLayer:
    from gbdnn.kernels.compiled.table import prepare, prepare_dense

    dense = costs.dense_layer_pays(info.edges, *info.shape)
    return (prepare_dense if dense else prepare)(*given, info)
