"""What a run did: a record per layer, and the challenge's edge rate."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LayerStats", "edge_rate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerStats:
    """What one layer did to one block of inputs; `infer` hands it to its `callback`.

    Attributes
    ----------
    layer : int
        The layer, counted from 0.
    block : int
        The block of inputs, counted from 0.
    inputs : int
        Inputs that were computed: those of the block, the dead too if it carries them. Those that
        have left it for a pool go on in another block; the dead that have left count nowhere.
    live : int
        Inputs with at least one entry after the layer; inputs that go on as one count each.
    distinct : int
        Living inputs that were computed: fewer than `live` where equal ones go on as one.
    entries : int
        Activations after the layer that are not 0, of the inputs that were computed.
    form : str
        How the layer was computed: ``"sparse"`` or ``"full"``.
    seconds : float
        Wall time of the layer.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> records = []
    >>> Y = gbdnn.infer([np.eye(3), np.eye(3)], np.eye(3)[:2], callback=records.append)
    >>> [(record.layer, record.live, record.entries) for record in records]
    [(0, 2, 2), (1, 2, 2)]
    """

    layer: int
    block: int
    inputs: int
    live: int
    distinct: int
    entries: int
    form: str
    seconds: float


def edge_rate(inputs: int, edges: int, seconds: float) -> float:
    """Return edges per second as the challenge counts them: ``inputs * edges / seconds``.

    Parameters
    ----------
    inputs : int
        All inputs, those that die on the way included.
    edges : int
        Edges of the network.
    seconds : float
        Wall time of inference.

    Returns
    -------
    float
        Edges per second; an effective rate where equal inputs went on as one.

    Examples
    --------
    >>> import gbdnn
    >>> gbdnn.edge_rate(60_000, 3_932_160, seconds=0.8)
    294912000000.0
    """
    return inputs * edges / seconds
