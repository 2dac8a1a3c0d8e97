"""What a run knows of its network before it starts: per layer, weights and what is allowed."""

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
    from gbdnn.network import Network

__all__ = ["Stage", "stages"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A layer as a run meets it.

    Attributes
    ----------
    k : int
        The layer's number.
    layer : Layer
        The layer.
    weights : FullWeights
        For the full form.
    place : ndarray, optional
        In a block before the layer, neuron i stands at ``place[i]``; None if at i.
    exact : bool
        Whether the full form gives the layer's answer.
    mortal : bool
        Whether an input without entries may leave: neither this layer nor a later one revives it.
    watched : bool
        Whether a sum of this layer may overflow.
    """

    k: int
    layer: Layer
    weights: FullWeights
    place: np.ndarray | None
    exact: bool
    mortal: bool
    watched: bool


def stages(net: Network, largest: float, *, renumbered: bool) -> list[Stage]:
    """Return the stages of a run on features of at most `largest` in absolute value."""
    watch = watched(net, largest)
    places: Sequence[np.ndarray | None] = [None] * len(net)
    if renumbered:
        weights, places = net.prepared(renumber)
    else:
        weights = [layer.prepared(full.prepare) for layer in net]
    made: list[Stage] = []
    mortal = True
    for k in range(len(net) - 1, -1, -1):
        layer = net[k]
        mortal = mortal and not layer.revives
        made.append(
            Stage(
                k=k,
                layer=layer,
                weights=weights[k],
                place=places[k],
                exact=full.is_exact(layer),
                mortal=mortal,
                watched=watch[k],
            )
        )
    return made[::-1]
