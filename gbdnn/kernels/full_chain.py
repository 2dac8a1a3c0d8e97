"""Blocks through layers in the full kernel: a loop of GraphBLAS operations.

Dead inputs cost a share of every layer; compaction costs a pass over the block. By the ski-rental
rule, a block is compacted when the wasted work exceeds the cost of compaction, which is at most
twice as expensive as compacting at the best moment (2-competitive).
"""

from __future__ import annotations

from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.kernels import costs
from gbdnn.kernels.blocks import LEAVING, any_bit, padded, sample
from gbdnn.kernels.overflow import require_finite

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gbdnn.kernels.blocks import Block, Buffers
    from gbdnn.kernels.kernel import ChainLayers

__all__ = ["FullChain"]

_FILLED = 1 << 16  # entries of sparse rows converted at a time
_LONGEST_PAUSE = 4  # layers between two tests for dead inputs
_FEW = 0.75  # fraction of inputs alive up to which blocks are compacted at the end of a window


class FullChain:
    """See `gbdnn.kernels.kernel.Chain`; the matrix of a block has the shape of its layer.

    `kernel` has a method ``advance`` like that of the full kernel.
    """

    def __init__(self, layers: ChainLayers, kernel: Any) -> None:
        self.layers, self.kernel, self.name = layers, kernel, kernel.name

    def block(self, buffers: Buffers, k: int, width: int) -> Block:
        """Return a block for `width` inputs before layer `k`."""
        found: Block = buffers.get(self.layers.neurons(k), padded(width))
        return found

    def read(self, Y: Block, k: int, rows: SparseRows) -> None:
        """Fill a block with sparse rows."""
        Y.array.fill(0)
        array, first, position = Y.flat, 0, self.layers.position(k)
        for part in rows.parts(_FILLED):
            neurons = part.columns.view(np.int64)
            if position is not None:
                neurons = position[neurons]
            at = neurons * Y.stride
            at += np.repeat(np.arange(first, first + part.nrows), part.degrees)
            array[at] = part.values
            first += part.nrows
        Y.inputs = rows.ids

    def read_dense(self, Y: Block, k: int, rows: np.ndarray, ids: np.ndarray) -> float:
        """Fill a block with rows of a finite array."""
        array, position = Y.array, self.layers.position(k)
        array[:, len(rows) :] = 0
        array[slice(None) if position is None else position, : len(rows)] = rows.T
        Y.inputs = ids
        return 0.0

    def run(
        self, Y: Block, first: int, stop: int, buffers: Buffers, *, tidy: bool,
        counts: np.ndarray | None, stands: np.ndarray | None,
    ) -> Block:  # fmt: skip
        """Return a block after layers `first` to `stop` (exclusive)."""
        layers, waste = self.layers, 0.0
        look, pause = first + 1, 1
        if padded(len(Y.inputs)) <= _FEW * Y.width:  # pooled blocks that are not full
            Y = self._moved(Y, np.arange(len(Y.inputs)), first, buffers)
        for k in range(first, stop):
            at, began = k - layers.first, perf_counter_ns()
            plan, weights = layers.plans[at], layers.weights[at]
            Z = buffers.get(plan.info.ncols, Y.width)
            Z.inputs = Y.inputs
            check = partial(require_finite, k, plan.info) if plan.may_overflow else None
            self.kernel.advance(Y, Z, plan.info, weights, check=check)
            buffers.put(Y)
            Y = Z
            if counts is not None:
                _count(Y, counts[k - first], stands, began)
            ends = k + 1 == stop
            if not plan.droppable_after or (k + 1 < look and not ends) or (ends and not tidy):
                continue
            count = len(Y.inputs)
            alive = int(np.count_nonzero(any_bit(sample(Y.filled))))  # a lower bound
            if ends:
                return self._compacted(Y, stop, buffers) if alive <= _FEW * count else Y
            # While nothing dies, tests can be less frequent.
            look = k + 1 + (1 if alive < count else pause)
            pause = 1 if alive < count else min(2 * pause, _LONGEST_PAUSE)
            if alive < count:
                waste += self.kernel.cost(layers.plans[at + 1].info, count - alive, 0)
            if waste > costs.gather(Y.neurons, count, alive):
                Y, waste = self._compacted(Y, k + 1, buffers), 0.0
                if not len(Y.inputs):
                    return Y
        return Y

    def _compacted(self, Y: Block, k: int, buffers: Buffers) -> Block:
        """Return a block with the inputs alive only, narrower if some are dead."""
        keep = np.flatnonzero(any_bit(Y.filled))
        return Y if len(keep) == len(Y.inputs) else self._moved(Y, keep, k, buffers)

    def _moved(self, Y: Block, keep: np.ndarray, k: int, buffers: Buffers) -> Block:
        """Return a block with the inputs in `keep` only, no wider than necessary."""
        ids = Y.inputs[keep]
        if len(keep):
            Z = self.block(buffers, k, len(keep))
            # Padding columns repeat the first one; np.take is fast only into contiguous memory.
            np.take(Y.array, np.resize(keep, Z.width), axis=1, out=Z.array, mode="wrap")
            buffers.put(Y)
            Y = Z
        Y.inputs = ids
        return Y

    def rows(self, Y: Block, k: int, *, droppable: bool) -> Iterator[SparseRows]:
        """Yield the inputs as sparse rows."""
        keep = np.flatnonzero(any_bit(Y.filled)) if droppable else np.arange(len(Y.inputs))
        step = max(1, LEAVING // max(1, Y.neurons))
        for first in range(0, len(keep), step):
            yield _sparse_rows(Y, self.layers.position(k), keep[first : first + step])

    def write(self, Y: Block, values: np.ndarray, present: np.ndarray | None) -> int:
        """Write the inputs to rows of arrays."""
        rows = Y.filled.T
        values[Y.inputs] = rows
        marks = rows != 0  # counting numbers takes ten times as long
        if present is not None:
            present[Y.inputs] = marks
        return int(np.count_nonzero(marks))


def _count(Y: Block, counts: np.ndarray, stands: np.ndarray | None, began: int) -> None:
    """Add the statistics of a layer to its row of `counts`."""
    counts[0] += len(Y.inputs)
    if stands is not None:
        on = (Y.array != 0)[:, : len(Y.inputs)]  # contiguous memory takes half the time
        alive = Y.inputs[any_bit(on)]
        counts[1:] += (
            len(alive), stands[alive].sum(), np.count_nonzero(on), perf_counter_ns() - began,
        )  # fmt: skip


def _sparse_rows(Y: Block, position: np.ndarray | None, keep: np.ndarray) -> SparseRows:
    array = np.take(Y.array, keep, axis=1)
    dense = np.ascontiguousarray((array if position is None else array[position]).T)
    present = dense != 0
    columns = np.flatnonzero(present)
    starts = np.arange(len(keep) + 1) * Y.neurons
    indptr = np.searchsorted(columns, starts)
    columns -= np.repeat(starts[:-1], np.diff(indptr))
    values = dense[present] if len(columns) < dense.size else dense.reshape(-1)
    pointers, columns = indptr.view(np.uint64), columns.view(np.uint64)
    return SparseRows(pointers, columns, values, Y.neurons, Y.inputs[keep])
