"""Rows that wait before a layer, and their way through the next layers in a GraphBLAS kernel.

Rows are divided into parts, which threads take through the layers side by side. A part ends before
the layer at which equal inputs are merged, or earlier if its next result may not fit the memory, or
if the other kernel would be cheaper.
"""

from __future__ import annotations

import logging
import math
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.engine.compiled_run import read_parts
from gbdnn.errors import ArgumentError
from gbdnn.kernels import costs
from gbdnn.kernels.full import FULL
from gbdnn.kernels.parts import Parts
from gbdnn.kernels.sparse import SPARSE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gbdnn.arrays.answer import Answer
    from gbdnn.arrays.sources import RowSource
    from gbdnn.engine.loader import Loaded
    from gbdnn.engine.plan import Plan
    from gbdnn.engine.stats import Watch
    from gbdnn.kernels.kernel import LayerPlan
    from gbdnn.model.layer import Layer

__all__ = ["GraphBlasRun", "WaitingRows"]

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


class GraphBlasRun:
    """What the sparse and the full kernel compute in a run."""

    def __init__(self, plan: Plan, layers: Sequence[LayerPlan], watch: Watch, sink: Answer) -> None:
        self._plan, self._layers, self._watch, self._sink = plan, layers, watch, sink

    def step(
        self, loaded: Loaded, rows: WaitingRows, stop: int, room: int, *, is_sparse: bool
    ) -> tuple[dict[int, list[SparseRows]], int]:
        """Take rows through layers up to `stop`, until those that wait need `room` bytes.

        Return the rows by the layer before which they wait, without those of the answer, and the
        number of the first row that was not read.
        """
        k, kernel = rows.k, SPARSE if is_sparse else FULL
        step, workers, most = self._division(loaded.layer(k), rows, is_sparse=is_sparse)
        _log.debug("layer %d: %s kernel, parts of %d inputs", k, kernel.name, step)
        X, numbers, ids, end = self._read(rows, step, is_sparse=is_sparse)
        if is_sparse and isinstance(X, SparseRows):
            bounds = self._bounds(k, SPARSE.most_entries(X, loaded.layer(k)), step, int(most))
        else:
            start = rows.start if X is getattr(rows.source, "in_place", None) else 0
            bounds = np.append(np.arange(start, len(numbers), step), len(numbers))
        waiting: dict[int, list[SparseRows]] = {}
        unread = len(numbers)
        if not unread:
            self._watch.progress.dropped(k, end - rows.start)
            return waiting, end
        multiplicity, net = self._watch.multiplicity, self._plan.facts.net
        held = max(_LEAST_HELD, room // 64)
        is_written = stop == len(self._layers) and not is_sparse and self._sink.is_array
        values, present = self._sink.arrays() if is_written else (None, None)
        parts = Parts(
            kernel, X, ids, bounds, [loaded.layer(at) for at in range(k, stop)],
            self._layers[k:stop],
            [self._plan.limit(at, rows.inputs, is_sparse=is_sparse) for at in range(k, stop)],
            first=k, workers=workers, nthreads=self._plan.facts.threads,
            watched=self._watch.is_watched, most=most, room=held,
            multiplicity=None if multiplicity is None else multiplicity[ids],
            counted=self._plan.block_kernel is not None, answer=values, present=present,
            width=0 if is_sparse else costs.panel_width(net.neurons, net.dtype.itemsize),
        )  # fmt: skip
        is_taken = np.zeros(parts.count, bool)
        while not is_taken.all():
            parts.compute()
            ended = (parts.parts["ended"][: parts.count] != 0) & ~is_taken
            if not (ended | is_taken).all() and parts.held <= held:
                continue
            for at, some in self._taken(parts, np.flatnonzero(ended), is_written=is_written):
                waiting.setdefault(at, []).append(some)
            is_taken |= ended
            # Joining and merging rows takes four times their memory.
            if sum(Y.nbytes for some in waiting.values() for Y in some) > room // 4:
                unread = parts.finish_begun()
                end = int(numbers[unread]) if unread < len(numbers) else end
                is_taken = is_taken[: parts.count]
        # Rows that are not read are counted when they are read again.
        self._watch.progress.dropped(k, end - rows.start - int(unread - bounds[0]))
        return waiting, end

    def _division(
        self, layer: Layer, rows: WaitingRows, *, is_sparse: bool
    ) -> tuple[int, int, float]:
        """Return the rows of a part, parts at the same time, and most entries after a layer."""
        sizes, threads, inputs = self._plan.sizes, self._plan.facts.threads, rows.inputs
        if not is_sparse:
            step = min(sizes.width, costs.block_rows(inputs, threads))
            workers = max(1, min(sizes.workers, threads, -(-inputs // step)))
            return step, workers, math.inf
        most_per_input = SPARSE.most_entries_in_all(layer, rows.entries, inputs) / inputs
        fits = max(1, int(sizes.entries / max(most_per_input, 1)))
        work = SPARSE.cost(layer.info, inputs, rows.entries)
        step = min(costs.part_rows(work, inputs, threads), fits)
        workers = max(1, min(threads, -(-inputs // step), fits))
        most = sizes.entries // workers
        return max(1, min(step, int(most / max(most_per_input, 1)))), workers, most

    def _read(
        self, rows: WaitingRows, step: int, *, is_sparse: bool
    ) -> tuple[Any, np.ndarray, np.ndarray, int]:
        """Return features, the numbers of their rows in the source, their ids, and the end."""
        source, k, began = rows.source, rows.k, perf_counter()
        nbytes = self._plan.sizes.working // 8
        some, _, end = read_parts(
            source, rows.start, step, self._plan.facts.threads, nbytes, as_sparse=is_sparse
        )
        X: Any = some[0]
        numbers = ids = np.arange(0 if X is getattr(source, "in_place", None) else rows.start, end)
        if isinstance(X, np.ndarray):
            X = X if len(some) == 1 else np.concatenate(some)
        elif isinstance(X, SparseRows):
            X = SparseRows.joined(some)
            if self._layers[k].droppable:
                numbers, X = numbers[X.degrees > 0], X.without_empty_rows()
            ids = X.ids
        self._watch.progress.spent(reading=perf_counter() - began)
        return X, numbers, ids, end

    def _bounds(self, k: int, entries: np.ndarray, step: int, most: int) -> np.ndarray:
        """Return the bounds of parts whose rows have at most `most` entries after layer `k`."""
        if entries.max(initial=0) > self._plan.sizes.entries:
            raise ArgumentError(
                f"memory={self._plan.facts.memory} is too small: one input does not fit at layer"
                f" {k}; pass memory={self._plan.sizes.enough} or more"
            )
        ends, bounds = np.cumsum(entries), [0]
        while bounds[-1] < len(ends):
            at = bounds[-1]
            before = ends[at - 1] if at else 0
            fits = int(np.searchsorted(ends, before + most, side="right"))
            bounds.append(max(at + 1, min(fits, at + step)))
        return np.array(bounds)

    def _taken(
        self, parts: Parts, ended: np.ndarray, *, is_written: bool
    ) -> Iterator[tuple[int, SparseRows]]:
        """Yield the rows of parts that do not belong to the answer, and add those that do."""
        watch, began, first, last = self._watch, perf_counter(), parts.first, len(self._layers)
        watch.kernels.add(parts.kernel.name)
        layers, entries = parts.parts["layer"][ended], parts.parts["entries"][ended]
        for n in ended:
            part = parts.parts.all[n]
            k, alive = part.layer, part.alive
            counts = None if parts.counts is None else parts.counts[n, : k - first]
            inputs = alive if counts is None or k == first else int(counts[0, 0])
            watch.progress.dropped(first, part.nrows - inputs)
            if k > first:
                seconds = 0 if counts is None else counts[:, 4].sum() / 1e9
                block = watch.number(), perf_counter() - seconds
                watch.computed(first, counts, alive, parts.kernel.name, *block)
        for k in np.unique(layers).tolist():
            droppable = k < last and self._layers[k].droppable
            of_layer = (layers == k) & ((entries > 0) | (not droppable))
            if not of_layer.any():
                continue
            if k < last:
                Y = parts.take(ended[of_layer])
                yield k, Y.without_empty_rows() if droppable else Y
            elif is_written:
                self._sink.wrote(int(entries[of_layer].sum()), parts.rows(ended[of_layer]))
            else:
                self._sink.add(parts.take(ended[of_layer]))
        seconds = parts.parts["reading"][ended].sum() / 1e9
        watch.progress.spent(reading=seconds, writing=perf_counter() - began)
