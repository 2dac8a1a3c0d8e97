"""Products of features with dense weights, computed in compiled code on threads.

Z = min(max(start + Y W, low), high)
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.kernels import costs
from gbdnn.kernels.compiled.loading import functions
from gbdnn.kernels.compiled.record import Record
from gbdnn.runtime.threads import share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gbdnn.model.layer import Layer

__all__ = ["can_multiply", "multiply", "product", "target"]

UNIT = 1 << 17  # elements of Y, at least one row, of a thread's unit of work


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
    """Return the record of a product, of a `target`; rows of Y may follow in each call."""
    W, size = layer.prepared(_padded), layer.dtype.itemsize
    stride = layer.nrows if Y is None else Y.strides[0] // size
    return Record(
        "dense", nrows=layer.nrows, ncols=layer.ncols, W=W, w_stride=W.shape[1], Y=Y,
        stride=stride, **result,
    )  # fmt: skip


def multiply(layer: Layer, Y: np.ndarray, result: dict[str, Any], nthreads: int) -> bool:
    """Compute a product on threads; return whether all sums are finite."""
    made, step = product(layer, Y, result), max(1, UNIT // max(1, layer.nrows))
    compiled, flags = (functions(layer.dtype) or {})["multiply"], list[int]()

    def work(starts: Iterator[int]) -> None:
        for first in starts:
            flags.append(compiled(made, first, min(first + step, len(Y))))

    share(nthreads, deque(range(0, len(Y), step)), work)
    return not any(flags)


def _padded(layer: Layer) -> np.ndarray:
    """Return the weights with rows of an odd number of cache lines; the additional ones are 0."""
    lanes = 64 // layer.dtype.itemsize
    W = np.zeros((layer.nrows, (-(-layer.ncols // lanes) | 1) * lanes), layer.dtype)
    W[:, : layer.ncols] = layer.W.to_dense(fill_value=0, dtype=layer.W.dtype)
    return W
