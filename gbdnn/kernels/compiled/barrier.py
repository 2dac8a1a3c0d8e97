"""A barrier for threads in compiled code.

    barrier(state, nthreads)

A step of training takes less than a millisecond and has four barriers: those of an operating
system, tens of microseconds each, would cost as much as the work on two threads. Threads that wait
spin, for as long as it takes another to be late by chance, and then give way to others.

``state`` are two integers that begin at 0, a cache line apart: how many have arrived, and how often
all have.
"""

from __future__ import annotations

from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from gbdnn.kernels.compiled.tile import LINE, offset

__all__ = ["barrier", "read", "write"]

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_GENERATION = LINE // 8
_SPINS = 2000  # some ten microseconds


@intrinsic
def _arrive(typing, pointer):
    """Return how many arrived before."""

    def codegen(context, builder, signature, args):
        return builder.atomic_rmw("add", args[0], _I64(1), "seq_cst")

    return types.int64(pointer), codegen


@intrinsic
def read(typing, pointer):
    """Return an integer that another thread may write."""

    def codegen(context, builder, signature, args):
        return builder.load_atomic(args[0], "seq_cst", 8)

    return types.int64(pointer), codegen


@intrinsic
def write(typing, pointer, value):
    """Set an integer that another thread may read."""

    def codegen(context, builder, signature, args):
        builder.store_atomic(args[1], args[0], "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(pointer, types.int64), codegen


@intrinsic
def _relax(typing):
    """Emit the processor's hint that this thread is waiting in a loop."""

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
    """Let another thread of the machine run."""

    def codegen(context, builder, signature, args):
        function = ir.FunctionType(_I32, [])
        builder.call(cgutils.get_or_insert_function(builder.module, function, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), codegen


@njit(no_cpython_wrapper=True)
def barrier(state, nthreads):
    """Return when `nthreads` threads have called it; what they wrote before is seen after."""
    if nthreads == 1:
        return
    generation = offset(state, _GENERATION)
    mine = read(generation)
    if _arrive(state) == nthreads - 1:
        write(state, 0)
        write(generation, mine + 1)
        return
    spins = 0
    while read(generation) == mine:
        spins += 1
        if spins < _SPINS:
            _relax()
        else:
            _give_way()
