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
from gbdnn.kernels.compiled.record import LAYER
from gbdnn.kernels.compiled.single import make_single
from gbdnn.kernels.compiled.tiles import Strip
from gbdnn.kernels.compiled.vectors import COMPILED, offset, pointer_to, record_at

if TYPE_CHECKING:
    from gbdnn.kernels.compiled.vectors import Kinds

__all__ = ["COUNTERS", "JOB", "make_shares"]

JOB = ("TABLE", "COUNT", "LAYERS", "Y", "Z", "STRIDE", "INPUTS", "LIVING", "NEURONS", "FAULTY")
TABLE, COUNT, LAYERS, Y0, Z0, STRIDE, INPUTS, LIVING, NEURONS, FAULTY = range(len(JOB))
GATE, WITHIN, COUNTERS = 24, 32, 40  # on cache lines of their own


def make_shares(kind: Kinds, layer):
    """Return the functions ``lead`` and ``assist`` with their signatures.

    Their argument is the address of a job, an array of int64:

    TABLE
        Address of the records: `COUNT` shares of the first layer, of the second, ... of `LAYERS`.
    Y, Z
        Addresses of the activations and of a second buffer; the result is in Y if `LAYERS` is
        even, else in Z.
    STRIDE, INPUTS
        Of the block in Y. For a single input, a value per neuron, STRIDE is 0, and the records are
        those of single inputs.
    LIVING, NEURONS
        Address of work space for single inputs, with room for NEURONS numbers (uint32) per thread.
    FAULTY
        Output, for single inputs: 0, or 1 + the first layer with a sum that is not finite, or
        1 + `LAYERS` if a feature is not finite.

    Then follow the number of times that a call has begun or ended, minus the number of helpers in a
    call, and, for each layer, the numbers of shares that threads have begun and completed.
    """
    real, i64 = kind.real, types.int64
    count_living, any_infinite, row_share = make_single(kind)

    @njit(**COMPILED)
    def work(job, number):
        none = pointer_to(0, kind.bits)
        Y, Z = pointer_to(job[Y0], real), pointer_to(job[Z0], real)
        living = pointer_to(job[LIVING], types.uint32)
        living = offset(living, number * job[NEURONS])
        for k in range(job[LAYERS]):
            begun, completed = offset(job, COUNTERS + 2 * k), offset(job, COUNTERS + 2 * k + 1)
            share, alive = add(begun, 1), i64(-1)
            while share < job[COUNT]:
                record = record_at(job[TABLE], LAYER, k * job[COUNT] + share)
                if job[STRIDE] != 0:
                    layer(record, Strip(Y, Z, job[STRIDE], none, none, Z), job[INPUTS])
                else:
                    if alive < 0:
                        alive = count_living(Y, record.nrows, living)
                    if row_share(record, living, alive, Y, offset(Z, record.first)):
                        job[FAULTY] = k + 1
                add(completed, 1)
                share = add(begun, 1)
            wait_for(completed, job[COUNT])
            if job[FAULTY] != 0:
                return
            Y, Z = Z, Y

    def lead(job):
        """Compute a job; helpers may take part if there are several shares."""
        job[FAULTY] = 0
        if job[STRIDE] == 0:
            record = record_at(job[TABLE], LAYER, 0)
            if any_infinite(pointer_to(job[Y0], real), record.nrows):
                job[FAULTY] = job[LAYERS] + 1
                return
        for k in range(2 * job[LAYERS]):
            job[COUNTERS + k] = 0
        if job[COUNT] == 1:
            work(job, i64(0))
            return
        add(offset(job, GATE), 1)
        work(job, i64(0))
        add(offset(job, GATE), 1)
        wait_for(offset(job, WITHIN), i64(0))

    def assist(job, number, spins):
        """Help with each call until none begins while this thread waits `spins` times."""
        gate, within = offset(job, GATE), offset(job, WITHIN)
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

    p = types.CPointer
    signatures = types.void(p(i64)), types.void(p(i64), i64, i64)
    return {"lead": (lead, signatures[0]), "assist": (assist, signatures[1])}
