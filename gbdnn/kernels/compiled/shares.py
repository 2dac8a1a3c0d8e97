"""Compute a narrow block through several layers, dividing each layer's neurons among threads.

    for each layer:   threads take shares of its neurons, until none is left
                      Y' = min(max(Y W + b, 0), clip) for the neurons of each share
                      wait for the shares that other threads compute;  swap buffers

A block of a few inputs cannot be divided by inputs: half as many inputs take as long, because the
time is spent on reading the weights. A thread that comes late finds no share left, so no thread
waits for another to start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba import types

from gbdnn.kernels.compiled.barrier import add, wait_for
from gbdnn.kernels.compiled.record import FIELDS
from gbdnn.kernels.compiled.tile import offset, pointer_to

if TYPE_CHECKING:
    from gbdnn.kernels.compiled.layer import Kinds

__all__ = ["make_shares"]

NFIELDS = len(FIELDS)


def make_shares(kind: Kinds, layer):
    """Return the function ``shares``, which each thread calls, and its signature."""
    real, i64 = kind.real, types.int64

    def shares(table, count, layers, Y, Z, stride, inputs, state):
        """Take a block through all layers; the activations are in Y if `layers` is even, else in Z.

        Parameters
        ----------
        table : pointer to int64
            Address of the records: `count` shares of the first layer, of the second, ...
        Y, Z : pointer to float
            The block, of shape (neurons, `stride`), and a second buffer of the same size.
        state : pointer to int64
            Two counters per layer, initially 0: shares that threads have begun, and completed.
        """
        none = pointer_to(0, kind.bits)
        for k in range(layers):
            begun, completed = offset(state, 2 * k), offset(state, 2 * k + 1)
            share = add(begun, 1)
            while share < count:
                record = offset(pointer_to(table, i64), (k * count + share) * NFIELDS)
                layer(record, Y, Z, stride, inputs, none, none, Z)
                add(completed, 1)
                share = add(begun, 1)
            wait_for(completed, count)
            Y, Z = Z, Y

    p = types.CPointer
    return shares, types.void(i64, i64, i64, p(real), p(real), i64, i64, p(i64))
