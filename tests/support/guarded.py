"""A process in which each array of NumPy has memory pages of its own.

    guarded.py LIBRARY float32 products end 7
    guarded.py FOLDER - drawn_calls end 8

calls compiled functions in every seventh case of a group, or makes calls of every eighth network of
drawn.py, in which the memory of GraphBLAS and of compiled code is guarded as well. With "anywhere"
instead of "end", memory is as usual, for sanitizers. Arrays end (or start) exactly at a page
that nobody may touch. Fresh memory is NaN. The rest of an array's pages has a pattern, which is
compared when the array is freed. Freed pages stay forbidden, so that an address that outlives its
array is found. Blocks end with the last cache line of inputs that a call may use. The process ends
without cleaning up, since NumPy's memory stays guarded.
"""

import ctypes
import mmap
import os
import sys
import weakref
from contextlib import suppress
from functools import partial
from itertools import islice, pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock
from types import SimpleNamespace

import drawn
import numpy as np
from numpy.lib.stride_tricks import as_strided

from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.kernels import costs, dense_product, gather, steps
from gbdnn.kernels.blocks import AlignedBlock
from gbdnn.kernels.compiled import graphblas, loading
from gbdnn.kernels.compiled.record import constant
from gbdnn.kernels.fused_run import CompiledRun
from gbdnn.kernels.fused_shares import _Job
from gbdnn.kernels.together import ALONE, _Team
from gbdnn.kernels.trainable import TrainableLayer
from gbdnn.model.layer_info import LayerInfo

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

    sections = numbers(
        "u4,u4,u8,u8,u8,u8,u4,u4,u8,u8", *numbers("u2", 1, 60), *numbers("u8", 1, 40)
    )
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
    self.inputs = np.empty(0, np.int64)


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


SIZES = 1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 31, 33, 40, 63, 64, 65, 127, 129


def some(random, shape, dtype, density=0.6):
    return (random.normal(size=shape) * (random.random(shape) < density)).astype(dtype)


def sizes_of(at, more=0):
    return [SIZES[(at * k + k) % len(SIZES)] + more for k in (5, 7, 3, 1)][at % 3 :]


def placed(A, kind):
    """Return the same numbers in another memory order."""
    plain, turned = np.empty_like(A, order="C"), np.empty_like(A, order="F")
    gap = np.empty((len(A), A.shape[1] + 3), A.dtype)[:, 3:]
    found = (plain, turned, plain[::-1, ::-1], plain[::-1], gap)[kind % 5]
    found[:] = A
    return found


def sparse_rows(A, *, iso=False):
    rows = SparseRows.from_array(A)
    values = rows.values[:1].copy() if iso and A.any() else rows.values
    return SparseRows(rows.indptr, rows.columns, values, rows.ncols)


def dense_layer(W):
    """Return what a product needs of a layer, without a matrix, which would free NumPy's memory."""
    held = SimpleNamespace(to_dense=lambda **_: W, dtype=W.dtype)
    layer = SimpleNamespace(nrows=W.shape[0], ncols=W.shape[1], dtype=W.dtype, W=held)
    layer.prepared = lambda prepare: prepare(layer)
    return layer


def products(dtype, step):
    """Multiply a graph's matrix and a full one, and dense weights; rows in pieces."""
    random = np.random.default_rng(3)
    forms = product((*range(1, 71), 129), ((5, 7), (9, 90), (70, 3)))
    for features, (n, m) in islice(forms, 0, None, step):
        yield f"{n} x {m}, {features} features"
        gather.HEAVY, gather.SHARE = ((5, 3), (1 << 17, 1 << 16))[features % 2]
        A = sparse_rows(np.sign(some(random, (n, m), dtype)), iso=features % 3 == 0)
        Y, Z = (placed(some(random, (k, features), dtype), 4 * (n % 2)) for k in (m, n - 1))
        start, found = Z if n % 2 else Z[0].copy(), gather.Gather(A, "sum", 2, "fused")
        assert found.into(Y, Z, start, low=-1, high=1, first=1)
        assert np.isfinite(Z).all()
        wide, layer = np.empty((n, m), dtype), dense_layer(some(random, (features, m), dtype))
        assert found.into(Y, wide, some(random, m, dtype), low=-1, then=layer, most=2)
        assert dense_product.multiply(layer, Z, dense_product.target(wide[1:], wide[1:]), 2)
        assert np.isfinite(wide).all()


def training(dtype, step):
    """Run steps: all losses and optimizers, dense layers, layers without edges, and panels."""
    random = np.random.default_rng(4)
    rules = [constant(name) for name in ("SGD", "NESTEROV", "ADAM")]
    forms = product((1, 3, 16, 40, 65, 130), (0.2, 1, 0), (0, 1), rules)
    for at, (batch, density, loss, kind) in islice(enumerate(forms), 0, None, step):
        sizes, inputs, layers, AlignedBlock.is_filled = sizes_of(at), 2 * batch + 1, [], False
        sizes[at // 3 % 2] += 4200 * (at % 20 == 7)  # panels
        yield f"{sizes}, minibatches of {batch}, density {density}, loss {loss}, rule {kind}"
        for n, m in pairwise(sizes):
            edges = np.flatnonzero(random.random(n * m) < density)
            info, moments = LayerInfo((n, m), len(edges), 1, dtype), [np.zeros(len(edges), dtype)]
            weights, b = some(random, len(edges), dtype) / 9, some(random, m, dtype)
            layers.append(TrainableLayer(info, edges, weights, b, 2 * moments, 2 * [0 * b]))
        rule = steps.UpdateRule(kind, (0.9, 0.99, 1e-8, 0.01, at % 2))
        run = steps.Steps(layers, batch=batch, loss=loss, rule=rule, nthreads=1 + at % 3)
        X, y = (some(random, (inputs, sizes[k]), dtype) for k in (0, -1))
        y = y if loss else random.integers(0, sizes[-1], inputs)
        given = random.permutation(inputs), y, np.ones(inputs, dtype), np.full((3, 3), 0.01)
        assert run.run(placed(X, at), *given).steps == 3  # with finite losses and gradients


def called_alone(team, threads, function, *given, all_needed):
    if all_needed:
        CALL(team, threads, function, *given, all_needed=True)
    else:
        function(*given, ALONE)


CALL = _Team.call


def drawn_calls(step):
    """Make the calls of every `step`-th network of drawn.py."""
    with TemporaryDirectory() as folder:
        for seed in range(0, 96, step):
            yield f"{len([*drawn.check(seed, Path(folder))])} calls of draw {seed}"
            yield f"bits of draw {seed}, not all of them 0: {drawn.check_bits(seed)}"


def main(library, dtype, group, place, step):
    guard = None if place == "anywhere" else Guard(at_start=place == "start")
    AlignedBlock.__init__, AlignedBlock.scratch = make_block, property(lambda self: self._scratch)
    if group == "drawn_calls":
        AlignedBlock.is_filled, loading.FOLDER = True, Path(library)
        if guard:
            separate_blocks(guard)
            guard.of_c([loading.library(each) for each in ("float32", "float64")])
        cases = drawn_calls(int(step))
    else:
        functions = loading.Functions(Path(library), dtype)
        loading.functions = dense_product.functions = lambda _: functions
        graphblas.of_any_processor = lambda _: functions
        costs.panel_rows = lambda edges, nrows, ncols: min(nrows, 50)
        _Job.begin = lambda *_: True
        _Team.call = called_alone  # but none helps
        cases = globals()[group](np.dtype(dtype), int(step))
    for k, name in enumerate(cases):
        os.write(1, f"{k} {name}\n".encode())
        assert not guard or not guard.faults, guard.faults
    os.write(1, b"done\n")
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
