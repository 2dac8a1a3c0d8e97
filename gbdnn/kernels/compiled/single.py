"""Compute neurons of a layer for a single input.

    z = b;  z += y[i] W(i, :)  for every i with y[i] != 0;  y' = min(max(z, 0), clip)

W is stored by rows: activations equal to 0 are skipped, and the sums of different neurons are
independent. Every sum adds its edges in the same order as in a block, and skipped products are 0,
so the result has the same bits.
"""

from __future__ import annotations

from numba import njit, types

from gbdnn.kernels.compiled.record import NEAR
from gbdnn.kernels.compiled.vectors import COMPILED, address_of, fma, offset, pointer_to, take

__all__ = ["make_single"]


def make_single(kind):
    """Return functions that find living neurons, test for infinity, and compute a record."""

    @njit(**COMPILED)
    def add_row(columns, weights, step, first, last, v, z):
        """Compute z += v W(i, :) for the edges `first` to `last` of a row, which has no repeats."""
        e = first
        while e + 4 <= last:
            j, k, m, n = take(offset(columns, e), 4, 1)
            q, r, s, t = take(offset(weights, e * step), 4, 1)
            a, b, c, d = fma(q, v, z[j]), fma(r, v, z[k]), fma(s, v, z[m]), fma(t, v, z[n])
            z[j], z[k], z[m], z[n] = a, b, c, d
            e += 4
        while e < last:
            j = types.intp(columns[e])
            z[j] = fma(weights[e * step], v, z[j])
            e += 1

    @njit(**COMPILED)
    def any_infinite(z, count):
        found = kind.bits(0)  # unlike a sum, a count is vectorised
        for j in range(count):
            found += kind.bits(z[j] - z[j] != 0)
        return found != 0

    @njit(**COMPILED)
    def count_living(y, nrows, living):
        """Write the numbers of the neurons whose activation is not 0; return how many."""
        alive = 0
        for i in range(nrows):  # a branch would often be mispredicted
            living[alive] = i
            alive += y[i] != 0
        return alive

    @njit(**COMPILED)
    def sums(record, living, alive, y, z):
        """Compute z = b + y W for the columns of a record and the `alive` neurons in `living`."""
        ncols = record.ncols
        weights, step = record.weights, record.weight_step
        bias, bias_step = record.bias, record.bias_step
        for j in range(ncols):
            z[j] = bias[j * bias_step]
        if record.dense:
            for n in range(alive):
                i = types.intp(living[n])
                v, row = y[i], offset(weights, i * ncols)
                for j in range(ncols):
                    z[j] = fma(row[j], v, z[j])
            return
        indptr, far = record.indptr, record.rows
        near = pointer_to(address_of(far), types.uint16)
        for n in range(alive):
            i = types.intp(living[n])
            if ncols <= NEAR:
                add_row(near, weights, step, indptr[i], indptr[i + 1], y[i], z)
            else:
                add_row(far, weights, step, indptr[i], indptr[i + 1], y[i], z)

    @njit(**COMPILED)
    def row_share(record, living, alive, y, z):
        """Compute the neurons of a record; return whether a sum is not finite."""
        sums(record, living, alive, y, z)
        infinite = any_infinite(z, record.ncols)
        low, high = record.limits[0], record.limits[1]
        for j in range(record.ncols):
            total = z[j] if z[j] > low else low
            z[j] = total if total < high else high
        return infinite

    return count_living, any_infinite, row_share
