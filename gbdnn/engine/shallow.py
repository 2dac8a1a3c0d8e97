"""Compute dense inputs through a shallow network in one window, without regrouping.

In a network of a few layers, regrouping the surviving inputs does not pay. A block is read,
computed through all layers in one compiled call, and written to the answer. One or two inputs are
computed by `gbdnn.kernels.fused_shares.Singles` instead, with the same bits as result.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from gbdnn.engine.loader import layout_of
from gbdnn.engine.plan import NetworkFacts, plan_layers
from gbdnn.engine.progress import UNWATCHED
from gbdnn.engine.stats import of_layers
from gbdnn.kernels import fused_chain
from gbdnn.kernels.fused import FUSED
from gbdnn.kernels.fused_chain import FusedChain, Lane, Stream
from gbdnn.kernels.fused_shares import FusedShares
from gbdnn.kernels.kernel import ChainLayers
from gbdnn.kernels.together import taken
from gbdnn.runtime.threads import on_threads

if TYPE_CHECKING:
    from gbdnn.arrays.sources import DenseRows
    from gbdnn.engine.loader import Layout
    from gbdnn.engine.plan import Sizes
    from gbdnn.engine.progress import RunProgress
    from gbdnn.model.network import Network

__all__ = ["run_shallow"]

_log = logging.getLogger("gbdnn.inference")

_CAST = 4  # blocks of another dtype that are cast together


def run_shallow(
    net: Network, X: DenseRows, values: np.ndarray, present: np.ndarray | None = None, *,
    sizes: Sizes, progress: RunProgress = UNWATCHED,
) -> int:  # fmt: skip
    """Write the activations of the last layer of a shallow network to `values`.

    ``present`` is set to the mask of nonzero values; their number is returned. `sizes` are those of
    `single_window`.
    """
    wide = sizes.threads_each == 1 and FUSED.is_wide(min(sizes.width, X.nrows), X.dtype.itemsize)
    layout = layout_of(net, FUSED, reordered=False, wide=wide)
    chains = layout.cache.get(_Chains) or layout.cache.setdefault(_Chains, _Chains(net, layout))
    blocks = partial(_blocks, chains, X, values, present, sizes, progress)
    if sizes.threads_each == 1 or progress.is_watched:
        return blocks()
    # Calls are compared with earlier ones that have as many lines of inputs.
    kind = sizes.threads_each, -(-X.nrows * X.dtype.itemsize // 64)
    shared = chains.shared(*kind)
    entries = shared.run(X.dense_rows(0, X.nrows), chains.safe, values, present)
    if entries is None:
        entries = blocks()
    shared.end()
    chains.idle_shared[kind].append(shared)  # not after an error
    return entries


def _blocks(
    chains: _Chains, X: DenseRows, values: np.ndarray, present: np.ndarray | None, sizes: Sizes,
    progress: RunProgress,
) -> int:  # fmt: skip
    """Compute `run_shallow` in blocks, each on one thread."""
    width, workers = sizes.width, sizes.workers
    _log.debug("single window: %d threads, blocks of %d of %d inputs", workers, width, X.nrows)
    lanes = list[Lane]()

    def compute(first: int, rows: np.ndarray, lanes: list[Lane]) -> None:
        stream, found = chains.stream(), -2
        arrays = values[first:], None if present is None else present[first:]
        stream.begin(rows, width, chains.blocks_per_call(width), *arrays)
        while found == -2:
            began = perf_counter()
            found = stream.call(lanes)
            for lane in lanes if progress.is_watched else ():
                _tell(progress, lane, perf_counter() - began)
        if found >= 0:
            X.require_finite(first + found, first + found + width)
        chains.put(stream)

    def cast_and_compute(_: int) -> None:
        lane = chains.lane(width, watched=progress.is_watched)
        for first in starts:
            compute(first, X.dense_rows(first, first + _CAST * width), [lane])
        lanes.append(lane)

    if X.is_as_is:
        lanes += [chains.lane(width, watched=progress.is_watched) for _ in range(workers)]
        compute(0, X.array, lanes)
    else:
        starts = iter(range(0, X.nrows, _CAST * width))  # shared by the threads
        on_threads(workers, cast_and_compute, stop=lambda: deque(starts, maxlen=0))
    entries = sum(int(lane.done[0]) for lane in lanes)
    for lane in lanes:  # not after an error
        lane.done[:] = 0  # also the ticks of calls that nobody watched
        chains.idle_lanes[lane.watched].append(lane)
    return entries


def _tell(progress: RunProgress, lane: Lane, seconds: float) -> None:
    """Record the blocks of a call."""
    _, *ticks, _ = lane.done.tolist()
    reading, computing, writing = (seconds * each / max(1, sum(ticks)) for each in ticks)
    inputs = lane.counts[:, 0]
    progress.computed(0, inputs, int(inputs[0]), FUSED.name, computing * of_layers(lane.counts))
    progress.spent(reading=reading, writing=writing)
    lane.counts[:] = lane.done[1:] = 0


class _Chains:
    """Chains of a network's layers, cached with their layout.

    Attributes
    ----------
    unchecked, checked : FusedChain
        Without and with a check for sums outside the dtype's range.
    safe : float
        Magnitude of features up to which no sum leaves the range.
    idle_shared : dict of (int, int) to list of FusedShares
        By numbers of threads and of lines, for reuse.
    idle_streams : list of Stream
    idle_lanes : dict of bool to list of Lane
        By whether they are watched.
    """

    def __init__(self, net: Network, layout: Layout) -> None:
        # Looking for dead inputs costs time; every fourth layer is enough.
        checked = [
            plan._replace(droppable_after=plan.droppable_after and not k % 4)
            for k, plan in enumerate(plan_layers(net, np.inf, FUSED))
        ]
        unchecked = [plan._replace(may_overflow=False) for plan in checked]
        self.checked, self.unchecked = (
            FusedChain(ChainLayers(0, plans, layout.weights, layout.positions))
            for plans in (checked, unchecked)
        )
        self._facts = net.prepared(NetworkFacts.of)
        self.safe, self._work = self._facts.safe, self._facts.line
        self.idle_shared: dict[tuple[int, int], list[FusedShares]] = defaultdict(list)
        self.idle_streams: list[Stream] = []
        self.idle_lanes: dict[bool, list[Lane]] = defaultdict(list)

    def stream(self) -> Stream:
        """Return an idle stream, or a new one."""
        return taken(self.idle_streams, partial(Stream, self.unchecked, self.checked, self.safe))

    def put(self, stream: Stream) -> None:
        """Keep a stream without errors for reuse."""
        stream.end()
        self.idle_streams.append(stream)

    def blocks_per_call(self, width: int) -> int:
        """Return the number of blocks that take some hundredths of a second."""
        return max(1, int(fused_chain.CALL / (self._work / 16 * width)))

    def lane(self, width: int, *, watched: bool) -> Lane:
        """Return an idle lane for blocks of at least this width, or a new one."""
        make = partial(Lane, self.unchecked, width, watched=watched)
        found: Lane = taken(self.idle_lanes[watched], make)
        return found if found.width >= width else make()

    def shared(self, count: int, lines: int) -> FusedShares:
        """Return idle layers divided into `count` shares of neurons, or new ones."""
        make = partial(FusedShares, self.unchecked, count, lines * self._work)
        return taken(self.idle_shared[count, lines], make)
