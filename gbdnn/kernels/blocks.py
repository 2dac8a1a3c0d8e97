"""Blocks of the fused kernel: dense activations of a group of inputs, aligned for the caches."""

from __future__ import annotations

import numpy as np

from gbdnn.kernels.compiled.record import address

__all__ = ["AlignedBlock", "sample", "scratch"]

_LINE = 64  # bytes of a cache line


class AlignedBlock:
    """Activations of up to `width` inputs at up to `neurons` neurons.

    Rows, one per neuron, are an odd number of cache lines apart.
    """

    def __init__(self, neurons: int, width: int, dtype: np.dtype) -> None:
        self.neurons, self.width = neurons, width
        self.stride = self._columns(width, dtype)
        size = self.size(neurons, width, dtype)
        memory = np.empty(size + _LINE, np.uint8)
        start = -address(memory) % _LINE
        self._memory = memory[start : start + size].view(dtype).reshape(neurons, self.stride)

    @staticmethod
    def step(dtype: np.dtype) -> int:
        """Return the number that block widths are multiples of; odd ones need no padding."""
        return _LINE // dtype.itemsize

    @classmethod
    def _columns(cls, width: int, dtype: np.dtype) -> int:
        lanes = cls.step(dtype)
        return (-(-width // lanes) | 1) * lanes

    @classmethod
    def size(cls, neurons: int, width: int, dtype: np.dtype) -> int:
        """Return the size of a block in bytes, without alignment."""
        return neurons * cls._columns(width, dtype) * dtype.itemsize

    @property
    def array(self) -> np.ndarray:
        """The activations, neurons x width."""
        return self._memory[: self.neurons, : self.width]

    @property
    def whole(self) -> np.ndarray:
        """The memory, neurons x stride."""
        return self._memory


def sample(array: np.ndarray) -> np.ndarray:
    """Return the activations of some neurons, at least about 64 of them."""
    return array[:: min(16, max(1, len(array) // 64))]


def scratch(stride: int) -> np.ndarray:
    """Return scratch memory for blocks: four integers per input, and a cache line."""
    memory = np.empty(4 * stride + 2 * _LINE // 8, np.int64)
    start = -address(memory) % _LINE // 8
    return memory[start : start + 4 * stride + _LINE // 8]
