"""What a run knows of each layer: what is allowed there, and the weights once they are read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gbdnn.arrays.sparse_rows import release
from gbdnn.kernels.form import ChainLayers
from gbdnn.kernels.full import FULL, FullWeights
from gbdnn.kernels.full_chain import FullChain
from gbdnn.kernels.fused_chain import FusedChain
from gbdnn.kernels.overflow import may_overflow
from gbdnn.kernels.reorder import inverse, orders
from gbdnn.model.layer import free

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from gbdnn.kernels.form import BlockForm, Chain
    from gbdnn.model.layer import Layer
    from gbdnn.model.layer_info import LayerInfo
    from gbdnn.model.network import Network

__all__ = ["LayerPlan", "Window", "chain_of", "plan_layers", "prepared_weights", "read_window"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPlan:
    """A layer as a run meets it, known without its weights.

    Attributes
    ----------
    k : int
        The layer's number.
    info : LayerInfo
        What is known of the layer.
    in_blocks : bool
        Whether blocks take the layer in the run's form: it gives the layer's answer.
    droppable : bool
        Whether an input without entries may be dropped: neither this layer nor a later one
        revives it.
    droppable_after : bool
        Whether it may be dropped behind the layer.
    may_overflow : bool
        Whether a sum of this layer may leave the dtype's range.
    """

    k: int
    info: LayerInfo
    in_blocks: bool
    droppable: bool
    droppable_after: bool
    may_overflow: bool


def plan_layers(net: Network, largest: float, form: BlockForm | None) -> list[LayerPlan]:
    """Return the plans of a run on features of at most `largest` in absolute value.

    `form` is that of blocks; None if there are none.
    """
    # A power of two, so that a network has few plans to keep.
    bound = 2.0 ** math.ceil(math.log2(largest)) if 0 < largest < 1e38 else largest
    return net.prepared(_Plan(form, bound))


@dataclass(frozen=True)
class _Plan:
    """Plans the layers of a network; a network keeps its plans."""

    form: BlockForm | None
    largest: float

    def __call__(self, net: Network) -> list[LayerPlan]:
        overflow = may_overflow(net.infos, self.largest)
        plans: list[LayerPlan] = []
        droppable = True
        for k in range(len(net) - 1, -1, -1):
            info, after = net.infos[k].info, droppable
            droppable = droppable and not info.revives
            plans.append(
                LayerPlan(
                    k=k,
                    info=info,
                    in_blocks=self.form is not None and self.form.is_exact(info),
                    droppable=droppable,
                    droppable_after=after,
                    may_overflow=overflow[k],
                )
            )
        return plans[::-1]


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive layers with their weights.

    Attributes
    ----------
    plans : sequence of LayerPlan
    layers : Network
        In memory.
    chain : Chain, optional
        Takes blocks through them; None if there are no blocks.
    """

    plans: Sequence[LayerPlan]
    layers: Network
    chain: Chain | None

    @property
    def first(self) -> int:
        """The number of the first layer."""
        return self.plans[0].k

    @property
    def stop(self) -> int:
        """The number behind the last layer's."""
        return self.plans[-1].k + 1

    @property
    def blocks(self) -> Chain:
        """The chain, where there is one."""
        if self.chain is None:
            raise RuntimeError("these layers are not computed in blocks")
        return self.chain

    def plan(self, k: int) -> LayerPlan:
        """Return the plan of layer `k` of the network."""
        return self.plans[k - self.first]

    def layer(self, k: int) -> Layer:
        """Return layer `k` of the network."""
        return self.layers[k - self.first]

    def free(self) -> None:
        """Free the memory of layers that nobody else holds."""
        for layer in self.layers:
            free(layer)
        for weights in [] if self.chain is None else self.chain.layers.weights:
            if isinstance(weights, FullWeights):
                release(weights.W)


def read_window(
    part: Network,
    plans: Sequence[LayerPlan],
    form: BlockForm | None,
    *,
    reordered: bool,
    wide: bool,
) -> Window:
    """Return some consecutive layers, in memory, with their weights.

    Neurons between them are reordered, if at all; those before the first and behind the last one
    are read and written in their own order. Weights are for blocks that are `wide`, or not.
    """
    if form is None:
        return Window(plans, part, None)
    weights, positions = prepared_weights(part, form, reordered=reordered, wide=wide)
    return Window(plans, part, chain_of(form, plans, weights, positions))


def chain_of(
    form: BlockForm,
    plans: Sequence[LayerPlan],
    weights: Sequence[Any],
    positions: Sequence[np.ndarray | None],
    *,
    checked: Sequence[bool] | None = None,
    droppable: Sequence[bool] | None = None,
) -> Chain:
    """Return the chain of some layers; by default `checked` and `droppable` as they are planned."""
    layers = ChainLayers(
        first=plans[0].k,
        infos=[plan.info for plan in plans],
        weights=weights,
        droppable=droppable or [plan.droppable_after for plan in plans],
        checked=checked or [plan.may_overflow for plan in plans],
        positions=positions,
    )
    return FullChain(layers) if form is FULL else FusedChain(layers)


def prepared_weights(
    net: Network, form: BlockForm, *, reordered: bool, wide: bool
) -> tuple[list[Any], list[np.ndarray | None]]:
    """Return weights as a form wants them, and where neurons stand; the network keeps both."""
    return net.prepared(_Prepare(form, reordered, wide))


@dataclass(frozen=True)
class _Prepare:
    form: BlockForm
    reordered: bool
    wide: bool

    def __call__(self, net: Network) -> tuple[list[Any], list[np.ndarray | None]]:
        order = orders(net) if self.reordered else [None] * (len(net) + 1)
        weights = [
            self.form.prepare(layer, order[k], order[k + 1], wide=self.wide)
            if self.form.is_exact(layer)
            else None
            for k, layer in enumerate(net)
        ]
        return weights, [None if each is None else inverse(each) for each in order[:-1]]
