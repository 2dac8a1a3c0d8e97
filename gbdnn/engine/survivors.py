"""Survivors of several blocks, until there are enough for a block of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from gbdnn.engine.duplicates import Duplicates
    from gbdnn.kernels.blocks import Block

__all__ = ["SurvivorBlock"]


_UNKNOWN = np.uint64(0)  # no fingerprint was taken


class SurvivorBlock:
    """A block that is being filled, column by column.

    Parameters
    ----------
    block : Block
        Where the inputs go.
    """

    def __init__(self, block: Block) -> None:
        self.block = block
        self._array = block.array  # taken once: a block may have to be moved out of GraphBLAS
        block.inputs = np.empty(0, np.int64)
        self._marks = np.empty(0, np.uint64)  # the columns' fingerprints
        self._unfilled = 0  # threads that are copying

    @property
    def is_ready(self) -> bool:
        """Whether it is full, and all that it holds is there."""
        return self.is_full and not self._unfilled

    @property
    def is_full(self) -> bool:
        """Whether no further input fits."""
        return len(self.block.inputs) == self.block.width

    def merge(
        self, array: np.ndarray, inputs: np.ndarray, marks: np.ndarray, duplicates: Duplicates
    ) -> np.ndarray:
        """Merge columns that are here already, bit for bit; return the positions of the others."""
        bits = self._array.view(f"u{array.itemsize}")
        columns = array.view(bits.dtype)
        into = np.full(len(inputs), -1)
        same = (marks[:, np.newaxis] == self._marks) & (self._marks != _UNKNOWN)
        for at in np.flatnonzero(same.any(axis=1)):
            known = int(np.argmax(same[at]))
            if np.array_equal(bits[:, known], columns[:, at]):
                into[at] = known
        merged = np.flatnonzero(into >= 0)
        if len(merged):
            duplicates.merge(inputs[merged], self.block.inputs[into[merged]])
        return np.flatnonzero(into < 0)

    def reserve(self, inputs: np.ndarray) -> slice:
        """Give as many of some inputs as fit a place each; return the places.

        Their activations are copied by `fill`, which may take its time beside others; until
        `filled` is told, none is merged into them.
        """
        used = len(self.block.inputs)
        fits = min(len(inputs), self.block.width - used)
        self.block.inputs = np.concatenate((self.block.inputs, inputs[:fits]))
        self._marks = np.concatenate((self._marks, np.full(fits, _UNKNOWN)))
        self._unfilled += 1
        return slice(used, used + fits)

    def fill(self, where: slice, array: np.ndarray) -> None:
        """Copy the first columns of `array` to their places."""
        self._array[:, where] = array[:, : where.stop - where.start]

    def filled(self, where: slice, marks: np.ndarray | None) -> None:
        """Take note that the columns are there, with their fingerprints if these were taken."""
        if marks is not None:
            self._marks[where] = marks[: where.stop - where.start]
        self._unfilled -= 1
