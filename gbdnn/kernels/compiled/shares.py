"""Compute a single input or a narrow block, dividing each layer's neurons among threads.

    for each layer:   threads take shares of its neurons, until none is left
                      Y' = min(max(Y W + b, 0), clip) for the neurons of each share
                      wait for the shares that other threads compute;  swap buffers

A few inputs cannot be divided: half as many take as long, because the time is spent on reading the
weights. A thread that comes late finds no share left, so no thread waits for another to start.

Waking a thread takes about as long as such a call. After a call, the helpers therefore wait for
another one in compiled code, for a time that is not much longer than a call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba import njit, types

from gbdnn.kernels.compiled.barrier import add, read, relax, wait_for
from gbdnn.kernels.compiled.layer import make_layer
from gbdnn.kernels.compiled.record import JOB, LAYER
from gbdnn.kernels.compiled.single import make_single
from gbdnn.kernels.compiled.tiles import Strip
from gbdnn.kernels.compiled.vectors import COMPILED, Record, offset, pointer_to, record_at

if TYPE_CHECKING:
    from gbdnn.kernels.compiled.vectors import Kinds

__all__ = ["FAULTY", "PROGRESS", "make_blocks", "make_singles"]

FAULTY, GATE, WITHIN, PROGRESS = 0, 8, 16, 24  # counters, on cache lines of their own


def make_blocks(kind: Kinds, pair_lines: int):
    """Return ``lead`` and ``assist`` for narrow blocks."""
    layer, bits = make_layer(kind, pair_lines), kind.bits

    @njit(**COMPILED)
    def is_finite(job, record):
        return True

    @njit(**COMPILED)
    def compute(job, record, Y, Z, living, alive):
        none = pointer_to(0, bits)
        layer(record, Strip(Y, Z, job.stride, none, none, Z), job.inputs)
        return types.int64(0)

    return _make_shares(kind, is_finite, compute)


def make_singles(kind: Kinds):
    """Return ``lead`` and ``assist`` for single inputs."""
    count_living, any_infinite, row_share = make_single(kind)

    @njit(**COMPILED)
    def is_finite(job, record):
        return not any_infinite(job.Y, record.nrows)

    @njit(**COMPILED)
    def compute(job, record, Y, Z, living, alive):
        if alive < 0:
            alive = count_living(Y, record.nrows, living)
        infinite = row_share(record, living, alive, Y, offset(Z, record.first))
        return types.int64(-2) if infinite else alive

    return _make_shares(kind, is_finite, compute)


def _make_shares(kind: Kinds, is_finite, compute):
    """Return the functions ``lead`` and ``assist``.

    Their argument is the address of a record `JOB`:

    table
        Address of the records: `shares` shares of the first layer, of the second, ... of `layers`.
    Y, Z
        Activations and a second buffer; the result is in Y if `layers` is even, else in Z.
    stride, inputs
        Of the block in Y.
    living, neurons
        Work space for single inputs, with room for `neurons` numbers per thread.
    counters
        At FAULTY, an output for single inputs: 0, or 1 + the first layer with a sum that is not
        finite, or 1 + `layers` if a feature is not finite. At GATE, the number of times that a call
        has begun or ended; at WITHIN, minus the number of helpers in a call; from PROGRESS on, for
        each layer, the numbers of shares that threads have begun and completed.

    ``compute`` computes a share. It takes and returns the number of living neurons before a layer,
    -1 if the thread has not counted them; it returns -2 if a sum is not finite. Blocks count none.
    """
    i64, job_record, layer_record = types.int64, Record(JOB, kind), Record(LAYER, kind)

    @njit(**COMPILED)
    def work(job, number):
        Y, Z, counters = job.Y, job.Z, job.counters
        living = offset(job.living, number * job.neurons)
        for k in range(job.layers):
            begun = offset(counters, PROGRESS + 2 * k)
            completed = offset(begun, 1)
            share, alive = add(begun, 1), i64(-1)
            while share < job.shares:
                record = record_at(job.table, layer_record, k * job.shares + share)
                alive = compute(job, record, Y, Z, living, alive)
                if alive == -2:
                    counters[FAULTY] = k + 1
                add(completed, 1)
                share = add(begun, 1)
            wait_for(completed, job.shares)
            if counters[FAULTY] != 0:
                return
            Y, Z = Z, Y

    def lead(address):
        """Compute a job; helpers may take part if there are several shares."""
        job = record_at(address, job_record, 0)
        counters = job.counters
        counters[FAULTY] = 0
        if not is_finite(job, record_at(job.table, layer_record, 0)):
            counters[FAULTY] = job.layers + 1
            return
        for k in range(2 * job.layers):
            counters[PROGRESS + k] = 0
        if job.shares == 1:
            work(job, i64(0))
            return
        add(offset(counters, GATE), 1)
        work(job, i64(0))
        add(offset(counters, GATE), 1)
        wait_for(offset(counters, WITHIN), i64(0))

    def assist(address, number, spins):
        """Help with each call until none begins while this thread waits `spins` times."""
        job = record_at(address, job_record, 0)
        gate, within = offset(job.counters, GATE), offset(job.counters, WITHIN)
        seen, left = i64(0), spins
        while left > 0:
            now = read(gate)
            if now != seen and now & 1:
                add(within, -1)
                if read(gate) == now:
                    work(job, number)
                add(within, 1)
                seen, left = now, spins
            left -= 1
            relax()

    return {"lead": lead, "assist": assist}
