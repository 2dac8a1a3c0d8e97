"""A barrier for threads in compiled code.

    barrier(state, nthreads)

A training step takes less than a millisecond and has four barriers. Barriers of the operating
system take tens of microseconds each, about as long as the work itself on two threads. Waiting
threads therefore spin for some microseconds and then yield the processor.

``state`` holds two integers a cache line apart, both initially 0: the number of threads that have
arrived, and the number of completed barriers.
"""

from __future__ import annotations

from llvmlite import binding, ir
from numba import njit, types

from gbdnn.kernels.compiled.vectors import LINE, call, nothing, offset, operation

__all__ = ["add", "barrier", "read", "relax", "wait_for", "write"]

_GENERATION = LINE // 8
_SPINS = 2000  # about ten microseconds


@operation(lambda pointer, value: types.int64)
def add(builder, _, pointer, value):
    """Add to an integer that other threads may write; return its value before."""
    return builder.atomic_rmw("add", pointer, value, "seq_cst")


@operation(lambda pointer: types.int64)
def read(builder, _, pointer):
    """Return an integer that other threads may write concurrently."""
    return builder.load_atomic(pointer, "seq_cst", 8)


@operation(nothing)
def write(builder, _, pointer, value):
    """Set an integer that other threads may read concurrently."""
    builder.store_atomic(value, pointer, "seq_cst", 8)


@operation(nothing)
def relax(builder, _):
    """Emit the processor's hint for a spin loop."""
    if binding.get_process_triple().startswith(("x86_64", "i686")):
        call(builder, "llvm.x86.sse2.pause", ir.VoidType())


@operation(nothing)
def _give_way(builder, _):
    """Yield the processor to another thread."""
    call(builder, "sched_yield", ir.IntType(32))


@njit(no_cpython_wrapper=True)
def wait_for(pointer, value):
    """Wait until an integer that other threads write is at least `value`."""
    spins = 0
    while read(pointer) < value:
        spins += 1
        if spins < _SPINS:
            relax()
        else:
            _give_way()


@njit(no_cpython_wrapper=True)
def barrier(state, nthreads):
    """Wait until `nthreads` threads have called this; their earlier writes are then visible."""
    if nthreads == 1:
        return
    generation = offset(state, _GENERATION)
    mine = read(generation)
    if add(state, 1) == nthreads - 1:
        write(state, 0)
        write(generation, mine + 1)
    else:
        wait_for(generation, mine + 1)
