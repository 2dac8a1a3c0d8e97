"""Inputs of a run on their way through the fused kernel, and what compiled code asks for.

The windows, the threads and the merging of equal inputs are compiled code (``compiled/run.c``). It
returns when it needs rows, other layers of a network on disk, or memory for a sparse answer, and
where blocks may leave for the sparse kernel.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.kernels import costs
from gbdnn.kernels.compiled.record import constant
from gbdnn.kernels.fused import FUSED
from gbdnn.kernels.fused_run import CompiledRun
from gbdnn.runtime.threads import share

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gbdnn.arrays.answer import Answer
    from gbdnn.arrays.sources import RowSource
    from gbdnn.engine.loader import Loader
    from gbdnn.engine.merge import Merged
    from gbdnn.engine.plan import Plan
    from gbdnn.engine.stats import Watch
    from gbdnn.kernels.kernel import LayerPlan

__all__ = ["NARROW", "FusedInputs", "balanced", "read_parts"]

NARROW = 32  # inputs below which a further thread does not help


class FusedInputs:
    """The inputs of a run that wait in blocks of the fused kernel.

    Parameters
    ----------
    plan : Plan
    layers : sequence of LayerPlan
    stops : sequence of int
        Layers before which inputs wait: 0, ..., and the number of layers.
    loader, merged, watch, sink
        Those of the run.
    inputs : int
    is_dense : bool
        Whether the features are an array, whose values are checked when they are read.

    Attributes
    ----------
    left : list of (int, SparseRows)
        Inputs that have left for the sparse kernel, by layer, since the caller removed them.
    is_whole : bool
        Whether the fused kernel computed the whole answer at once, with the rows of merged inputs.
    rows : SparseRows, optional
        Its rows, if it is sparse.
    """

    def __init__(
        self, plan: Plan, layers: Sequence[LayerPlan], stops: Sequence[int], loader: Loader,
        merged: Merged | None, watch: Watch, sink: Answer, inputs: int, *, is_dense: bool,
    ) -> None:  # fmt: skip
        self._plan, self._layers, self._stops, self._loader = plan, layers, stops, loader
        self._watch, self._sink, self._is_dense = watch, sink, is_dense
        self.left = list[tuple[int, SparseRows]]()
        self.rows: SparseRows | None = None
        self.is_whole = False
        sizes, net = plan.sizes, plan.facts.net
        self._step = balanced(inputs, sizes.width, sizes.workers)
        fits = 4 * sizes.workers + sizes.waiting // sizes.block
        self._run = CompiledRun(
            net.dtype, [net.infos[0].nrows, *(info.ncols for info in net.infos)], stops,
            width=sizes.width, threads=sizes.workers,
            blocks=min(fits, -(-inputs // self._step) + 9 * sizes.workers + 2),
            leaving=np.array([self._leaving(k) for k in stops]),
            always=plan.facts.deduplicate is True,
            **(merged.arrays() if merged else {}),
        )  # fmt: skip
        # C marks the inputs of a dense answer.
        self._degrees, self._pending = np.zeros(inputs, np.int64), list[SparseRows]()
        self._run.set(degrees=self._degrees, ids=inputs)
        self._is_array = sink.is_array  # which may change when rows are added
        if self._is_array:
            values, present = sink.arrays()
            self._run.set(answer=values, present=present)
        if watch.is_watched:
            self._run.watch(watch.multiplicity)

    def held(self) -> dict[int, int]:
        """Return the bytes of waiting blocks by layer."""
        return {k: count * self._plan.sizes.block for k, count in self._run.held().items()}

    def compute(
        self, source: RowSource | None, first: int, k: int, limit: float, *, is_last: bool
    ) -> None:
        """Compute rows of a source from row `first` on, before layer `k`, and all waiting blocks.

        They wait before the first stop after `limit`. `is_last` says that no other rows will come.
        """
        self._watch.kernels.add(FUSED.name)
        asked = {name: constant(name) for name in ("READ", "LOAD", "LEAVE", "SIZED", "FAULT")}
        status, self._is_last = asked["READ"], is_last
        if source is not None:
            self._read(source, first, k)
        while status in asked.values():
            status = self._run.advance(limit, self._report)
            while self._pending:
                self._sink.add(self._pending.pop())
            if status == asked["READ"]:
                self._read(source, int(self._run["last_row"]), k)
            elif status == asked["LOAD"]:
                self._load(int(self._run["wanted"]))
            elif status == asked["LEAVE"]:
                if self._left(int(self._run["wanted"])):
                    # The rows given are read, also if others left at an earlier layer.
                    limit = min(limit, max(k, self._stops[self._run["wanted"]]))
            elif status == asked["SIZED"]:
                self._have_memory()
            elif status == asked["FAULT"]:
                self._run.raise_fault(source, self._plan.facts.net.infos)

    def end(self) -> None:
        """Tell what was written to a dense answer, and the time of finding equal inputs."""
        if self._is_array and not self.is_whole and self._degrees.any():
            self._sink.wrote(self._run.entries, np.flatnonzero(self._degrees))
        self._watch.progress.spent(regrouping=self._run.regrouping)

    # What the run asks for

    def _read(self, source: Any, first: int, k: int) -> None:
        """Give rows to the run, as many as fit a fraction of the memory."""
        sizes, began = self._plan.sizes, perf_counter()
        parts, part, last = read_parts(source, first, self._step, sizes.workers, sizes.working // 8)
        self._watch.progress.spent(reading=perf_counter() - began)
        ids = source.ids[first:last] if isinstance(source, SparseRows) else None
        if self._is_dense and ids is not None:  # activations that were computed in sparse rows
            self._is_dense = False
            self._load(k)
        chain = self._loader.around(k).chain
        self._run.read(
            parts, first, last, part, self._step, layer=k, position=chain.position(k),
            ids=None if ids is None else np.ascontiguousarray(ids, np.int64),
            more=last < source.nrows,
        )  # fmt: skip

    def _load(self, k: int) -> None:
        chain: Any = self._loader.around(k).chain
        if self._is_dense:
            self._run.load(chain, chain.unchecked(), self._plan.facts.net.safe)
        else:
            self._run.load(chain)

    def _left(self, place: int) -> bool:
        """Let the blocks at a place leave as sparse rows, if that is required or pays."""
        k, run = self._stops[place], self._run
        blocks = [run.block(y, self._layers[k].info.nrows) for y in run.at(place)]
        inputs = sum(len(ids) for _, ids in blocks)
        Y, ids = blocks[0]
        if not self._plan.leaves(k, inputs, Y[:, : len(ids)]):
            run.set(asked=1)
            return False
        chain: Any = self._loader.around(k - 1).chain  # which has put the neurons in order
        rows = SparseRows.joined([chain.rows(k, *block) for block in blocks])
        rows = rows.without_empty_rows() if self._layers[k].droppable else rows
        self._watch.progress.dropped(k, inputs - rows.nrows)
        run.take(place)
        self._is_last = False
        self.left.append((k, rows))
        return True

    def _have_memory(self) -> None:
        """Give memory for the rows of blocks that have passed all layers.

        If the answer is dense, later ones are written to its arrays at once.
        """
        run, ncols = self._run, self._layers[-1].info.ncols
        self.is_whole = self._is_last and not (self._sink.has_rows or run.is_waiting)
        rows = run.answer(ncols, of_blocks=not self.is_whole)
        if rows.nvals and self._sink.takes(rows.nvals, rows.nrows):
            values, present = self._sink.arrays()
            run.set(answer=values, present=present)
            self._sink.wrote(rows.nvals, rows.ids)
            self._is_array = True
        elif self.is_whole:
            self.rows = rows
        else:
            self._pending.append(rows)
        if not self.is_whole:  # these are no longer rows that `end` counts
            self._degrees[rows.ids] = 0

    def _leaving(self, k: int) -> float:
        """Return the density of blocks before layer `k` from which they surely stay."""
        if k == len(self._layers):
            return 0.0
        only = self._plan.only(self._layers[k].info)
        if only is not None:
            return 2.0 * only
        limit = max(1.0, self._plan.limit(k, 1 << 20, is_sparse=False))
        return 2 * limit / self._layers[k].info.nrows

    def _report(self) -> None:
        """Tell what was computed since the last call."""
        for pieces in self._run.log():
            is_last = pieces.layer + pieces.counts.shape[1] == len(self._layers)
            self._watch.pieces(pieces, FUSED.name, is_last=is_last)
        self._watch.tell()


def balanced(inputs: int, width: int, workers: int) -> int:
    """Return a block width that gives each thread an equal share of the inputs."""
    rounds = max(1, -(-inputs // (width * workers)))
    if rounds > 8 or workers == 1:
        return width
    return min(width, max(NARROW, -(-inputs // (rounds * workers * 16)) * 16))


def read_parts(
    source: Any, first: int, step: int, workers: int, nbytes: float, *, as_sparse: bool = False
) -> tuple[list[Any], int, int]:
    """Read rows of a source from row `first` on, in about `nbytes` bytes.

    With `as_sparse`, the rows of arrays become sparse.

    Returns
    -------
    parts : list of SparseRows or ndarray
    part, last : int
        Rows of each part but the last one, a multiple of `step`; and the end of the rows.
    """
    rest, dense = source.nrows - first, None if as_sparse else source.dense_rows
    if isinstance(source, SparseRows):
        return [source.sparse_rows(first, source.nrows)], -(-rest // step) * step, source.nrows
    if dense is not None and source.is_as_is:
        return [source.array[first:]], -(-rest // step) * step, source.nrows
    if getattr(source, "in_place", None) is not None:
        return [source.in_place], -(-rest // step) * step, source.nrows
    size = source.dtype.itemsize
    row = source.ncols * size if dense else source.nvals / source.nrows * (8 + size) + 8
    last = min(source.nrows, first + max(step, int(nbytes / max(row, 1))))
    workers = min(workers, costs.CALLERS)
    part = -(-(last - first) // (2 * workers * step)) * step
    starts = range(first, last, part)
    parts: list[Any] = [None] * len(starts)

    def read(items: Iterator[int]) -> None:
        for n in items:
            start = starts[n]
            parts[n] = (dense or source.sparse_rows)(start, min(start + part, last))

    context: Any = {} if dense else {"nthreads": 1, "chunk": 4096}
    share(workers, deque(range(len(starts))), read, **context)
    return parts, part, last
