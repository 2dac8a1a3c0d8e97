"""Compute several layers for a single input with low latency.

    z = b;  z += y[i] W(i, :)  for every i with y[i] != 0;  y' = min(max(z, 0), clip)

W is stored by rows: activations equal to 0 are skipped, and the sums of different neurons are
independent. Every sum adds its edges in the same order as in a block, and skipped products are 0,
so the result has the same bits.
"""

from __future__ import annotations

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from gbdnn.kernels.compiled.record import (
    BIAS,
    BIAS_STEP,
    DENSE,
    FIELDS,
    INDPTR,
    LIMITS,
    NCOLS,
    NEAR,
    NROWS,
    ROWS,
    WEIGHT_STEP,
    WEIGHTS,
)
from gbdnn.kernels.compiled.tile import offset, pointer_to

__all__ = ["make_single"]
NFIELDS = len(FIELDS)


@intrinsic
def fma(typing, a, b, c):
    """Return a * b + c, rounded once."""

    def codegen(context, builder, signature, args):
        real = args[0].type
        bits = 32 if isinstance(real, ir.FloatType) else 64
        kind = ir.FunctionType(real, [real] * 3)
        function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.f{bits}")
        return builder.call(function, args)

    return a(a, b, c), codegen


def make_single(kind):
    """Return the function ``single`` and its signature."""
    real, i64 = kind.real, types.int64

    @njit(no_cpython_wrapper=True)
    def add_row(columns, weights, step, first, last, v, z):
        """Compute z += v W(i, :) for the edges `first` to `last` of a row, which has no repeats."""
        e = first
        while e + 4 <= last:
            j, k = types.intp(columns[e]), types.intp(columns[e + 1])
            m, n = types.intp(columns[e + 2]), types.intp(columns[e + 3])
            a, b = fma(weights[e * step], v, z[j]), fma(weights[(e + 1) * step], v, z[k])
            c, d = fma(weights[(e + 2) * step], v, z[m]), fma(weights[(e + 3) * step], v, z[n])
            z[j], z[k], z[m], z[n] = a, b, c, d
            e += 4
        while e < last:
            j = types.intp(columns[e])
            z[j] = fma(weights[e * step], v, z[j])
            e += 1

    def single(table, first, last, y, z, living):
        """Compute layers `first` to `last` (exclusive) for one input, a value per neuron in `y`.

        Records point to the rows of W, not to its columns as for blocks; neuron numbers are uint16
        in layers of at most `NEAR` neurons. ``living`` is work space for the neuron numbers of a
        layer. Return -1, the first layer with a sum that is not finite, or `last` if a value in `y`
        is not finite. The result is in `y` if the number of layers is even, else in `z`.
        """
        bad = real(0)
        for i in range(offset(pointer_to(table, i64), first * NFIELDS)[NROWS]):
            bad += y[i] - y[i]
        if bad != 0:
            return types.int64(last)
        for k in range(first, last):
            record = offset(pointer_to(table, i64), k * NFIELDS)
            nrows, ncols = record[NROWS], record[NCOLS]
            weights, step = pointer_to(record[WEIGHTS], real), record[WEIGHT_STEP]
            bias, bias_step = pointer_to(record[BIAS], real), record[BIAS_STEP]
            limits = pointer_to(record[LIMITS], real)
            low, high = limits[0], limits[1]
            for j in range(ncols):
                z[j] = bias[j * bias_step]
            count = 0
            for i in range(nrows):  # without a branch, which would often be mispredicted
                living[count] = i
                count += y[i] != 0
            if record[DENSE]:
                for n in range(count):
                    i = types.intp(living[n])
                    v, row = y[i], offset(weights, i * ncols)
                    for j in range(ncols):
                        z[j] = fma(row[j], v, z[j])
            else:
                indptr = pointer_to(record[INDPTR], i64)
                near = pointer_to(record[ROWS], types.uint16)
                far = pointer_to(record[ROWS], types.uint32)
                for n in range(count):
                    i = types.intp(living[n])
                    if ncols <= NEAR:
                        add_row(near, weights, step, indptr[i], indptr[i + 1], y[i], z)
                    else:
                        add_row(far, weights, step, indptr[i], indptr[i + 1], y[i], z)
            bad = real(0)
            for j in range(ncols):
                total = z[j]
                bad += total - total
                total = total if total > low else low
                z[j] = total if total < high else high
            y, z = z, y
            if bad != 0:
                return types.int64(k)
        return types.int64(-1)

    p = types.CPointer
    return single, i64(i64, i64, i64, p(real), p(real), p(types.uint32))
