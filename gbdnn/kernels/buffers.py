"""Memory of blocks, used again and again within a budget."""

from __future__ import annotations

import threading

import numpy as np

from gbdnn.kernels import blocks

__all__ = ["Buffers"]


class Buffers:
    """Blocks of one dtype.

    Parameters
    ----------
    dtype : float32 or float64
        Of the activations.
    budget : int
        Bytes that blocks may take in all. `get` always gives one; `has_room` tells whether another
        one would be within the budget.

    Attributes
    ----------
    allocated : int
        Bytes of all blocks, those in use and those that were put back.
    """

    def __init__(self, dtype: np.dtype, budget: int) -> None:
        self._dtype, self._budget = np.dtype(dtype), budget
        self._make = blocks.Block if blocks.in_place(self._dtype.name) else blocks.MovedBlock
        self._all: dict[int, blocks.Block] = {}
        self._idle: list[blocks.Block] = []
        self._lock = threading.Lock()
        self.allocated = 0

    def get(self, neurons: int, width: int) -> blocks.Block:
        """Return a block of this shape; its content is arbitrary."""
        with self._lock:
            for at in range(len(self._idle) - 1, -1, -1):
                if (self._idle[at].neurons, self._idle[at].width) == (neurons, width):
                    return self._idle.pop(at)
            wanted = self._size(neurons, width)
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
            self._all[id(block)] = block
        return block

    def put(self, block: blocks.Block) -> None:
        """Take a block back."""
        with self._lock:
            self._idle.append(block)

    def has_room(self, neurons: int, width: int) -> bool:
        """Whether one more block of this shape stays within the budget."""
        with self._lock:
            idle = sum(block.nbytes for block in self._idle)
            return self.allocated - idle + self._size(neurons, width) <= self._budget

    def release(self) -> None:
        """Free all blocks, those that an exception left in use too; no array is valid afterwards.

        A graphblas.Matrix is part of a cycle: left alone, it would stay until it is collected.
        """
        with self._lock:
            self._idle.clear()
            for block in list(self._all.values()):
                self._free(block)

    def _free(self, block: blocks.Block) -> None:
        self.allocated -= block.nbytes
        del self._all[id(block)]
        block.matrix.clear()

    def _size(self, neurons: int, width: int) -> int:
        return neurons * width * self._dtype.itemsize
