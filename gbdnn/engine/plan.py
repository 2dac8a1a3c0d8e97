"""What a run knows of each layer: what is allowed, and the weights once they are there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gbdnn.kernels import full
from gbdnn.kernels.overflow import may_overflow
from gbdnn.kernels.reorder import renumber

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from gbdnn.kernels.full import FullWeights
    from gbdnn.model.layer import Layer
    from gbdnn.model.layer_info import LayerInfo
    from gbdnn.model.network import Network

__all__ = ["LayerPlan", "ReadyLayer", "load", "stages"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPlan:
    """A layer as a run meets it, known without its weights.

    Attributes
    ----------
    k : int
        The layer's number.
    info : LayerInfo
        What is known of the layer.
    full_is_exact : bool
        Whether the full form gives the layer's answer.
    droppable : bool
        Whether an input without entries may leave: neither this layer nor a later one revives it.
    droppable_after : bool
        Whether it may leave behind the layer.
    is_last : bool
        Whether it is the network's last.
    may_overflow : bool
        Whether a sum of this layer may overflow.
    """

    k: int
    info: LayerInfo
    full_is_exact: bool
    droppable: bool
    droppable_after: bool
    is_last: bool
    may_overflow: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyLayer(LayerPlan):
    """A layer with its weights.

    Attributes
    ----------
    layer : Layer
        The layer.
    weights : FullWeights
        For the full form.
    place : ndarray, optional
        In a block before the layer, neuron i stands at ``place[i]``; None if at i.
    """

    layer: Layer
    weights: FullWeights
    place: np.ndarray | None


def stages(net: Network, largest: float) -> list[LayerPlan]:
    """Return the stages of a run on features of at most `largest` in absolute value."""
    watch = may_overflow(net.infos, largest)
    made: list[LayerPlan] = []
    droppable = True
    for k in range(len(net) - 1, -1, -1):
        info, after = net.infos[k], droppable
        droppable = droppable and not info.revives
        made.append(
            LayerPlan(
                k=k,
                info=info,
                full_is_exact=full.is_exact(info),
                droppable=droppable,
                droppable_after=after,
                is_last=k == len(net) - 1,
                may_overflow=watch[k],
            )
        )
    return made[::-1]


def load(part: Network, known: Sequence[LayerPlan], *, renumbered: bool) -> list[ReadyLayer]:
    """Return the stages of some consecutive layers with their weights.

    Neurons between them are renumbered, if at all; those before the first and behind the last one
    are read and written in their own order.
    """
    places: Sequence[np.ndarray | None] = [None] * len(known)
    if renumbered:
        weights, places = part.prepared(renumber)
    else:
        weights = [layer.prepared(full.prepare) for layer in part]
    return [
        ReadyLayer(
            k=stage.k,
            info=stage.info,
            full_is_exact=stage.full_is_exact,
            droppable=stage.droppable,
            droppable_after=stage.droppable_after,
            is_last=stage.is_last,
            may_overflow=stage.may_overflow,
            layer=layer,
            weights=weights[at],
            place=places[at],
        )
        for at, (stage, layer) in enumerate(zip(known, part, strict=True))
    ]
