"""Aggregation of neighbour features: the product of a graph's matrix with a full one.

    Z = A Y                          plus_times; or max_second, min_second
    Z = Z W                          optional, with dense weights
    Z = min(max(Z + start, low), high)

A(i, j) is the weight of the edge from j to i. `gathered`, the reference, is one GraphBLAS
expression. For plus_times, compiled code (``compiled/gather.c``) computes one row of A at a time,
and multiplies some rows with dense weights while they are in the cache.
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
from gbdnn.kernels.dense_product import BLOCK_ROWS, product, target
from gbdnn.kernels.ranges import Ranges, compute
from gbdnn.runtime.first_use import gb
from gbdnn.runtime.ownership import owned
from gbdnn.runtime.threads import share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gbdnn.model.layer import Layer

__all__ = ["Aggregate", "Gather", "gathered"]

Aggregate = Literal["sum", "max", "min"]

SHARE = 1 << 14  # edges and nodes of a thread's unit of work
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
    product: np.ndarray = Z.ss.unpack("fullr")["values"]
    if aggregate != "sum":
        product[alone] = 0
    return product


class Gather:
    """Products of a graph's matrix, given by its rows, with full matrices.

    The engines ``"auto"`` and ``"fused"`` compute sums in compiled code, the others in GraphBLAS.
    """

    def __init__(
        self, rows: SparseRows, aggregate: Aggregate, nthreads: int, engine: str = "auto"
    ) -> None:
        self.rows, self._aggregate, self._nthreads = rows, aggregate, nthreads
        self._compiled: Callable[..., int] | None = None
        if aggregate == "sum" and engine in ("auto", "fused"):
            kernels = required if engine == "fused" else functions
            self._compiled = getattr(kernels(rows.dtype), "gather", None)
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
        then: Layer | None = None, most: int = 1,
    ) -> bool:  # fmt: skip
        """Write rows `first` to `last` (exclusive) of the product; return whether all are finite.

        Y is the result of `operand`; Z has shape (last - first, features). `start`, of shape
        (features,) or that of Z, is added to the product and may be Z; `low` and `high` limit the
        result. The kernel ``"fused"`` multiplies with the weights of a dense layer `then`, on up to
        `most` threads, each of which stores `BLOCK_ROWS` rows of A Y.
        """
        last = self.rows.nrows if last is None else last
        if first == last or not Z.shape[1]:
            return True
        if self._compiled is None:
            return self._plain(Y, Z, start, (low, high), first, last)
        return self._fused(self._compiled, Y, Z, start, (low, high), first, last, then, most)

    def _plain(
        self, Y: gb.Matrix, Z: np.ndarray, start: np.ndarray, limits: tuple[float, float],
        first: int, last: int,
    ) -> bool:  # fmt: skip
        """Multiply with GraphBLAS, some rows at a time on each thread."""
        indptr, size = self.rows.indptr[first : last + 1].view(np.int64), Z.itemsize
        nbytes = (8 + size) * indptr + (8 + size * Z.shape[1]) * np.arange(len(indptr))
        cuts = np.searchsorted(nbytes, np.arange(nbytes[0], nbytes[-1], PIECE))
        start, flags = np.broadcast_to(start, Z.shape), list[bool]()
        queue = deque(pairwise(np.unique([*cuts, last - first]).tolist()))
        workers = min(self._nthreads, len(queue))

        def work(pieces: Iterator[tuple[int, int]]) -> None:
            for a, b in pieces:
                rows, part = self.rows.sparse_rows(first + a, first + b), Z[a:b]
                copies = rows.indptr.copy(), rows.columns.copy(), np.array(rows.values)
                product = gathered(SparseRows(*copies, rows.ncols), Y, self._aggregate)
                np.add(product, start[a:b], out=part)
                flags.append(are_finite(part))
                if limits != (-np.inf, np.inf):
                    np.clip(part, *limits, out=part)

        share(workers, queue, work, nthreads=self._nthreads // workers)
        return all(flags)

    def _fused(
        self, gather: Callable[..., Any], Y: np.ndarray, Z: np.ndarray, start: np.ndarray,
        limits: tuple[float, float], first: int, last: int, then: Layer | None, most: int,
    ) -> bool:  # fmt: skip
        """Compute units of rows, and pieces of heavy rows, on threads; then add the pieces."""
        rows, features = self.rows, Y.shape[1]
        indptr = rows.indptr.view(np.int64)[first : last + 1]
        source: dict[str, Any] = {
            "columns": rows.columns, "features": features,
            "weights": rows.values[:1] if rows.is_iso else rows.values,
            "weight_step": not rows.is_iso, "Y": Y, "stride": Y.strides[0] // Y.itemsize,
        }  # fmt: skip
        alone = target(np.empty((1, features), Y.dtype), np.zeros(features, Y.dtype))
        result = target(Z, start, *limits)
        if then is not None:
            result = alone | {"next": product(then, None, result)}
        cuts = np.unique(self._cuts.clip(first, last))
        heavy = self._heavy[(self._heavy >= first) & (self._heavy < last)]
        light, cuts, heavy = ~np.isin(cuts[:-1], heavy), cuts - first, heavy - first
        made = Record("product", Y.dtype, **source, **result, indptr=indptr)
        work, sums = [(made, Ranges(cuts[:-1][light], cuts[1:][light]))], []
        for k in heavy:  # the same product, with the pieces as neighbours
            pieces = np.append(np.arange(indptr[k], indptr[k + 1], SHARE), indptr[k + 1])
            numbers, one = np.arange(len(pieces) - 1, dtype=np.uint64), np.ones(1, Y.dtype)
            parts = np.empty((len(numbers), features), Y.dtype)
            made = Record("product", Y.dtype, **source, **alone | {"Z": parts}, indptr=pieces)
            work.insert(0, (made, Ranges(np.arange(len(parts)), np.arange(len(parts)) + 1)))
            made = Record(
                "product", Y.dtype, **result, indptr=np.array([0, len(parts)]), columns=numbers,
                weights=one, places=np.array([k]), Y=parts, stride=features, features=features,
            )  # fmt: skip
            sums.append((made, Ranges(np.zeros(1), np.ones(1))))

        def begin() -> Callable[[Record, Ranges], int]:
            block = None if then is None else np.empty((BLOCK_ROWS, features), Y.dtype)
            return lambda made, ranges: gather(made, ranges, block)

        nthreads = self._nthreads if then is None else min(self._nthreads, most)
        return compute(work, begin, nthreads) & compute(sums, begin, 1)
