"""A process in which each array of NumPy has memory pages of its own.

    guarded.py FOLDER end 8

makes the first eight drawn calls of each kind, of inference, of a graph's products and of
training, with the libraries in a folder. The memory of GraphBLAS and of compiled code is guarded as
well. With "anywhere" instead of "end", memory is as usual, for sanitizers. Arrays end (or start)
exactly at a page that nobody may touch. Fresh memory is NaN. The rest of an array's pages has a
pattern, which is compared when the array is freed. Freed pages stay forbidden, so that an address
that outlives its array is found. Blocks end with the last cache line of inputs that a call may use.
The process ends without cleaning up, since NumPy's memory stays guarded.
"""

import ctypes
import mmap
import os
import sys
import weakref
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock
from types import SimpleNamespace

import drawn
import numpy as np
from numpy.lib.stride_tricks import as_strided

from gbdnn.kernels.blocks import AlignedBlock
from gbdnn.kernels.compiled import loading
from gbdnn.kernels.fused_run import CompiledRun

# Linux: MADV_DONTNEED, and MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE.
PAGE, ARENA, DONT_NEED, KIND = mmap.PAGESIZE, 1 << 38, 4, 0x4022
SIZE, PLACE, INT = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
libc, of_capsule = ctypes.CDLL(None), ctypes.pythonapi.PyCapsule_GetPointer
libc.mmap.restype, libc.mmap.argtypes = PLACE, [PLACE, SIZE, INT, INT, INT, ctypes.c_long]
libc.free.argtypes, libc.free.restype = [PLACE], None
libc.mprotect.argtypes = libc.madvise.argtypes = [PLACE, SIZE, INT]
of_capsule.restype, of_capsule.argtypes = PLACE, [ctypes.py_object, ctypes.c_char_p]
ONE, TWO = ctypes.PYFUNCTYPE(PLACE, PLACE, SIZE), ctypes.PYFUNCTYPE(PLACE, PLACE, SIZE, SIZE)
LETTERS = {1: ctypes.CFUNCTYPE(PLACE, SIZE), 2: ctypes.CFUNCTYPE(PLACE, SIZE, SIZE)}  # any thread


class Guard:
    """NumPy's memory, each array between forbidden pages.

    NumPy's ``PyDataMem_Handler`` (NEP 49), the one of all threads, is changed in place: after 136
    bytes come its malloc, calloc, realloc and free.
    """

    def __init__(self, *, at_start):
        self.at_start, self.arrays, self.faults, self.lock = at_start, {}, [], RLock()
        self.next = libc.mmap(None, ARENA, 0, KIND, -1, 0) + PAGE
        core = np._core if hasattr(np, "_core") else np.core
        api = of_capsule(core._multiarray_umath._ARRAY_API, None)
        get_handler = ctypes.PYFUNCTYPE(ctypes.py_object)(PLACE.from_address(api + 305 * 8).value)
        at = of_capsule(get_handler(), b"mem_handler") + 136
        self.usual_free = TWO(PLACE.from_address(at + 24).value)
        calloc = TWO(lambda _, count, size: self.malloc(count * size, 0))
        malloc = ONE(lambda _, size: self.malloc(size))
        free = TWO(lambda _, place, size: self.free(place) or self.usual_free(_, place, size))
        self.kept = {0: malloc, 8: calloc, 24: free}
        for where, function in self.kept.items():
            PLACE.from_address(at + where).value = ctypes.cast(function, PLACE).value

    def malloc(self, size, fill=0xFF, line=1):
        whole = max(1, -(-size // PAGE)) * PAGE
        with self.lock:
            start, self.next = self.next, self.next + whole + PAGE
        assert not libc.mprotect(start, whole, mmap.PROT_READ | mmap.PROT_WRITE)
        found = start if self.at_start else start + (whole - size) // line * line
        ctypes.memset(start, 0xA5, whole)
        ctypes.memset(found, fill, size)
        self.arrays[found] = start, whole, size
        return found

    def free(self, place):
        """Return whether the memory was guarded."""
        if place not in self.arrays:
            return False
        start, whole, size = self.arrays.pop(place)
        end = place + size
        rest = ctypes.string_at(start, place - start) + ctypes.string_at(end, start + whole - end)
        if rest.strip(b"\xa5"):
            self.faults.append(f"memory next to an array of {size} bytes was overwritten")
        libc.madvise(start, whole, DONT_NEED)
        libc.mprotect(start, whole, 0)
        return True

    def of_c(self, libraries):
        """Guard the memory of GraphBLAS, which has not begun, and of compiled code."""
        from suitesparse_graphblas import ffi, lib, utils

        def realloc(place, size):
            new = self.malloc(size, line=16)
            if place:
                ctypes.memmove(new, place, min(size, self.arrays[place][2]))
                self.free(place)
            return new

        functions = {
            "malloc": lambda size: self.malloc(size, line=16),
            "calloc": lambda count, size: self.malloc(count * size, 0, line=16),
            "realloc": realloc, "free": lambda place: self.free(place) or libc.free(place or 0),
            "aligned_alloc": lambda line, size: self.malloc(size, line=line),
        }  # fmt: skip
        self.kept |= {n: LETTERS[f.__code__.co_argcount](f) for n, f in functions.items()}
        at = {name: ctypes.cast(self.kept[name], PLACE).value for name in functions}
        given = [ffi.cast("void*", at[name]) for name in ("malloc", "calloc", "realloc", "free")]
        kinds = "*(*)(size_t)", "*(*)(size_t, size_t)", "*(*)(void*, size_t)", "(*)(void*)"
        kinds = [f"void{each}" for each in kinds]
        lib.GxB_init(lib.GrB_NONBLOCKING, *map(ffi.cast, kinds, given))
        utils.claim_buffer, utils.claim_buffer_2d = self.taken, self.taken_2d
        utils.unclaim_buffer = partial(unclaimed, utils.unclaim_buffer)
        for path in libraries:
            replace_functions(path, at)

    def taken(self, ffi, data, size, dtype):
        """Return GraphBLAS's memory as an array, which NumPy would free with the usual memory."""
        place, array = int(ffi.cast("intptr_t", data)), np.empty(size, dtype)
        ctypes.memmove(array.ctypes.data, place, array.nbytes)
        assert self.free(place)
        return array

    def taken_2d(self, ffi, data, size, nrows, ncols, dtype, by_rows):
        array = self.taken(ffi, data, size, dtype)[: nrows * ncols]
        return array.reshape((nrows, ncols), order="C" if by_rows else "F")


def unclaimed(unclaim, array):
    """Give an array's memory away; suitesparse-graphblas 10.5 raises, but only afterwards."""
    with suppress(ValueError):
        unclaim(array)


def replace_functions(path, functions):
    """Let a loaded library call other functions, in its tables of those that it imports (ELF)."""
    file, base = path.read_bytes(), PLACE.from_address(ctypes.CDLL(str(path))._handle).value

    def numbers(kinds, count, offset):
        return np.frombuffer(file, kinds, int(count), int(offset)).tolist()

    table = *numbers("u2", 1, 60), *numbers("u8", 1, 40)
    sections = numbers("u4,u4,u8,u8,u8,u8,u4,u4,u8,u8", *table)
    for _, kind, _, _, offset, size, link, *_ in sections:
        symbols = sections[link]
        for place, symbol, _ in numbers("u8,u8,u8", size // 24, offset) if kind == 4 else ():
            at = sections[symbols[6]][4] + numbers("u4", 1, symbols[4] + 24 * (symbol >> 32))[0]
            name = file[at : file.index(b"\0", at)].decode()
            if name in functions:
                page = (base + place) // PAGE * PAGE
                libc.mprotect(page, PAGE, mmap.PROT_READ | mmap.PROT_WRITE)
                PLACE.from_address(base + place).value = functions[name]


def make_block(self, neurons, width, dtype):
    """Instead of ``AlignedBlock.__init__``: ends with the last line of inputs, unless filled."""
    self.neurons, self.width, self.stride = neurons, width, self._columns(width, dtype)
    line, size = self._columns(1, dtype), dtype.itemsize
    used = self.stride if AlignedBlock.is_filled else -(-width // line) * line
    memory = np.empty((neurons - 1) * self.stride + used, dtype)
    self._memory = as_strided(memory, (neurons, self.stride), (self.stride * size, size))
    self._scratch = np.empty(4 * self.stride + 8, np.int64)


def separate_blocks(guard):
    """Let each block of a compiled run lie between forbidden pages, without padding."""
    made = CompiledRun.__init__

    def init(self, dtype, sizes, stops, *, width, blocks, **options):
        made(self, dtype, sizes, stops, width=width, blocks=blocks, **options)
        lanes = 64 // dtype.itemsize
        stride = -(-width // lanes) * lanes
        rows = -(-max(sizes) // 64) * 64 + 64  # whole pages
        each, used = rows * stride * dtype.itemsize, max(sizes) * stride * dtype.itemsize
        pages = -(-used // PAGE) * PAGE
        start = guard.malloc(blocks * each)
        for y in range(blocks):
            libc.mprotect(start + y * each + pages, each - pages, 0)
        weakref.finalize(self, guard.free, start)
        first = start if guard.at_start else start + pages - used
        memory = (ctypes.c_byte * (blocks * each)).from_address(first)
        whole = np.frombuffer(memory, dtype).reshape(-1, stride)
        self._memory = SimpleNamespace(whole=whole, stride=stride)
        self.set(memory=whole, stride=stride, neurons=rows)

    CompiledRun.__init__ = init


def drawn_calls(count):
    """Make the calls of the first draws of each kind."""
    tests = Path(__file__).parents[1]
    sys.path[:0] = [str(tests / "graph"), str(tests / "training")]
    import test_drawn_training as training  # now that the memory of GraphBLAS is guarded
    import test_graph_networks as graph

    with TemporaryDirectory() as name:
        kinds = "calls", "faults", "bits", "graph", "training"
        rows = zip(*(drawn.seeds(kind)[:count] for kind in kinds), strict=False)
        for call, fault, bits, of_graph, of_training in rows:
            folder = Path(name)
            yield f"{len([*drawn.check(call, folder)])} calls of draw {call}"
            # NumPy may free an array while an exception passes, when Python cannot be called.
            with suppress(SystemError):
                yield f"fault of draw {fault}, in layer {drawn.check_fault(fault, folder)}"
            yield f"bits of draw {bits}, not all of them 0: {drawn.check_bits(bits)}"
            yield f"graph {of_graph}: {graph.drawn_call(of_graph, folder)}"
            yield f"training {of_training}: {training.check(of_training)}"


def main(folder, place, count):
    guard = None if place == "anywhere" else Guard(at_start=place == "start")
    AlignedBlock.__init__, AlignedBlock.scratch = make_block, property(lambda self: self._scratch)
    AlignedBlock.is_filled, loading.FOLDER = True, Path(folder)
    if guard:
        separate_blocks(guard)
        guard.of_c([loading.library(each) for each in ("float32", "float64")])
    for k, name in enumerate(drawn_calls(int(count))):
        os.write(1, f"{k} {name}\n".encode())
        assert not guard or not guard.faults, guard.faults
    os.write(1, b"done\n")
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
