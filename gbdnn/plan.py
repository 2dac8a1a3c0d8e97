"""What a run knows of each layer: what is allowed, and the weights once they are there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gbdnn.forms import full
from gbdnn.locality import renumber
from gbdnn.overflow import watched

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from gbdnn.forms.full import FullWeights
    from gbdnn.layer import Layer
    from gbdnn.layer_info import LayerInfo
    from gbdnn.network import Network

__all__ = ["Loaded", "Stage", "load", "stages"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A layer as a run meets it, known without its weights.

    Attributes
    ----------
    k : int
        The layer's number.
    info : LayerInfo
        What is known of the layer.
    exact : bool
        Whether the full form gives the layer's answer.
    mortal : bool
        Whether an input without entries may leave: neither this layer nor a later one revives it.
    mortal_after : bool
        Whether it may leave behind the layer.
    is_last : bool
        Whether it is the network's last.
    watched : bool
        Whether a sum of this layer may overflow.
    """

    k: int
    info: LayerInfo
    exact: bool
    mortal: bool
    mortal_after: bool
    is_last: bool
    watched: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(Stage):
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


def stages(net: Network, largest: float) -> list[Stage]:
    """Return the stages of a run on features of at most `largest` in absolute value."""
    watch = watched(net.infos, largest)
    made: list[Stage] = []
    mortal = True
    for k in range(len(net) - 1, -1, -1):
        info, after = net.infos[k], mortal
        mortal = mortal and not info.revives
        made.append(
            Stage(
                k=k,
                info=info,
                exact=full.is_exact(info),
                mortal=mortal,
                mortal_after=after,
                is_last=k == len(net) - 1,
                watched=watch[k],
            )
        )
    return made[::-1]


def load(part: Network, known: Sequence[Stage], *, renumbered: bool) -> list[Loaded]:
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
        Loaded(
            k=stage.k,
            info=stage.info,
            exact=stage.exact,
            mortal=stage.mortal,
            mortal_after=stage.mortal_after,
            is_last=stage.is_last,
            watched=stage.watched,
            layer=layer,
            weights=weights[at],
            place=places[at],
        )
        for at, (stage, layer) in enumerate(zip(known, part, strict=True))
    ]
