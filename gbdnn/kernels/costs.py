"""What a layer costs in each kernel, and what follows from it.

All constants stand here, in nanoseconds of one thread, with SuiteSparse:GraphBLAS 9.4.5 in FP32.
Those of vectorised loops are a `Machine`, one for each kind of processor, and scale with the bytes
of a number; the others were measured on a Zen 4 core. On another machine they are off by some
factor: that costs time, never correctness. Equal machines choose alike: nothing is measured in a
run. ``benchmarks/limits/constants.py`` measures a `Machine`.

A layer in the full kernel multiplies every input of a block with every edge, whether the activation
is 0 or not, at the speed of vectorised code; the sparse kernel multiplies stored entries only, some
ten to twenty times slower per multiply-add, and pays for each entry of its result. With 32 edges
per neuron the two meet where one activation in a hundred, or fewer, is not 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gbdnn.kernels.blocks import padded
from gbdnn.runtime import processor

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "accelerating_pays",
    "block_width",
    "dense_layer_pays",
    "dense_pays",
    "direct_width",
    "fetching_pays",
    "full_layer",
    "fused_layer",
    "fused_width",
    "gather",
    "inner_threads",
    "is_wide",
    "panel_rows",
    "reordering_pays",
    "sparse_layer",
]


class Machine(NamedTuple):
    """Constants of a kind of processor: ns of a multiply-add in FP32, and of a new entry."""

    full: float  # in the full kernel
    fused: float
    dense: float  # of a dense layer in the fused kernel: no row numbers are read
    product: float  # of NumPy's product
    entry: float  # of the sparse kernel's product


_ZEN_3 = Machine(full=0.11, fused=0.05, dense=0.024, product=0.022, entry=26.0)
_ZEN_4 = Machine(full=0.047, fused=0.04, dense=0.022, product=0.015, entry=7.0)
# NEON by reasoning, not measured: it has twice as many multiply-adds of half as many numbers.
MACHINES = {"AVX2": _ZEN_3, "AVX-512": _ZEN_4, "NEON": _ZEN_3}
MACHINE = MACHINES[processor.vectors()]

PASS = 0.1  # to read or write an element in the caches
FULL_CALL = 25_000.0  # a layer's calls, in the full kernel
SPARSE_CALL = 60_000.0  # the same in the sparse kernel, and for moving inputs in the full kernel
FIND = 0.15  # to look whether an input lives, per element, in the full kernel
MOVE_FULL = 0.6  # to move an activation into a narrower block, in the full kernel
MOVE = 0.7  # to move an activation, to the place of a dead one or along an edge of a graph
CONVERT = 5.0  # to move an entry from a sparse matrix into a block or back

DENSE_LAYER = 0.4  # of the edges there could be: from here on a layer is dense
# Of four cache lines each, or of two, as many as the first cache holds: 256 where it has 32 KiB.
PANEL_ROWS = min(max(processor.cache_bytes(1, 32 << 10) // 128, 128), 512)
PANEL_EDGES = 8  # of a neuron in a panel, which make up for sums that are stored between panels
MOVE_ROW = 10.0  # to begin with a neuron's row
PREPARE_EDGE = 12.0  # to prepare weights for the fused kernel
PREPARE_LAYER = 200_000.0
COMPILE = 5e9  # to compile the fused kernel, once on a machine
COMPILE_GATHER = 750e6  # edges times features of a graph's products that take as long as compiling

PREPARE_AT_ONCE = 1e8  # a network that takes less to prepare is prepared, whatever the call is
DENSE_COPY = 1.2  # to move an element of an array into a block, or back
FIND_ENTRIES = 8.0  # to look for entries in an element of an array, and make rows of them
DENSE = 1 / 16  # of the elements are not 0: features, or an answer, are dense from here on
DEEP = 32  # layers: in deeper networks survivors of several blocks go on together
FEW_INPUTS = 64  # so few take a single window, however deep the network is
FEW_ELEMENTS = 1 << 20  # so many, sparse ones too, are made an array for that
SPARSEST = 1 / 8  # times DENSE: an array with fewer entries may be better off as rows
SINGLES = 2  # so few inputs take less time one by one than as a block
CALL = 625.0  # a call of a compiled network beyond one of PyTorch, for each of some 32 inputs
HAND_OVER = 150_000.0  # work from which on a second thread helps

GIL = 15_000.0  # the part of FULL_CALL during which a thread holds Python's lock

BLOCK_BYTES = 5 << 18  # 1.25 MiB: input and output of a product share the caches
WIDEST = 240  # nothing is gained beyond
NARROWEST_COMFORTABLE = 48  # below, a column is too short for the vector unit's loops
FUSED_BYTES = 3 << 19  # 1.5 MiB
DIRECT_BYTES = min(processor.cache_bytes(2, 1 << 19), 1 << 19)  # 0.5 MiB

REORDER_FROM = 2048  # inputs: an edge is reordered for some 30 ns and then saves 0.02 an input


def full_layer(inputs: int, edges: int, ncols: int, itemsize: int) -> float:
    """Return ns of a layer in the full kernel for one block of `inputs`."""
    rows = -(-inputs // 16) * 16
    return FULL_CALL + rows * (edges * MACHINE.full + 2 * ncols * PASS) * itemsize / 4


def fused_layer(inputs: int, edges: int, nrows: int, ncols: int, itemsize: int) -> float:
    """Return ns of a layer in the fused kernel for one block of `inputs`."""
    rows = -(-inputs // 16) * 16 * itemsize / 4
    if dense_layer_pays(edges, nrows, ncols):
        return rows * ncols * (nrows * MACHINE.dense + PASS)
    return rows * (edges * MACHINE.fused + ncols * PASS)


def dense_layer_pays(edges: int, nrows: int, ncols: int, *, single: bool = False) -> bool:
    """Whether a layer has so many of its edges that blocks, or single inputs, take all of them."""
    # Single inputs read dense rows as vectors, which takes half the time of a block.
    return (2 * edges if single else edges) >= DENSE_LAYER * nrows * ncols


def accelerating_pays(layers: Iterable[tuple[int, int, int]]) -> bool:
    """Whether layers of so many edges, rows and columns take less time than a BLAS, with a call."""
    dense = sparse = 0.0
    for edges, nrows, ncols in layers:
        dense += nrows * ncols * MACHINE.dense
        sparse += edges * MACHINE.fused + (nrows + ncols) * DENSE_COPY / 2
    return dense - sparse > CALL


def panel_rows(edges: int, nrows: int, ncols: int) -> int:
    """Return how many rows of a block a panel has; all of them where panels do not pay.

    As many as the first cache holds of a tile, if a neuron has some edges in each panel.
    """
    panels = -(-nrows // PANEL_ROWS)
    if panels > 1 and edges >= PANEL_EDGES * ncols * panels:
        return PANEL_ROWS
    return nrows


def is_wide(width: int, itemsize: int) -> bool:
    """Whether most of a block's inputs are in tiles of four cache lines."""
    lines = -(-width // (64 // itemsize))
    return 4 * (lines // 4) >= 0.75 * lines


def fetching_pays(nrows: int) -> bool:
    """Whether rows are to be fetched into the first cache before they are read."""
    return nrows > PANEL_ROWS


def sparse_layer(inputs: int, entries: float, edges: int, nrows: int, ncols: int) -> float:
    """Return ns of a layer in the sparse kernel for `inputs` with that many entries in all."""
    products = entries * edges / max(nrows, 1)
    # Two products that fall on one place make one entry: at most as many as there are places.
    found = min(products, float(inputs) * ncols)
    return SPARSE_CALL + products + found * MACHINE.entry


def gather(neurons: int, inputs: int, living: int) -> float:
    """Return ns to find the living among `inputs` and to move them into a pool."""
    return neurons * (inputs * FIND + living * MOVE_FULL) + SPARSE_CALL


def block_width(neurons: int, itemsize: int, inputs: int) -> int:
    """Return how many inputs a block has, for layers of up to `neurons` neurons.

    As many as keep a block near 1.25 MiB, from 48 to 240; 16 where 16 would pass that; and for few
    inputs so many that there are four blocks or more, if none is narrower than 48.
    """
    column = max(neurons, 1) * itemsize
    if 16 * column > BLOCK_BYTES:
        return 16
    fitting = min(max(BLOCK_BYTES // column, NARROWEST_COMFORTABLE), WIDEST)
    shared_out = max(-(-inputs // 4), NARROWEST_COMFORTABLE)
    return min(padded(min(fitting, shared_out, inputs)), WIDEST)


def fused_width(neurons: int, itemsize: int, inputs: int, nthreads: int) -> int:
    """Return how many inputs a block of the fused kernel has.

    As many as keep a block near 1.5 MiB, from 64 to 384, in whole cache lines; for few inputs so
    many that there is a block for each thread.
    """
    lanes = 64 // itemsize
    fitting = min(max(FUSED_BYTES // (max(neurons, 1) * itemsize), 64), 384)
    shared_out = max(-(-inputs // nthreads), 2 * lanes)
    return -(-min(fitting, shared_out, max(inputs, 1)) // lanes) * lanes


def direct_width(neurons: int, itemsize: int) -> int:
    """Return how many inputs a block has where dense inputs go through all layers at once.

    It does not depend on the threads; 64 or more, as many as keep a block near 0.5 MiB.
    """
    lanes = 64 // itemsize
    fitting = min(max(DIRECT_BYTES // (max(neurons, 1) * itemsize), 4 * lanes), 192)
    return fitting // (2 * lanes) * 2 * lanes


def inner_threads(nthreads: int, blocks: int, width: int, edges: int) -> tuple[int, int]:
    """Split `nthreads` into blocks side by side, and threads within a product.

    Blocks side by side never wait for each other, but their calls queue for Python's lock: `blocks`
    bounds them, and so does the share of a layer's time that holds the lock. What is left over
    goes into the products.

    Returns
    -------
    workers, inner : int
        Their product is at most `nthreads`.
    """
    product = width * edges * MACHINE.full
    workers = max(1, min(nthreads, blocks, int((FULL_CALL + product) / GIL)))
    return workers, max(1, nthreads // workers)


def reordering_pays(inputs: int) -> bool:
    """Whether so many inputs are worth reordering a network's neurons."""
    return inputs >= REORDER_FROM


def dense_pays(elements: float, entries: float) -> bool:
    """Whether features, or an answer, with so many entries are to be an array."""
    return entries >= DENSE * elements
