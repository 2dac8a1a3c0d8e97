"""Run one call of `infer`: compute windows of layers on blocks of inputs and regroup in between.

    window    consecutive layers, ending before layer 6, 10, 14, 20, 30, 45, ... (earlier for the
              full kernel); for a network on disk, only layers that are loaded together
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
import threading
from functools import partial
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from gbdnn.arrays.checks import as_bytes, as_nthreads, as_word, require_callable
from gbdnn.arrays.sparse_rows import SparseRows, release
from gbdnn.engine.answer import DenseAnswer, SparseAnswer
from gbdnn.engine.choice import MEMORY, Choice, Engine
from gbdnn.engine.loader import Loader
from gbdnn.engine.merge import Merged
from gbdnn.engine.progress import current
from gbdnn.engine.shallow import run_shallow
from gbdnn.engine.sources import as_source
from gbdnn.engine.stats import layer_stats
from gbdnn.errors import ArgumentError, ArgumentTypeError
from gbdnn.kernels.full import FULL
from gbdnn.kernels.fused import FUSED
from gbdnn.kernels.overflow import require_finite
from gbdnn.kernels.sparse import SPARSE
from gbdnn.runtime.first_use import gb, shown
from gbdnn.runtime.threads import engaged, on_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.engine.loader import Loaded
    from gbdnn.engine.sources import RowSource
    from gbdnn.engine.stats import LayerStats
    from gbdnn.kernels.kernel import Chain
    from gbdnn.model.layer import Layer
    from gbdnn.model.network import Network

__all__ = ["checked_options", "infer_network"]

_TEMPORARIES = 4  # sparse matrices that the sparse kernel holds at the same time
_STOPS = (6, 10, 14, 20)  # layers before which the first windows end
_EARLY = (3, 5, 8, 12, 18)  # the same for the full kernel, where compaction costs more
_FEW = 0.75  # share of a block's width below which survivors are pooled
_UNEVEN = 1.1  # load of a thread, relative to an equal share, above which blocks are recut
_NARROW = 32  # inputs below which a further thread does not help
_AT_ONCE = 16  # blocks whose rows are read together

_log = logging.getLogger("gbdnn.inference")


def infer_network(
    net: Network,
    features: MatrixLike,
    *,
    engine: Engine = "auto",
    deduplicate: bool | Literal["auto"] = "auto",
    memory: int = MEMORY,
    nthreads: int | None = None,
    callback: Callable[[LayerStats], object] | None = None,
) -> gb.Matrix:
    """Compute `infer` for a network with at least one layer and checked options."""
    X = as_source(features, net, nthreads)
    always = not isinstance(deduplicate, str) and bool(deduplicate)
    may_be_shallow = not always and callback is None
    choice = Choice(net, X, engine, memory, nthreads, may_be_shallow=may_be_shallow)
    current().begin(net.infos, X.nrows)
    if choice.shallow is not None:
        answer = DenseAnswer(X.nrows, net.shape[1], choice.dtype)
        run_shallow(
            net, choice.shallow, answer, nthreads=nthreads, memory=memory, progress=current()
        )
        _log.info("engine %s: %s kernel in a single window", engine, FUSED.name)
        return answer.matrix(sparse=choice.shallow is not X)
    merged = Merged(X.nrows, always=always) if deduplicate else None
    with engaged(nthreads):
        run = _Run(net, X, choice, merged, callback)
        Y = run.answer()
    _log.info("engine %s: %s kernel", engine, " and ".join(sorted(run.kernels)) or "no")
    return Y


def checked_options(options: dict[str, Any], call: str) -> dict[str, Any]:
    """Return all options of a run; raise the errors of `infer` for invalid ones."""
    defaults: Any = infer_network.__kwdefaults__
    for name in options.keys() - defaults.keys():
        raise ArgumentTypeError(f"{call}() got an unexpected keyword argument {name!r}")
    found = defaults | options
    as_word(found["engine"], "engine", get_args(Engine))
    deduplicate = found["deduplicate"]
    is_flag = isinstance(deduplicate, bool | np.bool_)
    if not is_flag and not (isinstance(deduplicate, str) and deduplicate == "auto"):
        raise ArgumentError(f"deduplicate must be True, False or 'auto', not {shown(deduplicate)}")
    require_callable(found["callback"], "callback")
    return found | {"memory": as_bytes(found["memory"]), "nthreads": as_nthreads(found["nthreads"])}


class _Window(NamedTuple):
    """Consecutive layers, `first` to `stop` (exclusive), that blocks are computed through."""

    chain: Chain
    first: int
    stop: int
    ends: bool  # whether the last layer is the network's last layer


class _Rows(NamedTuple):
    """Rows of a source, from row `start` on, that wait before layer `k`."""

    k: int
    source: Any
    start: int

    @property
    def inputs(self) -> int:
        return int(self.source.nrows - self.start)

    @property
    def entries(self) -> float:
        return float(self.source.nvals) / self.source.nrows * self.inputs


class _Run:
    """State of one run: ``rows`` and ``blocks`` (by layer) hold all waiting inputs."""

    def __init__(
        self, net: Network, X: RowSource, choice: Choice, merged: Merged | None, callback: Any
    ) -> None:
        self.X, self.choice, self.merged, self.callback = X, choice, merged, callback
        self.sizes, self.progress, self.layers = choice.sizes, current(), len(net)
        self.plans, self.loader, self.buffers = choice.plans, Loader(net, choice), choice.buffers()
        kind = DenseAnswer if hasattr(X, "dense_rows") else SparseAnswer
        self.sink: Any = kind(X.nrows, net.shape[1], choice.dtype)
        self.rows: list[_Rows] = []
        self.blocks: dict[int, list[Any]] = {}
        self._wait(0, X)
        self.stands = merged.weights if merged else np.ones(X.nrows if callback else 0, np.int64)
        self.records: list[tuple[int, int, np.ndarray, str, float]] = []
        self.numbers, self.lock, self.failed = count(), threading.Lock(), False
        self.kernels: set[str] = set()  # kernels that ran

    def answer(self) -> gb.Matrix:
        """Return the activations of the last layer, one row per input."""
        try:
            while self.rows or self.blocks:
                k = self._next()
                loaded, info = self.loader.around(k), self.plans[k].info
                if k in self.blocks:
                    window = self._window(loaded, k)
                    blocks = self._placed(window, self.blocks.pop(k))
                    self._regroup(window, self._through(window, blocks))
                    continue
                rows = self.rows.pop([rows.k for rows in self.rows].index(k))
                dense = hasattr(rows.source, "dense_rows")
                if self.choice.is_sparse(info, rows.inputs, rows.entries, dense=dense):
                    self._sparse(loaded, rows)
                else:
                    window = self._window(loaded, k)
                    self._regroup(window, self._read(window, rows))
        finally:
            self.loader.close()
            self.buffers.release()
        matrix: gb.Matrix = self.sink.matrix(self.merged.followed() if self.merged else None)
        return matrix

    # Waiting inputs

    def _next(self) -> int:
        """Return the layer to compute next."""
        held = self._held()
        k = min(held)
        if k not in self.blocks and sum(held.values()) > 3 * self.sizes.waiting // 4:
            k = max(held, key=lambda k: (held[k], k))
        return k

    def _held(self) -> dict[int, int]:
        """Return the bytes held by waiting inputs, by layer."""
        held = {k: len(blocks) * self.sizes.block for k, blocks in self.blocks.items()}
        for rows in self.rows:
            nbytes = 0 if rows.source is self.X else rows.source.nbytes
            held[rows.k] = held.get(rows.k, 0) + nbytes
        return held

    def _wait(self, k: int, source: RowSource, start: int = 0) -> None:
        """Queue the rows of a source, from row `start` on, before layer `k`."""
        if start < source.nrows:
            self.rows.append(_Rows(k, source, start))

    def _window(self, loaded: Loaded, k: int) -> _Window:
        stop = k + 1
        early = loaded.chain.name == FULL.name
        while not is_stop(stop, early=early) and stop < loaded.stop and self.plans[stop].in_blocks:
            stop += 1
        return _Window(loaded.chain, k, stop, stop == self.layers)

    # Computing blocks

    def _read(self, window: _Window, rows: _Rows) -> list[Any]:
        """Compute rows through a window until memory is full; return the survivors as blocks."""
        source, place, width = rows.source, rows.start, self._balanced(rows.inputs)
        most = max(1, (self.sizes.waiting - sum(self._held().values())) // self.sizes.block)
        step, dense = width, getattr(source, "dense_rows", None)
        if dense is None:  # rows of several blocks are read together
            each = rows.entries / rows.inputs * width * (8 + self.choice.dtype.itemsize)
            fits = self.sizes.working / (16 * self.sizes.workers * max(each, 1))
            fair = rows.inputs // (4 * self.sizes.workers * width)
            step *= max(1, int(min(_AT_ONCE, fits, fair)))
        _log.debug("layer %d: %s kernel, blocks of %d", window.first, window.chain.name, width)
        out: list[Any] = []

        def blocks() -> Iterator[Any]:
            nonlocal place
            while True:
                with self.lock:
                    start = place
                    if start == source.nrows or (start > rows.start and len(out) >= most):
                        return
                    place = stop = min(start + step, source.nrows)
                some = (dense or source.sparse_rows)(start, stop)
                for at in range(0, stop - start, width):
                    Y = window.chain.block(self.buffers, window.first, width)
                    if dense is not None:
                        window.chain.read_dense(Y, window.first, some, np.arange(start, stop))
                    else:
                        part = some.sparse_rows(at, min(at + width, some.nrows))
                        window.chain.read(Y, window.first, part)
                    yield Y

        self._through(window, blocks, out)
        self._wait(window.first, source, place)
        return out

    def _placed(self, window: _Window, blocks: list[Any]) -> Callable[[], Iterator[Any]]:
        """Return a generator function over the blocks; threads that call it share the blocks.

        Within a group of layers that is loaded together, neurons are stored in a common order.
        Outside the group, they are in the network's order.
        """
        layers, waiting = window.chain.layers, iter(blocks)
        position = layers.position(window.first) if window.first == layers.first else None

        def placed() -> Iterator[Any]:
            for Y in waiting:
                if position is not None:
                    Z = window.chain.block(self.buffers, window.first, Y.width)
                    Z.array[position], Z.inputs = Y.array, Y.inputs
                    self.buffers.put(Y)
                    Y = Z
                yield Y

        return placed

    def _through(
        self, window: _Window, blocks: Callable[[], Iterator[Any]], out: list[Any] | None = None
    ) -> list[Any]:
        """Compute blocks through a window on all threads; return the survivors as blocks."""
        out = [] if out is None else out

        def work(_: int) -> None:
            pool = None
            with self._context():
                for Y in blocks():
                    if self.failed:
                        return
                    Y = self._advanced(window, Y)
                    if window.ends and len(Y.inputs):
                        self._finish(window, Y)
                    elif len(Y.inputs) > _FEW * self.sizes.width:
                        out.append(Y)
                    else:
                        pool = self._poured(window, Y, pool, out)
            if pool is not None:
                out.append(pool)

        on_threads(self.sizes.workers, work, stop=self._fail)
        self._tell()
        return out

    def _advanced(self, window: _Window, Y: Any) -> Any:
        """Return a block after a window, without its dead inputs."""
        chain, first, stop, ends = window
        began, told, counts = perf_counter(), self.callback is not None, None
        self.kernels.add(chain.name)
        if told or self.progress.is_watched:
            counts = np.zeros((stop - first, 5), np.int64)
        stands = self.stands if told else None
        Y = chain.run(Y, first, stop, self.buffers, tidy=not ends, counts=counts, stands=stands)
        if counts is not None:
            self.progress.computed(first, counts[:, 0], len(Y.inputs), chain.name)
            if told:
                seconds = perf_counter() - began
                self.records.append((next(self.numbers), first, counts, chain.name, seconds))
        return Y

    def _poured(self, window: _Window, Y: Any, pool: Any, out: list[Any]) -> Any:
        """Copy a block's inputs to the pool, full pools to `out`; return the current pool."""
        array, ids, width = Y.filled, Y.inputs, self.sizes.width
        while len(ids):
            if pool is None:
                pool = window.chain.block(self.buffers, window.stop, width)
                pool.inputs = ids[:0]
            used = len(pool.inputs)
            fits = min(width - used, len(ids))
            pool.array[:, used : used + fits] = array[:, :fits]
            pool.inputs = np.concatenate((pool.inputs, ids[:fits]))
            array, ids = array[:, fits:], ids[fits:]
            if len(pool.inputs) == width:
                out.append(pool)
                pool = None
        self.buffers.put(Y)
        return pool

    def _finish(self, window: _Window, Y: Any) -> None:
        """Write a block's inputs to the answer."""
        if self.sink.is_dense:
            self.sink.write(partial(window.chain.write, Y))
        else:
            droppable = self.plans[-1].droppable_after
            for rows in window.chain.rows(Y, self.layers, droppable=droppable):
                self.sink.add(rows)
        self.buffers.put(Y)

    # Between windows

    def _regroup(self, window: _Window, blocks: list[Any]) -> None:
        """Merge and rebalance the blocks after a window; queue them for the next one."""
        k = window.stop
        blocks = [Y for Y in (*blocks, *self.blocks.pop(k, [])) if len(Y.inputs)]
        if not blocks:
            return
        if self.choice.leaves(self.plans[k].info, blocks):
            self._leave(window, blocks)
            return
        keeps = self.merged.columns(blocks, self._each) if self.merged else None
        sizes = [len(x) for x in keeps or (Y.inputs for Y in blocks)]
        self.progress.dropped(k, sum(len(Y.inputs) for Y in blocks) - sum(sizes))
        if keeps is not None or not self._is_even(sizes):
            blocks = self._recut(window, blocks, sizes, keeps)
        self.blocks[k] = sorted(blocks, key=lambda Y: -len(Y.inputs))

    def _is_even(self, sizes: list[int]) -> bool:
        """Whether blocks of these sizes give threads equal shares and few blocks are thin."""
        loads, inputs = [0] * self.sizes.workers, sum(sizes)
        for n in sorted(sizes, reverse=True):
            loads[loads.index(min(loads))] += n
        share = max(inputs / self.sizes.workers, _NARROW)
        most = 2 * (inputs // self.sizes.width) + 1 + self.sizes.workers
        return max(loads) <= _UNEVEN * share and len(sizes) <= most

    def _recut(
        self, window: _Window, blocks: list[Any], sizes: list[int], keeps: list[np.ndarray] | None
    ) -> list[Any]:
        """Return equal blocks of the inputs in `blocks`, or of the columns in `keeps`."""
        ends, width, left = np.cumsum(sizes), self._balanced(sum(sizes)), sizes.copy()
        arrays = [Y.array for Y in blocks]  # moves a block out of GraphBLAS at most once

        def cut(n: int) -> Any:
            start, stop = n * width, min((n + 1) * width, int(ends[-1]))
            Z, ids = window.chain.block(self.buffers, window.stop, width), []
            first, last = np.searchsorted(ends, (start, stop - 1), side="right")
            for b in range(first, last + 1):
                begin = ends[b] - sizes[b]
                a, z = max(start, begin) - begin, min(stop, ends[b]) - begin
                array, inputs = arrays[b][:, a:z], blocks[b].inputs[a:z]
                if keeps is not None:  # np.take is fast only into contiguous memory
                    some = keeps[b][a:z]
                    array, inputs = np.take(arrays[b], some, axis=1), blocks[b].inputs[some]
                Z.array[:, begin + a - start : begin + z - start] = array
                ids.append(inputs)
                with self.lock:  # only the thread that takes a block's last inputs puts it back
                    left[b] -= z - a
                    is_last = z > a and not left[b]
                if is_last:
                    self.buffers.put(blocks[b])
            Z.inputs = np.concatenate(ids)
            return Z

        for Y, size in zip(blocks, sizes, strict=True):
            if not size:
                self.buffers.put(Y)
        return self._each(cut, -(-int(ends[-1]) // width))

    def _leave(self, window: _Window, blocks: list[Any]) -> None:
        """Queue the inputs of blocks as sparse rows."""
        k, droppable = window.stop, self.plans[window.stop].droppable
        found = [part for Y in blocks for part in window.chain.rows(Y, k, droppable=droppable)]
        rows = SparseRows.joined(found)
        self.progress.dropped(k, sum(len(Y.inputs) for Y in blocks) - rows.nrows)
        for Y in blocks:
            self.buffers.put(Y)
        self._wait(k, rows)

    def _balanced(self, inputs: int) -> int:
        """Return a block width that gives each thread an equal share of the inputs."""
        width, workers = self.sizes.width, self.sizes.workers
        rounds = max(1, -(-inputs // (width * workers)))
        if rounds > 8 or workers == 1:
            return width
        return min(width, max(_NARROW, -(-inputs // (rounds * workers * 16)) * 16))

    # Threads

    def _context(self) -> Any:
        """Return a GraphBLAS Context for one of the run's threads."""
        chunk = {} if self.sizes.threads_each == 1 else {"chunk": 4096}
        return gb.ss.Context(engage=False, nthreads=self.sizes.threads_each, **chunk)

    def _each(self, function: Callable[[int], Any], n: int) -> list[Any]:
        """Return ``[function(0), ..., function(n - 1)]``, computed by all threads."""
        found: list[Any] = [None] * n
        numbers = iter(range(n))

        def work(_: int) -> None:
            with self._context():
                for i in numbers:
                    if not self.failed:
                        found[i] = function(i)

        on_threads(min(self.sizes.workers, n), work, stop=self._fail)
        return found

    def _fail(self) -> None:
        self.failed = True

    def _tell(self) -> None:
        """Pass the recorded statistics to the callback."""
        for number, first, counts, name, seconds in self.records:
            for each in layer_stats(first, counts, number, self.choice.engine, name, seconds):
                self.callback(each)
        self.records.clear()

    # The sparse kernel

    def _sparse(self, loaded: Loaded, rows: _Rows) -> None:
        """Compute as many rows as fit the memory with the sparse kernel, layer by layer."""
        k, number = rows.k, next(self.numbers)
        _log.debug("layer %d: sparse kernel, %d inputs", k, rows.inputs)
        most = self.sizes.working // (2 * _TEMPORARIES * (8 + self.choice.dtype.itemsize))
        some = self._fitting(loaded.layer(k), rows, most)
        self._wait(k, rows.source, rows.start + some.nrows)
        if self.plans[k].droppable:
            inputs, some = some.nrows, some.without_empty_rows()
            self.progress.dropped(k, inputs - some.nrows)
        ids, Y = some.ids, some.matrix()
        while k < loaded.stop:
            plan, layer, began = self.plans[k], loaded.layer(k), perf_counter()
            if k > rows.k:
                entries, inputs = int(Y.nvals), len(ids)
                if SPARSE.most_entries_in_all(layer, entries, Y.nrows) > most:
                    break
                if plan.droppable and self.choice.kernel is not None:
                    inputs = int(Y.reduce_rowwise(gb.monoid.any).new().nvals)
                if not self.choice.is_sparse(plan.info, inputs, entries):
                    break
            if self.merged is not None and is_stop(k):
                inputs = len(ids)
                Y, ids = self.merged.rows(Y, ids)
                self.progress.dropped(k, inputs - len(ids))
            check = partial(require_finite, k, layer) if plan.may_overflow else None
            Z = SPARSE.advance(Y, layer, layer.prepared(SPARSE.prepare), check=check)
            release(Y)
            self.kernels.add(SPARSE.name)
            self.progress.computed(k, [len(ids)], len(ids), SPARSE.name)
            if self.callback is not None:
                rows_of_Z = Z.reduce_rowwise(gb.monoid.any).new().to_coo(values=False)[0]
                live = ids[rows_of_Z.astype(np.int64)]
                stands = self.stands[live].sum()
                counts = np.array([[len(ids), len(live), stands, int(Z.nvals), 0]])
                self.records = [(number, k, counts, SPARSE.name, perf_counter() - began)]
                self._tell()
            Y, k = Z, k + 1
        found = SparseRows.from_matrix(Y, ids)
        if k == self.layers:
            self.sink.add(found)
        else:
            self._wait(k, found)

    def _fitting(self, layer: Layer, rows: _Rows, most: int) -> SparseRows:
        """Return the first rows whose entries after the layer cannot exceed `most` in total."""
        guess = SPARSE.most_entries_in_all(layer, rows.entries, rows.inputs) / rows.inputs
        inputs = max(1, min(rows.inputs, int(most / max(guess, 1))))
        some = rows.source.sparse_rows(rows.start, rows.start + inputs)
        entries = np.cumsum(SPARSE.most_entries(some, layer))
        if entries[0] > most:
            needed = int(entries[0]) * _TEMPORARIES * (8 + self.choice.dtype.itemsize)
            memory = self.choice.memory
            least = needed * (2 * memory // self.sizes.working)
            raise ArgumentError(
                f"memory={memory} is too small: one input does not fit at layer {rows.k};"
                f" pass memory={least} or more"
            )
        return some.sparse_rows(0, int(np.searchsorted(entries, most, side="right")))


def is_stop(k: int, *, early: bool = False) -> bool:
    """Whether a window ends before layer `k`: 6, 10, 14, 20, 30, 45, ..."""
    first = _EARLY if early else _STOPS
    stop = first[-1]
    while stop < k:
        stop += stop // 2
    return k == stop or k in first
