"""Blocks: dense activations of some inputs, in memory that NumPy and GraphBLAS both see.

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
from functools import cache, cached_property
from typing import Any

import numpy as np

from gbdnn.kernels.addresses import address
from gbdnn.runtime.first_use import gb

__all__ = [
    "LEAVING",
    "AlignedBlock",
    "Block",
    "Buffers",
    "MovedBlock",
    "any_bit",
    "in_place",
    "padded",
    "sample",
]

LEAVING = 1 << 15
"""Activations of a block that become sparse rows at a time."""

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

    @staticmethod
    def size(neurons: int, width: int, dtype: np.dtype) -> int:
        """Return the bytes of a block."""
        return neurons * width * dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the activations."""
        return int(self.array.nbytes)

    @property
    def filled(self) -> np.ndarray:
        """The activations without the padding, neurons x inputs."""
        return self.array[:, : len(self.inputs)]

    @property
    def flat(self) -> np.ndarray:
        """The memory, one-dimensional."""
        return self.array.reshape(-1)

    def free(self) -> None:
        """Free the memory at once; the array is no longer valid.

        A graphblas.Matrix is part of a cycle: left alone, it would stay until it is collected.
        """
        self.matrix.clear()


class AlignedBlock:
    """A block that GraphBLAS does not see; it may hold fewer neurons than it has room for.

    Rows, a neuron each, are an odd number of cache lines apart. ``neurons`` may be set to any
    number up to the one that the block was made for.
    """

    inputs: np.ndarray

    def __init__(self, neurons: int, width: int, dtype: np.dtype) -> None:
        self.neurons, self.width = neurons, width
        self.stride = self._columns(width, dtype)
        size = self.size(neurons, width, dtype)
        memory = np.empty(size + _LINE, np.uint8)
        start = -address(memory) % _LINE
        self._memory = memory[start : start + size].view(dtype).reshape(neurons, self.stride)
        self.address = address(self._memory)
        self.inputs = np.empty(0, np.int64)

    @cached_property
    def scratch(self) -> np.ndarray:
        """Four integers per input and a cache line of them, for the code that has the block."""
        memory = np.empty(4 * self.stride + 2 * _LINE // 8, np.int64)
        start = -address(memory) % _LINE // 8
        return memory[start : start + 4 * self.stride + _LINE // 8]

    @cached_property
    def scratch_address(self) -> int:
        """The address of `scratch`."""
        return address(self.scratch)

    @staticmethod
    def _columns(width: int, dtype: np.dtype) -> int:
        lanes = _LINE // dtype.itemsize
        return (-(-width // lanes) | 1) * lanes

    @classmethod
    def size(cls, neurons: int, width: int, dtype: np.dtype) -> int:
        """Return the bytes of a block, but for what aligns it."""
        return neurons * cls._columns(width, dtype) * dtype.itemsize

    @property
    def array(self) -> np.ndarray:
        """The activations, neurons x width."""
        return self._memory[: self.neurons, : self.width]

    @property
    def nbytes(self) -> int:
        """Bytes of the memory."""
        return int(self._memory.nbytes)

    @property
    def filled(self) -> np.ndarray:
        """The activations without the padding, neurons x inputs."""
        return self._memory[: self.neurons, : len(self.inputs)]

    @property
    def flat(self) -> np.ndarray:
        """The memory, one-dimensional."""
        return self._memory.reshape(-1)

    def free(self) -> None:
        """Let go of the memory."""
        del self._memory


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
    """Blocks of one dtype.

    Parameters
    ----------
    dtype : float32 or float64
        Of the activations.
    make : type, optional
        Of the blocks; default: one for GraphBLAS.
    shape : (int, int), optional
        Neurons and inputs of all blocks; default: those that are asked for.
    budget : int
        Bytes beyond which blocks that were put back are freed.

    Attributes
    ----------
    allocated : int
        Bytes of all blocks, those in use and those that were put back.
    """

    def __init__(
        self,
        dtype: np.dtype,
        budget: int,
        make: type[Block | AlignedBlock] | None = None,
        shape: tuple[int, int] | None = None,
    ) -> None:
        self._dtype, self._budget = np.dtype(dtype), budget
        self._make = make or (Block if in_place(self._dtype.name) else MovedBlock)
        self._shape = shape
        self._all: dict[int, Any] = {}
        self._shapes: dict[int, tuple[int, int]] = {}
        self._idle: list[Any] = []
        self._lock = threading.Lock()
        self.allocated = 0

    def get(self, neurons: int, width: int) -> Any:
        """Return a block of this shape; its content is arbitrary."""
        neurons, width = self._shape or (neurons, width)
        with self._lock:
            for at in range(len(self._idle) - 1, -1, -1):
                if self._shapes[id(self._idle[at])] == (neurons, width):
                    return self._idle.pop(at)
            wanted = self._make.size(neurons, width, self._dtype)
            while self._idle and self.allocated + wanted > self._budget:
                self._free(self._idle.pop(0))
            self.allocated += wanted
        try:
            block = self._make(neurons, width, self._dtype)
        except BaseException:
            with self._lock:
                self.allocated -= wanted
            raise
        with self._lock:
            self._all[id(block)], self._shapes[id(block)] = block, (neurons, width)
        return block

    def put(self, block: Any) -> None:
        """Take a block back."""
        with self._lock:
            self._idle.append(block)

    def release(self) -> None:
        """Free all blocks, also those in use after an exception; no array is valid then."""
        with self._lock:
            self._idle.clear()
            for block in list(self._all.values()):
                self._free(block)

    def _free(self, block: Any) -> None:
        self.allocated -= block.nbytes
        del self._all[id(block)]
        block.free()


def sample(array: np.ndarray) -> np.ndarray:
    """Return activations at one neuron in sixteen, at some 64 at least."""
    return array[:: min(16, max(1, len(array) // 64))]


def any_bit(array: np.ndarray) -> np.ndarray:
    """Return for each column of a C-ordered array whether any of its bits is set."""
    # Twice as fast as any(axis=0), which compares floating-point numbers.
    bits: np.ndarray = np.bitwise_or.reduce(array.view(f"u{array.itemsize}"), axis=0)
    return bits != 0


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
    place = ctypes.c_void_p()
    nbytes = max(neurons * width * dtype.itemsize, _LINE)
    if memalign(ctypes.byref(place), _LINE, nbytes):
        raise MemoryError(f"no {nbytes} bytes for a block of {width} inputs x {neurons} neurons")
    from suitesparse_graphblas import ffi
    from suitesparse_graphblas.utils import claim_buffer_2d

    size = neurons * width
    memory: np.ndarray = claim_buffer_2d(
        ffi, ffi.cast("void*", place.value), size, width, neurons, dtype, False
    )
    return memory


@cache
def _posix_memalign() -> ctypes._NamedFuncPointer | None:
    try:
        return ctypes.CDLL(None).posix_memalign
    except (AttributeError, OSError, TypeError):
        return None
