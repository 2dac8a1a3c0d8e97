"""Measure the hardware's rate of multiply-adds with one load each.

A compiled loop reads a buffer line by line and adds ``w * line`` to enough sums to hide the latency
of a multiply-add; the size of the buffer determines the cache. A product of a sparse matrix and
dense activations needs fewer loads only if several neurons read the same activations.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import turns

from gbdnn.kernels.compiled.library import Library

# Buffer sizes that fit a cache: half of the smallest common sizes.
SIZES = {"L1": 16 << 10, "L2": 256 << 10}

_LINE = 64
_LANES = 16  # FP32 in a line
_LINES = (4, 5, 6, 8, 10)  # sums, in lines; the best value depends on the number of registers
_BYTES = 128 << 20  # read per call, which takes some milliseconds


def rates(nthreads: int, repeat: int = 21) -> dict[str, float]:
    """Return multiply-adds per second from each cache in FP32, summed over all threads.

    Every thread has its own buffer; its rate is that of its median call.
    """
    return {name: _rate(size, best_lines(size), nthreads, repeat) for name, size in SIZES.items()}


@cache
def best_lines(size: int) -> int:
    """Return the number of lines of sums that is fastest on one thread."""
    return max(_LINES, key=lambda lines: _rate(size, lines, 1, 11))


def _rate(size: int, lines: int, nthreads: int, repeat: int) -> float:
    function = _library().functions()[f"stream{lines}"]
    start = threading.Barrier(nthreads)
    count, passes = size // (_LINE * lines), max(1, _BYTES // size)

    def work(_: int) -> float:
        buffer, out = _aligned(size), _aligned(_LINE * lines)
        call = partial(function, buffer.ctypes.data, count, passes, out.ctypes.data)
        call()
        start.wait()
        return median(turns.timed(call)()["seconds"] for _ in range(repeat))

    with ThreadPoolExecutor(nthreads) as pool:
        seconds = list(pool.map(work, range(nthreads)))
    return sum(passes * count * lines * _LANES / each for each in seconds)


def _aligned(nbytes: int) -> np.ndarray:
    """Return an array of zeros aligned to a cache line."""
    memory = np.zeros(nbytes + _LINE, np.uint8)
    start = -memory.ctypes.data % _LINE
    return memory[start : start + nbytes].view(np.float32)


@cache
def _library() -> Library:
    def make(_pair_lines: int) -> dict[str, Any]:
        return {f"stream{lines}": _stream(lines) for lines in _LINES}

    arguments = {f"stream{lines}": 4 for lines in _LINES}
    return Library(make, arguments, [Path(__file__)], label="benchmark")


def _stream(lines: int) -> tuple[Any, Any]:
    """Return a function that reads `count` times `lines` lines, `passes` times, and its type."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    real = types.CPointer(types.float32)
    vector, i64 = ir.VectorType(ir.FloatType(), _LANES), ir.IntType(64)

    @intrinsic
    def once(typing, buffer, count, out):
        """Add w * each line of the buffer to `out`, where w is the initial value of `out`."""

        def codegen(context, builder, signature, arguments):
            buffer, count, out = arguments
            fma = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(vector, [vector] * 3), f"llvm.fma.v{_LANES}f32"
            )

            def at(pointer, line):
                place = builder.gep(pointer, [builder.mul(line, i64(_LANES))])
                return builder.bitcast(place, vector.as_pointer())

            def load(pointer, line):
                loaded = builder.load(at(pointer, line))
                loaded.align = _LINE
                return loaded

            w = load(out, i64(0))
            before = builder.block
            body, done = builder.append_basic_block("body"), builder.append_basic_block("done")
            builder.branch(body)
            builder.position_at_end(body)
            i = builder.phi(i64)
            i.add_incoming(i64(0), before)
            sums = [builder.phi(vector) for _ in range(lines)]
            new = []
            for k, each in enumerate(sums):
                each.add_incoming(ir.Constant(vector, [0.0] * _LANES), before)
                y = load(buffer, builder.add(builder.mul(i, i64(lines)), i64(k)))
                new.append(builder.call(fma, [w, y, each]))
            following = builder.add(i, i64(1))
            i.add_incoming(following, body)
            for each, added in zip(sums, new, strict=True):
                each.add_incoming(added, body)
            builder.cbranch(builder.icmp_signed("<", following, count), body, done)
            builder.position_at_end(done)
            for k, added in enumerate(new):
                builder.store(added, at(out, i64(k))).align = _LINE
            return context.get_dummy_value()

        return types.void(real, types.intp, real), codegen

    def stream(buffer, count, passes, out):
        for _ in range(passes):
            once(buffer, count, out)

    return stream, types.void(real, types.int64, types.int64, real)
