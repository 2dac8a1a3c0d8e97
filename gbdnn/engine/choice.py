"""Choose the kernel of each layer and the sizes of a run.

Whether inputs are computed as sparse rows or in blocks depends on the number of inputs and entries,
by the cost model in `gbdnn.kernels.costs`. The choices depend on the problem and the options only,
with two exceptions: whether the fused kernel is compiled, and how much work the network did before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from gbdnn.arrays.sources import DenseRows, dense_pays
from gbdnn.errors import ArgumentError
from gbdnn.kernels import costs
from gbdnn.kernels.blocks import AlignedBlock, Block, Buffers, padded, sample
from gbdnn.kernels.full import FULL
from gbdnn.kernels.fused import FUSED
from gbdnn.kernels.overflow import may_overflow
from gbdnn.kernels.sparse import SPARSE
from gbdnn.runtime.threads import available

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gbdnn.arrays.sources import RowSource
    from gbdnn.kernels.kernel import BlockKernel
    from gbdnn.model.layer_info import LayerInfo
    from gbdnn.model.network import Network

__all__ = [
    "MEMORY", "Choice", "Engine", "LayerPlan", "NetworkFacts", "Sizes", "division", "layer_bytes",
    "plan_layers", "rows_within", "sizes",
]  # fmt: skip

Engine = Literal["auto", "graphblas", "fused", "sparse", "full"]
"""Kernels of a run: "auto" and "graphblas" choose per layer, the others force one kernel."""

_CHOOSE = ("auto", "graphblas")

MEMORY = 512 << 20
"""Default memory budget of `infer` in bytes, beyond weights, features and answer."""

_WAITING = 64 << 20  # bytes of blocks that wait between windows; more would not fit the caches


class Sizes(NamedTuple):
    """Division of the memory budget of a run.

    Attributes
    ----------
    starts : tuple of int
        First layer of each group of layers that is loaded together.
    width : int
        Inputs per block.
    workers, threads_each : int
        Blocks computed at the same time, and threads within the product of each block.
    working, waiting, block : int
        Bytes of all activations, of the blocks and rows that wait between windows, and of a block.
    """

    starts: tuple[int, ...]
    width: int
    workers: int
    threads_each: int
    working: int
    waiting: int
    block: int


def sizes(
    memory: int,
    infos: Sequence[LayerInfo],
    *,
    in_memory: bool,
    inputs: int,
    threads: int,
    kernel: BlockKernel | None = FUSED,
) -> Sizes:
    """Return the sizes of a run that fits `memory` bytes.

    ===================  =================  ===============
    share                network in memory  network on disk
    ===================  =================  ===============
    activations          all                1/2
    layers, two groups   (the caller's)     1/2
    ===================  =================  ===============

    Each thread works on four blocks (five in the full kernel). The rest holds blocks and rows that
    wait between windows. Without a block kernel, half of the activations' share holds the sparse
    kernel's temporary matrices. Freed memory that the C library keeps is not counted.

    Raises
    ------
    ArgumentError
        `memory` cannot hold the narrowest blocks of one thread, or a layer of a network on disk.
    """
    working = memory if in_memory else memory // 2
    starts, used = [0], 0
    for k, info in enumerate(() if in_memory else infos):
        needed = layer_bytes(info)
        if needed > working // 2:
            raise ArgumentError(
                f"memory={memory} is too small: layer {k} of a network on disk does not"
                f" fit; pass memory={4 * needed} or more"
            )
        if used + needed > working // 2:
            starts.append(k)
            used = 0
        used += needed
    neurons, dtype = max(max(*info.shape, 1) for info in infos), infos[0].dtype
    if kernel is None:
        return Sizes(tuple(starts), max(1, inputs), 1, threads, working, working // 2, 1)
    count, step = (4, 64 // dtype.itemsize) if kernel is FUSED else (5, 16)
    if kernel is FUSED:
        width = costs.fused_width(neurons, dtype.itemsize, inputs, threads)
    else:
        width = costs.block_width(neurons, dtype.itemsize, inputs)
    row = (1 if in_memory else 2) * count * neurons * dtype.itemsize
    width = rows_within(memory, row, f"inputs x {neurons} neurons", least=step, most=width)
    width = width // step * step if kernel is FUSED else padded(width - 31)
    kind = AlignedBlock if kernel is FUSED else Block
    if count * kind.size(neurons, width, dtype) > working:
        width -= step  # an even number of cache lines is padded to an odd one
    blocks = -(-inputs // width)
    workers, inner = min(threads, blocks), 1
    if kernel is FULL:
        edges = max(info.edges for info in infos)
        workers, inner = costs.inner_threads(threads, blocks, width, edges)
    block = kind.size(neurons, width, dtype)
    workers = max(1, min(workers, working // (count * block)))
    waiting = working - count * workers * block
    if in_memory:
        waiting = min(waiting, max(_WAITING, 8 * workers * block))
    return Sizes(tuple(starts), width, workers, inner, working, waiting, block)


def rows_within(memory: int, row_bytes: int, what: str, *, least: int, most: int) -> int:
    """Return how many rows of `row_bytes` bytes fit `memory`, at most `most`.

    Raises
    ------
    ArgumentError
        Fewer than `least` rows fit.
    """
    needed = min(least, most) * row_bytes
    if memory < needed:
        raise ArgumentError(
            f"memory={memory} is too small: a block of {min(least, most)} {what} needs {needed}"
            f" bytes; pass memory={needed} or more"
        )
    return min(most, memory // max(row_bytes, 1))


def layer_bytes(info: LayerInfo) -> int:
    """Return the bytes of a layer in memory, including its weights prepared for a block kernel."""
    pointers = 8 * (info.ncols + 1)
    return int(2 * (info.edges * (8 + info.dtype.itemsize) + pointers) + 8 * info.nrows)


class NetworkFacts(NamedTuple):
    """Properties of a network that choices depend on.

    Attributes
    ----------
    is_exact : bool
        Whether block kernels compute every layer exactly.
    edges, neurons, layers : int
        Total edges, neurons of the widest layer, number of layers.
    may_drop : bool
        Whether an input without entries has none after the last layer either.
    dtype : numpy.dtype
    """

    is_exact: bool
    edges: int
    neurons: int
    layers: int
    may_drop: bool
    dtype: np.dtype

    @classmethod
    def of(cls, net: Network) -> NetworkFacts:
        """Return the facts of a network."""
        return cls(
            is_exact=all(FUSED.is_exact(info) for info in net.infos),
            edges=net.edges,
            neurons=max(max(info.shape) for info in net.infos),
            layers=len(net),
            may_drop=not net.infos[-1].revives,
            dtype=net.infos[0].dtype,
        )


class _Past:
    """Work of a network's runs that went without the fused kernel, in ns."""

    def __init__(self, net: Network) -> None:
        self.work = 0.0


class LayerPlan(NamedTuple):
    """Properties of a layer that a run needs without its weights.

    Attributes
    ----------
    info : LayerInfo
    in_blocks : bool
        Whether the run's block kernel computes the layer exactly.
    droppable, droppable_after : bool
        Whether an input without entries before, or after, the layer stays empty to the end.
    may_overflow : bool
        Whether a sum may leave the dtype's range.
    """

    info: LayerInfo
    in_blocks: bool
    droppable: bool
    droppable_after: bool
    may_overflow: bool


def plan_layers(net: Network, largest: float, kernel: BlockKernel | None) -> list[LayerPlan]:
    """Return the plans of all layers for features of at most `largest` in absolute value."""
    # Rounded up to a power of two: few distinct plans are cached on the network.
    bound = 2.0 ** math.ceil(math.log2(largest)) if 0 < largest < 1e38 else largest
    return net.prepared(_Plan(kernel, bound))


@dataclass(frozen=True)
class _Plan:
    kernel: BlockKernel | None
    largest: float

    def __call__(self, net: Network) -> list[LayerPlan]:
        plans: list[LayerPlan] = []
        overflow = may_overflow(net.infos, self.largest)
        droppable = True
        for layer, check in zip(net.infos[::-1], overflow[::-1], strict=True):
            info, after = layer.info, droppable
            droppable = droppable and not info.revives
            in_blocks = self.kernel is not None and self.kernel.is_exact(info)
            plans.append(LayerPlan(info, in_blocks, droppable, after, check))
        return plans[::-1]


class Choice:
    """Kernel and sizes of one run.

    Parameters
    ----------
    net : Network
        With at least one layer.
    X : RowSource
    engine, memory, nthreads
        As for `infer`.
    may_be_shallow : bool
        Whether the other options allow a single window.

    Attributes
    ----------
    shallow : DenseRows, optional
        The features, if the run uses a single window. Otherwise None, and the following are set.
    engine : str
        As given.
    kernel : BlockKernel, optional
        Kernel of blocks; None if only the sparse kernel runs.
    sizes : Sizes
    plans : list of LayerPlan
    reorders, is_wide : bool
        Whether neurons are reordered, and whether weights are prepared for wide blocks.
    threads, memory : int
    dtype : numpy.dtype
    """

    def __init__(
        self,
        net: Network,
        X: RowSource,
        engine: Engine,
        memory: int,
        nthreads: int | None,
        *,
        may_be_shallow: bool,
    ) -> None:
        self._facts = net.prepared(NetworkFacts.of)
        # Of a network on disk, every run prepares the layers that it reads.
        self._past = net.prepared(_Past) if net.in_memory else _Past(net)
        self.engine, self._inputs = engine, X.nrows
        self.memory = memory
        self.dtype = self._facts.dtype
        self.shallow: DenseRows | None = None
        if may_be_shallow and engine in ("auto", "fused") and net.in_memory and X.nrows:
            lanes = 128 // self.dtype.itemsize
            least = 2 * AlignedBlock.size(self._facts.neurons, lanes, self.dtype)
            if least <= memory and fits_shallow(self._facts, X.nrows):
                self.shallow = dense_rows_of(X)
        fused = self._takes_fused()
        if self.shallow is not None and fused:
            return
        self.shallow = None
        self.threads = available() if nthreads is None else nthreads
        self.kernel: BlockKernel | None = FUSED if fused else FULL
        if engine == "sparse":
            self.kernel = None
        divided = partial(
            sizes, memory, net.infos, in_memory=net.in_memory, inputs=X.nrows, threads=self.threads
        )
        try:
            self.sizes = divided(kernel=self.kernel)
        except ArgumentError:
            if engine not in _CHOOSE:
                raise
            self.kernel, fused = None, False  # layers too wide for blocks may have few entries
            self.sizes = divided(kernel=None)
        self.plans = plan_layers(net, X.largest, self.kernel)
        self.reorders = self.kernel is not None and costs.reordering_pays(X.nrows)
        self.is_wide = fused and costs.is_wide(self.sizes.width, self.dtype.itemsize)

    def _takes_fused(self) -> bool:
        """Whether blocks use the fused kernel; if so, it is loaded."""
        if self.engine == "fused":
            FUSED.load(self.dtype)
        if self.engine != "auto":
            return self.engine == "fused"
        facts = self._facts
        preparing = facts.edges * costs.PREPARE_EDGE + facts.layers * costs.PREPARE_LAYER
        work = self._inputs * facts.edges * costs.speeds().full * self.dtype.itemsize / 4
        if self.shallow is None:
            work += facts.layers * costs.FULL_CALL
        # The ski-rental rule: runs without preparation cost at most as much as one preparation.
        pays = preparing <= max(self._past.work + work, costs.PREPARE_AT_ONCE)
        if pays and FUSED.is_due(self.dtype, work) and FUSED.has_loaded(self.dtype):
            self._past.work = math.inf
            return True
        self._past.work += work
        FUSED.went_without(self.dtype, work)
        return False

    def is_sparse(
        self, info: LayerInfo, inputs: int, entries: float, *, dense: bool = False
    ) -> bool:
        """Whether the sparse kernel computes a layer of rows with `entries` entries in total.

        With `dense`, the rows are an array that would have to be converted.
        """
        if self.kernel is None or not self.kernel.is_exact(info):
            return True
        if self.engine not in _CHOOSE:
            return False
        width = min(self.sizes.width, max(inputs, 1))
        in_blocks = -(-inputs // width) * self.kernel.cost(info, width, entries)
        as_rows = SPARSE.cost(info, inputs, entries)
        elements = float(inputs) * info.nrows
        if dense:
            as_rows += costs.FIND_ENTRIES * elements
            return as_rows < in_blocks + costs.DENSE_COPY * elements
        return as_rows < in_blocks + costs.CONVERT * entries

    def leaves(self, info: LayerInfo, blocks: Sequence[Any]) -> bool:
        """Whether blocks before a layer become sparse rows: required, or much cheaper."""
        if self.kernel is None or not self.kernel.is_exact(info):
            return True
        if self.engine not in _CHOOSE:
            return False
        some, inputs = sample(blocks[0].filled), sum(len(Y.inputs) for Y in blocks)
        entries = np.count_nonzero(some) / max(some.size, 1) * inputs * blocks[0].neurons
        as_rows = SPARSE.cost(info, inputs, entries) + costs.CONVERT * entries
        return bool(2 * as_rows < self.kernel.cost(info, inputs, entries))

    def buffers(self) -> Buffers:
        """Return the memory pool of the run's blocks."""
        if self.kernel is FUSED:
            shape = self._facts.neurons, self.sizes.width
            return Buffers(self.dtype, self.sizes.working, AlignedBlock, shape)
        return Buffers(self.dtype, self.sizes.working)


def fits_shallow(facts: NetworkFacts, inputs: int) -> bool:
    """Whether regrouping cannot help: the network is shallow, or inputs do not die."""
    deep = facts.layers > costs.DEEP and facts.may_drop and inputs > costs.FEW_INPUTS
    return facts.is_exact and not deep


def division(
    facts: NetworkFacts, neurons: int, inputs: int, nthreads: int | None, memory: int
) -> tuple[int, int]:
    """Return the inputs per block and the threads of a run in a single window."""
    size = facts.dtype.itemsize
    lanes = 2 * (64 // size)  # a tile of two cache lines is twice as fast as one
    each = facts.edges * costs.speeds().fused + neurons * costs.DENSE_COPY
    workers = (
        1 if inputs * each < costs.HAND_OVER else available() if nthreads is None else nthreads
    )
    narrowest = 2 * AlignedBlock.size(facts.neurons, lanes, facts.dtype)
    workers = max(1, min(workers, memory // narrowest))
    fits = memory // (narrowest * workers) * lanes
    widest = max(lanes, min(costs.direct_width(facts.neurons, size, each), fits))
    rounds = -(-inputs // (widest * workers))
    # The calling thread takes more than the others, which begin later.
    late = costs.LATE / each if rounds == 1 < workers else 0
    share = rounds * workers * lanes
    tiles = max(-(-inputs // share), round((inputs + late) / share))
    width = max(lanes, min(tiles * lanes, fits))
    return width, min(workers, -(-inputs // width))


def dense_rows_of(X: RowSource) -> DenseRows | None:
    """Return features for a single window if they are dense, or few enough to be made dense."""
    if isinstance(X, DenseRows):
        sparse = X.nrows > costs.FEW_INPUTS and not dense_pays(
            costs.SPARSEST * X.nrows * X.ncols, X.nvals
        )
        return None if sparse else X
    if X.nrows <= costs.FEW_INPUTS and X.nrows * X.ncols <= costs.FEW_ELEMENTS:
        rows = X.sparse_rows(0, X.nrows)
        return DenseRows(rows.dense(), rows.dtype)
    return None
