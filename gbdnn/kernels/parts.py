"""Parts of the rows on their way through layers of the sparse or the full kernel, in compiled code.

Each thread takes the next part that has not ended as far as it goes: to the last layer, to a layer
before which no input has an entry, or to one that leaves the kernel. Calls return after a tenth of
a second, so that Python sees signals, and go on with the same parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.kernels import costs
from gbdnn.kernels.compiled.graphblas import contexts, handle, raise_error, with_graphblas
from gbdnn.kernels.compiled.record import Record, constant
from gbdnn.kernels.full import FULL
from gbdnn.kernels.overflow import non_finite
from gbdnn.kernels.together import together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gbdnn.kernels.full import FullKernel
    from gbdnn.kernels.kernel import LayerPlan
    from gbdnn.kernels.sparse import SparseKernel
    from gbdnn.model.layer import Layer
    from gbdnn.runtime.first_use import gb

__all__ = ["Parts"]

_SLICE = 100_000_000  # ns of a call


class Parts:
    """Parts of rows before layer `first`.

    Parameters
    ----------
    kernel : SparseKernel or FullKernel
    X : Matrix, SparseRows or ndarray
        Features in the layers' dtype. A matrix has no pending work; stored zeros are ignored. The
        sparse kernel takes no arrays.
    bounds : ndarray of int64, shape (parts + 1,)
        First row of each part, and the end of the last one.
    layers : sequence of Layer
        Consecutive layers, of which `first` is the number of the first one.
    plans : sequence of LayerPlan
    limits : sequence of float
        Entries per input before each layer up to which, or in the full kernel from which, it is
        computed here.
    most, room : float
        Entries of a part after a layer, and of parts that have ended, beyond which no further one
        is read.
    workers, nthreads : int
        Parts at the same time, and threads, which parts share.
    multiplicity : ndarray of int64, optional
        Number of inputs that each row represents, for statistics.
    watched, counted : bool
        Whether to record statistics; whether to count the inputs that may be dropped.
    width : int
        Inputs of a panel in the full kernel.
    ids : ndarray of int64
        Of the rows.
    answer : (ndarray, ndarray) or None
        Rows of all inputs, and marks where they are not 0, which the full kernel writes after the
        last layer.

    Attributes
    ----------
    parts : Record
        The state of each part (``struct row_part``).
    count : int
        Number of parts that are computed.
    writes : bool
        Whether the activations after the last layer are in the answer.
    counts : ndarray of int64, shape (parts, layers, 5), optional
        Statistics, as in `gbdnn.engine.stats.layer_stats`.
    """

    def __init__(
        self, kernel: SparseKernel | FullKernel, X: gb.Matrix | SparseRows | np.ndarray,
        bounds: np.ndarray, layers: Sequence[Layer], plans: Sequence[LayerPlan],
        limits: Sequence[float], *, first: int, most: float, room: float, workers: int,
        nthreads: int, multiplicity: np.ndarray | None, watched: bool, counted: bool, width: int,
        ids: np.ndarray, answer: tuple[np.ndarray, np.ndarray] | None,
    ) -> None:  # fmt: skip
        dtype, count, is_full = plans[0].info.dtype, len(bounds) - 1, kernel is FULL
        self.kernel, self.writes = kernel, answer is not None
        self._functions, self._plans, self._first = with_graphblas(dtype), plans, first
        self._threads = max(1, min(workers, count))
        self._contexts, self.count = contexts(nthreads // self._threads), count
        self.parts = Record("row_part", dtype, count)
        self.parts.set_each(start=bounds[:-1], nrows=np.diff(bounds), layer=[first - 1] * count)
        self.counts = np.zeros((count, len(layers), 5), np.int64) if watched else None
        if self.counts is not None:
            self.parts.set_each(counts=self.counts)
        weights: list[Any] = [layer.prepared(kernel.prepare) for layer in layers]
        table = Record.joined([prepared.record for prepared in weights])
        table.kept[None] = weights
        table.set_each(
            checked=[plan.may_overflow for plan in plans],
            droppable=[plan.droppable_after for plan in plans], limit=limits,
        )  # fmt: skip
        self._state = np.zeros(constant("STATES"), np.int64)
        values, present = answer or (None, None)
        self._run = Record(
            "loop_run", dtype, layers=table, first=first, last=first + len(layers),
            ncols=plans[0].info.nrows, parts=self.parts, count=count, contexts=self._contexts,
            slice=_SLICE, most=most, drops=plans[0].droppable, counted=counted or is_full,
            room=room, state=self._state, multiplicity=multiplicity, width=is_full and width,
            edge_cost=costs.speeds().full * dtype.itemsize / 4, move_cost=costs.MOVE_FULL,
            answer=values, present=present, ids=ids, **_features(X),
        )  # fmt: skip
        self._run.kept[None] = X

    def __del__(self) -> None:
        if hasattr(self, "parts"):
            self._functions.free_parts(self.parts, len(self.parts.all))

    def compute(self) -> None:
        """Take the parts further, for a tenth of a second."""
        together(self._threads, self._functions.compute_parts, self._run)
        self._raise_error()

    def finish_begun(self) -> int:
        """Read no part beyond those that were begun; return the first row that is not read."""
        self.count = int(np.flatnonzero(self.parts["layer"] >= self._first)[-1]) + 1
        self._run.set(count=self.count, room=np.inf)
        last = self.parts.all[self.count - 1]
        return int(last.start + last.nrows)

    @property
    def held(self) -> int:
        """Entries of parts that have ended and were not taken."""
        return int(self._state[constant("HELD")])

    def take(self, which: np.ndarray, ids: np.ndarray) -> SparseRows:
        """Return the activations of parts that have ended before the same layer.

        ``ids`` are those of all rows. The parts are empty afterwards.
        """
        parts, k = self.parts, self.parts.all[which[0]].layer - self._first
        info = self._plans[k - 1].info if k else self._plans[0].info
        rows = np.concatenate(([0], np.cumsum(parts["nrows"][which])))
        starts = np.concatenate(([0], np.cumsum(parts["entries"][which])))
        indptr = np.zeros(rows[-1] + 1, np.uint64)
        columns, values = np.empty(starts[-1], np.uint64), np.empty(starts[-1], info.dtype)
        self._state[:] = 0
        job = Record(
            "joining", info.dtype, parts=self.parts, which=which, rows=rows, starts=starts,
            count=len(which), indptr=indptr, columns=columns, values=values,
            contexts=self._contexts, state=self._state,
        )  # fmt: skip
        together(min(self._threads, len(which)), self._functions.join_parts, job)
        self._raise_error()
        ncols = info.ncols if k else info.nrows
        return SparseRows(indptr, columns, values, ncols, self.rows(which, ids))

    def rows(self, which: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Return the ids of the rows of parts; ``ids`` are those of all rows."""
        parts = [self.parts.all[n] for n in which]
        return np.concatenate([ids[part.start : part.start + part.nrows] for part in parts])

    def _raise_error(self) -> None:
        error = int(self._state[constant("FAILED")])
        if error == constant("NOT_FINITE"):
            k = int(self._state[constant("FAILED_LAYER")])
            raise non_finite(k, self._plans[k - self._first].info)
        if error:
            raise_error(error)


def _features(X: gb.Matrix | SparseRows | np.ndarray) -> dict[str, Any]:
    """Return the members of a run for features of any kind."""
    if isinstance(X, np.ndarray):
        row, column = (stride // X.itemsize for stride in X.strides)
        return {"dense": X, "row_stride": row, "column_stride": column}
    if not isinstance(X, SparseRows):
        return {"X": handle(X)}
    values = X.values[:1] if X.is_iso else np.ascontiguousarray(X.values)
    members = {"values": values, "value_step": int(not X.is_iso), "indptr": X.indptr}
    return members | {"columns": np.ascontiguousarray(X.columns)}
