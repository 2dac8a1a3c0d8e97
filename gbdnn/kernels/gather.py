"""Aggregation of neighbour features: the product of a graph's matrix with a full one.

    Z = A Y                          plus_times; or max_second, min_second
    Z = min(max(Z + start, low), high)

A(i, j) is the weight of the edge from j to i. `gathered`, the reference, is one GraphBLAS
expression. For plus_times, compiled code (``compiled/gather.c``) computes one row of A at a time.
Threads share the edges rather than the nodes: rows with very many edges are split into pieces that
are summed separately. The split depends on A only, so results are bitwise independent of the number
of threads.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gbdnn.arrays.checks import are_finite
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.kernels.compiled.loading import functions, required
from gbdnn.kernels.compiled.record import Record
from gbdnn.runtime.first_use import gb
from gbdnn.runtime.ownership import owned
from gbdnn.runtime.threads import available, on_threads, share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


__all__ = ["Aggregate", "Gather", "gathered"]

Aggregate = Literal["sum", "max", "min"]

SHARE = 1 << 16  # edges and nodes of a thread's unit of work
HEAVY = 1 << 17  # edges from which a node's row is split into pieces of SHARE
PIECE = 1 << 22  # bytes that a thread of GraphBLAS uses at a time, or for a node


def gathered(rows: SparseRows, Y: gb.Matrix, aggregate: Aggregate = "sum") -> np.ndarray:
    """Return A Y, or the maximum or minimum of the neighbours' features, ignoring A's values.

    The arrays of the rows of A move into a matrix. GraphBLAS accumulates into a full matrix in
    place (saxpy5), in half the time of a product with a new result.
    """
    semiring, binary = gb.semiring, gb.binary
    plus, times, nothing = {
        "sum": (binary.plus, semiring.plus_times, 0),
        "max": (binary.max, semiring.max_second, -np.inf),
        "min": (binary.min, semiring.min_second, np.inf),
    }[aggregate]
    alone = rows.degrees == 0
    values = np.full((rows.nrows, Y.ncols), nothing, rows.dtype)
    A, Z = rows.matrix(), owned(gb.Matrix.ss.import_fullr, values=values, name="Z")
    # Z += A Y
    Z(plus) << times(A @ Y)
    found: np.ndarray = Z.ss.unpack("fullr")["values"]
    if aggregate != "sum":
        found[alone] = 0
    return found


class Gather:
    """Products of a graph's matrix, given by its rows, with full matrices.

    The engines ``"auto"`` and ``"fused"`` compute sums in compiled code, the others in GraphBLAS.
    `nthreads` defaults to that of the engaged GraphBLAS Context, or of the configuration.
    """

    def __init__(
        self, rows: SparseRows, aggregate: Aggregate, nthreads: int | None, engine: str = "auto"
    ) -> None:
        self.rows, self._aggregate = rows, aggregate
        self._nthreads = available() if nthreads is None else nthreads
        self._compiled: Callable[..., int] | None = None
        if aggregate == "sum" and engine in ("auto", "fused"):
            kernels = required if engine == "fused" else functions
            self._compiled = (kernels(rows.dtype) or {}).get("gather")
        indptr = rows.indptr.view(np.int64)
        work = indptr + np.arange(len(indptr))
        cuts = np.searchsorted(work, np.arange(0, work[-1] + SHARE, SHARE)).clip(max=rows.nrows)
        self._heavy = np.flatnonzero(rows.degrees > HEAVY)
        self._cuts = np.unique([0, *cuts, *self._heavy, *(self._heavy + 1), rows.nrows])

    @property
    def kernel(self) -> str:
        """Kernel of the products: ``"fused"`` (compiled code) or ``"full"`` (GraphBLAS)."""
        return "full" if self._compiled is None else "fused"

    def operand(self, Y: np.ndarray) -> Any:
        """Return an array, contiguous by rows, as operand of `into`."""
        return owned(gb.Matrix.ss.import_fullr, values=Y.copy()) if self._compiled is None else Y

    def into(
        self, Y: Any, Z: np.ndarray, start: np.ndarray, *, low: float = -np.inf,
        high: float = np.inf, first: int = 0, last: int | None = None,
    ) -> bool:  # fmt: skip
        """Write rows `first` to `last` (exclusive) of the product; return whether all are finite.

        Y is the result of `operand`; Z has shape (last - first, features). `start`, of shape
        (features,) or that of Z, is added to the product and may be Z; `low` and `high` limit the
        result.
        """
        last = self.rows.nrows if last is None else last
        if first == last or not Z.shape[1]:
            return True
        if self._compiled is None:
            return self._plain(Y, Z, start, (low, high), first, last)
        return self._fused(self._compiled, Y, Z, start, (low, high), first, last)

    def _plain(
        self, Y: gb.Matrix, Z: np.ndarray, start: np.ndarray, limits: tuple[float, float],
        first: int, last: int,
    ) -> bool:  # fmt: skip
        """Multiply with GraphBLAS, some rows at a time on each thread."""
        indptr, size = self.rows.indptr[first : last + 1].view(np.int64), Z.itemsize
        taken = (8 + size) * indptr + (8 + size * Z.shape[1]) * np.arange(len(indptr))
        cuts = np.searchsorted(taken, np.arange(taken[0], taken[-1], PIECE))
        start, flags = np.broadcast_to(start, Z.shape), list[bool]()
        queue = deque(pairwise(np.unique([*cuts, last - first]).tolist()))
        workers = min(self._nthreads, len(queue))

        def work(pieces: Iterator[tuple[int, int]]) -> None:
            for a, b in pieces:
                rows, part = self.rows.sparse_rows(first + a, first + b), Z[a:b]
                copies = rows.indptr.copy(), rows.columns.copy(), np.array(rows.values)
                found = gathered(SparseRows(*copies, rows.ncols), Y, self._aggregate)
                np.add(found, start[a:b], out=part)
                flags.append(are_finite(part))
                if limits != (-np.inf, np.inf):
                    np.clip(part, *limits, out=part)

        share(workers, queue, work, nthreads=self._nthreads // workers)
        return all(flags)

    def _fused(
        self, gather: Callable[..., Any], Y: np.ndarray, Z: np.ndarray, start: np.ndarray,
        limits: tuple[float, float], first: int, last: int,
    ) -> bool:  # fmt: skip
        """Compute units of rows, and pieces of heavy rows, on threads; then add the pieces."""
        rows, size, features = self.rows, Z.itemsize, Z.shape[1]
        indptr, step = rows.indptr.view(np.int64), start.strides[0] if start.ndim == 2 else 0
        source: dict[str, Any] = {
            "columns": rows.columns, "features": features,
            "weights": rows.values[:1] if rows.is_iso else rows.values,
            "weight_step": not rows.is_iso, "Y": Y, "stride": Y.strides[0] // size,
        }  # fmt: skip
        target = {
            "start": start, "start_stride": step // size, "Z": Z, "z_stride": Z.strides[0] // size,
            "low": float(limits[0]), "high": float(limits[1]),
        }  # fmt: skip

        def record(**members: Any) -> Record:
            """Return a record with rows counted from 0, of which the first is in Z and `start`."""
            made = Record("product", **target, **members)
            made.array["start"] -= first * step
            made.array["Z"] -= first * Z.strides[0]
            return made

        cuts = np.unique(self._cuts.clip(first, last))
        heavy = self._heavy[(self._heavy >= first) & (self._heavy < last)]
        product = record(**source, indptr=indptr)
        ranges = zip(cuts[:-1].tolist(), cuts[1:].tolist(), np.isin(cuts[:-1], heavy), strict=True)
        work = [(product, a, b) for a, b, is_heavy in ranges if not is_heavy]
        nothing, sums = np.zeros(features, Z.dtype), []
        for k in heavy:
            pieces = np.append(np.arange(indptr[k], indptr[k + 1], SHARE), indptr[k + 1])
            parts = np.empty((len(pieces) - 1, features), Z.dtype)
            sums.append((k, parts))
            product = Record(
                "product", **source, indptr=pieces, start=nothing, Z=parts, z_stride=features,
                low=-np.inf, high=np.inf,
            )  # fmt: skip
            work[:0] = [(product, p, p + 1) for p in range(len(parts))]
        left, flags = iter(work), []

        def run(_: int) -> None:
            for product, a, b in left:
                flags.append(gather(product, a, b))

        def stop() -> None:
            for _ in left:
                pass

        on_threads(max(1, min(self._nthreads, len(work))), run, stop=stop)
        for k, parts in sums:  # the same product, with the pieces as neighbours
            place, ends = np.array([k]), np.array([0, len(parts)])
            numbers, one = np.arange(len(parts), dtype=np.uint64), np.ones(1, Z.dtype)
            product = record(
                indptr=ends, columns=numbers, weights=one, places=place, Y=parts, stride=features,
                features=features,
            )  # fmt: skip
            flags.append(gather(product, 0, 1))
        return not any(flags)
