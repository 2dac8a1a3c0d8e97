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
from numba.core import cgutils
from numba.extending import intrinsic

from gbdnn.kernels.compiled.vectors import LINE, offset

__all__ = ["add", "barrier", "read", "relax", "wait_for", "write"]

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_GENERATION = LINE // 8
_SPINS = 2000  # about ten microseconds


@intrinsic
def add(typing, pointer, value):
    """Add to an integer that other threads may write; return its value before."""

    def codegen(context, builder, signature, args):
        return builder.atomic_rmw("add", *args, "seq_cst")

    return types.int64(pointer, types.int64), codegen


@intrinsic
def read(typing, pointer):
    """Return an integer that other threads may write concurrently."""

    def codegen(context, builder, signature, args):
        return builder.load_atomic(args[0], "seq_cst", 8)

    return types.int64(pointer), codegen


@intrinsic
def write(typing, pointer, value):
    """Set an integer that other threads may read concurrently."""

    def codegen(context, builder, signature, args):
        builder.store_atomic(args[1], args[0], "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(pointer, types.int64), codegen


@intrinsic
def relax(typing):
    """Emit the processor's hint for a spin loop."""

    def codegen(context, builder, signature, args):
        if binding.get_process_triple().startswith(("x86_64", "i686")):
            pause = ir.FunctionType(ir.VoidType(), [])
            builder.call(
                cgutils.get_or_insert_function(builder.module, pause, "llvm.x86.sse2.pause"), []
            )
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def _give_way(typing):
    """Yield the processor to another thread."""

    def codegen(context, builder, signature, args):
        function = ir.FunctionType(_I32, [])
        builder.call(cgutils.get_or_insert_function(builder.module, function, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), codegen


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
