"""Blocks: dense activations of a group of inputs, in memory shared by NumPy and GraphBLAS.

A block is a full, column-wise matrix: all inputs at neuron 0, then all inputs at neuron 1, and so
on. The product of such a matrix with a sparse one, added to another full one (SuiteSparse's kernel
``saxpy5``), works in place and runs at the machine's limit if

- every column starts on a 64-byte boundary: the memory is aligned, and the number of inputs is a
  multiple of 16;
- columns do not compete for the same cache sets: it is an *odd* multiple of 16.

`malloc` aligns to 16 bytes only, so memory comes from `posix_memalign` if available. Both NumPy and
GraphBLAS release it with `free`.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from gbdnn.errors import MissingPackageError
from gbdnn.kernels.compiled.record import address
from gbdnn.runtime.first_use import gb
from gbdnn.runtime.forks import cached_property, new_lock
from gbdnn.runtime.ownership import owned

__all__ = [
    "LEAVING",
    "AlignedBlock",
    "Block",
    "Buffers",
    "any_bit",
    "padded",
    "require_in_place",
    "sample",
    "sample_step",
    "scratch",
]

LEAVING = 1 << 15
"""Activations of a block converted to sparse rows at a time."""

_LINE = 64  # bytes of a cache line


def padded(inputs: int) -> int:
    """Return the smallest odd multiple of 16 that is at least `inputs`."""
    return (inputs + 15) // 32 * 32 + 16


class Block:
    """Activations of up to `width` inputs at `neurons` neurons.

    ``matrix`` is the GraphBLAS matrix, width x neurons, full and column-wise. ``array`` is the same
    memory as a C-ordered array, neurons x width. ``inputs`` are the ids of the inputs in the order
    of the columns of ``array``; further columns are padding with arbitrary content.

    The array is a view created before GraphBLAS owned the memory. It stays valid because the only
    operation on the matrix is the in-place product, which `require_in_place` tests.
    """

    inputs: np.ndarray

    def __init__(self, neurons: int, width: int, dtype: np.dtype) -> None:
        self.neurons = neurons
        self.width = self.stride = width
        memory = _allocate(neurons, width, dtype)
        self.array = memory[:].T
        self.address = address(self.array)
        self.matrix = owned(gb.Matrix.ss.import_fullc, values=memory, name="block")
        self.inputs = np.empty(0, np.int64)

    @staticmethod
    def step(dtype: np.dtype) -> int:
        """Return the number that block widths are multiples of; odd ones need no padding."""
        return 16

    @staticmethod
    def size(neurons: int, width: int, dtype: np.dtype) -> int:
        """Return the size of a block in bytes."""
        return neurons * width * dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Size of the activations in bytes."""
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
        """Free the memory; the array becomes invalid."""
        self.matrix.clear()


class AlignedBlock:
    """A block without a GraphBLAS matrix, for up to the given number of neurons.

    Rows, one per neuron, are an odd number of cache lines apart. ``neurons`` may be reduced.
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
        """Scratch memory: four integers per input, and a cache line."""
        return scratch(self.stride)

    @staticmethod
    def step(dtype: np.dtype) -> int:
        """Return the number that block widths are multiples of; odd ones need no padding."""
        return _LINE // dtype.itemsize

    @classmethod
    def _columns(cls, width: int, dtype: np.dtype) -> int:
        lanes = cls.step(dtype)
        return (-(-width // lanes) | 1) * lanes

    @classmethod
    def size(cls, neurons: int, width: int, dtype: np.dtype) -> int:
        """Return the size of a block in bytes, without alignment."""
        return neurons * cls._columns(width, dtype) * dtype.itemsize

    @property
    def array(self) -> np.ndarray:
        """The activations, neurons x width."""
        return self._memory[: self.neurons, : self.width]

    @property
    def nbytes(self) -> int:
        """Size of the memory in bytes."""
        return int(self._memory.nbytes)

    @property
    def whole(self) -> np.ndarray:
        """The memory, neurons x stride."""
        return self._memory

    @property
    def filled(self) -> np.ndarray:
        """The activations without the padding, neurons x inputs."""
        return self._memory[: self.neurons, : len(self.inputs)]

    @property
    def flat(self) -> np.ndarray:
        """The memory, one-dimensional."""
        return self._memory.reshape(-1)

    def free(self) -> None:
        """Release the memory."""
        del self._memory


class Buffers:
    """Pool of blocks of one dtype.

    Parameters
    ----------
    dtype : float32 or float64
        Type of the activations.
    budget : int
        Size of the pool in bytes beyond which returned blocks are freed.
    make : type
        Type of the blocks.
    shape : (int, int), optional
        Neurons and inputs of all blocks (default: as requested).

    Attributes
    ----------
    allocated : int
        Bytes of all blocks, in use or idle.
    """

    def __init__(
        self,
        dtype: np.dtype,
        budget: int,
        make: type[Block | AlignedBlock],
        shape: tuple[int, int] | None = None,
    ) -> None:
        self._dtype, self._budget = np.dtype(dtype), budget
        self._make, self._shape = make, shape
        self._shapes: dict[int, tuple[int, int]] = {}  # by id of the block
        self._idle: list[Any] = []
        self._lock = new_lock()
        self.allocated = 0

    def get(self, neurons: int, width: int) -> Any:
        """Return a block of this shape with arbitrary content."""
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
            self._shapes[id(block)] = neurons, width
        return block

    def put(self, block: Any) -> None:
        """Return a block to the pool."""
        with self._lock:
            self._idle.append(block)

    def release(self) -> None:
        """Free all blocks but those in use, which live until nothing refers to them."""
        with self._lock:
            while self._idle:
                self._free(self._idle.pop())

    def _free(self, block: Any) -> None:
        self.allocated -= block.nbytes
        block.free()


def sample(array: np.ndarray) -> np.ndarray:
    """Return the activations of some neurons, one in `sample_step`."""
    return array[:: sample_step(len(array))]


def sample_step(neurons: int) -> int:
    """Return 16, or less so that a sample has at least about 64 neurons."""
    return min(16, max(1, neurons // 64))


def any_bit(array: np.ndarray) -> np.ndarray:
    """Return for each column of a C-ordered array whether any bit is set."""
    # Twice as fast as any(axis=0), which compares floating-point numbers.
    bits: np.ndarray = np.bitwise_or.reduce(array.view(f"u{array.itemsize}"), axis=0)
    return bits != 0


@cache
def require_in_place(dtype: str) -> None:
    """Raise MissingPackageError unless ``Z += Y W`` on full matrices is computed in Z's memory."""
    W = owned(
        gb.Matrix.ss.import_csc,
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
    if after.ctypes.data != before or (after != [[11, 16]]).any():
        raise MissingPackageError(
            "this build of GraphBLAS does not compute products in place; run pip install"
            " 'suitesparse-graphblas>=9.4,<10', or use engine='fused' or 'sparse'"
        )


def scratch(stride: int) -> np.ndarray:
    """Return scratch memory for blocks: four integers per input, and a cache line."""
    memory = np.empty(4 * stride + 2 * _LINE // 8, np.int64)
    start = -address(memory) % _LINE // 8
    return memory[start : start + 4 * stride + _LINE // 8]


def _allocate(neurons: int, width: int, dtype: np.dtype) -> np.ndarray:
    """Return owned, column-wise memory of shape (width, neurons), aligned if possible."""
    memalign = _posix_memalign()
    if memalign is None:
        return np.empty((width, neurons), dtype, order="F")
    place = ctypes.c_void_p()
    nbytes = max(neurons * width * dtype.itemsize, _LINE)
    if memalign(ctypes.byref(place), _LINE, nbytes):
        raise MemoryError(f"cannot allocate {nbytes} bytes for {width} inputs x {neurons} neurons")
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
