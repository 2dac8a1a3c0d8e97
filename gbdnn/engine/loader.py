"""Layers with their weights: a whole network in memory, or the next layers of one on disk.

A network on disk is loaded a group of consecutive layers at a time. While inputs go through one
group, a thread reads and prepares the next.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbdnn.arrays.sparse_rows import release
from gbdnn.kernels.full import FULL, FullWeights
from gbdnn.kernels.full_chain import FullChain
from gbdnn.kernels.fused_chain import FusedChain
from gbdnn.kernels.kernel import ChainLayers
from gbdnn.kernels.reorder import inverse, orders
from gbdnn.model.layer import free
from gbdnn.runtime.threads import engaged, unbind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gbdnn.engine.choice import Choice, LayerPlan
    from gbdnn.kernels.kernel import BlockKernel, Chain
    from gbdnn.model.layer import Layer
    from gbdnn.model.network import Network

__all__ = ["Loaded", "Loader", "chain_of", "prepared_weights"]


class Loaded(NamedTuple):
    """Consecutive layers of a network in memory, the first of them layer `first`.

    ``chain`` is the `Chain` that takes blocks through them; None if only the sparse kernel runs.
    """

    first: int
    layers: Network
    chain: Any

    @property
    def stop(self) -> int:
        """The number of the layer after them."""
        return self.first + len(self.layers)

    def layer(self, k: int) -> Layer:
        """Return layer `k` of the network."""
        return self.layers[k - self.first]

    def free(self) -> None:
        """Free the memory of layers that nobody else holds."""
        for layer in self.layers:
            free(layer)
        for weights in () if self.chain is None else self.chain.layers.weights:
            if isinstance(weights, FullWeights):
                release(weights.W)


class Loader:
    """The layers of a run; to be closed.

    Parameters
    ----------
    net : Network
    choice : Choice
        Its sizes tell where groups of layers begin.
    """

    def __init__(self, net: Network, choice: Choice) -> None:
        self._net, self._choice = net, choice
        self._starts, self._at = choice.sizes.starts, -1
        self._present: Loaded | None = None
        self._ahead: Future[Loaded] | None = None
        self._reader = None
        if len(self._starts) > 1:
            self._reader = ThreadPoolExecutor(1, "gbdnn-reader", initializer=unbind)

    def around(self, k: int) -> Loaded:
        """Return the group with layer `k`, and begin to load the one after it."""
        at = int(np.searchsorted(self._starts, k, side="right")) - 1
        if self._present is None or at != self._at:
            self._free(self._present)
            self._present, ahead = None, self._ahead if at == self._at + 1 else None
            if ahead is None:
                self._drop_ahead()
                self._present = self._load(at, self._choice.threads)
            else:
                self._ahead, self._present = None, ahead.result()
            self._at = at
            if self._reader is not None and at + 1 < len(self._starts):
                self._ahead = self._reader.submit(self._load, at + 1, 1)
        return self._present

    def close(self) -> None:
        """Stop loading, and free layers that nobody else holds."""
        if self._reader is not None:
            self._drop_ahead()
            self._reader.shutdown()
            self._free(self._present)

    def _load(self, at: int, nthreads: int) -> Loaded:
        start, stop = (*self._starts, len(self._net))[at : at + 2]
        part = self._net if len(self._starts) == 1 else self._net[start:stop]
        choice = self._choice
        with engaged(nthreads):
            part = part.loaded()
            if choice.kernel is None:
                return Loaded(start, part, None)
            weights, positions = prepared_weights(
                part, choice.kernel, reordered=choice.reorders, wide=choice.is_wide
            )
        chain = chain_of(choice.kernel, start, choice.plans[start:stop], weights, positions)
        return Loaded(start, part, chain)

    def _drop_ahead(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None and not ahead.cancel():
            with suppress(Exception):  # raised when these layers are needed
                self._free(ahead.result())

    def _free(self, loaded: Loaded | None) -> None:
        """Free layers unless others may hold them."""
        if loaded is not None and self._net.reads_anew:
            loaded.free()


def chain_of(
    kernel: BlockKernel,
    first: int,
    plans: Sequence[LayerPlan],
    weights: Sequence[Any],
    positions: Sequence[np.ndarray | None],
    *,
    checked: Sequence[bool] | None = None,
    droppable: Sequence[bool] | None = None,
) -> Chain:
    """Return the chain of some layers; by default `checked` and `droppable` as planned."""
    layers = ChainLayers(
        first=first,
        infos=[plan.info for plan in plans],
        weights=weights,
        droppable=droppable or [plan.droppable_after for plan in plans],
        checked=checked or [plan.may_overflow for plan in plans],
        positions=positions,
    )
    return FullChain(layers) if kernel is FULL else FusedChain(layers)


def prepared_weights(
    net: Network, kernel: BlockKernel, *, reordered: bool, wide: bool
) -> tuple[list[Any], list[np.ndarray | None]]:
    """Return weights as a kernel wants them, and the neurons' positions; the network keeps both."""
    return net.prepared(_Prepare(kernel, reordered, wide))


@dataclass(frozen=True)
class _Prepare:
    kernel: BlockKernel
    reordered: bool
    wide: bool

    def __call__(self, net: Network) -> tuple[list[Any], list[np.ndarray | None]]:
        order = orders(net) if self.reordered else [None] * (len(net) + 1)
        weights = [
            self.kernel.prepare(layer, order[k], order[k + 1], wide=self.wide)
            if self.kernel.is_exact(layer)
            else None
            for k, layer in enumerate(net)
        ]
        return weights, [None if each is None else inverse(each) for each in order[:-1]]
