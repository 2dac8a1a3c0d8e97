"""Memory of blocks, used again and again within a budget."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from gbdnn.kernels import blocks

__all__ = ["Buffers"]


class Buffers:
    """Blocks of one dtype.

    Parameters
    ----------
    dtype : float32 or float64
        Of the activations.
    make : type, optional
        Of the blocks; default: one for GraphBLAS.
    shape : (int, int), optional
        Neurons and inputs of all blocks; default: those that are asked for.
    budget : int
        Bytes beyond which blocks that were put back are freed.

    Attributes
    ----------
    allocated : int
        Bytes of all blocks, those in use and those that were put back.
    """

    def __init__(
        self,
        dtype: np.dtype,
        budget: int,
        make: type[blocks.Block | blocks.AlignedBlock] | None = None,
        shape: tuple[int, int] | None = None,
    ) -> None:
        self._dtype, self._budget = np.dtype(dtype), budget
        self._make = make or (
            blocks.Block if blocks.in_place(self._dtype.name) else blocks.MovedBlock
        )
        self._shape = shape
        self._all: dict[int, Any] = {}
        self._shapes: dict[int, tuple[int, int]] = {}
        self._idle: list[Any] = []
        self._lock = threading.Lock()
        self.allocated = 0

    def get(self, neurons: int, width: int) -> Any:
        """Return a block of this shape; its content is arbitrary."""
        neurons, width = self._shape or (neurons, width)
        with self._lock:
            for at in range(len(self._idle) - 1, -1, -1):
                if self._shapes[id(self._idle[at])] == (neurons, width):
                    return self._idle.pop(at)
            wanted = self._make.size(neurons, width, self._dtype)
            while self._idle and self.allocated + wanted > self._budget:
                self._free(self._idle.pop(0))
            self.allocated += wanted
        try:
            block = self._make(neurons, width, self._dtype)
        except BaseException:
            with self._lock:
                self.allocated -= wanted
            raise
        with self._lock:
            self._all[id(block)], self._shapes[id(block)] = block, (neurons, width)
        return block

    def put(self, block: Any) -> None:
        """Take a block back."""
        with self._lock:
            self._idle.append(block)

    def release(self) -> None:
        """Free all blocks, also those in use after an exception; no array is valid then."""
        with self._lock:
            self._idle.clear()
            for block in list(self._all.values()):
                self._free(block)

    def _free(self, block: Any) -> None:
        self.allocated -= block.nbytes
        del self._all[id(block)]
        block.free()
