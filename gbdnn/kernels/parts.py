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
from gbdnn.kernels.compiled.graphblas import contexts, raise_error, with_graphblas
from gbdnn.kernels.compiled.record import Record, constant
from gbdnn.kernels.fused_run import members_of
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
        Features in the layers' dtype; stored zeros are ignored. The sparse kernel takes no arrays.
    ids : ndarray of int64
        Of the rows.
    bounds : ndarray of int64, shape (parts + 1,)
        First row of each part, and the end of the last one.
    layers : sequence of Layer
        Consecutive layers, of which `first` is the number of the first one.
    plans : sequence of LayerPlan
    limits : sequence of float
        Entries per input before each layer up to which, or in the full kernel from which, it is
        computed here.
    first : int
    workers, nthreads : int
        Parts at the same time, and threads, which parts share.
    watched : bool
        Whether to record statistics.
    **members
        Other members of ``struct loop_run``.

    Attributes
    ----------
    parts : Record
        The state of each part (``struct row_part``).
    count : int
        Number of parts that are computed.
    counts : ndarray of int64, shape (parts, layers, 5), optional
        Statistics, as in `gbdnn.engine.stats.layer_stats`.
    """

    def __init__(
        self, kernel: SparseKernel | FullKernel, X: gb.Matrix | SparseRows | np.ndarray,
        ids: np.ndarray, bounds: np.ndarray, layers: Sequence[Layer], plans: Sequence[LayerPlan],
        limits: Sequence[float], *, first: int, workers: int, nthreads: int, watched: bool,
        **members: Any,
    ) -> None:  # fmt: skip
        dtype, count = plans[0].info.dtype, len(bounds) - 1
        self.kernel, self.first, self.count = kernel, first, count
        self._functions, self._plans, self._ids = with_graphblas(dtype), plans, ids
        self._threads = max(1, min(workers, count))
        self._contexts = contexts(nthreads // self._threads)
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
        names = {"X": "dense", "matrix": "X"}  # of an array and a matrix in ``struct loop_run``
        features = {names.get(name, name): x for name, x in members_of(X, dtype).items()}
        self._run = Record(
            "loop_run", dtype, layers=table, first=first, last=first + len(layers),
            ncols=plans[0].info.nrows, parts=self.parts, count=count, contexts=self._contexts,
            slice=_SLICE, drops=plans[0].droppable, state=self._state, ids=ids,
            edge_cost=costs.speeds().full * dtype.itemsize / 4, move_cost=costs.MOVE_FULL,
            **features, **members,
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
        self.count = int(np.flatnonzero(self.parts["layer"] >= self.first)[-1]) + 1
        self._run.set(count=self.count, room=np.inf)
        last = self.parts.all[self.count - 1]
        return int(last.start + last.nrows)

    @property
    def held(self) -> int:
        """Entries of parts that have ended and were not taken."""
        return int(self._state[constant("HELD")])

    def take(self, which: np.ndarray) -> SparseRows:
        """Return the activations of parts that have ended before the same layer.

        The parts are empty afterwards.
        """
        parts, k = self.parts, self.parts.all[which[0]].layer - self.first
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
        return SparseRows(indptr, columns, values, ncols, self.rows(which))

    def rows(self, which: np.ndarray) -> np.ndarray:
        """Return the ids of the rows of parts."""
        parts = [self.parts.all[n] for n in which]
        return np.concatenate([self._ids[part.start : part.start + part.nrows] for part in parts])

    def _raise_error(self) -> None:
        error = int(self._state[constant("FAILED")])
        if error == constant("NOT_FINITE"):
            k = int(self._state[constant("FAILED_LAYER")])
            raise non_finite(k, self._plans[k - self.first].info)
        if error:
            raise_error(error)
