"""The edges of a layer in the order in which neurons are computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba import types

from gbdnn.kernels.compiled.vectors import pointer_to

if TYPE_CHECKING:
    from gbdnn.kernels.compiled.vectors import Kinds

__all__ = ["make_arrange", "make_panels", "make_patterns"]


def make_patterns():
    """Return the function ``patterns``."""

    def patterns(indptr, rows, ncols, mean, mark):
        """Compute the mean row of each column, and a hash of its rows."""
        for j in range(ncols):
            total, marks = types.int64(0), types.uint64(0)
            for e in range(indptr[j], indptr[j + 1]):
                row = rows[e]
                total += row
                hashed = types.uint64(row) * types.uint64(0x9E3779B97F4A7C15)
                marks += hashed ^ (hashed >> types.uint64(29))
            mean[j] = total / max(1, indptr[j + 1] - indptr[j])
            mark[j] = marks

    return patterns


def make_arrange(kind: Kinds):
    """Return the function ``arrange``."""
    real = kind.real

    def arrange(indptr, rows, weights, order, ncols, pairs, new_indptr, new_rows, new_weights):
        """Reorder columns, and mark pairs of consecutive columns with the same rows.

        `weights` is the address of a number per edge, or 0 if all edges have the same weight.
        """
        given = pointer_to(weights, real)
        at = 0
        new_indptr[0] = 0
        for j in range(ncols):
            for e in range(indptr[order[j]], indptr[order[j] + 1]):
                new_rows[at] = types.uint32(rows[e])
                if weights != 0:
                    new_weights[at] = given[e]
                at += 1
            new_indptr[j + 1] = at
            pairs[j] = 0
            if j > 0 and pairs[j - 1] == 0:
                first, before = new_indptr[j], new_indptr[j - 1]
                count = at - first
                if first - before == count:
                    e = 0
                    while e < count and new_rows[first + e] == new_rows[before + e]:
                        e += 1
                    # A pair ends here: its second neuron must not begin the next one.
                    if e == count:
                        pairs[j - 1] = 1
                        pairs[j] = 2
        for j in range(ncols):
            if pairs[j] == 2:
                pairs[j] = 0

    return arrange


def make_panels(kind: Kinds):
    """Return the function ``panels``."""
    real = kind.real

    def panels(indptr, rows, weights, ncols, size, count, cursors, new_indptr, new_rows,
               new_weights):  # fmt: skip
        """Sort edges by panel of `size` rows, then by column, then by row.

        Rows must ascend within a column. ``cursors`` is work space, one integer per column. Column
        j of panel p begins at ``new_indptr[p * ncols + j]``. `weights` is as for `arrange`.
        """
        given = pointer_to(weights, real)
        for j in range(ncols):
            cursors[j] = indptr[j]
        at = 0
        for panel in range(count):
            stop = (panel + 1) * size
            for j in range(ncols):
                new_indptr[panel * ncols + j] = at
                e, last = cursors[j], indptr[j + 1]
                while e < last and rows[e] < stop:
                    new_rows[at] = types.uint32(rows[e])
                    if weights != 0:
                        new_weights[at] = given[e]
                    at += 1
                    e += 1
                cursors[j] = e
        new_indptr[count * ncols] = at

    return panels
