"""Compute dense inputs through a shallow network in one window, without regrouping.

In a network of a few layers, regrouping the surviving inputs does not pay. A block is read,
computed through all layers in one compiled call, and written to the answer. Few inputs are computed
by `gbdnn.kernels.fused_shares` instead, with the same bits as result.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gbdnn.engine.compiled_run import read_parts
from gbdnn.engine.loader import layout_of
from gbdnn.engine.plan import plan_layers
from gbdnn.engine.progress import UNWATCHED
from gbdnn.engine.sizes import NetworkFacts, is_one_block
from gbdnn.engine.stats import Watch
from gbdnn.kernels import costs
from gbdnn.kernels.compiled.record import constant
from gbdnn.kernels.fused import FUSED
from gbdnn.kernels.fused_chain import FusedChain
from gbdnn.kernels.fused_run import CompiledRun
from gbdnn.kernels.fused_shares import FusedShares
from gbdnn.kernels.together import taken

if TYPE_CHECKING:
    from gbdnn.arrays.sources import DenseRows
    from gbdnn.engine.loader import Layout
    from gbdnn.engine.progress import RunProgress
    from gbdnn.engine.sizes import Sizes
    from gbdnn.model.network import Network

__all__ = ["run_shallow"]

_log = logging.getLogger("gbdnn.inference")

_CAST = 8 << 20  # bytes of rows of another dtype that are cast together


def run_shallow(
    net: Network, X: DenseRows, values: np.ndarray, present: np.ndarray | None = None, *,
    sizes: Sizes, progress: RunProgress = UNWATCHED,
) -> int:  # fmt: skip
    """Write the activations of the last layer of a shallow network to `values`.

    ``present`` is set to the mask of nonzero values; their number is returned. `sizes` are those of
    `single_window`.
    """
    wide = sizes.threads_each == 1 and costs.is_wide(min(sizes.width, X.nrows), X.dtype.itemsize)
    layout = layout_of(net, reordered=False, wide=wide)
    chains = layout.cache.get(_Chains) or layout.cache.setdefault(_Chains, _Chains(net, layout))
    blocks = partial(_blocks, chains, X, values, present, sizes, progress)
    facts, is_shared = chains.facts, sizes.threads_each > 1
    is_one = sizes.workers == 1 and is_one_block(facts, X.nrows, sizes.working)
    if progress.is_watched or not (is_shared or is_one):
        return blocks()
    shared = taken(chains.idle_shared, partial(FusedShares, chains.unchecked, facts.safe))
    rows, count = X.dense_rows(0, X.nrows), sizes.threads_each
    work = facts.line * -(-X.nrows * X.dtype.itemsize // 64)
    entries = shared.run(rows, count, work, values, present)
    if entries is None:
        entries = blocks()
    shared.end()
    chains.idle_shared.append(shared)  # not after an error
    return entries


def _blocks(
    chains: _Chains, X: DenseRows, values: np.ndarray, present: np.ndarray | None, sizes: Sizes,
    progress: RunProgress,
) -> int:  # fmt: skip
    """Compute `run_shallow` in blocks, each on one thread."""
    width, workers = sizes.width, sizes.workers
    _log.debug("single window: %d threads, blocks of %d of %d inputs", workers, width, X.nrows)
    idle = chains.idle_runs[width, workers]
    run: CompiledRun = taken(idle, partial(chains.new_run, width, workers))
    if progress.is_watched:
        run.watch(None)
    run.begin()
    run.set(answer=values, present=present)
    watch, status, last = Watch("", progress=progress), constant("READ"), 0

    def report() -> None:
        for pieces in run.log():
            watch.pieces(pieces, FUSED.name, is_last=True)

    while status == constant("READ"):
        parts, part, end = read_parts(X, last, width, workers, _CAST)
        run.read(parts, last, end, part, width, more=end < X.nrows)
        last = end
        status = run.advance(np.inf, report)
    if status == constant("FAULT"):
        run.raise_fault(X, chains.facts.infos)
    entries = run.entries
    run.set(answer=None, present=None, parts=None)
    if not progress.is_watched:
        idle.append(run)  # not after an error
    return entries


class _Chains:
    """Chains of a network's layers, cached with their layout.

    Attributes
    ----------
    unchecked, checked : FusedChain
        Without and with a check for sums outside the dtype's range.
    facts : NetworkFacts
    idle_shared : list of FusedShares
        For reuse.
    idle_runs : dict of (int, int) to list of CompiledRun
        By widths of blocks and numbers of threads.
    """

    def __init__(self, net: Network, layout: Layout) -> None:
        # Looking for dead inputs costs time; every fourth layer is enough.
        checked = [
            plan._replace(droppable_after=plan.droppable_after and not k % 4)
            for k, plan in enumerate(plan_layers(net, np.inf, FUSED))
        ]
        self.checked = FusedChain(0, checked, layout.weights, layout.positions)
        self.unchecked = self.checked.unchecked()
        self.facts = net.prepared(NetworkFacts.of)
        self.idle_shared: list[FusedShares] = []
        self.idle_runs: dict[tuple[int, int], list[CompiledRun]] = defaultdict(list)

    def new_run(self, width: int, workers: int) -> CompiledRun:
        """Return a run in blocks of a width on a number of threads."""
        infos = self.facts.infos
        run = CompiledRun(
            self.checked.dtype, [infos[0].nrows, *(info.ncols for info in infos)], [0, len(infos)],
            width=width, blocks=2 * workers, threads=workers,
        )  # fmt: skip
        run.load(self.checked, self.unchecked, self.facts.safe)
        run.set(clears=1)
        return run
