"""Layers with their weights: all of a network in memory, or a window of a lazy one.

A lazy network is read a few consecutive layers at a time. While the inputs go through one window, a
thread reads and prepares the next one: two windows share the memory for layers.
"""

from __future__ import annotations

import gc
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from gbdnn.engine.memory import layer_bytes, return_freed
from gbdnn.engine.plan import read_window
from gbdnn.errors import ArgumentError
from gbdnn.kernels.full import FULL
from gbdnn.runtime.threads import engaged, unbind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from gbdnn.engine.plan import LayerPlan, Window
    from gbdnn.kernels.form import BlockForm
    from gbdnn.model.layer_info import LayerInfo
    from gbdnn.model.network import Network

__all__ = ["Prefetch", "cuts"]

_LARGE = 64 << 20  # bytes that are worth a collection, which may take a second


class Prefetch:
    """The layers of a network, with their weights.

    Parameters
    ----------
    net : Network
        In memory, or lazy.
    plans : sequence of LayerPlan
        All its layers.
    form : BlockForm, optional
        That of blocks.
    reordered, wide : bool
        Whether neurons are reordered, and whether blocks are wide.
    memory : int
        Bytes for the weights of a lazy network.
    nthreads : int
        Threads to prepare weights with while nothing is computed.
    """

    def __init__(
        self,
        net: Network,
        plans: Sequence[LayerPlan],
        form: BlockForm | None,
        *,
        reordered: bool,
        wide: bool,
        memory: int,
        nthreads: int,
    ) -> None:
        self._net, self._plans, self._form = net, plans, form
        self._layout = {"reordered": reordered, "wide": wide}
        self._nthreads, self._uncollected = nthreads, 0
        self._starts = [0] if net.in_memory else cuts(net.infos, memory // 2)
        self._stops = [*self._starts[1:], len(net)]
        self._ahead: dict[int, Future[Window]] = {}
        self._present: tuple[int, Window] | None = None
        self._reader = None
        if len(self._starts) > 1:
            self._reader = ThreadPoolExecutor(1, "gbdnn-reader", initializer=unbind)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._reader is not None:
            self._forget_ahead()
            self._reader.shutdown()
            self._forget_present()

    def around(self, k: int) -> Window:
        """Return the consecutive layers among which layer `k` is; the next ones are read ahead."""
        at = max(at for at, start in enumerate(self._starts) if start <= k)
        if self._present is None or self._present[0] != at:
            self._forget_present()
            future = self._ahead.pop(at, None)
            self._forget_ahead()
            loaded = self._load(at, self._nthreads) if future is None else future.result()
            self._present = (at, loaded)
        if self._reader is not None and at + 1 < len(self._starts) and at + 1 not in self._ahead:
            self._ahead[at + 1] = self._reader.submit(self._load, at + 1, 1)
        return self._present[1]

    def _forget_present(self) -> None:
        if self._present is not None:
            self._forget(self._present[1])
            self._present = None

    def _forget_ahead(self) -> None:
        for future in self._ahead.values():
            if not future.cancel():
                future.add_done_callback(self._forget_read)
        self._ahead.clear()

    def _forget_read(self, future: Future[Window]) -> None:
        if future.exception() is None:
            self._forget(future.result())

    def _forget(self, window: Window) -> None:
        """Make room: a graphblas.Matrix, part of a cycle, would stay until it is collected."""
        if self._net.reads_anew:
            window.free()
            if self._form is FULL:  # GraphBLAS's matrices, of several threads
                return_freed()
            return
        self._uncollected += sum(layer_bytes(plan.info) for plan in window.plans)
        if self._uncollected >= _LARGE:
            self._uncollected = 0
            gc.collect()

    def _load(self, at: int, nthreads: int) -> Window:
        start, stop = self._starts[at], self._stops[at]
        whole = start == 0 and stop == len(self._net)
        with engaged(nthreads):
            part = self._net if whole else self._net[start:stop]
            return read_window(part.loaded(), self._plans[start:stop], self._form, **self._layout)


def cuts(infos: Sequence[LayerInfo], room: int) -> list[int]:
    """Return where windows of at most `room` bytes begin.

    Raises
    ------
    ArgumentError
        A single layer takes more.
    """
    starts, used = [0], 0
    for k, info in enumerate(infos):
        needed = layer_bytes(info)
        if needed > room:
            raise ArgumentError(
                f"layer {k} of a network that is not in memory takes {needed} bytes to compute"
                f" with, and the next layers as much: memory= {4 * needed} at least"
            )
        if used + needed > room:
            starts.append(k)
            used = 0
        used += needed
    return starts
