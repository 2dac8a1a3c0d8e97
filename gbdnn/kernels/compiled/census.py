"""What is counted of a block after a layer, where somebody wants to know.

Where the dead may be dropped, the layer itself has counted entries, input by input. Elsewhere it
takes a pass over the activations.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from gbdnn.kernels.compiled.tile import LINE

__all__ = ["entries", "ticks"]


@intrinsic
def entries(typing, Y, stride, nrows, counts):
    """Write into `counts`, a line of integers, how many entries a line of inputs has.

    Parameters
    ----------
    Y : pointer to float32 or float64
        The first input of the line at neuron 0. Aligned.
    stride : int
        Elements from one neuron to the next.
    nrows : int
        Number of neurons, fewer than 2^31.
    counts : pointer to uint32 or uint64
        One integer per input.
    """
    signature = types.void(Y, types.intp, types.intp, counts)

    def codegen(context, builder, signature, args):
        y, stride, nrows, counts = args
        real = context.get_value_type(signature.args[0].dtype)
        size = 4 if isinstance(real, ir.FloatType) else 8
        whole = ir.IntType(8 * size)
        vector = ir.VectorType(real, LINE // size)
        integers = ir.VectorType(whole, LINE // size)
        total = cgutils.alloca_once_value(builder, ir.Constant(integers, None))
        zeros = ir.Constant(vector, None)
        with cgutils.for_range(builder, nrows) as loop:
            place = builder.gep(y, [builder.mul(loop.index, stride)])
            found = builder.load(builder.bitcast(place, vector.as_pointer()), align=LINE)
            differs = builder.fcmp_unordered("!=", found, zeros)
            # A comparison that holds is -1 in every bit.
            builder.store(builder.sub(builder.load(total), builder.sext(differs, integers)), total)
        out = builder.bitcast(counts, integers.as_pointer())
        builder.store(builder.load(total), out, align=LINE)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def ticks(typing):
    """Return the processor's counter of time, in no unit; 0 where it has none."""

    def codegen(context, builder, signature, args):
        integer = ir.IntType(64)
        read = builder.module.declare_intrinsic(
            "llvm.readcyclecounter", fnty=ir.FunctionType(integer, [])
        )
        return builder.call(read, [])

    return types.int64(), codegen
