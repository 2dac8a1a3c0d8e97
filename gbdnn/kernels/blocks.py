"""Memory of the full form: blocks of activations that NumPy and GraphBLAS both see, and reuse.

A block holds the activations of some inputs as a full, column-wise matrix: all inputs at neuron 0,
then all inputs at neuron 1, and so on. The product of a full column-wise matrix with a sparse one,
added to another full one (SuiteSparse's kernel ``saxpy5``), works in place and runs at the
machine's limit if

- every column begins on a 64-byte boundary: the memory is aligned, and the number of inputs is a
  multiple of 16;
- columns do not fall on each other in the caches: it is an *odd* multiple of 16.

`malloc` aligns to 16 bytes only, so the memory comes from `posix_memalign` where there is one. Both
NumPy and GraphBLAS release it with `free`.
"""

from __future__ import annotations

import ctypes
import threading
from functools import cache

import graphblas as gb
import numpy as np

__all__ = ["Block", "Buffers", "padded"]

_LINE = 64  # bytes of a cache line


def padded(inputs: int) -> int:
    """Return the smallest odd multiple of 16 that is at least `inputs`."""
    return (inputs + 15) // 32 * 32 + 16


class Block:
    """Activations of up to `width` inputs at `neurons` neurons.

    ``matrix`` is the GraphBLAS matrix, width x neurons, full and column-wise; ``array`` the same
    memory as a C-ordered array, neurons x width. ``inputs`` are the ids of the inputs, in the order
    of the columns of ``array``; columns beyond them are padding, their content is arbitrary.

    The array is a view taken before GraphBLAS became the owner. It stays valid because all that
    GraphBLAS ever does to the matrix is the in-place product; `in_place` tests that it is one.
    """

    inputs: np.ndarray

    def __init__(self, neurons: int, width: int, dtype: np.dtype) -> None:
        self.neurons, self.width = neurons, width
        memory = _allocate(neurons, width, dtype)
        self.array = memory[:].T
        self.matrix = gb.Matrix.ss.import_fullc(memory, take_ownership=True, name="block")
        self.inputs = np.empty(0, np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of the activations."""
        return int(self.array.nbytes)

    @property
    def filled(self) -> np.ndarray:
        """The activations without the padding, neurons x inputs."""
        return self.array[:, : len(self.inputs)]


class MovedBlock(Block):
    """A block whose memory is moved into and out of GraphBLAS, where a product is not in place."""

    def __init__(self, neurons: int, width: int, dtype: np.dtype) -> None:
        self.neurons, self.width = neurons, width
        self._array: np.ndarray | None = np.empty((neurons, width), dtype)
        self._matrix = gb.Matrix(dtype, width, neurons, name="block")
        self.inputs = np.empty(0, np.int64)

    @property
    def array(self) -> np.ndarray:  # type: ignore[override]
        """The activations; the matrix is empty from now on."""
        if self._array is None:
            self._array = self._matrix.ss.unpack("fullc")["values"].T
        return self._array

    @property
    def matrix(self) -> gb.Matrix:
        """The matrix; an array taken before is no longer valid."""
        if self._array is not None:
            self._matrix.ss.pack_fullc(self._array.T, take_ownership=True)
            self._array = None
        return self._matrix


class Buffers:
    """Blocks to be used again and again, within a budget.

    Parameters
    ----------
    dtype : float32 or float64
        Of the activations.
    budget : int
        Bytes that blocks may take in all. `get` always gives one; `has_room` tells whether another
        one would be within the budget.
    """

    def __init__(self, dtype: np.dtype, budget: int) -> None:
        self._dtype, self._budget = np.dtype(dtype), budget
        self._make = Block if in_place(self._dtype.name) else MovedBlock
        self._idle: list[Block] = []
        self._lock = threading.Lock()
        self.allocated = 0

    def get(self, neurons: int, width: int) -> Block:
        """Return a block of this shape; its content is arbitrary."""
        with self._lock:
            for at in range(len(self._idle) - 1, -1, -1):
                if (self._idle[at].neurons, self._idle[at].width) == (neurons, width):
                    return self._idle.pop(at)
            self._drop_idle(self._size(neurons, width))
            self.allocated += self._size(neurons, width)
        return self._make(neurons, width, self._dtype)

    def put(self, block: Block) -> None:
        """Take a block back."""
        with self._lock:
            self._idle.append(block)

    def has_room(self, neurons: int, width: int) -> bool:
        """Whether one more block of this shape stays within the budget."""
        with self._lock:
            idle = sum(block.nbytes for block in self._idle)
            return self.allocated - idle + self._size(neurons, width) <= self._budget

    def release(self) -> None:
        """Free all blocks that were put back, at once; their arrays are no longer valid.

        A graphblas.Matrix is part of a cycle: left alone, it would stay until it is collected.
        """
        with self._lock:
            while self._idle:
                self._free(self._idle.pop())

    def _free(self, block: Block) -> None:
        self.allocated -= block.nbytes
        block.matrix.clear()

    def _size(self, neurons: int, width: int) -> int:
        return neurons * width * self._dtype.itemsize

    def _drop_idle(self, wanted: int) -> None:
        """Let go of idle blocks of other shapes until `wanted` bytes are within the budget."""
        while self._idle and self.allocated + wanted > self._budget:
            self._free(self._idle.pop(0))


@cache
def in_place(dtype: str) -> bool:
    """Whether ``Z += Y W`` on full matrices leaves Z's memory where it is."""
    W = gb.Matrix.ss.import_csc(
        nrows=2,
        ncols=2,
        indptr=np.array([0, 1, 2], np.uint64),
        row_indices=np.array([1, 0], np.uint64),
        values=np.array([2, 3], dtype),
    )
    Y, Z = Block(2, 16, np.dtype(dtype)), Block(2, 16, np.dtype(dtype))
    Y.array[:] = 5
    Z.array[:] = 1
    before = Z.array.ctypes.data
    Z.matrix(gb.binary.plus) << gb.semiring.plus_times(Y.matrix @ W)
    after = Z.matrix.ss.unpack("fullc")["values"]
    return bool(after.ctypes.data == before and (after == [[11, 16]]).all())


def _allocate(neurons: int, width: int, dtype: np.dtype) -> np.ndarray:
    """Return memory of shape (width, neurons), column-wise, owned, aligned if it can be."""
    memalign = _posix_memalign()
    if memalign is None:
        return np.empty((width, neurons), dtype, order="F")
    address = ctypes.c_void_p()
    nbytes = max(neurons * width * dtype.itemsize, _LINE)
    if memalign(ctypes.byref(address), _LINE, nbytes):
        raise MemoryError(f"no {nbytes} bytes for a block of {width} inputs x {neurons} neurons")
    from suitesparse_graphblas import ffi
    from suitesparse_graphblas.utils import claim_buffer_2d

    size = neurons * width
    memory: np.ndarray = claim_buffer_2d(
        ffi, ffi.cast("void*", address.value), size, width, neurons, dtype, False
    )
    return memory


@cache
def _posix_memalign() -> ctypes._NamedFuncPointer | None:
    try:
        return ctypes.CDLL(None).posix_memalign
    except (AttributeError, OSError, TypeError):
        return None
