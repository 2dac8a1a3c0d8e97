"""Run one call of `infer`: compute windows of layers on blocks of inputs and regroup in between.

    window    consecutive layers, ending before layer 6, 10, 14, 20, 30, 45, ... (earlier for
              kernels that state so); for a network on disk, only layers that are loaded together
    block     dense activations of a group of inputs; each block is computed by one thread,
              independently of the others; survivors of sparsely filled blocks are pooled
    regroup   after each window, equal inputs are merged, and blocks are recut if the threads'
              shares would be uneven
    rows      where the sparse kernel is cheaper, inputs are computed as one sparse matrix

The state of a run is the waiting rows and blocks, by layer, and the answer. The inputs at the
earliest layer are computed first, so that inputs meet in deep layers. If the waiting inputs use
most of their memory, the layer that holds the most bytes is computed first.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from gbdnn.arrays.answer import Answer, matrix_of
from gbdnn.arrays.checks import as_bytes, as_nthreads, as_word, require_callable
from gbdnn.arrays.sources import DenseRows
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.engine.compiled_run import AT_ONCE, FEW, NARROW, FusedInputs, balanced
from gbdnn.engine.loader import Loader
from gbdnn.engine.merge import Merged
from gbdnn.engine.plan import BLOCK_KERNELS, MEMORY, Engine, engines, plan_layers, plan_of
from gbdnn.engine.progress import current
from gbdnn.engine.shallow import run_shallow
from gbdnn.engine.sparse_run import SparseRun, WaitingRows
from gbdnn.engine.stats import Watch
from gbdnn.engine.windows import BlockWindow, Pool
from gbdnn.errors import ArgumentError, ArgumentTypeError
from gbdnn.kernels import costs, lagraph
from gbdnn.kernels.fused import FUSED
from gbdnn.kernels.fused_shares import Singles
from gbdnn.kernels.overflow import may_overflow
from gbdnn.runtime.first_use import gb, shown
from gbdnn.runtime.threads import engaged, restored, share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gbdnn.arrays.sources import RowSource
    from gbdnn.engine.loader import Loaded
    from gbdnn.engine.plan import Plan
    from gbdnn.engine.stats import LayerStats
    from gbdnn.kernels.kernel import Chain
    from gbdnn.model.network import Network

__all__ = ["checked_options", "infer_network"]

_STOPS = (6, 10, 14, 20)  # layers before which rows are merged

_log = logging.getLogger("gbdnn.inference")


def infer_network(
    net: Network, X: RowSource, *, engine: Engine = "auto",
    deduplicate: bool | Literal["auto"] = "auto", memory: int = MEMORY, nthreads: int | None = None,
    callback: Callable[[LayerStats], object] | None = None,
) -> gb.Matrix:  # fmt: skip
    """Compute `infer` for a network with at least one layer and checked options."""
    plan = plan_of(
        net, X, engine=engine, deduplicate=deduplicate, memory=memory, nthreads=nthreads,
        callback=callback,
    )  # fmt: skip
    progress, dense, few = current(), X.dense_rows is not None, X.nrows
    progress.begin(net.infos, few, plan)
    if plan.kernel == lagraph.NAME:
        with restored(), engaged(nthreads):
            return _at_once(net, X, callback)
    if not plan.is_single_window:
        merged = Merged(few, always=deduplicate != "auto") if plan.merges else None
        with restored(), engaged(nthreads):
            run = _Run(net, X, plan, merged, callback)
            Y = run.answer()
        _log.info("engine %s: %s kernel", engine, " and ".join(sorted(run.watch.kernels)) or "no")
        return Y
    _log.info("engine %s: %s kernel in a single window", engine, plan.kernel)
    rows: Any = X if dense else DenseRows(X.sparse_rows(0, few).dense(), X.dtype)
    if few <= costs.SINGLES:
        values = np.empty((few, net.shape[1]), X.dtype)
        net.prepared(Singles).run(rows, values, plan.sizes.threads_each)
        progress.computed(0, [few] * len(net), few, plan.kernel)
        return matrix_of(values, sparse=not dense)
    answer = Answer(few, net.shape[1], X.dtype, dense=True, memory=memory)
    answer.wrote(run_shallow(net, rows, *answer.arrays(), sizes=plan.sizes, progress=progress))
    return answer.matrix() if dense else matrix_of(answer.arrays()[0], sparse=True)


def checked_options(
    call: str, /, *, engine: Engine = "auto", deduplicate: bool | Literal["auto"] = "auto",
    memory: int | str = MEMORY, nthreads: int | None = None,
    callback: Callable[[LayerStats], object] | None = None, **others: Any,
) -> dict[str, Any]:  # fmt: skip
    """Return the options of `infer_network`; raise the errors of ``call()`` for invalid ones."""
    for name in others:
        raise ArgumentTypeError(f"{call}() got an unexpected keyword argument {name!r}")
    as_word(engine, "engine", engines(at_once=True))
    is_auto = isinstance(deduplicate, str) and deduplicate == "auto"
    if not is_auto and not isinstance(deduplicate, bool | np.bool_):
        raise ArgumentError(f"deduplicate must be True, False or 'auto', not {shown(deduplicate)}")
    require_callable(callback, "callback")
    nthreads, memory = as_nthreads(nthreads), as_bytes(memory)
    if engine == lagraph.NAME and (deduplicate not in ("auto", False) or memory != MEMORY):
        what = "memory" if memory != MEMORY else "deduplicate"
        raise ArgumentError(
            f"{what}= cannot be combined with engine='lagraph', which computes all inputs at once"
        )
    found = {"engine": engine, "deduplicate": deduplicate, "memory": memory}
    return {**found, "nthreads": nthreads, "callback": callback}


def _at_once(net: Network, X: RowSource, callback: Any) -> gb.Matrix:
    """Compute all inputs through LAGraph's operations, layer by layer."""
    Y = X.sparse_rows(0, X.nrows).without_zeros().matrix()
    weights = np.ones(X.nrows if callback else 0, np.int64)
    watch, checked = Watch(lagraph.NAME, callback, weights), may_overflow(net.infos, X.largest)
    for k, layer in enumerate(net):
        counts, began = watch.counts(1), perf_counter()
        Y = lagraph.advance(k, layer, Y, may_overflow=checked[k])
        if counts is not None:
            alive = Y.reduce_rowwise(gb.monoid.any).new().nvals
            counts[0] = X.nrows, alive, alive, Y.nvals, 0
        watch.computed(k, counts, X.nrows, lagraph.NAME, 0, began)
        watch.tell()
    return Y


class _Window(NamedTuple):
    """Consecutive layers, `first` to `stop` (exclusive), that blocks are computed through."""

    chain: Chain
    first: int
    stop: int
    ends: bool  # whether the last layer is the network's last layer


class _Run:
    """State of one run: ``rows`` and ``blocks`` (by layer) hold all waiting inputs."""

    def __init__(
        self, net: Network, X: RowSource, plan: Plan, merged: Merged | None, callback: Any
    ) -> None:
        self.plan, self.merged = plan, merged
        dense, memory = X.dense_rows is not None, plan.facts.memory
        # The fused kernel checks dense rows as it reads them.
        reads = dense and plan.kernel == FUSED.name and not self._begins_sparse(X)
        self.layers = plan_layers(net, math.inf if reads else X.largest, plan.block_kernel)
        self.loader, self.buffers = Loader(net, plan, self.layers), plan.buffers()
        self._callers = min(costs.CALLERS, plan.sizes.workers)
        self.sink = Answer(X.nrows, net.shape[1], X.dtype, dense=dense, memory=memory)
        weights = merged.weights if merged else np.ones(X.nrows if callback else 0, np.int64)
        self.watch = Watch(plan.facts.engine, callback, weights)
        self.sparse = SparseRun(plan, self.layers, self.watch, self.sink)
        self.blocks: dict[int, list[Any]] = {}
        self.rows: list[WaitingRows] = []
        self.fused: FusedInputs | None = None
        if plan.kernel == FUSED.name:
            self.fused = FusedInputs(
                plan, self.layers, self._stops(), self.loader, merged, self.watch, self.sink,
                X.nrows, is_dense=reads,
            )  # fmt: skip
        self._wait(0, X, nbytes=0)

    def _begins_sparse(self, X: RowSource) -> bool:
        """Whether the sparse kernel computes the first layer."""
        dense = X.dense_rows is not None
        return self.plan.is_sparse(0, X.nrows, X.nvals, dense=dense)

    def _stops(self) -> list[int]:
        """Return the layers before which blocks of the fused kernel may wait."""
        starts, layers = self.plan.sizes.starts, self.layers
        stops = [
            k for k in range(1, len(layers))
            if k in starts or not layers[k].in_blocks or is_stop(k, FUSED.stops)
        ]  # fmt: skip
        return [0, *stops, len(layers)]

    def answer(self) -> gb.Matrix:
        """Return the activations of the last layer, one row per input."""
        try:
            while self.rows or self._held():
                self._step(self._next())
        finally:
            self.loader.close()
            self.buffers.release()
        if self.fused is not None:
            self.fused.end()
            if self.fused.rows is not None:
                if not self.sink.is_sparse:
                    self.sink.add(self.fused.rows)
                    return self.sink.matrix(None, self.plan.facts.threads)
                return self.fused.rows.matrix()
        followed = self.merged.followed() if self.merged else None
        return self.sink.matrix(followed, self.plan.facts.threads)

    def _step(self, k: int) -> None:
        """Compute the inputs that wait before layer `k` through a window; keep no layer."""
        if self.fused is not None and k not in [rows.k for rows in self.rows]:
            self._compute(self.fused, None, k)
            return
        loaded = self.loader.around(k)
        if k in self.blocks:
            window = self._window(loaded, k)
            blocks = self._placed(window, self.blocks.pop(k))
        else:
            rows = self.rows.pop([rows.k for rows in self.rows].index(k))
            dense = rows.source.dense_rows is not None
            if self.plan.is_sparse(k, rows.inputs, rows.entries, dense=dense):
                self._sparse(loaded, rows)
                return
            if self.fused is not None:
                self._compute(self.fused, rows, k)
                return
            window = self._window(loaded, k)
            blocks = self._read(window, rows)
        began, workers = perf_counter(), self.plan.sizes.workers
        self._regroup(window, blocks)  # the other threads wait, or help
        self.watch.progress.spent(regrouping=workers * (perf_counter() - began))

    def _compute(self, fused: FusedInputs, rows: WaitingRows | None, k: int) -> None:
        """Compute rows, and the blocks that wait, before other rows."""
        limit = max(k, min((each.k for each in self.rows), default=math.inf))
        source, start = (rows.source, rows.start) if rows else (None, 0)
        fused.compute(source, start, k, limit, is_last=not self.rows)
        while fused.left:
            at, some = fused.left.pop()
            self._wait(at, some, nbytes=some.nbytes)

    # Waiting inputs

    def _next(self) -> int:
        """Return the layer to compute next."""
        held = self._held()
        k = min(held)
        if k not in self.blocks and sum(held.values()) > 3 * self.plan.sizes.waiting // 4:
            k = max(held, key=lambda k: (held[k], k))
        return k

    def _held(self) -> dict[int, int]:
        """Return the bytes held by waiting inputs, by layer."""
        held = {k: len(blocks) * self.plan.sizes.block for k, blocks in self.blocks.items()}
        if self.fused is not None:
            held = self.fused.held()
        for rows in self.rows:
            held[rows.k] = held.get(rows.k, 0) + rows.nbytes
        return held

    def _room(self) -> int:
        """Return the bytes in which further inputs may wait."""
        return self.plan.sizes.waiting - sum(self._held().values())

    def _wait(self, k: int, source: RowSource, start: int = 0, *, nbytes: int) -> None:
        """Queue the rows of a source, from row `start` on, before layer `k`."""
        if start < source.nrows:
            self.rows.append(WaitingRows(k, source, start, nbytes))

    def _window(self, loaded: Loaded, k: int) -> _Window:
        stop, kernel = k + 1, BLOCK_KERNELS[self.plan.kernel]
        while stop < loaded.stop and self.layers[stop].in_blocks:
            if is_stop(stop, kernel.stops):
                break
            stop += 1
        return _Window(loaded.chain, k, stop, stop == len(self.layers))

    # Computing blocks

    def _read(self, window: _Window, rows: WaitingRows) -> list[Any]:
        """Compute rows through a window until memory is full; return the survivors as blocks."""
        source, sizes, width = rows.source, self.plan.sizes, self._balanced(rows.inputs)
        dense, itemsize = source.dense_rows, self.plan.facts.net.dtype.itemsize
        # Sparse rows of several blocks are read together.
        row = source.ncols * itemsize if dense else rows.entries / rows.inputs * (8 + itemsize)
        fits = sizes.working / (16 * sizes.workers * max(row * width, 1))
        fair = rows.inputs // (2 * sizes.workers * width)
        step = width * max(1, int(min(1 if dense else AT_ONCE, fits, fair)))
        _log.debug("layer %d: %s kernel, blocks of %d", window.first, window.chain.name, width)

        def through(blocks: Any, start: int) -> Any:
            stop = min(start + step, source.nrows)
            some: Any = (dense or source.sparse_rows)(start, stop)
            ids = np.arange(start, stop) if dense is not None else some.ids
            return blocks.rows(some, ids, width)

        starts = deque(range(rows.start, source.nrows, step))
        most = max(1, self._room() // sizes.block)
        out = self._through(window, starts, through, most)
        if starts:
            self._wait(window.first, source, starts[0], nbytes=rows.nbytes)
        return out

    def _placed(self, window: _Window, blocks: list[Any]) -> list[Any]:
        """Compute blocks through a window; return the survivors as blocks.

        Within a group of layers that is loaded together, neurons are stored in a common order.
        Outside the group, they are in the network's order.
        """
        layers = window.chain.layers
        position = layers.position(window.first) if window.first == layers.first else None

        def place(numbers: Iterator[int]) -> None:
            for n in numbers:
                Y = blocks[n]
                Z = window.chain.block(self.buffers, window.first, Y.width)
                Z.array[position], Z.inputs = Y.array, Y.inputs
                self.buffers.put(Y)
                blocks[n] = Z

        if position is not None:
            self._on_threads(deque(range(len(blocks))), place, workers=self._callers)
        parts = deque([Y] for Y in blocks)
        return self._through(window, parts, lambda passing, some: passing.blocks(some))

    def _through(
        self, window: _Window, queue: deque[Any], through: Callable[[Any, Any], Iterator[Any]],
        most: float = np.inf,
    ) -> list[Any]:  # fmt: skip
        """Compute the blocks of each item on threads until there are `most` blocks of survivors.

        Threads take items from the queue. Return the survivors as blocks.
        """
        out: list[Any] = []
        chain, first, stop, ends = window
        width = self.plan.sizes.width
        few = 0 if ends else int(FEW * width)

        def done(found: Iterator[Any]) -> None:
            for Y in found:
                if not window.ends:
                    out.append(Y)
                    continue
                began = perf_counter()
                self.sink.write(window.chain, Y, droppable=self.layers[-1].droppable_after)
                self.watch.progress.spent(writing=perf_counter() - began)
                self.buffers.put(Y)

        def work(items: Iterator[Any]) -> None:
            blocks = BlockWindow(
                chain, self.watch, first, stop, self.buffers, width=width, few=few, tidy=not ends
            )
            for item in items:
                done(through(blocks, item))
            done(blocks.end())

        self.watch.kernels.add(window.chain.name)
        self._on_threads(queue, work, lambda: len(out) >= most)
        return out

    # Computing sparse rows

    def _sparse(self, loaded: Loaded, rows: WaitingRows) -> None:
        """Compute rows with the sparse kernel until memory is full."""
        k, source = rows.k, rows.source
        stop = loaded.stop
        if self.merged is not None or self.plan.block_kernel is not None:
            stop = next((at for at in range(k + 1, stop) if is_stop(at)), stop)
        found, end = self.sparse.step(loaded, rows, stop, self._room())
        for at, some in found.items():
            rows_at = SparseRows.joined(some)
            if self.merged is not None and is_stop(at):
                inputs, rows_at = rows_at.nrows, self.merged.rows(rows_at)
                self.watch.progress.dropped(at, inputs - rows_at.nrows)
            self._wait(at, rows_at, nbytes=rows_at.nbytes)
        self._wait(k, source, end, nbytes=rows.nbytes)
        self.watch.tell()

    # Between windows

    def _regroup(self, window: _Window, blocks: list[Any]) -> None:
        """Merge and rebalance the blocks after a window; queue them for the next one."""
        k = window.stop
        blocks = [Y for Y in (*blocks, *self.blocks.pop(k, [])) if len(Y.inputs)]
        if not blocks:
            return
        if self.plan.leaves(self.layers[k].info, blocks):
            self._leave(window, blocks)
            return
        keeps: Any = self.merged.columns(blocks, self.plan.sizes.workers) if self.merged else None
        sizes = [len(x) for x in keeps or (Y.inputs for Y in blocks)]
        self.watch.progress.dropped(k, sum(len(Y.inputs) for Y in blocks) - sum(sizes))
        if keeps is not None or self._recutting_pays(k, sizes):
            given = zip(blocks, keeps or [None] * len(blocks), strict=True)
            blocks = self._recut(window, deque(given), self._balanced(sum(sizes)))
        self.blocks[k] = sorted(blocks, key=lambda Y: -len(Y.inputs))

    def _recutting_pays(self, k: int, sizes: list[int]) -> bool:
        """Whether blocks of equal widths before layer `k` save more time than they take."""
        loads, inputs, workers = [0] * self.plan.sizes.workers, sum(sizes), self.plan.sizes.workers
        for n in sorted(sizes, reverse=True):
            loads[loads.index(min(loads))] += n
        kernel, stop = BLOCK_KERNELS[self.plan.kernel], k + 1
        while stop < len(self.layers) and not is_stop(stop, kernel.stops):
            stop += 1
        each = sum(kernel.cost(plan.info, 16, 0) / 16 for plan in self.layers[k:stop])
        saved = (max(loads) - max(inputs / workers, NARROW)) * each
        moved = inputs * self.layers[k].info.nrows * costs.MOVE / self._callers
        is_thin = len(sizes) > 2 * (inputs // self.plan.sizes.width) + 1 + workers
        return is_thin or saved > moved + costs.RECUT

    def _recut(self, window: _Window, columns: deque[Any], width: int) -> list[Any]:
        """Return blocks of `width` inputs; `columns` has blocks, and the columns to keep."""
        parts: list[Any] = []

        def pour(some: Iterable[tuple[Any, Any]]) -> None:
            pool = Pool(window.chain, window.stop, self.buffers, width)
            for Y, keep in some:
                parts.extend(pool.pour(Y, keep))
            parts.extend(pool.end())

        self._on_threads(columns, pour, workers=self._callers)
        thin = [(Y, None) for Y in parts if len(Y.inputs) < width]
        parts = [Y for Y in parts if len(Y.inputs) == width]
        pour(thin)
        return parts

    def _leave(self, window: _Window, blocks: list[Any]) -> None:
        """Queue the inputs of blocks as sparse rows."""
        k, droppable = window.stop, self.layers[window.stop].droppable
        found = [part for Y in blocks for part in window.chain.rows(Y, k, droppable=droppable)]
        rows = SparseRows.joined(found)
        self.watch.progress.dropped(k, sum(len(Y.inputs) for Y in blocks) - rows.nrows)
        for Y in blocks:
            self.buffers.put(Y)
        self._wait(k, rows, nbytes=rows.nbytes)

    def _balanced(self, inputs: int) -> int:
        return balanced(inputs, self.plan.sizes.width, self.plan.sizes.workers)

    # Threads

    def _on_threads(
        self, queue: deque[Any], work: Callable[[Iterator[Any]], None],
        is_full: Callable[[], bool] = lambda: False, workers: int | None = None,
        context: dict[str, int] | None = None,
    ) -> None:  # fmt: skip
        """Call ``work(items)`` on threads, which take items from a queue until `is_full`."""
        sizes = self.plan.sizes
        context = context or {"nthreads": sizes.threads_each, "chunk": 4096}
        share(workers or sizes.workers, queue, work, is_full=is_full, **context)
        self.watch.tell()


def is_stop(k: int, stops: Sequence[int] = _STOPS) -> bool:
    """Whether a window ends before layer `k`: 6, 10, 14, 20, 30, 45, ..."""
    stop = stops[-1]
    while stop < k:
        stop += stop // 2
    return k == stop or k in stops
