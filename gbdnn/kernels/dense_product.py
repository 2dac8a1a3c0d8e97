"""Products of features with dense weights, computed in compiled code on threads.

Z = min(max(start + Y W, low), high)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.kernels import costs
from gbdnn.kernels.compiled.loading import functions
from gbdnn.kernels.compiled.record import Record, constant
from gbdnn.kernels.ranges import Ranges, compute

if TYPE_CHECKING:
    from gbdnn.model.layer import Layer

__all__ = ["BLOCK_ROWS", "can_multiply", "multiply", "product", "target"]

BLOCK_ROWS = constant("BLOCK_ROWS")
UNIT = 1 << 14  # elements of Y, at least a block, of a thread's unit of work


def can_multiply(layer: Layer) -> bool:
    """Whether a layer is dense and has compiled code."""
    is_dense = costs.dense_layer_pays(layer.edges, *layer.shape)
    return is_dense and functions(layer.dtype) is not None


def target(
    Z: np.ndarray, start: np.ndarray, low: float = -np.inf, high: float = np.inf
) -> dict[str, Any]:
    """Return the members of a record that say where sums start, and what becomes of them.

    Rows of the arrays are contiguous. `start`, of shape (features,) or that of Z, may be Z.
    """
    step = start.strides[0] if start.ndim == 2 else 0
    return {
        "start": start, "start_stride": step // Z.itemsize, "Z": Z,
        "z_stride": Z.strides[0] // Z.itemsize, "low": low, "high": high,
    }  # fmt: skip


def product(layer: Layer, Y: np.ndarray | None, result: dict[str, Any]) -> Record:
    """Return the record of a product; `result` is a `target`, and may have `ids` of rows of Y.

    Without Y, its rows follow in each call.
    """
    W, size = layer.prepared(_padded), layer.dtype.itemsize
    stride = layer.nrows if Y is None else Y.strides[0] // size
    return Record(
        "dense", layer.dtype, nrows=layer.nrows, ncols=layer.ncols, W=W, w_stride=W.shape[1], Y=Y,
        stride=stride, **result,
    )  # fmt: skip


def multiply(layer: Layer, Y: np.ndarray, result: dict[str, Any], nthreads: int) -> bool:
    """Compute a product on threads, as for `product`; return whether all sums are finite."""
    compiled: Any = functions(layer.dtype)
    count = len(result["Z"])
    step = BLOCK_ROWS * max(1, UNIT // (BLOCK_ROWS * max(1, layer.nrows)))
    first = np.arange(0, count, step)
    work = product(layer, Y, result), Ranges(first, np.minimum(first + step, count))
    return compute([work], lambda: compiled.multiply, nthreads)


def _padded(layer: Layer) -> np.ndarray:
    """Return the weights with rows of an odd number of cache lines; the additional ones are 0."""
    lanes = 64 // layer.dtype.itemsize
    W = np.zeros((layer.nrows, (-(-layer.ncols // lanes) | 1) * lanes), layer.dtype)
    W[:, : layer.ncols] = layer.W.to_dense(fill_value=0, dtype=layer.W.dtype)
    return W
