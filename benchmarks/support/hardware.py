"""Measure the hardware's rate of multiply-adds with one load each.

A loop in C, which the package ziglang compiles, reads a buffer line by line and adds ``w * line``
to enough sums to hide the latency of a multiply-add. The buffer fits the L1 cache.
A product of a sparse matrix and dense activations needs fewer loads only if several neurons read
the same activations.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import turns

_SIZE = 16 << 10  # of the buffer: half of the smallest common L1 cache
_LINE = 64
_LANES = 16  # FP32 in a line
_LINES = (4, 5, 6, 8, 10)  # sums, in lines; the best value depends on the number of registers
_BYTES = 128 << 20  # read per call, which takes some milliseconds


def rate(nthreads: int, repeat: int = 21) -> float:
    """Return multiply-adds per second from the L1 cache in FP32, summed over all threads.

    Every thread has its own buffer; its rate is that of its median call.
    """
    return _rate(_best_lines(), nthreads, repeat)


@cache
def _best_lines() -> int:
    """Return the number of lines of sums that is fastest on one thread."""
    return max(_LINES, key=lambda lines: _rate(lines, 1, 11))


def _rate(lines: int, nthreads: int, repeat: int) -> float:
    function = _stream(lines)
    start = threading.Barrier(nthreads)
    count, passes = _SIZE // (_LINE * lines), _BYTES // _SIZE

    def work(_: int) -> float:
        buffer, out = aligned(_SIZE), aligned(_LINE * lines)
        call = partial(function, buffer.ctypes.data, count, passes, out.ctypes.data)
        call()
        start.wait()
        return median(turns.timed(call)()["seconds"] for _ in range(repeat))

    with ThreadPoolExecutor(nthreads) as pool:
        seconds = list(pool.map(work, range(nthreads)))
    return sum(passes * count * lines * _LANES / each for each in seconds)


def aligned(nbytes: int) -> np.ndarray:
    """Return an array of zeros aligned to a cache line."""
    memory = np.zeros(nbytes + _LINE, np.uint8)
    start = -memory.ctypes.data % _LINE
    return memory[start : start + nbytes].view(np.float32)


@cache
def _stream(lines: int) -> Any:
    """Return the loop of ``stream.c`` for a number of lines."""
    function = compiled("stream.c", f"-DLINES={lines}").stream
    function.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    return function


def compiled(name: str, *options: str) -> ctypes.CDLL:
    """Return a C file of this folder, compiled for this processor."""
    import ziglang  # noqa: F401 -- a missing package is an ImportError

    source, out = Path(__file__).with_name(name), Path(tempfile.mkdtemp(), name).with_suffix(".so")
    options = ("-O3", "-shared", "-fPIC", "-mcpu=native", *options)
    command = [sys.executable, "-m", "ziglang", "cc", *options, str(source), "-o", str(out)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(out))
