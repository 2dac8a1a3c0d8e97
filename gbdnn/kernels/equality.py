"""Find equal inputs of blocks in compiled code, on threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.kernels import costs
from gbdnn.kernels.blocks import sample_step
from gbdnn.kernels.compiled.loading import required
from gbdnn.kernels.compiled.record import MEMBERS, Record
from gbdnn.kernels.fused_chain import CALL
from gbdnn.kernels.together import together

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Equality", "factors"]

_ROWS = 16  # neurons at which a thread compares inputs at a time
_ODD = np.uint64(0x9E3779B97F4A7C15)


class Equality:
    """Comparison of the inputs of blocks, which are at the same layer and do not change meanwhile.

    Attributes
    ----------
    starts : ndarray of int64, shape (blocks + 1,)
        Number of the first input of each block among the inputs of all blocks.
    """

    def __init__(self, blocks: Sequence[Any], threads: int) -> None:
        self._threads, self._neurons = threads, blocks[0].neurons
        self._dtype = blocks[0].array.dtype
        self.starts = np.cumsum([0, *(len(Y.inputs) for Y in blocks)])
        self._columns = np.zeros(len(blocks), MEMBERS["columns"])
        self._columns["Y"] = [Y.address for Y in blocks]
        self._columns["stride"] = [Y.stride for Y in blocks]
        self._columns["start"], self._columns["count"] = self.starts[:-1], np.diff(self.starts)
        self._marks, self._marked = np.empty(self.starts[-1], np.uint64), 0

    def marks(self, count: int) -> np.ndarray:
        """Return a fingerprint of each input of the first `count` blocks.

        It is computed from a sample of the activations.
        """
        step = sample_step(self._neurons)
        job = Record(
            "marking", blocks=self._columns, neurons=self._neurons, step=step, marks=self._marks,
            factors=factors(-(-self._neurons // step)),
        )  # fmt: skip
        inputs = self._columns["count"].max()
        self._call("mark", job, self._marked, count, 1, inputs * self._neurons / step)
        self._marked = count
        return self._marks[: self.starts[count]]

    def pairs(self, inputs: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Return for each pair of inputs, given by their numbers, whether all bits are equal."""
        columns = np.repeat(self._columns, self._columns["count"])
        columns["Y"] += (np.arange(len(columns)) - columns["start"]) * self._dtype.itemsize
        x, y, equal = columns[inputs], columns[others], np.ones(len(inputs), np.bool_)
        job = Record(
            "pairs", inputs=x["Y"].copy(), others=y["Y"].copy(), count=len(equal), step=_ROWS,
            input_strides=x["stride"].copy(), other_strides=y["stride"].copy(), equal=equal,
        )  # fmt: skip
        self._call("compare", job, 0, self._neurons, _ROWS, len(equal))
        return equal

    def _call(
        self, function: str, job: Record, first: int, last: int, step: int, each: float
    ) -> None:
        """Call a function for parts of a range, each in steps of `step`, on threads.

        A number of the range takes the time of `each` activations.
        """
        at_once = step * self._threads * max(1, int(CALL / (costs.MOVE * step * max(1, each))))
        place = np.empty(1, np.int64)
        for start in range(first, last, at_once):
            place[0], end = start, min(last, start + at_once)
            job.set(next=place, last=end)
            threads = min(self._threads, -(-(end - start) // step))
            together(threads, required(self._dtype)[function], job)


def factors(count: int) -> np.ndarray:
    """Return pseudo-random odd numbers (splitmix64), so that sums of a few differ."""
    with np.errstate(over="ignore"):
        found = np.arange(1, count + 1, dtype=np.uint64) * _ODD
        found = (found ^ np.right_shift(found, 30)) * np.uint64(0xBF58476D1CE4E5B9)
        found = (found ^ np.right_shift(found, 27)) * np.uint64(0x94D049BB133111EB)
    return (found ^ np.right_shift(found, 31)) | np.uint64(1)
