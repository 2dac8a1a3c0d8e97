"""A framework's chain of operations, grouped into layers.

A layer is a product, a bias and the ReLUs and clamps up to the next product, which compose to one
activation and one clip. Factors and shifts of neurons go into the weights and the bias of the
product before them, or, behind an activation and before the first product, into those of the next.
Any other operation is an error that names it.
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


def no_meaning(name: str, why: str = "") -> ArgumentError:
    """Return the error for an operation that a layer cannot represent."""
    return ArgumentError(
        f"{name} has no meaning here{': ' + why if why else ''}; a network is a chain of linear"
        " layers, each with a ReLU, an upper limit, both or neither"
    )


class Chain:
    """A builder of layers; `dtype` casts all of them."""

    def __init__(self, dtype: Any) -> None:
        self._dtype = dtype
        self._layers: list[Layer] = []
        self._pending: tuple[str, Any, Any] | None = None
        # For the next product: factors, shifts, and what they are of.
        self._scaling: tuple[np.ndarray, np.ndarray, str] | None = None
        self._activation: Activation = "identity"
        self._clip: float | None = None

    @property
    def neurons(self) -> int | None:
        """Columns of the latest product; None before the first."""
        return None if self._pending is None else int(self._pending[1].shape[1])

    def linear(self, W: Any, b: Any, name: str) -> None:
        """Start a layer ``Y W + b``; `b` is a number, a vector or None."""
        self._finish()
        if self._scaling is not None:
            W, b = _scaled_rows(W, b, *self._scaling)
            self._scaling = None
        self._pending = name, W, b

    def add(self, b: Any, name: str) -> None:
        """Add to each neuron: a bias of the preceding product, or a shift before the next."""
        if not self._is_linear or self._pending is None:
            self.scale(np.ones(()), b, name)
            return
        product, W, old = self._pending
        if old is not None and not {old.shape, b.shape} <= {(), (W.shape[1],)}:
            raise ShapeError(f"{name}: a bias of shape {b.shape} onto one of {old.shape}")
        self._pending = product, W, b if old is None else old + b

    def scale(self, factors: np.ndarray, shifts: np.ndarray, name: str) -> None:
        """Multiply each neuron by a factor, and add a shift: one for each, or one for all."""
        neurons = self.neurons
        for each in (factors, shifts):
            if each.ndim and each.shape != (neurons or len(each),):
                raise ShapeError(f"{name}: {each.shape} factors or shifts for {neurons} neurons")
        factors, shifts = factors.astype(np.float64), shifts.astype(np.float64)
        if not self._is_linear or self._pending is None:
            if self._scaling is not None:
                before, first, name = self._scaling
                factors, shifts = factors * before, shifts + factors * first
            self._scaling = factors, shifts, name
            return
        product, W, old = self._pending
        columns = as_columns(W, what=name)
        dtype = columns.values.dtype
        each = np.broadcast_to(factors, columns.nrows)
        values = columns.values * np.repeat(each, columns.degrees)
        scaled = SparseRows(columns.indptr, columns.columns, values.astype(dtype), columns.ncols)
        bias = shifts if old is None else old * factors + shifts
        self._pending = product, scaled.matrix().T, bias.astype(dtype)

    def clamp(self, low: float | None, high: float | None, name: str) -> None:
        """Bound the activations; None or an infinity is not a bound. A ReLU is ``0, None``."""
        self._require_no_scaling()
        if self._pending is None:
            raise no_meaning(name, "an activation before the first linear layer")
        low = None if low is None or low == -math.inf else low
        high = None if high is None or high == math.inf else high
        if low not in (None, 0):
            raise no_meaning(name, f"the lower bound is {low:g}, not 0")
        if high is not None and not high > 0:
            raise no_meaning(name, f"the upper bound is {high:g}, not above 0")
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
            *_, name = self._scaling
            raise no_meaning(
                name, "it changes something other than a product, and no product follows"
            )

    def _finish(self) -> None:
        if self._pending is None:
            return
        name, W, b = self._pending
        with naming(f"layer {len(self._layers)}, {name}"):
            layer = Layer(
                W,
                0.0 if b is None else b,
                activation=self._activation,
                clip=self._clip,
                dtype=self._dtype,
            )
        self._layers.append(layer)
        self._pending, self._activation, self._clip = None, "identity", None


def _scaled_rows(
    W: Any, b: Any, factors: np.ndarray, shifts: np.ndarray, name: str
) -> tuple[Any, np.ndarray]:
    """Return weights and bias for what comes before ``y * factors + shifts``."""
    columns = as_columns(W, what=name)
    rows, dtype = columns.columns.view(np.int64), columns.values.dtype
    for each in (factors, shifts):
        if each.ndim and len(each) != columns.ncols:
            raise ShapeError(
                f"{name}: {len(each)} factors or shifts for weights that read {columns.ncols}"
            )
    factors, shifts = (np.broadcast_to(each, columns.ncols) for each in (factors, shifts))
    neurons = np.repeat(np.arange(columns.nrows), columns.degrees)
    sums = np.bincount(neurons, columns.values * shifts[rows], columns.nrows)
    values = (columns.values * factors[rows]).astype(dtype)
    scaled = SparseRows(columns.indptr, columns.columns, values, columns.ncols)
    bias = sums if b is None else sums + b
    return scaled.matrix().T, bias.astype(dtype)


def add_everywhere(net: Network) -> None:
    """Raise ArgumentError if a layer's answers under ``entries`` and ``all`` differ."""
    for k, layer in enumerate(net):
        harmless = layer.activation == "relu" and layer.highest_bias <= 0
        if layer.bias_rule == "entries" and not harmless and np.any(layer.bias):
            raise ArgumentError(
                f"layer {k}: the bias rule 'entries' has no equal there: its bias, up to"
                f" {layer.highest_bias:g}, would be added to every neuron"
            )
