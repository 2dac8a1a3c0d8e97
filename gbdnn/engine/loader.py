"""Load layers: all of a network in memory, or the next group of layers of one on disk.

A network on disk is loaded in groups of consecutive layers. While one group is computed, a thread
reads and prepares the next.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbdnn.kernels.fused import FUSED
from gbdnn.kernels.fused_chain import FusedChain
from gbdnn.kernels.reorder import inverse, orders
from gbdnn.runtime.threads import engaged, restored, unbind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gbdnn.engine.plan import Plan
    from gbdnn.kernels.kernel import LayerPlan
    from gbdnn.model.layer import Layer
    from gbdnn.model.network import Network

__all__ = ["Layout", "Loaded", "Loader", "layout_of"]

_LAYOUTS = 2  # kept per network, apart from that of narrow blocks, which layers keep


class Loaded(NamedTuple):
    """Consecutive layers in memory, starting with layer `first` of the network.

    ``chain`` is the fused kernel's; it is None if that does not run.
    """

    first: int
    layers: Network
    chain: Any

    @property
    def stop(self) -> int:
        """Number of the first layer after the group."""
        return self.first + len(self.layers)

    def layer(self, k: int) -> Layer:
        """Return layer `k` of the network."""
        return self.layers[k - self.first]


class Loader:
    """Loader of the layers of a run; call `close` at the end.

    Parameters
    ----------
    net : Network
    plan : Plan
        Its sizes define the groups of layers.
    layers : sequence of LayerPlan
    """

    def __init__(self, net: Network, plan: Plan, layers: Sequence[LayerPlan]) -> None:
        self._net, self._plan, self._layers, self._starts = net, plan, layers, plan.sizes.starts
        self._whole = self._load(0, plan.facts.threads) if len(self._starts) == 1 else None
        self._reader = ThreadPoolExecutor(1, "gbdnn-reader", initializer=unbind)
        self._groups: dict[int, Future[Loaded]] = {}  # the current group and the next

    def around(self, k: int) -> Loaded:
        """Return the group with layer `k` and start to load the one after it."""
        if self._whole is not None:
            return self._whole
        at = int(np.searchsorted(self._starts, k, side="right")) - 1
        for other in self._groups.keys() - {at, at + 1}:
            self._groups.pop(other).cancel()
        for group, nthreads in ((at, self._plan.facts.threads), (at + 1, 1)):
            if group not in self._groups and group < len(self._starts):
                self._groups[group] = self._reader.submit(self._load, group, nthreads)
        return self._groups[at].result()

    def close(self) -> None:
        """Stop loading, and let go of all layers."""
        self._groups.clear()
        self._reader.shutdown(cancel_futures=True)

    def _load(self, at: int, nthreads: int) -> Loaded:
        start, stop = (*self._starts, len(self._net))[at : at + 2]
        part = self._net if len(self._starts) == 1 else self._net[start:stop]
        plan = self._plan
        with restored(), engaged(nthreads):
            part = part.loaded()
            if plan.kernel != FUSED.name:
                return Loaded(start, part, None)
            made = layout_of(part, reordered=plan.reorders, wide=plan.is_wide)
        layers, chain = made.cache.get(FusedChain, (None, None))
        if layers is not self._layers:
            chain = FusedChain(start, self._layers[start:stop], made.weights, made.positions)
            made.cache[FusedChain] = self._layers, chain
        return Loaded(start, part, chain)


class Layout(NamedTuple):
    """Weights as the fused kernel reads them and the neurons' positions, one of each per layer.

    What else is made of them, by its type, is kept in ``cache``.
    """

    weights: list[Any]
    positions: list[np.ndarray | None]
    cache: dict[Any, Any]


def layout_of(net: Network, *, reordered: bool, wide: bool) -> Layout:
    """Return a layout from the network's cache, which keeps those that were made last."""
    return net.prepared(_layout, reordered, wide, most=_LAYOUTS)


def _layout(net: Network, reordered: bool, wide: bool) -> Layout:
    order = orders(net) if reordered else [None] * (len(net) + 1)
    weights = [
        FUSED.prepare(layer, order[k], order[k + 1], wide=wide) if FUSED.is_exact(layer) else None
        for k, layer in enumerate(net)
    ]
    positions = [None if neurons is None else inverse(neurons) for neurons in order[:-1]]
    return Layout(weights, positions, {})
