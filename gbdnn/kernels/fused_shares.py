"""Compute a single input, or a narrow block, on threads that divide each layer's neurons."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from gbdnn.kernels.addresses import address
from gbdnn.kernels.compiled.record import JOB, filled, stacked
from gbdnn.runtime.threads import on_another_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gbdnn.kernels.blocks import AlignedBlock, Buffers
    from gbdnn.kernels.compiled.library import Library
    from gbdnn.kernels.compiled.table import FusedLayer
    from gbdnn.kernels.fused_chain import FusedChain
    from gbdnn.model.layer_info import LayerInfo

__all__ = ["FusedShares", "FusedSingle"]

_STAY = 200_000.0  # ns; longer than `infer` takes in addition to the compiled call
_TURNS = 4000  # of waiting in compiled code, about 0.1 ms
_LOST = 1e-3  # seconds that a call takes longer if a helper loses its core, at least
_PAUSE = 16, 4096  # calls without helpers after that, at first and at most


class _Job:
    """Arguments of compiled calls, and the threads that help with them; not thread-safe.

    After a call, helpers wait for the next one, about as long as a call takes, then sleep. Waking
    them takes as long as many a call, and pays only if others follow. They are therefore woken if a
    call begins that soon after the last one.

    On a busy machine, a helper may lose its core while the caller waits for its share. The next
    calls then do without helpers: each time four times as many, and slowly fewer otherwise.

    Parameters
    ----------
    library : Library
        With the functions `lead` and `assist`.
    count : int
        Number of threads, including the caller.
    work : float
        Estimated time of a call on one thread, in ns.
    **fields : int
        Arguments of `lead` that do not change.
    """

    def __init__(self, library: Library, count: int, work: float, **fields: int) -> None:
        from gbdnn.kernels.compiled.shares import PROGRESS

        self._counters = np.zeros(PROGRESS + 2 * fields["layers"], np.int64)
        self._record = filled(JOB, {"counters": self._counters, **fields})
        self._fields = self._record.reshape(1).view(np.int64)
        self._at = {name: k for k, name in enumerate(JOB.kinds)}
        compiled = library.functions()
        self._lead, self._assist = (
            partial(compiled[name], address(self._fields)) for name in ("lead", "assist")
        )
        self._count, self._asleep = count, list(range(1, count))
        self._began, self._ended, self._stay = 0.0, -np.inf, 1e-9 * max(work, _STAY)
        self._slow, self._pause, self._paused = 2e-9 * work + _LOST, float(_PAUSE[0]), 0

    def set(self, **fields: int) -> None:
        """Set arguments of `lead`."""
        for name, value in fields.items():
            self._fields[self._at[name]] = value

    def wake_helpers(self) -> bool:
        """Wake sleeping threads if it pays; return whether any takes part in the next call."""
        self._began = perf_counter()
        if self._paused:
            self._paused -= 1
            return False
        if self._asleep and self._began - self._ended < self._stay:
            with suppress(RuntimeError):  # no thread can be started
                while self._asleep:
                    on_another_thread(partial(self._help, self._asleep.pop()))
        return len(self._asleep) < self._count - 1

    def run(self) -> int:
        """Call `lead`; return its output, the first counter."""
        self._lead()
        return int(self._counters[0])

    def end(self, *, helped: bool) -> None:
        """Note the end of a call that began with `wake_helpers`."""
        self._ended = perf_counter()
        if not helped:
            return
        if self._ended - self._began > self._slow:
            self._paused, self._pause = int(self._pause), min(4 * self._pause, _PAUSE[1])
        else:
            self._pause = max(self._pause * (63 / 64), _PAUSE[0])

    def _help(self, number: int) -> None:
        while perf_counter() - self._ended < self._stay:
            self._assist(number, _TURNS)
        self._asleep.append(number)


class FusedShares:
    """A narrow block through all layers of a chain; not thread-safe.

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
        from gbdnn.kernels.compiled.functions import library
        from gbdnn.kernels.compiled.table import shares

        weights = chain.layers.weights
        self._chain, self._layers = chain, len(weights)
        self._table = np.concatenate([shares(layer, count) for layer in weights])
        table = address(self._table)
        fields = {"table": table, "shares": count, "layers": self._layers}
        self._job = _Job(library(chain.dtype.name), count, work, **fields)

    def run(self, Y: AlignedBlock, buffers: Buffers) -> AlignedBlock:
        """Return a block after all layers; `Y` is consumed."""
        if not self._job.wake_helpers():
            Y = self._chain.run(Y, 0, self._layers, buffers, tidy=False, counts=None, stands=None)
            self._job.end(helped=False)
            return Y
        Z: AlignedBlock = buffers.get(self._chain.neurons, Y.width)
        self._job.set(Y=Y.address, Z=Z.address, stride=Y.stride, inputs=len(Y.inputs))
        self._job.run()
        self._job.end(helped=True)
        Z.inputs, Z.neurons = Y.inputs, self._chain.layers.infos[-1].ncols
        if self._layers % 2 == 0:
            Y.neurons, Y, Z = Z.neurons, Z, Y
        buffers.put(Y)
        return Z


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
        from gbdnn.kernels.compiled.functions import library

        dtype, neurons, count = infos[0].dtype, max(max(i.shape) for i in infos), len(shares[0])
        tables = [
            stacked([share.record for layer in layers for share in layer])
            for layers in (whole, shares)
        ]
        self._kept = whole, shares, tables  # they have addresses of arrays
        self._y, self._z = np.empty(neurons, dtype), np.empty(neurons, dtype)
        self._living = np.empty((count, neurons), np.uint32)
        where = {"Y": self._y, "Z": self._z, "living": self._living}
        given = {name: address(array) for name, array in where.items()}
        given |= {"layers": len(infos), "neurons": neurons}
        self._job = _Job(library(dtype.name, "single"), count, work, **given)
        self._choices = [
            {"table": address(table), "shares": n}
            for table, n in zip(tables, (1, count), strict=True)
        ]
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
        helped = self._job.wake_helpers()
        if helped != self._choice:
            self._job.set(**self._choices[helped])
            self._choice = helped
        faulty = self._job.run()
        self._job.end(helped=helped)
        out[:] = self._last
        return faulty - 1
