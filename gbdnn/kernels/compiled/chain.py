"""Compute several layers of a block in one compiled call, dropping inputs without activations.

    for each layer:   Y' = min(max(Y W + b, 0), clip);  swap buffers
                      compact the block when the work spent on dead inputs exceeds its cost

An input is dead if all its activations are 0, otherwise it is alive. Compaction moves live inputs
from the end of the block, with their `ids`, into the positions of dead ones, so that few inputs
move. The result of an input does not depend on its position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba import njit, types

from gbdnn.kernels.compiled.layer import make_layer
from gbdnn.kernels.compiled.record import LAYER, PLAN
from gbdnn.kernels.compiled.rows import make_count
from gbdnn.kernels.compiled.tiles import Strip
from gbdnn.kernels.compiled.vectors import (
    COMPILED,
    LINE,
    Record,
    offset,
    pointer_to,
    record_at,
    ticks,
)

if TYPE_CHECKING:
    from gbdnn.kernels.compiled.vectors import Kinds

__all__ = ["make_chain"]


def make_chain(kind: Kinds, pair_lines: int):
    """Return the function ``chain``."""
    bits, lanes = kind.bits, kind.lanes
    layer = make_layer(kind, pair_lines)
    count_entries = njit(**COMPILED)(make_count())
    size, plan_record, layer_record = LINE // lanes, Record(PLAN, kind), Record(LAYER, kind)

    @njit(**COMPILED)
    def compact(Y, stride, nrows, count, living, live, ids, holes, movers):
        """Move the live inputs at or after `living` to positions of dead inputs before it."""
        moves = 0
        for q in range(living):
            if live[q] == 0:
                holes[moves] = q
                moves += 1
        moves = 0
        for q in range(living, count):
            if live[q] != 0:
                movers[moves] = q
                moves += 1
        stop = -(-living // lanes) * lanes
        for i in range(nrows):
            row = offset(Y, i * stride)
            for m in range(moves):
                row[holes[m]] = row[movers[m]]
            for q in range(living, stop):
                row[q] = 0
        for m in range(moves):
            ids[holes[m]] = ids[movers[m]]

    @njit(**COMPILED)
    def census(found, count, ids, stands, told):
        """Add up the live inputs, the inputs they represent, and the entries."""
        weights = pointer_to(stands, types.int64)
        for q in range(count):
            told[3] += types.int64(found[q])
            if found[q] != 0:
                told[1] += 1
                told[2] += weights[ids[q]]

    def chain(plan_address, first, last, Y, Z, stride, count, ids, scratch, statistics):
        """Take a block through layers `first` to `last` (exclusive).

        Parameters
        ----------
        plan_address : int
            Address of a record `PLAN`.
        Y, Z : pointer to float
            The block, of shape (neurons, `stride`), and a second buffer of the same size. Inputs
            after `count` that share its last cache line must be finite, preferably 0.
        ids : pointer to int64
            One per input; dropped and moved with the inputs.
        scratch : address of int64
            Work space of 4 x `stride` integers, aligned. Then follows the output: the number of
            inputs left; 1 if they are in Z, else 0; the first layer with a sum that is not finite,
            or -1.
        statistics : pointer to int64, or null
            Two addresses. The first one is of five counters per layer, incremented: computed inputs
            and, if the second one is not 0, live inputs after the layer, inputs that these
            represent, entries, and clock ticks. The second one is of the number of equal inputs
            that each id represents.
        """
        plan = record_at(plan_address, plan_record, 0)
        state = offset(pointer_to(scratch, types.int64), 4 * stride)
        counts = stands = types.int64(0)
        if statistics != 0:
            given = pointer_to(statistics, types.int64)
            counts, stands = given[0], given[1]
        second = scratch + stride * size
        holes = pointer_to(scratch + 16 * stride, types.int64)
        movers = offset(holes, stride)
        y, z = Y, Z
        waste = 0.0
        state[1], state[2] = 0, -1
        k = first
        while k < last and count > 0:
            record = record_at(plan.table, layer_record, k)
            began = ticks() if stands != 0 else 0
            live, overflow = pointer_to(scratch, bits), pointer_to(second, bits)
            layer(record, Strip(y, z, stride, live, overflow, z), count)
            y, z = z, y
            k += 1
            state[1] = 1 - state[1]
            if record.checked:
                infinite = bits(0)
                for q in range(count):
                    infinite |= overflow[q]
                if infinite:
                    state[2] = k - 1
                    break
            living = count
            if record.counted:
                living = 0
                for q in range(count):
                    living += live[q] != 0
            if counts != 0:
                told = pointer_to(counts, types.int64)
                told = offset(told, 5 * (k - 1))
                told[0] += count
                if stands != 0:
                    found = pointer_to(scratch, bits)
                    if not record.counted:
                        count_entries(y, stride, record.ncols, count, found)
                    census(found, count, ids, stands, told)
                    told[4] += ticks() - began
            if living < count:
                moves = 0
                for q in range(living, count):
                    moves += live[q] != 0
                lines = -(-count // lanes) - -(-living // lanes)
                waste += lines * lanes * record.edges * plan.edge_cost
                nrows = record.ncols
                if (plan.tidy and k == last) or waste > nrows * (
                    plan.row_cost + moves * plan.move_cost
                ):
                    compact(y, stride, nrows, count, living, live, ids, holes, movers)
                    count, waste = living, 0.0
        state[0] = count

    return chain
