"""The product of a graph matrix A and a full matrix Y, one row of A at a time.

    Z[i, :] = min(max(start[i, :] + sum_e w[e] * Y[columns[e], :], low), high)

All edges of a row are processed for `lines` cache lines of features at a time, with the sums in
registers. The last line begins so early that it ends with the row; up to a line of features has a
mask. Rows of Y are scattered in memory and exceed the caches, so the rows of later edges are
prefetched, across row ends too. Arrays need no alignment. Every feature has its own vector lane and
adds its edges in order, one fused multiply-add each, so its result does not depend on its position
or on the number of features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from numba import njit

from gbdnn.kernels.compiled.record import PRODUCT
from gbdnn.kernels.compiled.vectors import (
    COMPILED,
    INLINED,
    Record,
    address_of,
    any_infinite,
    between,
    fetch,
    fma,
    load,
    load_first,
    offset,
    record_at,
    row,
    store,
    store_first,
)

if TYPE_CHECKING:
    from gbdnn.kernels.compiled.vectors import Kinds

__all__ = ["make_gather"]

AHEAD = 8  # edges
MOST_LINES = 4  # cache lines of sums held in registers


class Row(NamedTuple):
    """A row of A, and the pointers to some of its features."""

    begin: Any  # edges
    end: Any
    final: Any  # the last edge whose row of Y may be prefetched
    start: Any
    Y: Any
    Z: Any


def make_gather(kind: Kinds):
    """Return the function ``gather``."""
    lanes, record = kind.lanes, Record(PRODUCT, kind)
    wide = MOST_LINES * lanes
    part2, part3, part4 = (_make_part(kind, n) for n in (2, 3, 4))
    fraction = _make_part(kind, 1, partial=True)

    @njit(**COMPILED)
    def last_part(product, row, left):
        """Compute fewer than `wide` features."""
        if left <= lanes:
            return fraction(product, row, left)
        if left <= 2 * lanes:
            return part2(product, row, left)
        if left <= 3 * lanes:
            return part3(product, row, left)
        return part4(product, row, left)

    def gather(address, first, last):
        """Compute rows `first` to `last` (exclusive) of the product; return 1 for overflow.

        `address` is that of a record `PRODUCT`.
        """
        product = record_at(address, record, 0)
        indptr, features = product.indptr, product.features
        has_places = address_of(product.places) != 0
        infinite, final = False, indptr[last] - 1
        for r in range(first, last):
            place = product.places[r] if has_places else r
            start = offset(product.start, place * product.start_stride)
            Z = offset(product.Z, place * product.z_stride)
            f = 0
            while f < features:
                some = Row(
                    indptr[r], indptr[r + 1], final, offset(start, f), offset(product.Y, f),
                    offset(Z, f),
                )  # fmt: skip
                if f + wide <= features:
                    infinite |= part4(product, some, wide)
                else:
                    infinite |= last_part(product, some, features - f)
                f += wide
        return int(infinite)

    return gather


def _make_part(kind: Kinds, lines: int, *, partial: bool = False):
    """Return a function that computes up to `lines` lines of features of a row.

    Its last argument is their number. It returns whether a sum is not finite.
    """
    real, lanes = kind.real, kind.lanes
    firsts = tuple(range(0, (lines - 1) * lanes, lanes))

    @njit(**INLINED)
    def read(pointer, left):
        return load_first(pointer, lanes, left) if partial else load(pointer, lanes)

    @njit(**INLINED)
    def part(product, some, left):
        columns, weights = product.columns, product.weights
        step, stride = product.weight_step, product.stride
        at = firsts + (0 if partial else left - lanes,)  # noqa: RUF005  (numba unpacks none)
        s = read(offset(some.start, at), left)
        for e in range(some.begin, some.end):
            later = row(some.Y, columns[min(e + AHEAD, some.final)], stride)
            fetch(offset(later, at))
            y = read(offset(row(some.Y, columns[e], stride), at), left)
            s = fma(weights[e * step], y, s)
        z = between(s, real(product.low), real(product.high))
        if partial:
            store_first(offset(some.Z, at), z, left)
        else:
            store(offset(some.Z, at), z)
        return any_infinite(s)

    return part
