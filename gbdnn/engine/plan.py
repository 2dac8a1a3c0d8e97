"""What a run knows of each layer: what is allowed there, and the weights once they are read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gbdnn.arrays.sparse_rows import release
from gbdnn.engine.choice import block_form
from gbdnn.kernels.full import FullWeights
from gbdnn.kernels.overflow import may_overflow
from gbdnn.kernels.reorder import inverse, orders
from gbdnn.model.layer import free

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from gbdnn.kernels.form import BlockForm
    from gbdnn.model.layer import Layer
    from gbdnn.model.layer_info import LayerInfo
    from gbdnn.model.network import Network

__all__ = ["LayerPlan", "ReadyLayer", "plan_layers", "read_layers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPlan:
    """A layer as a run meets it, known without its weights.

    Attributes
    ----------
    k : int
        The layer's number.
    info : LayerInfo
        What is known of the layer.
    block_form : BlockForm, optional
        In which form blocks take the layer; None if no block form gives its answer.
    droppable : bool
        Whether an input without entries may be dropped: neither this layer nor a later one
        revives it.
    droppable_after : bool
        Whether it may be dropped behind the layer.
    is_last : bool
        Whether it is the network's last.
    may_overflow : bool
        Whether a sum of this layer may leave the dtype's range.
    """

    k: int
    info: LayerInfo
    block_form: BlockForm | None
    droppable: bool
    droppable_after: bool
    is_last: bool
    may_overflow: bool


@dataclass(frozen=True, slots=True)
class ReadyLayer:
    """A layer with its weights.

    Attributes
    ----------
    plan : LayerPlan
        What is allowed.
    layer : Layer
        The layer.
    weights : object
        As the layer's block form wants them; None if it has none.
    position : ndarray, optional
        In a block before the layer, neuron i stands at ``position[i]``; None if at i.
    """

    plan: LayerPlan
    layer: Layer
    weights: Any
    position: np.ndarray | None

    def free(self) -> None:
        """Free the memory of a layer that nobody else holds."""
        free(self.layer)
        if isinstance(self.weights, FullWeights):
            release(self.weights.W)


def plan_layers(net: Network, largest: float, forms: Sequence[BlockForm]) -> list[LayerPlan]:
    """Return the plans of a run on features of at most `largest` in absolute value.

    `forms` are those that layers may take in blocks.
    """
    # A power of two, so that a network has few plans to keep.
    bound = 2.0 ** math.ceil(math.log2(largest)) if 0 < largest < 1e38 else largest
    return net.prepared(_Plan(tuple(forms), bound))


@dataclass(frozen=True)
class _Plan:
    """Plans the layers of a network; a network keeps its plans."""

    forms: tuple[BlockForm, ...]
    largest: float

    def __call__(self, net: Network) -> list[LayerPlan]:
        overflow = may_overflow(net.infos, self.largest)
        plans: list[LayerPlan] = []
        droppable = True
        for k in range(len(net) - 1, -1, -1):
            info, after = net.infos[k], droppable
            droppable = droppable and not info.revives
            plans.append(
                LayerPlan(
                    k=k,
                    info=info,
                    block_form=block_form(info, self.forms),
                    droppable=droppable,
                    droppable_after=after,
                    is_last=k == len(net) - 1,
                    may_overflow=overflow[k],
                )
            )
        return plans[::-1]


def read_layers(part: Network, plans: Sequence[LayerPlan], *, reordered: bool) -> list[ReadyLayer]:
    """Return some consecutive layers with their weights.

    Neurons between them are reordered, if at all; those before the first and behind the last one
    are read and written in their own order.
    """
    prepare = _Prepare(tuple(plan.block_form for plan in plans), reordered)
    return [ReadyLayer(*each) for each in zip(plans, part, *part.prepared(prepare), strict=True)]


@dataclass(frozen=True)
class _Prepare:
    """Prepares the layers of a network, each for its form; a network keeps what it has prepared."""

    forms: tuple[BlockForm | None, ...]
    reordered: bool

    def __call__(self, net: Network) -> tuple[list[Any], list[np.ndarray | None]]:
        order = orders(net) if self.reordered else [None] * (len(net) + 1)
        weights = [
            form and form.prepare(layer, order[k], order[k + 1])
            for k, (layer, form) in enumerate(zip(net, self.forms, strict=True))
        ]
        return weights, [None if each is None else inverse(each) for each in order[:-1]]
