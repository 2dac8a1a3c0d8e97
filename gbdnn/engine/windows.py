"""Blocks on their way through a window of layers, with survivors pooled."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gbdnn.engine.stats import Watch
    from gbdnn.kernels.blocks import Buffers
    from gbdnn.kernels.kernel import Chain

__all__ = ["BlockWindow", "Pool"]


class Pool:
    """Moves inputs of blocks before layer `k` into full blocks of `width` inputs."""

    def __init__(self, chain: Chain, k: int, buffers: Buffers, width: int) -> None:
        self._chain, self._k, self._buffers, self._width = chain, k, buffers, width
        self._block: Any = None

    def pour(self, Y: Any, keep: np.ndarray | None = None) -> Iterator[Any]:
        """Move the inputs of a block, or its columns `keep`; yield full blocks."""
        array, ids, width = Y.filled, Y.inputs, self._width
        if keep is not None:  # np.take is fast only into contiguous memory
            array, ids = np.take(Y.array, keep, axis=1), ids[keep]
        while len(ids):
            if self._block is None:
                self._block = self._chain.block(self._buffers, self._k, width)
                self._block.inputs = ids[:0]
            Z = self._block
            used = len(Z.inputs)
            fits = min(width - used, len(ids))
            Z.array[:, used : used + fits] = array[:, :fits]
            Z.inputs = np.concatenate((Z.inputs, ids[:fits]))
            array, ids = array[:, fits:], ids[fits:]
            if len(Z.inputs) == width:
                self._block = None
                yield Z
        self._buffers.put(Y)

    def end(self) -> Iterator[Any]:
        """Yield the last block."""
        if self._block is not None:
            yield self._block


class BlockWindow:
    """The blocks of a thread on their way through layers `first` to `stop` (exclusive).

    Methods yield finished blocks: those with more than `few` survivors, and full ones of pooled
    survivors. Statistics are recorded for `watch`.
    """

    def __init__(
        self, chain: Chain, watch: Watch, first: int, stop: int, buffers: Buffers, *, width: int,
        few: int, tidy: bool,
    ) -> None:  # fmt: skip
        self._chain, self._watch, self._buffers = chain, watch, buffers
        self._first, self._stop, self._few, self._tidy = first, stop, few, tidy
        pool = Pool(chain, stop, buffers, width)
        self._pour, self.end = pool.pour, pool.end

    def rows(self, rows: Any, ids: np.ndarray, step: int) -> Iterator[Any]:
        """Take rows, `step` per block, through the layers; yield finished blocks."""
        chain, first = self._chain, self._first
        for at in range(0, len(ids), step):
            began = perf_counter()
            Y = chain.block(self._buffers, first, step)
            if isinstance(rows, np.ndarray):
                chain.read_dense(Y, first, rows[at : at + step], ids[at : at + step])
            else:
                chain.read(Y, first, rows.sparse_rows(at, min(at + step, rows.nrows)))
            self._watch.progress.spent(reading=perf_counter() - began)
            yield from self._through(Y)

    def blocks(self, blocks: Sequence[Any]) -> Iterator[Any]:
        """Take blocks through the layers; yield finished blocks."""
        for Y in blocks:
            yield from self._through(Y)

    def _through(self, Y: Any) -> Iterator[Any]:
        chain, first, stop, watch = self._chain, self._first, self._stop, self._watch
        began, counts = perf_counter(), watch.counts(stop - first)
        Y = chain.run(
            Y, first, stop, self._buffers, tidy=self._tidy, counts=counts, stands=watch.stands
        )
        watch.computed(first, counts, len(Y.inputs), chain.name, watch.number(), began)
        if len(Y.inputs) > self._few:
            yield Y
        else:
            yield from self._pour(Y)
