"""Direct runs: dense inputs through all layers of a network, without queues.

features ── rows of an array ──> block                  transposed and checked
block    ── all layers ────────> block                  one compiled call
block    ── transposed ────────> rows of the answer     written once, where they stay

Inputs of a network of a few layers live to its end, or die too late for survivors of several blocks
to go on together: there is nothing to schedule. A block has the same inputs, and an input the same
bits, on any number of threads. A single input is multiplied by rows of W instead, which gives the
same bits (`gbdnn.kernels.compiled.single`).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.engine.block_run import BlockRun, Task
from gbdnn.engine.choice import NetworkFacts
from gbdnn.engine.plan import chain_of, plan_layers, prepared_weights
from gbdnn.engine.progress import UNWATCHED
from gbdnn.kernels import costs
from gbdnn.kernels.blocks import AlignedBlock
from gbdnn.kernels.buffers import Buffers
from gbdnn.kernels.fused import FUSED
from gbdnn.kernels.fused_chain import FusedSingle
from gbdnn.kernels.overflow import may_overflow, non_finite
from gbdnn.runtime.threads import available, on_threads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gbdnn.engine.answer import DenseAnswer
    from gbdnn.engine.progress import RunProgress
    from gbdnn.engine.sources import DenseRows
    from gbdnn.model.network import Network

__all__ = ["run_directly"]

_log = logging.getLogger("gbdnn.inference")

_MAGNITUDES = (1.0, 16.0, 256.0, 1e4, 1e6, 1e9)
_ANY = 1 << 62  # bytes of memory


def run_directly(
    net: Network,
    X: DenseRows,
    answer: DenseAnswer,
    *,
    nthreads: int | None,
    memory: int = _ANY,
    progress: RunProgress = UNWATCHED,
) -> None:
    """Write the activations after the last layer into an answer.

    Parameters
    ----------
    net : Network
        In memory, with layers that the fused form gives exactly.
    X : DenseRows
    answer : DenseAnswer
        Of zeros.
    nthreads : int, optional
        Default: those of the engaged GraphBLAS Context, or of the configuration.
    memory : int
        Bytes that blocks may take.
    progress : RunProgress, optional
    """
    if X.nrows <= costs.SINGLES:
        net.prepared(_Singles).run(X, answer)
        progress.computed(0, [X.nrows] * len(net), X.nrows)
        return
    facts = net.prepared(NetworkFacts.of)
    width, workers = _division(facts, net.shape[0], X.nrows, nthreads, memory)
    wide = costs.is_wide(min(width, X.nrows), facts.dtype.itemsize)
    chains = net.prepared(_wide_chains if wide else _narrow_chains)
    _log.debug("direct: blocks of %d of %d inputs, %d threads", width, X.nrows, workers)
    work = _DirectBlocks(chains, X, answer, width, progress)
    if workers == 1:
        work.work(0)
    else:
        on_threads(workers, work.work, stop=work.stop)


def _division(
    facts: NetworkFacts, neurons: int, inputs: int, nthreads: int | None, memory: int
) -> tuple[int, int]:
    """Return how many inputs a block has, and how many threads have a share in the work."""
    size = facts.dtype.itemsize
    lanes = 64 // size
    if inputs <= lanes:
        return lanes, 1

    def nbytes(width: int) -> int:
        return 2 * AlignedBlock.size(facts.neurons, width, facts.dtype)

    lanes *= 2  # a tile of two lines is twice as fast as one
    widest = min(costs.direct_width(facts.neurons, size), -(-inputs // lanes) * lanes)
    while widest > lanes and nbytes(widest) > memory:
        widest -= lanes
    elements = neurons * costs.DENSE_COPY
    if inputs * (facts.edges * costs.MACHINE.fused + elements) < costs.HAND_OVER:
        nthreads = 1
    most = max(1, memory // nbytes(widest))
    nthreads = min(most, available() if nthreads is None else nthreads)

    # Inputs of the busiest thread: the widest blocks that hardly make them more.
    busiest = {
        width: min(inputs, -(-inputs // (width * nthreads)) * width)
        for width in range(lanes, widest + 1, lanes)
    }
    least = min(busiest.values())
    width = max(width for width, most in busiest.items() if most <= 1.05 * least)
    return width, min(nthreads, -(-inputs // width))


class _Chains:
    """What direct runs of blocks, wide ones or others, need of a network, which keeps it.

    Attributes
    ----------
    facts : NetworkFacts
    unchecked, checked : Chain
        Without and with a look for sums beyond the dtype's range.
    safe : float
        The magnitude of features up to which no sum leaves the range.
    idle : list of (int, Buffers)
        Width and blocks of a thread each, which stay for the next call; pop and append of a list
        are done under Python's lock.
    """

    def __init__(self, net: Network, *, wide: bool) -> None:
        self.facts, plans = net.prepared(NetworkFacts.of), plan_layers(net, np.inf, FUSED)
        weights, positions = prepared_weights(net, FUSED, reordered=False, wide=wide)
        # To look for the dead takes time: now and then is enough.
        droppable = [plan.droppable_after and not plan.k % 4 for plan in plans]
        self.unchecked, self.checked = (
            chain_of(
                FUSED, plans, weights, positions, checked=[check] * len(plans), droppable=droppable
            )
            for check in (False, True)
        )
        self.safe = max(
            (x for x in _MAGNITUDES if not any(may_overflow(net.infos, x))), default=0.0
        )
        self.idle: list[tuple[int, Buffers]] = []

    def buffers(self, width: int) -> tuple[int, Buffers]:
        """Return blocks for so many inputs or more, and for how many."""
        try:
            wide, found = self.idle.pop()
        except IndexError:
            wide = 0
        if wide < width:
            shape = self.facts.neurons, width
            return width, Buffers(self.facts.dtype, 0, AlignedBlock, shape)
        return wide, found


def _narrow_chains(net: Network) -> _Chains:
    return _Chains(net, wide=False)


def _wide_chains(net: Network) -> _Chains:
    return _Chains(net, wide=True)


class _DirectBlocks:
    """The blocks of a direct run, which its threads share; they stop at the end alone."""

    def __init__(
        self,
        chains: _Chains,
        X: DenseRows,
        answer: DenseAnswer,
        width: int,
        progress: RunProgress,
    ) -> None:
        self._chains, self._X, self._answer, self._width = chains, X, answer, width
        self._progress = progress
        self._starts: Iterator[int] = iter(range(0, X.nrows, width))  # threads may share it
        self._stop = chains.checked.layers.stop
        self.has_failed = False

    def work(self, _: int) -> None:
        """Take blocks until there are none."""
        chains, X = self._chains, self._X
        width, buffers = chains.buffers(self._width)
        for start in self._starts:
            rows = X.dense_rows(start, start + self._width)
            stop = start + len(rows)
            Y = chains.checked.block(buffers, 0, width)
            largest = chains.checked.read_dense(Y, 0, rows, np.arange(start, stop))
            if not largest < np.inf:
                X.require_finite(start, stop)
            chain = chains.unchecked if largest <= chains.safe else chains.checked
            run = BlockRun(chain, buffers, self, progress=self._progress)
            run.advance(Task(0, start, Y, fresh=True, inputs=len(rows)))
        chains.idle.append((width, buffers))  # after an error, its blocks are let go

    def stop(self) -> None:
        """Leave no block to be taken."""
        for _ in self._starts:
            pass

    def next_stop(self, k: int, task: Task) -> tuple[int, bool]:
        """Return the end."""
        return self._stop, False

    def takes(self, k: int, Y: Any, task: Task, *, due: bool) -> bool:
        """Nothing is to be decided."""
        return False

    def leave(self, k: int, Y: Any) -> None:
        """Write a block into the answer."""
        self._answer.write(partial(self._chains.checked.write, Y))


class _Singles:
    """What direct runs of single inputs need of a network, which keeps it."""

    def __init__(self, net: Network) -> None:
        self._infos = [info.info for info in net.infos]
        self._weights = [FUSED.prepare_single(layer) for layer in net]
        # Memory for the next call; a list's pop and append are done under Python's lock.
        self._idle: list[FusedSingle] = []

    def run(self, X: DenseRows, answer: DenseAnswer) -> None:
        """Write the activations of each input."""
        try:
            single = self._idle.pop()
        except IndexError:
            single = FusedSingle(self._weights, self._infos)
        for n, x in enumerate(X.dense_rows(0, X.nrows)):
            faulty = single.run(x, answer.values[n])
            if faulty == len(self._infos):
                X.require_finite(0, X.nrows)
            elif faulty >= 0:
                raise non_finite(faulty, self._infos[faulty])
        self._idle.append(single)
        answer.note_entries()
