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
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from gbdnn.arrays.threads import available
from gbdnn.engine.answer import DenseAnswer
from gbdnn.engine.choice import NetworkFacts, direct_bytes
from gbdnn.engine.plan import plan_layers, read_layers
from gbdnn.kernels import costs
from gbdnn.kernels.blocks import AlignedBlock
from gbdnn.kernels.fused import FUSED
from gbdnn.kernels.fused_chain import FusedChain, FusedSingle
from gbdnn.kernels.overflow import may_overflow, non_finite

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    import graphblas as gb

    from gbdnn.engine.dense_features import DenseFeatures
    from gbdnn.kernels.compiled.table import FusedLayer
    from gbdnn.model.network import Network

__all__ = ["DirectNetwork"]

_log = logging.getLogger("gbdnn.inference")

_MAGNITUDES = (1.0, 16.0, 256.0, 1e4, 1e6, 1e9)
_ANY = 1 << 62  # bytes of memory


class DirectNetwork:
    """A network that is prepared for direct runs; the network keeps it.

    Parameters
    ----------
    net : Network
        In memory, with layers that the fused form gives exactly.
    """

    def __init__(self, net: Network) -> None:
        # Not the network itself, which keeps this: it would outlive its last user.
        self._layers = net[:]
        self._plans = plan_layers(net, np.inf, (FUSED,))
        self._facts = net.prepared(NetworkFacts.of)
        self.dtype: np.dtype = net.infos[0].dtype
        self._width = costs.direct_width(self._facts.neurons, self.dtype.itemsize)
        self._lanes = 64 // self.dtype.itemsize
        self._safe = _safe(net)
        self._lock = threading.Lock()
        # Memory for the next call; a list's pop and append are done under Python's lock.
        self._workspaces: list[_Workspace] = []
        self._singles: list[FusedSingle] = []
        self._by_columns: list[FusedLayer] | None = None
        self._by_rows: list[FusedLayer] | None = None

    def matrix(
        self, X: DenseFeatures, *, nthreads: int | None, memory: int, sparse: bool
    ) -> gb.Matrix:
        """Return the activations after the last layer, as a sparse matrix or as its entries are.

        Parameters are those of `run`.
        """
        answer = DenseAnswer(X.nrows, self._layers.shape[1], self.dtype)
        answer.entries = self.run(
            X, answer.values, answer.present, nthreads=nthreads, memory=memory
        )
        return answer.matrix(sparse=sparse)

    def run(
        self,
        X: DenseFeatures,
        values: np.ndarray,
        present: np.ndarray | None,
        *,
        nthreads: int | None,
        memory: int = _ANY,
    ) -> int:
        """Write the activations after the last layer into `values`; return their entries.

        Parameters
        ----------
        X : DenseFeatures
        values : ndarray, shape (inputs, neurons of the last layer)
            Zeros, in C order.
        present : ndarray of bool, optional
            Zeros of the same shape; becomes True where a value is not 0.
        nthreads : int, optional
            Default: those of the engaged GraphBLAS Context, or of the configuration.
        memory : int
            Bytes that blocks may take.
        """
        if X.nrows <= costs.SINGLES:
            return self._run_singles(X, values, present)
        width, workers = self._division(X.nrows, nthreads, memory)
        _log.debug("direct: blocks of %d of %d inputs, %d threads", width, X.nrows, workers)
        share = _Share(X, values, present, width)
        if workers == 1:
            self._work(share)
        else:
            helpers: list[Future[None]] = []
            try:
                for _ in range(1, workers):
                    helpers.append(_helpers().submit(self._work, share))
                self._work(share)
            finally:
                share.stop()
                for each in helpers:
                    if not each.cancel():
                        each.exception()
            for each in helpers:
                if not each.cancelled():
                    each.result()
        return share.entries

    def _division(self, inputs: int, nthreads: int | None, memory: int) -> tuple[int, int]:
        """Return how many inputs a block has, and how many threads have a share in the work."""
        if inputs <= self._lanes:
            return self._lanes, 1
        lanes = 2 * self._lanes  # a tile of two lines is twice as fast as one
        widest = min(self._width, -(-inputs // lanes) * lanes)
        while widest > lanes and direct_bytes(self._facts.neurons, widest, self.dtype) > memory:
            widest -= lanes
        elements = self._layers.shape[0] * costs.DENSE_COPY
        if inputs * (self._facts.edges * costs.EDGE_FUSED + elements) < costs.HAND_OVER:
            nthreads = 1
        most = max(1, memory // direct_bytes(self._facts.neurons, widest, self.dtype))
        nthreads = min(most, available() if nthreads is None else nthreads)

        # Inputs of the busiest thread: the widest blocks that hardly make them more.
        busiest = {
            width: min(inputs, -(-inputs // (width * nthreads)) * width)
            for width in range(lanes, widest + 1, lanes)
        }
        least = min(busiest.values())
        width = max(width for width, most in busiest.items() if most <= 1.05 * least)
        return width, min(nthreads, -(-inputs // width))

    def _work(self, share: _Share) -> None:
        """Take blocks until there are none; an error ends the others' work too."""
        try:
            work = self._workspaces.pop()
        except IndexError:
            work = None
        if work is None or work.width < share.width:
            work = self._workspace(share.width)
        try:
            for start in share.starts:
                self._block(share, work, start)
        except BaseException:
            share.stop()
            raise
        self._workspaces.append(work)

    def _block(self, share: _Share, work: _Workspace, start: int) -> None:
        X, Y = share.X, work.Y
        rows = X.dense_rows(start, start + share.width)
        stop = start + len(rows)
        Y.neurons, Y.inputs = X.ncols, np.arange(start, stop)
        largest = work.safe.from_dense(Y, rows, None)
        if not largest < np.inf:
            X.require_finite(start, stop)
        chain = work.safe if largest <= self._safe else work.checked
        Y, _, faulty = chain.run(0, len(self._layers), Y, work.Z, tidy=False)
        if faulty >= 0:
            raise non_finite(faulty, self._layers[faulty])
        entries = chain.to_dense(Y, share.values, share.present)
        with self._lock:
            share.entries += entries

    def _run_singles(self, X: DenseFeatures, values: np.ndarray, present: np.ndarray | None) -> int:
        try:
            single = self._singles.pop()
        except IndexError:
            single = FusedSingle(self._rows(), self._facts.neurons, self.dtype)
        for x, out in zip(X.dense_rows(0, X.nrows), values, strict=True):
            faulty = single.run(x, out)
            if faulty == len(self._layers):
                X.require_finite(0, X.nrows)
            elif faulty >= 0:
                raise non_finite(faulty, self._layers[faulty])
        self._singles.append(single)
        if present is None:
            return 0
        np.not_equal(values, 0, out=present)
        return int(np.count_nonzero(present))

    def _workspace(self, width: int) -> _Workspace:
        with self._lock:
            if self._by_columns is None:
                ready = read_layers(self._layers, self._plans, reordered=False)
                self._by_columns = [each.weights for each in ready]
        # To look for the dead takes time: now and then is enough.
        droppable = [plan.droppable_after and not plan.k % 4 for plan in self._plans]
        safe, checked = (
            FusedChain(self._by_columns, droppable, self.dtype, [check] * len(droppable))
            for check in (False, True)
        )
        return _Workspace(safe, checked, self._facts.neurons, width)

    def _rows(self) -> list[FusedLayer]:
        """Return the layers as single inputs want them."""
        with self._lock:
            if self._by_rows is None:
                self._by_rows = [FUSED.prepare_single(layer) for layer in self._layers]
            return self._by_rows


def _safe(net: Network) -> float:
    """Return a magnitude of features up to which no sum leaves the dtype's range."""
    return max((x for x in _MAGNITUDES if not any(may_overflow(net.infos, x))), default=0.0)


class _Share:
    """What the threads of a run share: blocks to be taken, and where rows come from and go to."""

    def __init__(
        self, X: DenseFeatures, values: np.ndarray, present: np.ndarray | None, width: int
    ) -> None:
        self.X, self.values, self.present, self.width = X, values, present, width
        self.entries = 0
        self.starts: Iterator[int] = iter(range(0, X.nrows, width))  # threads may share it

    def stop(self) -> None:
        """Leave no block to be taken."""
        for _ in self.starts:
            pass


class _Workspace:
    """A thread's blocks, and its chain of layers: one without and one with checks for overflow."""

    def __init__(self, safe: FusedChain, checked: FusedChain, neurons: int, width: int) -> None:
        self.safe, self.checked, self.width = safe, checked, width
        self.Y, self.Z = (AlignedBlock(neurons, width, safe.dtype) for _ in range(2))


@cache
def _helpers() -> ThreadPoolExecutor:
    """Return the threads beside the caller's; they are kept, since starting one takes 0.1 ms."""
    return ThreadPoolExecutor(os.cpu_count(), "gbdnn_direct")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.cache_clear)
