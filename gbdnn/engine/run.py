"""Run one call of `infer`: take inputs through the layers of a kernel, and choose the next one.

    rows      inputs that wait before a layer as sparse rows, or the features
    parts     of the rows, which the sparse kernel, or the full kernel in blocks, takes through
              layers: up to the last one, to one before which equal inputs are merged (6, 10, 14,
              20, 30, 45, ...), or where the other kernel is cheaper
    fused     inputs that wait in blocks of the fused kernel, which has windows of layers of its own

The state of a run is the waiting rows, by layer, the blocks of the fused kernel, and the answer.
The inputs at the earliest layer are computed first, so that inputs meet in deep layers. If the
waiting inputs use most of their memory, the layer that holds the most bytes is computed first. Of a
network on disk, only layers that are loaded together are computed together.
"""

from __future__ import annotations

import logging
import math
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gbdnn.arrays.answer import Answer, matrix_of
from gbdnn.arrays.checks import as_bytes, as_nthreads, as_word, require_callable
from gbdnn.arrays.sources import DenseRows
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.engine.compiled_run import FusedInputs
from gbdnn.engine.graphblas_run import GraphBlasRun, WaitingRows
from gbdnn.engine.loader import Loader
from gbdnn.engine.merge import Merged
from gbdnn.engine.plan import ENGINES, MEMORY, Engine, plan_layers, plan_of
from gbdnn.engine.progress import current
from gbdnn.engine.shallow import run_shallow
from gbdnn.engine.stats import Watch
from gbdnn.errors import ArgumentError, ArgumentTypeError
from gbdnn.kernels import costs, lagraph
from gbdnn.kernels.fused import FUSED
from gbdnn.kernels.fused_shares import Singles
from gbdnn.kernels.overflow import may_overflow
from gbdnn.runtime.first_use import gb, shown
from gbdnn.runtime.threads import engaged, restored

if TYPE_CHECKING:
    from collections.abc import Callable

    from gbdnn.arrays.sources import RowSource
    from gbdnn.engine.plan import Plan
    from gbdnn.engine.stats import LayerStats
    from gbdnn.model.network import Network

__all__ = ["checked_options", "infer_network"]

_STOPS = (6, 10, 14, 20)  # layers before which rows are merged

_log = logging.getLogger("gbdnn.inference")


def infer_network(
    net: Network, X: RowSource, *, nthreads: int | None = None,
    callback: Callable[[LayerStats], object] | None = None, **options: Any,
) -> gb.Matrix:  # fmt: skip
    """Compute `infer` for a network with at least one layer and checked options."""
    plan = plan_of(net, X, nthreads=nthreads, callback=callback, **options)
    progress, dense, inputs, facts = current(), X.dense_rows is not None, X.nrows, plan.facts
    progress.begin(net.infos, inputs, plan)
    if plan.kernel == lagraph.NAME:
        with restored(), engaged(nthreads):
            return _at_once(net, X, callback)
    if not plan.is_single_window:
        merged = Merged(inputs, always=facts.deduplicate is True) if plan.merges else None
        with restored(), engaged(nthreads):
            run = _Run(net, X, plan, merged, callback)
            Y = run.answer()
        _log.info(
            "engine %s: %s kernel", facts.engine, " and ".join(sorted(run.watch.kernels)) or "no"
        )
        return Y
    _log.info("engine %s: %s kernel in a single window", facts.engine, plan.kernel)
    rows: Any = X if dense else DenseRows(X.sparse_rows(0, inputs).dense(), X.dtype)
    if inputs <= costs.SINGLES:
        values = np.empty((inputs, net.shape[1]), X.dtype)
        net.prepared(Singles).run(rows, values, plan.sizes.threads_each)
        progress.computed(0, [inputs] * len(net), inputs, plan.kernel)
        return matrix_of(values)
    answer = Answer(inputs, net.shape[1], X.dtype, dense=True, memory=facts.memory)
    answer.wrote(run_shallow(net, rows, *answer.arrays(), sizes=plan.sizes, progress=progress))
    return answer.matrix()


def checked_options(
    call: str, /, *, engine: Engine = "auto", deduplicate: bool | Literal["auto"] = "auto",
    memory: int | str = MEMORY, nthreads: int | None = None,
    callback: Callable[[LayerStats], object] | None = None, **others: Any,
) -> dict[str, Any]:  # fmt: skip
    """Return the options of `infer_network`; raise the errors of ``call()`` for invalid ones."""
    for name in others:
        raise ArgumentTypeError(f"{call}() got an unexpected keyword argument {name!r}")
    as_word(engine, "engine", (*ENGINES, lagraph.NAME))
    is_auto = isinstance(deduplicate, str) and deduplicate == "auto"
    if not is_auto and not isinstance(deduplicate, bool | np.bool_):
        raise ArgumentError(f"deduplicate must be True, False or 'auto', not {shown(deduplicate)}")
    require_callable(callback, "callback")
    return {
        "engine": engine, "deduplicate": "auto" if is_auto else bool(deduplicate),
        "memory": as_bytes(memory), "nthreads": as_nthreads(nthreads), "callback": callback,
    }  # fmt: skip


def _at_once(net: Network, X: RowSource, callback: Any) -> gb.Matrix:
    """Compute all inputs through LAGraph's operations, layer by layer."""
    Y = X.sparse_rows(0, X.nrows).without_zeros().matrix()
    ones = np.ones(X.nrows if callback else 0, np.int64)
    watch, checked = Watch(lagraph.NAME, callback, ones), may_overflow(net.infos, X.largest)
    for k, layer in enumerate(net):
        counts = np.zeros((1, 5), np.int64) if watch.is_watched else None
        began = perf_counter()
        Y = lagraph.advance(k, layer, Y, may_overflow=checked[k])
        if counts is not None:
            alive = Y.reduce_rowwise(gb.monoid.any).new().nvals
            counts[0] = X.nrows, alive, alive, Y.nvals, 0
        watch.computed(k, counts, X.nrows, lagraph.NAME, 0, began)
        watch.tell()
    return Y


class _Run:
    """State of one run: all waiting inputs and the answer."""

    def __init__(
        self, net: Network, X: RowSource, plan: Plan, merged: Merged | None, callback: Any
    ) -> None:
        self.plan, self.merged = plan, merged
        dense, memory = X.dense_rows is not None, plan.facts.memory
        # The fused kernel checks dense rows as it reads them.
        reads = dense and plan.kernel == FUSED.name
        reads = reads and not plan.is_sparse(0, X.nrows, X.nvals, dense=True)
        self.layers = plan_layers(net, math.inf if reads else X.largest, plan.block_kernel)
        self.loader = Loader(net, plan, self.layers)
        self.sink = Answer(X.nrows, net.shape[1], X.dtype, dense=dense, memory=memory)
        ones = np.ones(X.nrows if callback and not merged else 0, np.int64)
        multiplicity = merged.multiplicity if merged else ones
        self.watch = Watch(plan.facts.engine, callback, multiplicity)
        self.graphblas = GraphBlasRun(plan, self.layers, self.watch, self.sink)
        self.rows: list[WaitingRows] = []
        self.fused: FusedInputs | None = None
        if plan.kernel == FUSED.name:
            self.fused = FusedInputs(
                plan, self.layers, self._stops(), self.loader, merged, self.watch, self.sink,
                X.nrows, is_dense=reads,
            )  # fmt: skip
        self._wait(0, X, nbytes=0)

    def _stops(self) -> list[int]:
        """Return the layers before which blocks of the fused kernel may wait."""
        starts, layers = self.plan.sizes.starts, self.layers
        stops = [
            k for k in range(1, len(layers))
            if k in starts or not layers[k].in_blocks or is_stop(k)
        ]  # fmt: skip
        return [0, *stops, len(layers)]

    def answer(self) -> gb.Matrix:
        """Return the activations of the last layer, one row per input."""
        try:
            while self._held():
                self._step(self._next())
        finally:
            self.loader.close()
        if self.fused is not None:
            self.fused.end()
            if self.fused.is_whole:
                rows = self.fused.rows
                return rows.matrix() if rows is not None else self.sink.matrix()
        followed = self.merged.followed() if self.merged else None
        return self.sink.matrix(followed, self.plan.facts.threads)

    def _step(self, k: int) -> None:
        """Compute the inputs that wait before layer `k` up to a later layer; keep no layer."""
        waiting, source, start, fused = [rows.k for rows in self.rows], None, 0, self.fused
        if k in waiting:
            rows = self.rows.pop(waiting.index(k))
            source, start = rows.source, rows.start
            dense = source.dense_rows is not None
            is_sparse = self.plan.is_sparse(k, rows.inputs, rows.entries, dense=dense)
            if is_sparse or fused is None:
                self._parts(rows, is_sparse=is_sparse)
                return
        if fused is not None:  # its blocks wait before the next rows
            limit = max(k, min((part.k for part in self.rows), default=math.inf))
            fused.compute(source, start, k, limit, is_last=not self.rows)
            while fused.left:
                at, some = fused.left.pop()
                self._wait(at, some, nbytes=some.nbytes)

    def _parts(self, rows: WaitingRows, *, is_sparse: bool) -> None:
        """Compute rows in a GraphBLAS kernel until memory is full."""
        k, loaded = rows.k, self.loader.around(rows.k)
        stop = loaded.stop
        if self.merged is not None or (is_sparse and self.plan.block_kernel is not None):
            stop = next((at for at in range(k + 1, stop) if is_stop(at)), stop)
        room = self.plan.sizes.waiting - sum(self._held().values())
        waiting, end = self.graphblas.step(loaded, rows, stop, room, is_sparse=is_sparse)
        for at, some in waiting.items():
            rows_at = SparseRows.joined(some)
            if self.merged is not None and is_stop(at):
                inputs, rows_at = rows_at.nrows, self.merged.rows(rows_at)
                self.watch.progress.dropped(at, inputs - rows_at.nrows)
            self._wait(at, rows_at, nbytes=rows_at.nbytes)
        self._wait(k, rows.source, end, nbytes=rows.nbytes)
        self.watch.tell()

    def _next(self) -> int:
        """Return the layer to compute next."""
        held = self._held()
        if sum(held.values()) > 3 * self.plan.sizes.waiting // 4:
            return max(held, key=lambda k: (held[k], k))
        return min(held)

    def _held(self) -> dict[int, int]:
        """Return the bytes held by waiting inputs, by layer."""
        held = {} if self.fused is None else self.fused.held()
        for rows in self.rows:
            held[rows.k] = held.get(rows.k, 0) + rows.nbytes
        return held

    def _wait(self, k: int, source: RowSource, start: int = 0, *, nbytes: int) -> None:
        """Queue the rows of a source, from row `start` on, before layer `k`."""
        if start < source.nrows:
            self.rows.append(WaitingRows(k, source, start, nbytes))


def is_stop(k: int) -> bool:
    """Whether a window ends before layer `k`: 6, 10, 14, 20, 30, 45, ..."""
    stop = _STOPS[-1]
    while stop < k:
        stop += stop // 2
    return k == stop or k in _STOPS
