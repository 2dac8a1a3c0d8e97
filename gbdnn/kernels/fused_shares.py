"""Compute a single input, or a narrow block, on threads that divide each layer's neurons."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.kernels import costs
from gbdnn.kernels.blocks import AlignedBlock
from gbdnn.kernels.compiled.loading import required
from gbdnn.kernels.compiled.record import CONSTANTS, Record
from gbdnn.kernels.compiled.table import shares
from gbdnn.kernels.fused import FUSED
from gbdnn.kernels.overflow import non_finite
from gbdnn.kernels.together import openmp_team, taken, together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gbdnn.arrays.sources import DenseRows
    from gbdnn.kernels.compiled.table import FusedLayer
    from gbdnn.kernels.fused_chain import FusedChain
    from gbdnn.model.layer_info import LayerInfo
    from gbdnn.model.network import Network

__all__ = ["FusedShares", "FusedSingle", "Singles"]


class _Job:
    """Arguments of compiled calls that threads compute together; not thread-safe.

    Waking helpers takes about as long as a short call, and pays only if others follow. They take
    part in long calls, and if a call begins soon after the last one; PyTorch's threads are often
    awake.

    Parameters
    ----------
    what : {"block", "single"}
        What is computed.
    dtype : dtype
    count : int
        Number of threads, including the caller.
    work : float
        Estimated time of a call on one thread, in ns.
    **members : int, ndarray or Record
        Members of the record that do not change.
    """

    def __init__(self, what: str, dtype: np.dtype, count: int, work: float, **members: Any) -> None:
        self._counters = np.zeros(CONSTANTS["PROGRESS"] + 2 * members["layers"], np.int64)
        self._record = Record("job", counters=self._counters, **members)
        self.set, self._function = self._record.set, required(dtype)[f"share_{what}"]
        self._count = count
        stay = np.inf if work >= costs.HAND_OVER else 1e-9 * CONSTANTS["STAY"]
        self._ended, self._stay = -np.inf, stay

    def begin(self) -> bool:
        """Return whether helpers take part in the call that begins."""
        soon = perf_counter() - self._ended <= self._stay
        return soon or openmp_team(self._count) is not None

    def run(self, *, helped: bool) -> int:
        """Compute the job; return the first counter."""
        together(self._count if helped else 1, self._function, self._record)
        return int(self._counters[0])

    def end(self) -> None:
        """Note the end of a call."""
        self._ended = perf_counter()


class FusedShares:
    """A block of a few cache lines of inputs, through all layers of a chain; not thread-safe.

    Parameters
    ----------
    chain : FusedChain
        Without panels. Sums are not checked, and inputs not dropped.
    count : int
        Number of shares of each layer, and of threads.
    work : float
        Estimated time on one thread, in ns.
    """

    def __init__(self, chain: FusedChain, count: int, work: float) -> None:
        weights = chain.layers.weights
        self._chain, self._layers = chain, len(weights)
        table = Record.joined([shares(layer, count) for layer in weights])
        neurons, dtype = chain.neurons, chain.dtype
        width = costs.SHARED_LINES * 64 // dtype.itemsize
        self._Y, self._Z = (AlignedBlock(neurons, width, dtype) for _ in range(2))
        members = {"Y": self._Y, "Z": self._Z, "stride": self._Y.stride, "layers": self._layers}
        self._job = _Job("block", dtype, count, work, table=table, shares=count, **members)

    def run(
        self, rows: np.ndarray, largest: float, values: np.ndarray, present: np.ndarray | None
    ) -> int | None:
        """Compute rows of at most `costs.SHARED_LINES` lines, and write the answer's rows.

        Returns
        -------
        int or None
            Number of entries, if `present` is given. None if no thread helps or a feature is larger
            than `largest`: another way has to compute the rows before `end`.
        """
        chain, Y, Z = self._chain, self._Y, self._Z
        Y.neurons = chain.layers.neurons(0)
        if (
            not self._job.begin()
            or not chain.read_dense(Y, 0, rows, np.arange(len(rows))) <= largest
        ):
            return None
        self._job.set(inputs=len(rows))
        self._job.run(helped=True)
        last = Z if self._layers % 2 else Y
        last.inputs, last.neurons = Y.inputs, chain.layers.neurons(self._layers)
        return chain.write(last, values, present)

    def end(self) -> None:
        """Note the end of a call."""
        self._job.end()


class FusedSingle:
    """One input at a time through all layers; not thread-safe.

    Parameters
    ----------
    whole, shares : sequence of list of FusedLayer
        Each layer from `FusedKernel.prepare_single`, as one share and as a share per thread. Whole
        layers are faster if no other thread helps.
    infos : sequence of LayerInfo
    work : float
        Estimated time on one thread, in ns.
    """

    def __init__(
        self,
        whole: Sequence[list[FusedLayer]],
        shares: Sequence[list[FusedLayer]],
        infos: Sequence[LayerInfo],
        work: float,
    ) -> None:
        dtype, neurons, count = infos[0].dtype, max(max(i.shape) for i in infos), len(shares[0])
        self._y, self._z = np.empty(neurons, dtype), np.empty(neurons, dtype)
        active = np.empty((count, neurons), np.uint32)
        arrays = {"Y": self._y, "Z": self._z, "active": active}
        members = {"layers": len(infos), "neurons": neurons}
        self._job = _Job("single", dtype, count, work, **arrays, **members)
        self._choices = [
            {"table": Record.joined([share.record for layer in layers for share in layer]),
             "shares": n}
            for layers, n in ((whole, 1), (shares, count))
        ]  # fmt: skip
        self._nrows, self._choice = infos[0].nrows, -1
        self._last = (self._z if len(infos) % 2 else self._y)[: infos[-1].ncols]

    def run(self, x: np.ndarray, out: np.ndarray) -> int:
        """Write the activations of the last layer to `out`.

        Returns
        -------
        int
            -1 on success; otherwise the layer in which a sum is not finite, or the number of layers
            if a value of `x` is not finite.
        """
        self._y[: self._nrows] = x
        helped = self._job.begin()
        if helped != self._choice:
            self._job.set(**self._choices[helped])
            self._choice = helped
        faulty = self._job.run(helped=helped)
        self._job.end()
        out[:] = self._last
        return faulty - 1


class Singles:
    """A network prepared for single inputs."""

    def __init__(self, net: Network) -> None:
        self._layers, self._infos = list(net), [info.info for info in net.infos]
        sizes = [(info.edges, *info.shape) for info in self._infos]
        self._work = sum(costs.single_layer(*each) for each in sizes)
        self._density = costs.single_density(sizes, self._infos[0].dtype.itemsize)
        self._shares: dict[int, list[list[FusedLayer]]] = {}
        self._idle: dict[int, list[FusedSingle]] = defaultdict(list)  # reused by the next call

    def run(self, X: DenseRows, values: np.ndarray, count: int) -> None:
        """Write the activations of each input to a row of `values`, with `count` threads."""
        faulty = -1
        single = taken(self._idle[count], partial(self._single, count))
        for n, x in enumerate(X.dense_rows(0, X.nrows)):
            faulty = max(faulty, single.run(x, values[n]))
        self._idle[count].append(single)
        if faulty == len(self._infos):
            X.require_finite(0, X.nrows)
        elif faulty >= 0:
            raise non_finite(faulty, self._infos[faulty])

    def _single(self, count: int) -> FusedSingle:
        for n in {1, count} - self._shares.keys():
            self._shares[n] = [
                FUSED.prepare_single(layer, self._density, n) for layer in self._layers
            ]
        return FusedSingle(self._shares[1], self._shares[count], self._infos, self._work)
