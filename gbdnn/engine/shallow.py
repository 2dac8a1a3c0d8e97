"""Compute dense inputs through a shallow network in one window, without regrouping.

In a network of a few layers, regrouping the surviving inputs does not pay. A block is read,
computed through all layers in one compiled call, and written to the answer. One or two inputs are
multiplied by rows of W instead, with the same bits as result.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.engine.loader import layout_of
from gbdnn.engine.plan import NetworkFacts, plan_layers
from gbdnn.engine.progress import UNWATCHED
from gbdnn.engine.stats import of_layers
from gbdnn.kernels import costs
from gbdnn.kernels.blocks import AlignedBlock, Buffers
from gbdnn.kernels.fused import FUSED
from gbdnn.kernels.fused_chain import Lane, Stream
from gbdnn.kernels.fused_shares import FusedShares, FusedSingle
from gbdnn.kernels.kernel import ChainLayers
from gbdnn.kernels.overflow import non_finite
from gbdnn.runtime.threads import on_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gbdnn.arrays.answer import Answer
    from gbdnn.arrays.sources import DenseRows
    from gbdnn.engine.loader import Layout
    from gbdnn.engine.plan import Sizes
    from gbdnn.engine.progress import RunProgress
    from gbdnn.kernels.compiled.table import FusedLayer
    from gbdnn.model.network import Network

__all__ = ["is_shallow", "run_shallow", "run_singles"]

_log = logging.getLogger("gbdnn.inference")

_CALL = 3e7  # ns of a compiled call, which cannot be interrupted


def is_shallow(net: Network) -> bool:
    """Whether `run_shallow` can compute a network exactly, regardless of cost."""
    return net.in_memory and net.prepared(NetworkFacts.of).is_exact


def run_singles(
    net: Network, X: DenseRows, *, sizes: Sizes, values: np.ndarray | None = None
) -> np.ndarray:
    """Compute inputs one by one; return the activations of the last layer, in `values` if given."""
    found = np.empty((X.nrows, net.shape[1]), X.dtype) if values is None else values
    net.prepared(_Singles).run(X, found, sizes.threads_each)
    return found


def run_shallow(
    net: Network, X: DenseRows, answer: Answer, *, sizes: Sizes, progress: RunProgress = UNWATCHED
) -> None:
    """Write the activations of the last layer of a shallow network to an answer.

    `sizes` are those of `single_window`.
    """
    width, workers, shares = sizes.width, sizes.workers, sizes.threads_each
    _log.debug("single window: %d threads, blocks of %d of %d inputs", workers, width, X.nrows)
    wide = costs.is_wide(min(width, X.nrows), X.dtype.itemsize)
    layout = layout_of(net, FUSED, reordered=False, wide=wide)
    chains = layout.cache.get(_Chains) or layout.cache.setdefault(_Chains, _Chains(net, layout))
    stop = len(net)
    starts, stream = iter(range(0, X.nrows, width)), None  # shared by the threads
    left: list[int] = []  # first inputs of blocks that the stream does not compute
    if answer.is_array and X.is_as_is and shares == 1 and not progress.is_watched:
        stream = chains.stream()
        stream.begin(X.array, width, chains.blocks_per_call(width), *answer.arrays())

    def streamed() -> Iterator[int]:
        """Yield the first inputs of blocks whose sums have to be checked; compute the others."""
        lane = chains.lane(width)
        for start in stream.run(lane):  # type: ignore[union-attr]
            left.append(start)
            yield start
        answer.note(*lane.done.tolist())
        lane.done[:] = 0
        chains.idle_lanes.append(lane)

    def work(_: int) -> None:
        wide, buffers = 0, None
        for start in starts if stream is None else streamed():
            if buffers is None:
                wide, buffers = chains.buffers(width)
            begun = perf_counter()
            rows = X.dense_rows(start, start + width)
            ids = np.arange(start, start + len(rows))
            Y = chains.checked.block(buffers, 0, wide)
            largest = chains.checked.read_dense(Y, 0, rows, ids)
            if not largest < np.inf:
                X.require_finite(start, start + len(rows))
            chain = chains.unchecked if largest <= chains.safe else chains.checked
            counts = np.zeros((stop, 5), np.int64) if progress.is_watched else None
            began = perf_counter()
            if shares > 1 and chain is chains.unchecked and counts is None:
                shared = chains.shared(shares)
                Y = shared.run(Y, buffers)
                chains.idle_shared[shares].append(shared)
            else:
                Y = chain.run(Y, 0, stop, buffers, tidy=False, counts=counts, stands=None)
            if counts is not None:
                ended = perf_counter()
                each = (ended - began) * of_layers(counts)
                progress.computed(0, counts[:, 0], len(Y.inputs), chain.name, each)
            answer.write(chain, Y, droppable=chain.layers.plans[-1].droppable_after)
            if len(Y.inputs) < len(rows):  # the chain has overwritten ids of dropped inputs
                answer.clear(np.setdiff1d(np.arange(start, start + len(rows)), Y.inputs))
            buffers.put(Y)
            if counts is not None:
                progress.spent(reading=began - begun, writing=perf_counter() - ended)
        if buffers is not None:
            chains.idle.append((wide, buffers))  # not after an error

    if workers == 1:
        work(0)
    else:
        end = (lambda: [None for _ in starts]) if stream is None else stream.stop
        on_threads(workers, work, stop=end)
    if stream is not None:
        ids = np.arange(X.nrows)
        answer.wrote(ids[~np.isin(ids // width * width, left)] if left else ids)
        stream.end()
        chains.idle_streams.append(stream)  # not after an error


class _Chains:
    """Chains of a network's layers, cached with their layout.

    Attributes
    ----------
    unchecked, checked : Chain
        Without and with a check for sums outside the dtype's range.
    safe : float
        Magnitude of features up to which no sum leaves the range.
    idle : list of (int, Buffers)
        Width and blocks of one thread each, for reuse by the next call.
    idle_shared : dict of int to list of FusedShares
        By number of threads, for reuse.
    idle_streams, idle_lanes : list of Stream, list of Lane
        For reuse.
    """

    def __init__(self, net: Network, layout: Layout) -> None:
        # Looking for dead inputs costs time; every fourth layer is enough.
        checked = [
            plan._replace(droppable_after=plan.droppable_after and not k % 4)
            for k, plan in enumerate(plan_layers(net, np.inf, FUSED))
        ]
        unchecked = [plan._replace(may_overflow=False) for plan in checked]
        self.checked, self.unchecked = (
            FUSED.chain(ChainLayers(0, plans, layout.weights, layout.positions))
            for plans in (checked, unchecked)
        )
        self._facts = net.prepared(NetworkFacts.of)
        self.safe, self._work = self._facts.safe, self._facts.line
        self.idle: list[tuple[int, Buffers]] = []
        self.idle_shared: dict[int, list[FusedShares]] = defaultdict(list)
        self.idle_streams: list[Stream] = []
        self.idle_lanes: list[Lane] = []

    def stream(self) -> Stream:
        """Return an idle stream of unchecked blocks, or a new one."""
        chain: Any = self.unchecked  # of the fused kernel
        return _taken(self.idle_streams, partial(Stream, chain, self.safe))

    def blocks_per_call(self, width: int) -> int:
        """Return the number of blocks that take some hundredths of a second."""
        return max(1, int(_CALL / (self._work / 16 * width)))

    def shared(self, count: int) -> FusedShares:
        """Return idle layers divided into `count` shares of neurons, or new ones."""
        chain: Any = self.unchecked  # of the fused kernel
        make = partial(FusedShares, chain, count, self._work)
        return _taken(self.idle_shared[count], make)

    def lane(self, width: int) -> Lane:
        """Return an idle lane for blocks of at least this width, or a new one."""
        chain: Any = self.unchecked  # of the fused kernel
        found: Lane = _taken(self.idle_lanes, partial(Lane, chain, width))
        return found if found.width >= width else Lane(chain, width)

    def buffers(self, width: int) -> tuple[int, Buffers]:
        """Return the width and buffers of idle blocks of at least this width, or of new ones."""
        wide, found = _taken(self.idle, lambda: (0, None))
        if wide >= width:
            return wide, found
        shape = self._facts.neurons, width
        return width, Buffers(self._facts.dtype, 0, AlignedBlock, shape)


class _Singles:
    """A network prepared for single inputs, cached on the network."""

    def __init__(self, net: Network) -> None:
        facts = net.prepared(NetworkFacts.of)
        self._layers, self._infos, self._work = list(net), facts.infos, facts.single
        sizes = [(info.edges, *info.shape) for info in self._infos]
        self._density = costs.single_density(sizes, self._infos[0].dtype.itemsize)
        self._shares: dict[int, list[list[FusedLayer]]] = {}
        self._idle: dict[int, list[FusedSingle]] = defaultdict(list)  # reused by the next call

    def run(self, X: DenseRows, values: np.ndarray, count: int) -> None:
        """Write the activations of each input to a row of `values`, with `count` threads."""
        faulty = -1
        single = _taken(self._idle[count], partial(self._single, count))
        for n, x in enumerate(X.dense_rows(0, X.nrows)):
            faulty = max(faulty, single.run(x, values[n]))
        self._idle[count].append(single)
        if faulty == len(self._infos):
            X.require_finite(0, X.nrows)
        elif faulty >= 0:
            raise non_finite(faulty, self._infos[faulty])

    def _single(self, count: int) -> FusedSingle:
        for n in (1, count):
            if n not in self._shares:
                self._shares[n] = [
                    FUSED.prepare_single(layer, self._density, n) for layer in self._layers
                ]
        return FusedSingle(self._shares[1], self._shares[count], self._infos, self._work)


def _taken(idle: list[Any], make: Callable[[], Any]) -> Any:
    """Take an object from a list, or make one; `pop` and `append` of a list are atomic."""
    try:
        return idle.pop()
    except IndexError:
        return make()
