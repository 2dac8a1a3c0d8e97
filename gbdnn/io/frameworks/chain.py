"""Conversion of a framework's chain of operations to layers.

A layer is a product, its bias, and the ReLUs and clamps up to the next product. Batch normalisation
is merged into the previous product, or, after an activation or at the start, into the next one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.matrices import as_columns
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.errors import ArgumentError, ShapeError, naming
from gbdnn.model.layer import Layer
from gbdnn.model.network import Network

if TYPE_CHECKING:
    from gbdnn.model.layer import Activation


def unsupported(name: str, why: str = "") -> ArgumentError:
    """Return the error for an operation that cannot be converted to layers."""
    return ArgumentError(
        f"unsupported {name}{': ' + why if why else ''}; only chains of linear layers are"
        " supported, each with an optional ReLU and upper limit"
    )


class Chain:
    """A builder of layers, cast to `dtype` if given."""

    def __init__(self, dtype: Any) -> None:
        self._dtype = dtype
        self._layers: list[Layer] = []
        self._pending: tuple[str, Any, Any] | None = None
        self._scaling: tuple[np.ndarray, np.ndarray, str] | None = None  # of the next product
        self._activation: Activation = "identity"
        self._clip: float | None = None

    @property
    def neurons(self) -> int | None:
        """Neurons of the latest product; None before the first."""
        return None if self._pending is None else int(self._pending[1].shape[1])

    def linear(self, W: Any, b: Any, name: str) -> None:
        """Start a layer ``Y W + b``; `b` is 0-D, one value per neuron, or None."""
        self._finish()
        if self._scaling is not None:
            *numbers, norm = self._scaling
            columns = as_columns(W, what=name)
            if any(len(x) not in (1, columns.ncols) for x in numbers):
                raise ShapeError(
                    f"{norm} has {max(map(len, numbers))} neurons but the next layer, {name}, has"
                    f" {columns.ncols} inputs"
                )
            factors, shifts = (np.broadcast_to(x, columns.ncols) for x in numbers)
            rows = columns.columns.view(np.int64)
            neurons = np.repeat(np.arange(columns.nrows), columns.degrees)
            sums = np.bincount(neurons, columns.values * shifts[rows], columns.nrows)
            b = (sums if b is None else sums + b).astype(columns.values.dtype)
            W = _with_values(columns, columns.values * factors[rows])
            self._scaling = None
        self._pending = name, W, b

    def add(self, b: np.ndarray, name: str) -> None:
        """Add a bias to the latest product, or a shift to the inputs of the next one."""
        if self._pending is None or self._scaling is not None or not self._is_linear:
            self.scale(np.ones(1), b, name)
            return
        product, W, old = self._pending
        for each in (b, old):
            if each is not None and each.shape not in ((), (W.shape[1],)):
                raise ShapeError(
                    f"{name}: bias has shape {each.shape} but the layer has {W.shape[1]} neurons"
                )
        self._pending = product, W, b if old is None else old + b

    def scale(self, factors: np.ndarray, shifts: np.ndarray, name: str) -> None:
        """Multiply each neuron by a factor and add a shift; one number is that of all neurons."""
        factors, shifts = np.atleast_1d(factors), np.atleast_1d(shifts)
        if self._pending is None or not self._is_linear:
            if self._scaling is not None:
                before, earlier, other = self._scaling
                if len({1, *map(len, (factors, shifts, before, earlier))}) > 2:
                    raise ShapeError(f"{name} and {other} differ in the number of neurons")
                factors, shifts = before * factors, earlier * factors + shifts
            self._scaling = factors, shifts, name
            return
        product, W, old = self._pending
        columns = as_columns(W, what=name)
        if len(factors) not in (1, columns.nrows):
            raise ShapeError(
                f"{name} has {len(factors)} factors but the layer has {columns.nrows} neurons"
            )
        factors = np.broadcast_to(factors, columns.nrows)
        W = _with_values(columns, columns.values * np.repeat(factors, columns.degrees))
        bias = shifts if old is None else old * factors + shifts
        self._pending = product, W, bias.astype(columns.values.dtype)

    def clamp(self, low: float | None, high: float | None, name: str) -> None:
        """Limit the activations; None and infinities mean no limit. A ReLU is ``0, None``."""
        self._require_no_scaling()
        if self._pending is None:
            raise unsupported(name, "it precedes the first linear layer")
        low = None if low is None or low == -math.inf else low
        high = None if high is None or high == math.inf else high
        if low not in (None, 0):
            raise unsupported(name, f"the lower bound is {low:g}, not 0")
        if high is not None and not high > 0:
            raise unsupported(name, f"the upper bound is {high:g}, not positive")
        if low == 0:
            self._activation = "relu"
        if high is not None:
            self._clip = high if self._clip is None else min(high, self._clip)

    def network(self) -> Network:
        """Return the layers so far."""
        self._require_no_scaling()
        self._finish()
        return Network(self._layers)

    @property
    def _is_linear(self) -> bool:
        """Whether the latest product has no activation yet."""
        return self._activation == "identity" and self._clip is None

    def _require_no_scaling(self) -> None:
        if self._scaling is not None:
            raise unsupported(self._scaling[2], "there is no linear layer before or after it")

    def _finish(self) -> None:
        if self._pending is None:
            return
        name, W, b = self._pending
        b = 0.0 if b is None else b
        with naming(f"layer {len(self._layers)}, {name}"):
            layer = Layer(W, b, activation=self._activation, clip=self._clip, dtype=self._dtype)
        self._layers.append(layer)
        self._pending, self._activation, self._clip = None, "identity", None


def _with_values(columns: SparseRows, values: np.ndarray) -> Any:
    """Return weights with these values in the original dtype."""
    values = values.astype(columns.values.dtype)
    return SparseRows(columns.indptr, columns.columns, values, columns.ncols).matrix().T


def add_everywhere(net: Network) -> None:
    """Raise ArgumentError if the results of a layer under ``entries`` and ``all`` may differ."""
    for k, layer in enumerate(net):
        harmless = layer.activation == "relu" and layer.highest_bias <= 0
        if layer.bias_rule == "entries" and not harmless and np.any(layer.bias):
            raise ArgumentError(
                f"layer {k}: the format cannot store the bias rule 'entries' with a bias of up to"
                f" {layer.highest_bias:g}, which would be added to every neuron"
            )
