"""Sparse rows that wait before a layer, and their way through the next layers in the sparse kernel.

Rows are divided into parts, which threads take through the layers side by side. A part ends before
the layer at which equal inputs are merged, or earlier if its next result may not fit the memory, or
if blocks would be cheaper.
"""

from __future__ import annotations

import logging
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.errors import ArgumentError
from gbdnn.kernels import costs
from gbdnn.kernels.sparse import SPARSE
from gbdnn.kernels.sparse_parts import SparseParts
from gbdnn.runtime.threads import share

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gbdnn.arrays.answer import Answer
    from gbdnn.arrays.sources import RowSource
    from gbdnn.engine.loader import Loaded
    from gbdnn.engine.plan import Plan
    from gbdnn.engine.stats import Watch
    from gbdnn.kernels.kernel import LayerPlan

__all__ = ["SparseRun", "WaitingRows"]

_READERS = 4  # threads that read features in Python; more wait for its lock
_READ = 256  # rows that one of them reads at a time
_LEAST_HELD = 1 << 20  # entries of parts that have ended

_log = logging.getLogger("gbdnn.inference")


class WaitingRows(NamedTuple):
    """Rows of a source, from row `start` on, that wait before layer `k` in `nbytes` bytes."""

    k: int
    source: RowSource
    start: int
    nbytes: int

    @property
    def inputs(self) -> int:
        """Number of rows."""
        return int(self.source.nrows - self.start)

    @property
    def entries(self) -> float:
        """Estimated number of entries."""
        return float(self.source.nvals) / self.source.nrows * self.inputs


class SparseRun:
    """The sparse kernel's share of a run."""

    def __init__(self, plan: Plan, layers: Sequence[LayerPlan], watch: Watch, sink: Answer) -> None:
        self._plan, self._layers, self._watch, self._sink = plan, layers, watch, sink

    def step(
        self, loaded: Loaded, rows: WaitingRows, stop: int, room: int
    ) -> tuple[dict[int, list[SparseRows]], int]:
        """Take rows through layers up to `stop`, until those that wait need `room` bytes.

        Return the rows by the layer before which they wait, without those of the answer, and the
        number of the first row that was not read.
        """
        k, sizes = rows.k, self._plan.sizes
        threads, layer, began = self._plan.facts.threads, loaded.layer(k), perf_counter()
        each = SPARSE.most_entries_in_all(layer, rows.entries, rows.inputs) / rows.inputs
        fits = max(1, int(sizes.entries / max(each, 1)))
        work = SPARSE.cost(layer, rows.inputs, rows.entries)
        step = min(costs.part_rows(work, rows.inputs, threads), fits)
        workers = max(1, min(threads, -(-rows.inputs // step), fits))
        most = sizes.entries // workers
        step = max(1, min(step, int(most / max(each, 1))))
        X: Any = getattr(rows.source, "in_place", None)
        end = rows.source.nrows
        if X is None:
            if not isinstance(rows.source, SparseRows):
                end = min(end, rows.start + max(fits, _READ))
            X = self._read(rows.source, rows.start, end)
            numbers = np.arange(rows.start, end)  # of X's rows in the source
            if self._layers[k].droppable:
                self._watch.progress.dropped(k, X.nrows - np.count_nonzero(X.degrees))
                numbers, X = numbers[X.degrees > 0], X.without_empty_rows()
            ids = X.ids
            bounds = self._bounds(k, SPARSE.most_entries(X, layer), step, most)
            self._watch.progress.spent(reading=perf_counter() - began)
        else:
            ids = numbers = np.arange(end)
            bounds = np.append(np.arange(rows.start, end, step), end)
        _log.debug("layer %d: sparse kernel, parts of %d inputs", k, step)
        found: dict[int, list[SparseRows]] = {}
        if len(bounds) == 1:
            return found, end
        stands = self._watch.stands
        parts = SparseParts(
            X, bounds, [loaded.layer(at) for at in range(k, stop)], self._layers[k:stop],
            [self._plan.most_entries_each(at, rows.inputs) for at in range(k, stop)], first=k,
            most=most, room=max(_LEAST_HELD, room // 64), workers=workers, nthreads=threads,
            stands=None if stands is None else stands[ids], watched=self._watch.is_watched,
            counted=self._plan.block_kernel is not None,
        )  # fmt: skip
        taken = np.zeros(len(parts.parts), bool)
        while not taken.all():
            parts.compute()
            ended = (parts.parts["ended"] != 0) & ~taken
            if not (ended | taken).all() and parts.held <= max(_LEAST_HELD, room // 64):
                continue
            for at, some in self._taken(parts, np.flatnonzero(ended), ids, k):
                found.setdefault(at, []).append(some)
            taken |= ended
            # Joining and merging rows takes four times their memory.
            if sum(Y.nbytes for some in found.values() for Y in some) > room // 4:
                unread = parts.finish_begun()
                end = int(numbers[unread]) if unread < len(numbers) else end
                taken = taken[: len(parts.parts)]
        return found, end

    def _read(self, source: RowSource, start: int, stop: int) -> SparseRows:
        """Return rows of a source."""
        if isinstance(source, SparseRows):
            return source.sparse_rows(start, stop)
        found: dict[int, SparseRows] = {}

        def read(starts: Iterator[int]) -> None:
            for at in starts:
                found[at] = source.sparse_rows(at, min(at + _READ, stop))

        threads = min(_READERS, self._plan.facts.threads)
        share(threads, deque(range(start, stop, _READ)), read, nthreads=1)
        return SparseRows.joined([found[at] for at in sorted(found)])

    def _bounds(self, k: int, entries: np.ndarray, step: int, most: int) -> np.ndarray:
        """Return the bounds of parts whose rows have at most `most` entries after layer `k`."""
        if entries.max(initial=0) > self._plan.sizes.entries:
            raise ArgumentError(
                f"memory={self._plan.facts.memory} is too small: one input does not fit at layer"
                f" {k}; pass memory={self._plan.sizes.enough} or more"
            )
        ends, found = np.cumsum(entries), [0]
        while found[-1] < len(ends):
            at = found[-1]
            before = ends[at - 1] if at else 0
            fits = int(np.searchsorted(ends, before + most, side="right"))
            found.append(max(at + 1, min(fits, at + step)))
        return np.array(found)

    def _taken(
        self, parts: SparseParts, ended: np.ndarray, ids: np.ndarray, first: int
    ) -> Iterator[tuple[int, SparseRows]]:
        """Yield the rows of parts that do not belong to the answer, and add those that do."""
        watch, began, last = self._watch, perf_counter(), len(self._layers)
        watch.kernels.add(SPARSE.name)
        some = parts.parts[ended]
        for n in ended:
            k, nrows, alive = parts.parts[["layer", "nrows", "alive"]][n].item()
            counts = None if parts.counts is None else parts.counts[n, : k - first]
            inputs = alive if counts is None or k == first else int(counts[0, 0])
            watch.progress.dropped(first, nrows - inputs)
            if k > first:
                seconds = 0 if counts is None else counts[:, 4].sum() / 1e9
                block = watch.number(), perf_counter() - seconds
                watch.computed(first, counts, alive, SPARSE.name, *block)
        for k in np.unique(some["layer"]).tolist():
            droppable = k < last and self._layers[k].droppable
            of_layer = (some["layer"] == k) & ((some["entries"] > 0) | (not droppable))
            if not of_layer.any():
                continue
            Y = parts.take(ended[of_layer], ids)
            if k == last:
                self._sink.add(Y)
            else:
                yield k, Y.without_empty_rows() if droppable else Y
        seconds = some["reading"].sum() / 1e9
        watch.progress.spent(reading=seconds, writing=perf_counter() - began)
