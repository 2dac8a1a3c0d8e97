"""A layer's bias: one number, a vector, or a vector that is read when it is asked for."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from gbdnn.arrays.matrices import as_array, finite
from gbdnn.errors import ShapeError

if TYPE_CHECKING:
    from collections.abc import Callable

    import graphblas as gb

__all__ = ["BiasLike", "LateBias", "as_bias"]

BiasLike: TypeAlias = "float | np.ndarray | gb.Vector | list[float] | tuple[float, ...]"


class LateBias(NamedTuple):
    """A bias vector of which the range is known; its values are read when they are asked for."""

    lowest: float
    highest: float
    read: Callable[[], np.ndarray]

    def astype(self, dtype: np.dtype) -> LateBias:
        """Return the bias cast to FP32 or FP64, when it is read."""
        low, high = finite(np.array([self.lowest, self.highest]), dtype, "bias").tolist()
        return LateBias(low, high, partial(_read_as, self.read, dtype))


def as_bias(bias: Any, ncols: int, dtype: np.dtype) -> float | np.ndarray | LateBias:
    """Return a number, or a read-only vector of one value per neuron; a late one stays late."""
    if isinstance(bias, LateBias):
        return bias
    if type(bias).__module__.startswith("graphblas.core.vector"):
        bias = bias.to_dense(fill_value=0)
    values = as_array(bias, "bias")
    if values.ndim == 0:
        return float(finite(values.reshape(1), dtype, "bias")[0])
    if values.shape != (ncols,):
        raise ShapeError(f"bias has shape {values.shape} but the layer has {ncols} neurons")
    vector = finite(values, dtype, "bias")
    vector.flags.writeable = False
    return vector


def _read_as(read: Callable[[], np.ndarray], dtype: np.dtype) -> np.ndarray:
    vector = finite(read(), dtype, "bias")
    vector.flags.writeable = False
    return vector
