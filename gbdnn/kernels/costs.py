"""Cost model: the time of a layer in each kernel, and the choices based on it.

Constants are nanoseconds of one thread, with SuiteSparse:GraphBLAS 9.4.5 in FP32. Those of
vectorised loops depend on the processor (`Speeds`) and scale with the size of a number; the others
were measured on a Zen 4 core. On other machines they may be off by a small factor, which costs time
but not correctness. Nothing is measured during a run, so equal machines make equal choices.
``benchmarks/limits/choices.py`` measures `Speeds`, and the options of the rules; tests hold the
rules to what was measured on each processor.

In the full kernel, every input of a block is multiplied with every edge, zero or not, at the speed
of vectorised code. The sparse kernel multiplies stored entries only; it is much slower per
multiply-add and also pays for each entry of its result. With 32 edges per neuron, the break-even
with the fused kernel is at a density of about 0.2 %.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gbdnn.runtime.machine import machine

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "accelerating_pays",
    "block_rows",
    "dense_layer_pays",
    "direct_width",
    "full_layer",
    "fused_layer",
    "fused_width",
    "is_wide",
    "new_entries",
    "padded",
    "panel_rows",
    "panel_width",
    "part_rows",
    "reordering_pays",
    "sharing_threads",
    "sharing_work",
    "single_density",
    "single_layer",
    "sparse_layer",
    "speeds",
    "training_panel_rows",
]


class Speeds(NamedTuple):
    """Constants of a processor type: multiply-adds in FP32 and a new entry in ns, and densities."""

    full: float  # full kernel
    fused: float
    dense: float  # dense layer in the fused kernel, which reads no row numbers
    product: float  # dense weights of a graph convolution
    entry: float  # product of the sparse kernel
    dense_layer: float = 0.62  # density of the weights from which a layer is computed as dense
    dense_single: float = 0.15  # the same for a single input, beyond the second-level cache
    dense_far: float = 0.15  # the same beyond the third-level cache


_ZEN_3 = Speeds(full=0.11, fused=0.05, dense=0.024, product=0.022, entry=16.0)
_ZEN_4 = Speeds(full=0.047, fused=0.03, dense=0.02, product=0.015, entry=16.0)
_ZEN_5 = _ZEN_4._replace(dense=0.0125, dense_layer=0.55, dense_single=0.17, dense_far=0.28)
_EMERALD_RAPIDS = _ZEN_5._replace(dense_single=0.28)
# NEON is estimated, not measured: twice as many multiply-adds of half as many numbers. Of the
# processors with AVX-512, those with 48 KiB of first-level cache do not divide a line into halves,
# and those with 2 MiB of second-level cache (Intel's) read dense rows from the third level slowly.
SPEEDS = {
    "AVX2": _ZEN_3, "AVX-512": _ZEN_4, "AVX-512, 48 KiB": _ZEN_5,
    "AVX-512, 48 KiB, 2 MiB": _EMERALD_RAPIDS, "NEON": _ZEN_3,
}  # fmt: skip

PASS = 0.1  # reading or writing an element in the caches
FULL_CALL = 7_000.0  # call overhead of a layer in the full kernel
SPARSE_CALL = 8_000.0  # the same in the sparse kernel
PART = 1e5  # least work of a layer for a part of the rows in the sparse kernel
PART_ROWS = 500  # of a part: its activations stay in the caches, and calls take little time
MOVE_FULL = 0.6  # moving an activation to a narrower block, in the full kernel
MOVE = 0.7  # moving an activation to the place of a dead one, or along an edge of a graph
CONVERT = 5.0  # converting an entry from a sparse matrix to a block or back

PANEL_EDGES = 18  # edges of a neuron in the best panel, with 32 KiB of first-level cache
LEAST_EDGES = 14  # the same that make up for storing sums between panels
TRAINING_EDGES = 12  # the same in training, whose gradients have groups of four edges
MOVE_ROW = 10.0  # start of a neuron's row
DENSE_COPY = 0.65  # moving an element of an array to a block or back
INFER = 30_000.0  # a call of `infer`, apart from its layers
WRITE = 4.0  # an entry of a block in the rows of a sparse answer
FIND_ENTRIES = 8.0  # finding the entries of an array and converting them to rows, per element
DEEP = 32  # number of layers above which survivors of several blocks are pooled
FEW_INPUTS = 64  # inputs up to which a single window is used for any depth
FEW_ELEMENTS = 1 << 20  # elements up to which even sparse inputs become an array for that
SPARSEST = 1 / 8  # times DENSE: below this density an array may be better off as rows
SINGLES = 2  # inputs up to which they are computed one by one rather than as a block
CALL = 625.0  # call overhead of a compiled network compared with PyTorch, per input of about 32
SINGLE = 0.28  # multiply-add for a single input
SINGLE_DENSE = 0.045  # the same in a dense layer
SHARED_LINES = 4  # cache lines of inputs up to which threads divide the neurons of layers
SHORT = 1e7  # work up to which a call need not look for signals on its way
SHARE = 1250.0  # handing a layer's neurons to another thread and waiting for them
THREAD = 400.0  # the same for each thread more
EDGE = 0.4  # reading an edge for few inputs, apart from its multiply-adds
HAND_OVER = 130_000.0  # work from which a second thread helps that may sleep

CALLERS = 4  # threads that read features in Python at the same time; more wait for its lock

BLOCK_ROWS = 1000  # of a block in the full kernel: wider ones are compacted to full panels
PANEL_BYTES = 3 << 18  # 0.75 MiB; input and output of a product share the caches
WIDEST = 240  # inputs of a panel; wider ones gain nothing
NARROWEST = 48  # below, columns are too short for vectorised loops
FUSED_BYTES = 1 << 19  # 0.5 MiB, or less if the second-level cache is smaller
SINGLE_NEAR = 0.15, 1.25  # density, and part of the second-level cache: rows of zeros are not read

LARGE = 8  # times the second-level cache: weights that a single input always fetches early

REORDER_FROM = 2048  # inputs; an edge costs 30 ns to reorder and saves 0.02 ns per input


def speeds() -> Speeds:
    """Return the constants of this machine's kind of processor."""
    vectors, caches, *_ = machine()
    kind = vectors
    if vectors == "AVX-512" and caches[0] >= 49152:
        kind += ", 48 KiB" + ", 2 MiB" * (caches[1] >= 1 << 21)
    return SPEEDS[kind]


def full_layer(inputs: int, edges: int, ncols: int, itemsize: int) -> float:
    """Return the time of a layer in the full kernel for one block of `inputs`, in ns."""
    rows = -(-inputs // 16) * 16
    return FULL_CALL + rows * (edges * speeds().full + 2 * ncols * PASS) * itemsize / 4


def fused_layer(inputs: int, edges: int, nrows: int, ncols: int, itemsize: int) -> float:
    """Return the time of a layer in the fused kernel for one block of `inputs`, in ns."""
    rows = -(-inputs // 16) * 16 * itemsize / 4
    if dense_layer_pays(edges, nrows, ncols):
        return rows * ncols * (nrows * speeds().dense + PASS)
    return rows * (edges * speeds().fused + ncols * PASS)


def dense_layer_pays(edges: int, nrows: int, ncols: int) -> bool:
    """Whether a layer is dense enough to be computed with all possible edges."""
    return edges >= speeds().dense_layer * nrows * ncols


def single_density(layers: Iterable[tuple[int, int, int]], itemsize: int) -> float:
    """Return the density from which layers are computed as dense for a single input.

    Dense rows are read faster from the caches. `layers` has the edges, rows and columns of each
    layer.
    """
    near, part = SINGLE_NEAR
    dense = itemsize * sum(n * m for edges, n, m in layers if edges >= int(near * n * m))
    _, second, third = machine().caches
    if dense <= part * second:
        return near
    return speeds().dense_single if dense <= third else speeds().dense_far


def single_layer(edges: int, nrows: int, ncols: int) -> float:
    """Return the time of a layer for a single input on one thread, in ns."""
    return min(edges * SINGLE, nrows * ncols * SINGLE_DENSE) + nrows + ncols


def sharing_threads(work: float, layers: int) -> int:
    """Return how many threads should divide each layer's neurons among them.

    `work` is the time of all layers on one thread, in ns.
    """
    threads = 1
    while work >= layers * sharing_work(threads + 1):
        threads += 1
    return threads


def sharing_work(threads: int) -> float:
    """Return the time of a layer on one thread, in ns, from which `threads` should divide it.

    n threads take ``work / n + n * THREAD`` ns, and to hand over costs `SHARE`.
    """
    return max(4 * SHARE, threads**2 * THREAD)


def accelerating_pays(layers: Iterable[tuple[int, int, int]]) -> bool:
    """Whether layers (edges, nrows, ncols) with a call take less time than with a BLAS."""
    dense = sparse = 0.0
    for edges, nrows, ncols in layers:
        dense += nrows * ncols * speeds().dense
        sparse += edges * speeds().fused + (nrows + ncols) * DENSE_COPY / 2
    return dense - sparse > CALL


def panel_rows(edges: int, nrows: int, ncols: int) -> int:
    """Return the number of block rows per panel, or all rows if there is one.

    Few rows stay in the first-level cache: of 32 KiB, 128 rows of a tile of four cache lines. But
    sums are stored after every panel, which few edges do not make up for. Panels are of equal size,
    so that none has much fewer edges.
    """
    density = max(edges, 1) / max(nrows * ncols, 1)
    best = max(1.0, machine().caches[0] / 32768) ** 0.5 * PANEL_EDGES / density
    size = max(min(max(best, 128), 1024), LEAST_EDGES / density)
    return -(-nrows // max(1, round(nrows / size)))


def training_panel_rows(edges: int, nrows: int, ncols: int) -> int:
    """Return the number of block rows per panel in training, or all rows if panels do not pay.

    The first-level cache holds 128 rows of a share of four cache lines per 32 KiB. Panels have as
    many, but more if neurons have few edges in each.
    """
    fitting = machine().caches[0] / 256
    panels = int(nrows / max(fitting, TRAINING_EDGES * nrows * ncols / max(edges, 1)))
    return -(-nrows // panels) if panels >= 3 else nrows


def is_wide(width: int, itemsize: int) -> bool:
    """Whether most of a block's inputs are in tiles of four cache lines."""
    lines = -(-width // (64 // itemsize))
    return 4 * (lines // 4) >= 0.75 * lines


def exceed_caches(edges: int, itemsize: int) -> bool:
    """Whether weights that were just used are read from memory, or a slow cache, the next time."""
    return edges * (4 + itemsize) > LARGE * machine().caches[1]


def sparse_layer(inputs: int, entries: float, edges: int, nrows: int, ncols: int) -> float:
    """Return the time of a layer in the sparse kernel for all `inputs` together, in ns."""
    products = entries * edges / max(nrows, 1)
    new = new_entries(inputs, entries, edges, nrows, ncols)
    return SPARSE_CALL + products + new * speeds().entry


def new_entries(inputs: int, entries: float, edges: int, nrows: int, ncols: int) -> float:
    """Return about how many entries the product of a layer has.

    Products at the same position form one entry, so positions bound the entries.
    """
    return min(entries * edges / max(nrows, 1), float(inputs) * ncols)


def part_rows(work: float, inputs: int, nthreads: int) -> int:
    """Return the rows of a part in the sparse kernel, for a layer's `work` in ns.

    Threads have equally many parts, of about `PART_ROWS` rows, but at least the work `PART`.
    """
    threads = max(1, min(inputs, nthreads, int(work / PART)))
    rounds = max(1, round(inputs / (threads * PART_ROWS)))
    return -(-inputs // (threads * rounds))


def block_rows(inputs: int, nthreads: int) -> int:
    """Return the inputs of a block in the full kernel.

    Threads have equally many blocks, of about `BLOCK_ROWS` inputs, but at least `NARROWEST`.
    """
    threads = max(1, min(nthreads, -(-inputs // NARROWEST)))
    rounds = max(1, round(inputs / (threads * BLOCK_ROWS)))
    return max(1, -(-inputs // (threads * rounds)))


def panel_width(neurons: int, itemsize: int) -> int:
    """Return the number of inputs per panel for layers of up to `neurons` neurons.

    A panel has about 0.75 MiB and 48 to 240 inputs (16, if 48 inputs exceed it).
    """
    column = max(neurons, 1) * itemsize
    if 16 * column > PANEL_BYTES:
        return 16
    return padded(min(max(PANEL_BYTES // column, NARROWEST), WIDEST))


def padded(inputs: int) -> int:
    """Return the smallest odd multiple of 16 that is at least `inputs`."""
    return (inputs + 15) // 32 * 32 + 16


def fused_width(neurons: int, itemsize: int, inputs: int, nthreads: int) -> int:
    """Return the number of inputs per block of the fused kernel if blocks are regrouped.

    A block has about 0.5 MiB and four to eight cache lines of inputs, 64 to 128 in FP32; few inputs
    are divided into one block per thread.
    """
    lanes = 64 // itemsize
    size = min(machine().caches[1], FUSED_BYTES)
    fitting = min(max(size // (max(neurons, 1) * itemsize), 4 * lanes), 8 * lanes)
    shared_out = max(-(-inputs // nthreads), 2 * lanes)
    return -(-min(fitting // (2 * lanes) * 2 * lanes, shared_out, max(inputs, 1)) // lanes) * lanes


def direct_width(itemsize: int) -> int:
    """Return the number of inputs per block for runs in a single window: one tile.

    It has four cache lines of inputs. The next blocks follow in the same compiled call, and more
    of a narrow block stays in the second-level cache from layer to layer.
    """
    return 4 * 64 // itemsize


def reordering_pays(inputs: int) -> bool:
    """Whether reordering a network's neurons pays for this number of inputs."""
    return inputs >= REORDER_FROM
