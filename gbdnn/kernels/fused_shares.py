"""Compute a single input, or a narrow block, on threads that divide each layer's neurons."""

from __future__ import annotations

from collections import deque
from functools import partial
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.kernels import costs
from gbdnn.kernels.blocks import AlignedBlock
from gbdnn.kernels.compiled.loading import required
from gbdnn.kernels.compiled.record import Record, constant
from gbdnn.kernels.compiled.table import shares, single_shares
from gbdnn.kernels.fused import FUSED
from gbdnn.kernels.overflow import non_finite
from gbdnn.kernels.together import ALONE, openmp_team, taken, together

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gbdnn.arrays.sources import DenseRows
    from gbdnn.kernels.fused_chain import FusedChain
    from gbdnn.model.layer_info import LayerInfo
    from gbdnn.model.network import Network

__all__ = ["FusedShares", "FusedSingle", "Singles"]


_ALONE = 16  # first calls, without helpers; the median time of as many is kept
_TRIAL = 8  # calls with helpers, whose time is compared with it
_PAUSE = 16, 4096  # calls without helpers if those took longer, at first and at most
_SOON = 1e-9 * constant("STAY")  # seconds that helpers wait for the next call


class _Job(Record):
    """Arguments of compiled calls that threads compute together; not thread-safe.

    Waking helpers takes about as long as a short call. They take part in longer calls, and if a
    call begins soon after the last one; PyTorch's threads are often awake. If calls with helpers
    take longer than those without, the next calls do without: each time four times as many, and
    half as many otherwise. One input on two hardware threads of a core is such a case.

    Parameters
    ----------
    what : {"block", "single"}
        What is computed.
    dtype : dtype
    large : bool
        Whether the caches are too small for the weights: all calls fetch them early, and not only
        those after other work.
    **members : int, ndarray or Record
        Members of the record that do not change.
    """

    def __init__(self, what: str, dtype: np.dtype, *, large: bool = False, **members: Any) -> None:
        self.counters = np.zeros(constant("PROGRESS") + 2 * members["layers"], np.int64)
        super().__init__("job", dtype, counters=self.counters, **members)
        compiled = required(dtype)
        self._function = getattr(compiled, f"share_{what}")
        alone = getattr(compiled.library, f"share_{what}")
        self._alone = partial(alone, self.c, ALONE.c)  # in 0.2 us instead of 1
        self._large, self._cold = large, False
        self._began, self._ended = 0.0, -np.inf
        self._trials = dict[Any, _Trial]()  # by number of threads, and work
        self._trial: _Trial | None = None

    def begin(self, count: int, work: float) -> bool:
        """Return whether helpers take part in a call on `count` threads.

        It takes about `work` ns on one thread.
        """
        self._began = perf_counter()
        soon = self._began - self._ended <= _SOON
        cold = self._large or not soon
        if cold != self._cold:
            self.set(cold=cold)
            self._cold = cold
        if count == 1 or not (work >= costs.HAND_OVER or soon or openmp_team(count) is not None):
            self._trial = None
            return False
        self._trial = self._trials.setdefault((count, work), _Trial())
        return self._trial.helps()

    def compute(self, count: int) -> int:
        """Compute the job on threads; return the first counter."""
        together(count, self._function, self) if count > 1 else self._alone()
        return int(self.counters[0])

    def end(self) -> None:
        """Note the end of a call."""
        self._ended = perf_counter()
        if self._trial is not None:
            self._trial.took(self._ended - self._began)


class _Trial:
    """Times of calls with and without helpers, in seconds."""

    def __init__(self) -> None:
        self._pause, self._paused, self._is_helped = _PAUSE[0], _ALONE, False
        self._alone, self._helped = deque[float](maxlen=_ALONE), list[float]()

    def helps(self) -> bool:
        self._is_helped = self._paused == 0
        self._paused -= not self._is_helped
        return self._is_helped

    def took(self, seconds: float) -> None:
        if not self._is_helped:
            self._alone.append(seconds)
            return
        self._helped.append(seconds)
        if len(self._helped) == _TRIAL:
            if self._alone and median(self._helped) > median(self._alone):
                self._paused, self._pause = self._pause, min(4 * self._pause, _PAUSE[1])
            else:
                self._pause = max(self._pause // 2, _PAUSE[0])
            self._helped.clear()


class FusedShares(_Job):
    """A block of a few cache lines of inputs, through all layers of a chain; not thread-safe.

    Parameters
    ----------
    chain : FusedChain
        Without panels. Sums are not checked, and inputs not dropped.
    largest : float
        Magnitude of features up to which no sum leaves the range.
    """

    def __init__(self, chain: FusedChain, largest: float) -> None:
        self._chain, dtype, layers = chain, chain.dtype, len(chain.weights)
        self._largest = int(np.array(largest, dtype).view(f"i{dtype.itemsize}"))
        width = costs.SHARED_LINES * 64 // dtype.itemsize
        Y, Z = (AlignedBlock(chain.neurons, width, dtype) for _ in range(2))
        super().__init__("block", dtype, Y=Y.whole, Z=Z.whole, stride=Y.stride, layers=layers)
        self._Y, self._last = Y, Z if layers % 2 else Y
        self._tables: dict[int, Record] = {}  # by number of shares

    def run(
        self, rows: np.ndarray, count: int, work: float, values: np.ndarray,
        present: np.ndarray | None,
    ) -> int | None:  # fmt: skip
        """Compute rows of at most `costs.SHARED_LINES` lines, and write the answer's rows.

        Parameters
        ----------
        count : int
            Number of threads, and of shares of each layer if others help.
        work : float
            Estimated time on one thread, in ns.

        Returns
        -------
        int or None
            Number of entries, if `present` is given. None if a feature is too large: another way
            has to compute the rows before `end`.
        """
        count = count if self.begin(count, work) else 1
        plans, compiled, inputs = self._chain.plans, self._chain.compiled, len(rows)
        row, column = (stride // rows.itemsize for stride in rows.strides)
        Y, neurons = self._Y, plans[0].info.nrows
        of_rows = rows, row, column, None, inputs, None
        if compiled.from_dense(*of_rows, Y.whole, Y.stride, neurons) > self._largest:
            return None
        if count not in self._tables:
            weights = self._chain.weights
            self._tables[count] = Record.joined([shares(layer, count) for layer in weights])
        self.set(inputs=inputs, table=self._tables[count], shares=count)
        self.compute(count)
        Y, neurons = self._last, plans[-1].info.ncols
        of_answer = np.arange(inputs), inputs, values, neurons, present
        return int(compiled.to_dense(Y.whole, Y.stride, neurons, *of_answer))


class FusedSingle(_Job):
    """One input at a time through all layers; not thread-safe.

    Parameters
    ----------
    table : callable
        ``table(count)`` returns the layers in `count` shares.
    infos : sequence of LayerInfo
    """

    def __init__(self, table: Callable[[int], Record], infos: Sequence[LayerInfo]) -> None:
        dtype, edges = infos[0].dtype, sum(info.edges for info in infos)
        large = costs.exceed_caches(edges, dtype.itemsize)
        super().__init__("single", dtype, large=large, layers=len(infos))
        self._infos, self._table, self._count = infos, table, 0

    def run(self, x: np.ndarray, out: np.ndarray, count: int, work: float) -> int:
        """Write the activations of the last layer to `out`, on `count` threads if others help.

        Returns
        -------
        int
            -1 on success; otherwise the layer in which a sum is not finite, or the number of layers
            if a value of `x` is not finite.
        """
        # Whole layers are faster if no other thread helps.
        count = count if self.begin(count, work) else 1
        if count != self._count:
            self._divide(count)
        self._first[:] = x
        faulty = self.compute(count)
        self.end()
        out[:] = self._last
        return faulty - 1

    def _divide(self, count: int) -> None:
        infos, table = self._infos, self._table(count)
        neurons = max(max(info.nrows for info in infos), *(each.width for each in table.all))
        y, z = (AlignedBlock(1, neurons, infos[0].dtype).whole[0] for _ in range(2))
        active = np.empty((count, neurons), np.uint32)
        self.set(table=table, shares=count, active=active, neurons=neurons, Y=y, Z=z)
        self._first, self._count = y[: infos[0].nrows], count
        self._last = (z if len(infos) % 2 else y)[: infos[-1].ncols]


class Singles:
    """A network prepared for single inputs."""

    def __init__(self, net: Network) -> None:
        self._infos = [info.info for info in net.infos]
        sizes = [(info.edges, *info.shape) for info in self._infos]
        self._work = sum(costs.single_layer(*each) for each in sizes)
        density = costs.single_density(sizes, self._infos[0].dtype.itemsize)
        self._layers = [FUSED.prepare_single(layer, density) for layer in net]
        self._tables: dict[int, Record] = {}  # by number of shares, those of the last two
        self._idle: list[FusedSingle] = []  # reused by the next call

    def run(self, X: DenseRows, values: np.ndarray, count: int) -> None:
        """Write the activations of each input to a row of `values`, with `count` threads."""
        faulty = -1
        single = taken(self._idle, partial(FusedSingle, self._table, self._infos))
        for n, x in enumerate(X.dense_rows(0, X.nrows)):
            faulty = max(faulty, single.run(x, values[n], count, self._work))
        self._idle.append(single)
        if faulty == len(self._infos):
            X.require_finite(0, X.nrows)
        elif faulty >= 0:
            raise non_finite(faulty, self._infos[faulty])

    def _table(self, count: int) -> Record:
        tables = self._tables  # threads that replace it at once lose one, which is made again
        if count not in tables:
            made = Record.joined([single_shares(layer, count) for layer in self._layers])
            last = dict(list(tables.items())[-1:])
            self._tables = tables = {**last, count: made}
        return tables[count]
