"""Sizes of a run: blocks, threads, and the division of its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gbdnn.arrays.checks import rows_within
from gbdnn.errors import ArgumentError
from gbdnn.kernels import costs
from gbdnn.kernels.blocks import AlignedBlock
from gbdnn.kernels.kernel import starts_at_bias
from gbdnn.kernels.overflow import may_overflow
from gbdnn.runtime.machine import machine
from gbdnn.runtime.threads import available

if TYPE_CHECKING:
    import numpy as np

    from gbdnn.kernels.kernel import BlockKernel
    from gbdnn.model.layer_info import LayerInfo
    from gbdnn.model.network import Network

__all__ = [
    "MAGNITUDES", "NetworkFacts", "Sizes", "division", "is_one_block", "layer_bytes", "sharing",
    "single_window", "sizes",
]  # fmt: skip

MAGNITUDES = (1.0, 16.0, 256.0, 1e4, 1e6, 1e9)
"""Bounds of features for which plans of layers are kept."""

_TEMPORARIES = 4  # sparse matrices that the sparse kernel holds at the same time
_WAITING = 64 << 20  # bytes of blocks that wait between windows; more would not fit the caches


class NetworkFacts(NamedTuple):
    """Properties of a network that choices depend on.

    Attributes
    ----------
    is_exact : bool
        Whether sums of every layer may start at the bias, as in block kernels.
    edges, neurons : int
        Total edges, neurons of the widest layer.
    dtype : numpy.dtype
    in_memory : bool
    infos : tuple of LayerInfo
    narrowest : int
        Bytes of the narrowest blocks of a single window.
    single, line : float
        Estimated time of an input alone, and of a cache line of inputs, on one thread in ns.
    safe : float
        Magnitude of features up to which no sum of a block kernel leaves the dtype's range.
    """

    is_exact: bool
    edges: int
    neurons: int
    dtype: np.dtype
    in_memory: bool = True
    infos: tuple[LayerInfo, ...] = ()
    narrowest: int = 0
    single: float = 0.0
    line: float = 0.0
    safe: float = 0.0

    @classmethod
    def of(cls, net: Network) -> NetworkFacts:
        """Return the facts of a network."""
        neurons, dtype = max(max(info.shape) for info in net.infos), net.infos[0].dtype
        return cls(
            is_exact=all(map(starts_at_bias, net.infos)), edges=net.edges, neurons=neurons,
            dtype=dtype, in_memory=net.in_memory, infos=tuple(info.info for info in net.infos),
            narrowest=2 * AlignedBlock.size(neurons, 128 // dtype.itemsize, dtype),
            single=sum(costs.single_layer(info.edges, *info.shape) for info in net.infos),
            line=sum(costs.fused_layer(16, info.edges, *info.shape, 4) for info in net.infos),
            safe=max((x for x in MAGNITUDES if not any(may_overflow(net.infos, x))), default=0.0),
        )  # fmt: skip


class Sizes(NamedTuple):
    """Division of the memory budget of a run.

    Attributes
    ----------
    starts : tuple of int
        First layer of each group of layers that is loaded together.
    width : int
        Inputs per block.
    workers, threads_each : int
        Blocks computed at the same time, and threads that share the neurons of each layer.
    working, waiting, block : int
        Bytes of all activations, of the blocks and rows that wait between windows, and of a block.
    entries : int
        Entries of all rows that the sparse kernel computes at the same time.
    enough : int
        Memory in which it computes any input, whatever entries the layers may give it.
    """

    starts: tuple[int, ...]
    width: int
    workers: int
    threads_each: int
    working: int
    waiting: int
    block: int
    entries: int = 0
    enough: int = 0


def sizes(
    net: NetworkFacts, inputs: int, threads: int, memory: int, kernel: BlockKernel | None
) -> Sizes:
    """Return the sizes of a run that fits `memory` bytes.

    ===================  =================  ===============
    fraction for         network in memory  network on disk
    ===================  =================  ===============
    activations          all                1/2
    layers, two groups   (the caller's)     1/2
    ===================  =================  ===============

    Each thread works on `BlockKernel.at_once` blocks. The rest holds blocks and rows that wait
    between windows. Without a block kernel, half of the activations' fraction holds the sparse
    kernel's temporary matrices. Freed memory that the C library keeps is not counted.

    Raises
    ------
    ArgumentError
        `memory` cannot hold the narrowest blocks of one thread, or a layer of a network on disk.
    """
    parts = 1 if net.in_memory else 2
    working, starts, used = memory // parts, [0], 0
    for k, info in enumerate(() if net.in_memory else net.infos):
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
    neurons, dtype = max(net.neurons, 1), net.dtype
    entry = 2 * _TEMPORARIES * (8 + dtype.itemsize)
    plain = Sizes((*starts,), inputs or 1, 1, threads, working, working // 2, 1, working // entry)
    if kernel is None:
        most = max(i.ncols if i.revives else min(i.ncols, i.edges) for i in net.infos)
        return plain._replace(enough=parts * entry * most)
    count, step = kernel.at_once, kernel.step(dtype)
    width = max(step, kernel.width(neurons, dtype.itemsize, inputs, threads))
    row = parts * count * neurons * dtype.itemsize
    fits = rows_within(memory, row, f"inputs x {neurons} neurons", least=step, most=width)
    if fits < width or count * kernel.size(neurons, width, dtype) > working:
        width = fits // step * step
    while width > step and count * kernel.size(neurons, width, dtype) > working:
        width -= step
    workers = max(1, min(threads, -(-inputs // width)))
    inner = 1 if kernel.is_compiled else threads // workers
    block = kernel.size(neurons, width, dtype)
    workers = max(1, min(workers, working // (count * block)))
    waiting = working - count * workers * block
    if net.in_memory:
        waiting = min(waiting, max(_WAITING, 8 * workers * block))
    return plain._replace(
        width=width, workers=workers, threads_each=inner, waiting=waiting, block=block
    )


def layer_bytes(info: LayerInfo) -> int:
    """Return the bytes of a layer in memory, including its weights prepared for a block kernel."""
    columns = info.edges * (8 + info.dtype.itemsize) + 8 * (info.ncols + 1)
    return int(2 * columns + 8 * info.nrows)


def single_window(
    facts: NetworkFacts, inputs: int, nthreads: int | None, memory: int = 1 << 62
) -> Sizes:
    """Return the sizes of a run in a single window."""
    # A shared block may be twice as wide as the narrowest one.
    shares = sharing(facts, inputs, nthreads) if 2 * facts.narrowest <= memory else 1
    width, workers = (1 if inputs <= costs.SINGLES else inputs), 1
    if shares == 1 and inputs > costs.SINGLES:
        width, workers = division(facts, inputs, nthreads, memory)
        width = inputs if workers == 1 and is_one_block(facts, inputs, memory) else width
    return Sizes((0,), width, workers, shares, memory, 0, 1)


def is_one_block(facts: NetworkFacts, inputs: int, memory: int) -> bool:
    """Whether one thread computes inputs in one block, without the pieces and slices of a run."""
    lines = -(-inputs * facts.dtype.itemsize // 64)
    is_short = lines <= costs.SHARED_LINES and lines * facts.line <= costs.SHORT
    fits = 2 * facts.narrowest <= memory  # a shared block may be twice as wide as the narrowest one
    return is_short and fits and not costs.is_wide(inputs, facts.dtype.itemsize)


def sharing(facts: NetworkFacts, inputs: int, nthreads: int | None) -> int:
    """Return how many threads share the neurons of each layer: one for many inputs."""
    lines = -(-inputs * facts.dtype.itemsize // 64)
    if lines > costs.SHARED_LINES or nthreads == 1:
        return 1
    narrow = facts.edges * costs.EDGE + lines * facts.line
    work = facts.single if inputs <= costs.SINGLES else narrow
    # They wait for each other: more of them than cores would stop each other.
    most = min(costs.sharing_threads(work, len(facts.infos)), machine().cores)
    threads = min(most, nthreads or available()) if most > 1 else 1
    # Two threads, each with half of four lines, do not wait for each other.
    return 1 if lines == 2 * threads > 2 else threads


def division(
    facts: NetworkFacts, inputs: int, nthreads: int | None, memory: int
) -> tuple[int, int]:
    """Return the inputs per block and the threads of a run in a single window."""
    lanes = 128 // facts.dtype.itemsize  # a tile of two cache lines is twice as fast as one
    input_cost = facts.edges * costs.speeds().fused + facts.infos[0].nrows * costs.DENSE_COPY
    workers = 1 if inputs * input_cost < costs.HAND_OVER else nthreads or available()
    workers = max(1, min(workers, machine().cores, memory // facts.narrowest))
    fits = memory // (facts.narrowest * workers) * lanes
    widest = max(lanes, min(costs.direct_width(facts.dtype.itemsize), fits))
    rounds = -(-inputs // (widest * workers))
    width = -(-inputs // (rounds * workers * lanes)) * lanes
    return width, min(workers, -(-inputs // width))
