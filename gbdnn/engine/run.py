"""One call of `infer`: rows are queued by layer; each queue runs in the form that is cheaper.

features ── row ranges ──> queue of layer 0
queue k  ── sparse form ─> one or more layers, all its rows as one matrix ──> queue k'
queue k  ── block forms ─> blocks, through as many layers as are at hand ───> queues k'
behind the last layer: finished rows ── stacked, or written in place ──> the answer

Dense features of a few layers take blocks of inputs through all of them at once instead
(`gbdnn.engine.direct`).
"""

from __future__ import annotations

import logging
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from gbdnn.arrays.checks import as_nthreads, as_word, require_callable, whole_number
from gbdnn.arrays.sparse_rows import SparseRows, release
from gbdnn.engine.answer import DenseAnswer, SparseAnswer
from gbdnn.engine.choice import Engine, FormChoice
from gbdnn.engine.direct import run_directly
from gbdnn.engine.duplicates import Duplicates, distinct_at_least, equal_rows
from gbdnn.engine.memory import MEMORY
from gbdnn.engine.plan import plan_layers
from gbdnn.engine.prefetch import Prefetch
from gbdnn.engine.progress import current
from gbdnn.engine.queues import RunState
from gbdnn.engine.scheduler import BlockScheduler, RunSetting
from gbdnn.engine.sources import as_source, bytes_copied
from gbdnn.engine.stats import layer_stats
from gbdnn.engine.stops import Stops
from gbdnn.errors import ArgumentError, ArgumentTypeError
from gbdnn.kernels.overflow import require_finite
from gbdnn.kernels.sparse import SPARSE
from gbdnn.runtime.first_use import gb, shown
from gbdnn.runtime.threads import engaged

if TYPE_CHECKING:
    from collections.abc import Callable

    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.engine.plan import LayerPlan, Window
    from gbdnn.engine.progress import RunProgress
    from gbdnn.engine.queues import LayerQueue
    from gbdnn.engine.sources import RowSource
    from gbdnn.engine.stats import LayerStats
    from gbdnn.model.layer import Layer
    from gbdnn.model.network import Network

__all__ = ["QueuedRun", "checked", "checked_options", "infer_network"]

_ENGINES = get_args(Engine)
_OPTIONS = {
    "engine": "auto",
    "compress": "auto",
    "memory": MEMORY,
    "nthreads": None,
    "callback": None,
}
_TEMPORARIES = 4  # matrices of a layer's entries that the sparse form holds at a time

_log = logging.getLogger("gbdnn.inference")


def infer_network(
    net: Network,
    features: MatrixLike,
    *,
    engine: Engine = "auto",
    compress: bool | Literal["auto"] = "auto",
    memory: int = MEMORY,
    nthreads: int | None = None,
    callback: Callable[[LayerStats], object] | None = None,
) -> gb.Matrix:
    """Return what `infer` returns, for a network with one layer or more."""
    with engaged(None if type(features) is np.ndarray else nthreads):
        X = as_source(features, net, room=memory // 4)
    copied = bytes_copied(X, features)
    always = not isinstance(compress, str) and bool(compress)
    plain = not always and callback is None
    choice = FormChoice(net, X, engine, memory, copied, nthreads, may_be_direct=plain)
    progress = current()
    progress.begin(net.infos, {0: X.nrows})
    if choice.direct is None:
        duplicates = Duplicates(X.nrows, always=always) if compress else None
        with engaged(nthreads):
            run = QueuedRun(net, X, choice, duplicates, progress, callback)
            Y = run.answer()
    else:
        answer = DenseAnswer(X.nrows, net.shape[1], choice.dtype)
        run_directly(
            net, choice.direct, answer, nthreads=nthreads, memory=(memory - copied) // 2,
            progress=progress,
        )  # fmt: skip
        Y = answer.matrix(sparse=choice.direct is not X)
    progress.end()
    return Y


def checked(
    engine: Any = "auto",
    compress: Any = "auto",
    memory: Any = MEMORY,
    nthreads: Any = None,
    callback: Any = None,
) -> tuple[int, int | None]:
    """Return `memory` and `nthreads` as ints, or raise what `infer` raises for its options."""
    as_word(engine, "engine", _ENGINES)
    if not isinstance(compress, bool | np.bool_) and not (
        isinstance(compress, str) and compress == "auto"
    ):
        raise ArgumentError(f"compress is True, False or 'auto', not {shown(compress)}")
    require_callable(callback, "callback")
    return whole_number(memory, "memory"), as_nthreads(nthreads)


def checked_options(options: dict[str, Any], call: str) -> dict[str, Any]:
    """Return all options of a run, or raise what `infer` raises for those that were given."""
    for name in options.keys() - _OPTIONS.keys():
        raise ArgumentTypeError(f"{call}() got an unexpected keyword argument {name!r}")
    memory, nthreads = checked(**options)
    return _OPTIONS | options | {"memory": memory, "nthreads": nthreads}


class QueuedRun:
    """A run whose rows are queued by layer; ``state`` is where it stands.

    Parameters
    ----------
    net : Network
        At least one layer.
    X : RowSource
        Of the network's dtype.
    choice : FormChoice
    duplicates : Duplicates, optional
        Where equal inputs are computed once.
    progress : RunProgress
    callback
        As for `infer`.
    """

    def __init__(
        self,
        net: Network,
        X: RowSource,
        choice: FormChoice,
        duplicates: Duplicates | None,
        progress: RunProgress,
        callback: Callable[[LayerStats], object] | None,
    ) -> None:
        self._net, self._X, self._choice = net, X, choice
        self._progress, self._callback = progress, callback
        plans = plan_layers(net, X.largest, choice.form)
        self._windows = Prefetch(
            net, plans, choice.form, reordered=choice.reorders, wide=choice.is_wide,
            memory=choice.budget.layers, nthreads=choice.threads,
        )  # fmt: skip
        kind = DenseAnswer if hasattr(X, "dense_rows") else SparseAnswer
        answer = kind(X.nrows, net.shape[1], choice.dtype)
        self.state = RunState(len(net), choice.budget.queued, answer, duplicates)
        self._setting = RunSetting(
            layers=len(net), inputs=X.nrows, choice=choice, answer=answer, duplicates=duplicates,
            progress=progress, callback=callback,
        )  # fmt: skip

    def answer(self) -> gb.Matrix:
        """Return the activations after the last layer, one row per input."""
        self.state.begin(self._X)
        with self._windows:
            while (following := self.state.next()) is not None:
                k, queue, room = following
                window = self._windows.around(k)
                plan, form = window.plan(k), self._choice.form
                sparse = form is None or self._choice.is_sparse(
                    plan, queue.inputs, queue.entries, dense=queue.is_dense
                )
                name = "sparse" if sparse or form is None else form.name
                _log.debug("layer %d: %s form for %d inputs", k, name, queue.inputs)
                if sparse:
                    self._sparse(window, k, queue)
                else:
                    self._blocks(window, k, queue, room)
        return self.state.matrix()

    def _blocks(self, window: Window, k: int, queue: LayerQueue, room: float) -> None:
        """Take the queue through the layers in blocks; what leaves them is queued."""
        scheduler = BlockScheduler(self._setting, window, queue, Stops, k, room)
        _log.debug("%r", scheduler)
        for at, left in scheduler.advanced().items():
            for rows in left:
                self.state.add(at, rows)

    def _sparse(self, window: Window, first: int, queue: LayerQueue) -> None:
        """Take rows of the queue through the layers as one matrix, as long as that is the form."""
        rows = self._fitting(window.layer(first), first, queue)
        if window.plan(first).droppable:
            count, rows = rows.nrows, rows.without_empty_rows()
            self._progress.dropped(first, count - rows.nrows)
        k, ids, Y, number = first, rows.ids, rows.matrix(), next(self._setting.numbers)
        while k < window.stop:
            plan, layer = window.plan(k), window.layer(k)
            if k > first and not self._stays_sparse(plan, layer, Y):
                break
            ids, Y = self._merged(k, ids, Y)
            Y = self._sparse_layer(plan, layer, number, ids, Y)
            k += 1
        self.state.add(k, SparseRows.from_matrix(Y, ids))

    def _sparse_layer(
        self, plan: LayerPlan, layer: Layer, number: int, ids: np.ndarray, Y: gb.Matrix
    ) -> gb.Matrix:
        """Return the activations after one layer; `Y` is freed."""
        began = perf_counter()
        check = partial(require_finite, plan.k, layer) if plan.may_overflow else None
        Z = SPARSE.advance(Y, layer, layer.prepared(SPARSE.prepare), check=check)
        release(Y)
        self._progress.computed(plan.k, [len(ids)], len(ids), SPARSE.name)
        if self._callback is not None:
            some, _ = Z.reduce_rowwise(gb.monoid.any).new().to_coo(values=False)
            live = ids[some.astype(np.int64)]
            stands = self._setting.stands()[live].sum()
            counts = np.array([[len(ids), len(live), stands, int(Z.nvals), 0]])
            seconds = perf_counter() - began
            for stats in layer_stats(plan.k, counts, number, SPARSE.name, seconds):
                self._callback(stats)
        return Z

    def _stays_sparse(self, plan: LayerPlan, layer: Layer, Y: gb.Matrix) -> bool:
        """Whether activations go on as they are: in this form, within the memory."""
        entries, inputs = int(Y.nvals), Y.nrows
        most = SPARSE.most_entries_in_all(layer, entries, inputs)
        if most * self._entry_bytes > self._choice.memory:
            return False
        if plan.droppable and plan.in_blocks:
            inputs = int(Y.reduce_rowwise(gb.monoid.any).new().nvals)
        return self._choice.is_sparse(plan, inputs, entries)

    def _fitting(self, layer: Layer, k: int, queue: LayerQueue) -> SparseRows:
        """Take from the queue as many rows as the sparse form has memory for."""
        memory = self._choice.memory
        limit = memory // self._entry_bytes
        guess = SPARSE.most_entries_in_all(layer, queue.entries, queue.inputs) / queue.inputs
        count = max(1, min(queue.inputs, int(limit / max(guess, 1.0))))
        rows = SparseRows.joined([each.rows() for each in queue.take(count)])
        most = np.cumsum(SPARSE.most_entries(rows, layer))
        fits = int(np.searchsorted(most, limit, side="right"))
        if fits == 0:
            raise ArgumentError(
                f"memory={self._choice.budget.total} is too small: an input takes up to"
                f" {int(most[0]) * self._entry_bytes} bytes in the sparse form at layer"
                f" {k}, of the {memory} for activations"
            )
        if fits < rows.nrows:
            queue.put_back(rows.sparse_rows(fits, rows.nrows))
            rows = rows.sparse_rows(0, fits)
        return rows

    def _merged(self, k: int, ids: np.ndarray, Y: gb.Matrix) -> tuple[np.ndarray, gb.Matrix]:
        """Return the inputs without those that are equal to another one."""
        duplicates = self.state.duplicates
        if duplicates is None or not duplicates.should_check(k):
            return ids, Y
        if not duplicates.record(k, distinct_at_least(Y), Y.nrows):
            return ids, Y
        rows = SparseRows.from_matrix(Y, ids)
        equal = equal_rows(rows)
        if duplicates.record(k, len(equal.stay), rows.nrows):
            duplicates.merge(ids[equal.merged], ids[equal.into])
            self._progress.dropped(k, rows.nrows - len(equal.stay))
            rows = rows.take(equal.stay)
        return rows.ids, rows.matrix()

    @property
    def _entry_bytes(self) -> int:
        return _TEMPORARIES * (8 + self._choice.dtype.itemsize)
