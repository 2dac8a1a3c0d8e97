"""Copies between sparse rows and blocks.

A block has one row per neuron. ``positions[c]`` is the row of neuron c in a block with reordered
neurons; a null pointer means row c.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba import types

from gbdnn.kernels.compiled.vectors import offset, pointer_to

if TYPE_CHECKING:
    from gbdnn.kernels.compiled.vectors import Kinds

__all__ = ["make_count", "make_extract", "make_fill"]


def make_fill():
    """Return ``fill``, which copies sparse rows into a block."""

    def fill(indptr, columns, values, value_step, first, count, positions, Y, stride, nrows):
        """Copy `count` rows of a CSR matrix, starting at row `first`, into a block.

        `value_step` is 0 if all entries have the value ``values[0]``.
        """
        for i in range(nrows * stride):
            Y[i] = 0
        where = pointer_to(positions, types.int64)
        for q in range(count):
            for e in range(indptr[first + q], indptr[first + q + 1]):
                c = columns[e]
                v = values[e * value_step]
                i = where[c] if positions != 0 else c
                Y[i * stride + q] = v

    return fill


def make_count():
    """Return ``count``, which counts the entries of each input of a block."""

    def count(Y, stride, nrows, inputs, counts):
        for q in range(inputs):
            counts[q] = 0
        for i in range(nrows):
            row = offset(Y, i * stride)
            for q in range(inputs):
                counts[q] += row[q] != 0

    return count


def make_extract(kind: Kinds):
    """Return ``extract``, which copies inputs of a block to sparse rows."""
    strip = kind.lanes

    def extract(Y, stride, ncols, positions, inputs, places, columns, values):
        """Write the nonzero entries of the first `inputs` inputs, ordered by column.

        ``places[q]`` is the position of the first entry of input q; it is advanced to their end.
        """
        where = pointer_to(positions, types.int64)
        for q0 in range(0, inputs, strip):
            q1 = min(q0 + strip, inputs)
            for c in range(ncols):
                i = where[c] if positions != 0 else c
                row = offset(Y, i * stride)
                for q in range(q0, q1):
                    v = row[q]
                    if v != 0:
                        e = places[q]
                        columns[e] = c
                        values[e] = v
                        places[q] = e + 1

    return extract
