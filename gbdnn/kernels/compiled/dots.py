"""The inner loop of the weight gradient: one dot product over the inputs per edge.

    g[e] = sum over inputs q of Y[rows[e], q] * D[j, q]           dW<W.S> = Y^T D

The sums of several edges stay in registers for all inputs of a block, so each value of D is loaded
once for all of them. Finally the sums of four edges are reduced together. A sparse layer is
processed one neuron at a time, four edges at a time. In a dense layer, three neurons read the same
four rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba import intp, njit

from gbdnn.kernels.compiled.vectors import (
    INLINED,
    fma,
    load,
    offset,
    row,
    splat,
    store,
    sum_of,
    sums_of_four,
    take,
)

if TYPE_CHECKING:
    from gbdnn.kernels.compiled.vectors import Kinds

__all__ = ["make_four", "make_row_sum", "make_some", "make_twelve"]

_ROWS = (0, 1, 2, 3)


def make_four(kind: Kinds, width: int):
    """Return ``four``, the gradients of four edges of a neuron.

    Vectors of `width` inputs are added first, so it determines the order of additions.
    """
    zeros, write = (kind.real(0),) * 4, _make_write(kind)

    @njit(**INLINED)
    def four(Y, d, stride, inputs, rows, g, add):
        """Compute the gradients `g` of edges that read `rows` of Y; `d` is the neuron's row of D.

        They are added to `g` if `add`; otherwise they replace it.
        """
        y, s = row(Y, take(rows, 4, 1), stride), splat(zeros, width)
        q = intp(0)
        while q < inputs:  # a range costs a division
            s = fma(load(offset(y, q), width), load(offset(d, q), width), s)
            q += width
        write(sums_of_four(s), g, add)

    return four


def make_twelve(kind: Kinds, width: int):
    """Return ``twelve``, the gradients of four edges of each of three neurons."""
    zeros, write = (kind.real(0),) * 4, _make_write(kind)

    @njit(**INLINED)
    def twelve(Y, D, stride, inputs, places, g, step, add):
        """Compute as `four` for the first four rows of Y; `step` edges later is the next neuron."""
        y, d = row(Y, _ROWS, stride), row(D, take(places, 3, 1), stride)
        a = b = c = splat(zeros, width)
        q = intp(0)
        while q < inputs:  # a range costs a division
            some = load(offset(y, q), width)
            u, v, w = load(offset(d, q), width)
            a, b, c = fma(some, u, a), fma(some, v, b), fma(some, w, c)
            q += width
        write(sums_of_four(a), g, add)
        write(sums_of_four(b), offset(g, step), add)
        write(sums_of_four(c), offset(g, 2 * step), add)

    return twelve


def make_some(kind: Kinds, width: int, edges: int):
    """Return ``some``, the gradients of one edge or of two."""
    zeros = (kind.real(0),) * edges

    @njit(**INLINED)
    def some(Y, d, stride, inputs, rows, g, add):
        """Compute as `four`, but add the inputs of each edge by halves."""
        y, s = row(Y, take(rows, edges, 1), stride), splat(zeros, width)
        q = intp(0)
        while q < inputs:  # a range costs a division
            s = fma(load(offset(y, q), width), load(offset(d, q), width), s)
            q += width
        sums = sum_of(s)
        for e in range(edges):
            g[e] = g[e] + sums[e] if add else sums[e]

    return some


def make_row_sum(kind: Kinds):
    """Return ``row_sum``, the sum of a row."""
    real, lanes = kind.real, kind.lanes

    @njit(**INLINED)
    def row_sum(d, inputs):
        s = splat(real(0), lanes)
        q = intp(0)
        while q < inputs:  # a range costs a division
            s = fma(real(1), load(offset(d, q), lanes), s)
            q += lanes
        return sum_of(s)

    return row_sum


def _make_write(kind: Kinds):
    real = kind.real

    @njit(**INLINED)
    def write(sums, g, add):
        store(g, fma(real(1), load(g, 4), sums) if add else sums)

    return write
