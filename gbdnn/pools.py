"""Survivors of several blocks, until there are enough for a block of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from gbdnn.blocks import Block
    from gbdnn.compression import Merges

__all__ = ["Pool"]


_UNKNOWN = np.uint64(0)  # no fingerprint was taken


class Pool:
    """A block that is being filled, column by column.

    Parameters
    ----------
    block : Block
        Where the inputs go.
    """

    def __init__(self, block: Block) -> None:
        self.block = block
        block.inputs = np.empty(0, np.int64)
        self._marks = np.empty(0, np.uint64)  # the columns' fingerprints

    @property
    def is_full(self) -> bool:
        """Whether no further input fits."""
        return len(self.block.inputs) == self.block.width

    def merge(
        self, array: np.ndarray, inputs: np.ndarray, marks: np.ndarray, merges: Merges
    ) -> np.ndarray:
        """Merge columns that are here already, bit for bit; return the positions of the others."""
        bits = self.block.array.view(f"u{array.itemsize}")
        columns = array.view(bits.dtype)
        into = np.full(len(inputs), -1)
        same = (marks[:, np.newaxis] == self._marks) & (self._marks != _UNKNOWN)
        for at in np.flatnonzero(same.any(axis=1)):
            known = int(np.argmax(same[at]))
            if np.array_equal(bits[:, known], columns[:, at]):
                into[at] = known
        merged = np.flatnonzero(into >= 0)
        if len(merged):
            merges.merge(inputs[merged], self.block.inputs[into[merged]])
        return np.flatnonzero(into < 0)

    def add(self, array: np.ndarray, inputs: np.ndarray, marks: np.ndarray | None) -> int:
        """Append as many of some columns as fit; return their number."""
        used = len(self.block.inputs)
        fits = min(len(inputs), self.block.width - used)
        self.block.array[:, used : used + fits] = array[:, :fits]
        self.block.inputs = np.concatenate((self.block.inputs, inputs[:fits]))
        if marks is None:
            marks = np.full(fits, _UNKNOWN)
        self._marks = np.concatenate((self._marks, marks[:fits]))
        return fits
