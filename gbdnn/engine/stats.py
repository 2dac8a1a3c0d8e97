"""What a run did: a record per layer and block, and their sums per layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gbdnn.arrays.checks import as_records, whole_number
from gbdnn.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

__all__ = ["LayerStats", "layer_stats", "per_layer"]

_COUNTS = ("layer", "blocks", "inputs", "live", "distinct", "entries")
_PER_LAYER = np.dtype([*((name, np.int64) for name in _COUNTS), ("seconds", np.float64)])


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerStats:
    """What one layer did to one block of inputs; `infer` passes it to its `callback`.

    Attributes
    ----------
    layer : int
        The layer, counted from 0.
    block : int
        The block of inputs, counted from 0: the same at all layers that they go through together,
        as a block or as sparse rows.
    inputs : int
        Inputs that were computed: those in the block, including dead ones that have not been
        dropped. Survivors that were compacted count in another block, dropped inputs in none.
    live : int
        Inputs with at least one entry after the layer; deduplicated inputs count each.
    distinct : int
        Living inputs that were computed: fewer than `live` where equal ones are deduplicated.
    entries : int
        Activations after the layer that are not 0, of the inputs that were computed.
    engine : str
        The engine of the call, as given to `infer`.
    kernel : str
        The kernel that computed the layer: ``"sparse"``, ``"full"`` or ``"fused"``.
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
    engine: str
    kernel: str
    seconds: float


def layer_stats(
    first: int, counts: np.ndarray, block: int, engine: str, kernel: str, seconds: float
) -> Iterator[LayerStats]:
    """Yield the records of what layer `first`, and those behind it, did to a block.

    Parameters
    ----------
    counts : ndarray of int64, shape (layers, 5)
        Inputs computed; those of them that live after the layer, how many inputs these stand for,
        their entries, and ticks of a clock, by which the `seconds` are divided.
    """
    ticks = counts[:, 4].sum()
    for k, (inputs, distinct, live, entries, own) in enumerate(counts.tolist(), first):
        if inputs:
            yield LayerStats(
                layer=k,
                block=block,
                inputs=inputs,
                live=live,
                distinct=distinct,
                entries=entries,
                engine=engine,
                kernel=kernel,
                seconds=seconds * (own / ticks if ticks else 1 / len(counts)),
            )


def per_layer(stats: Iterable[LayerStats], layers: int | None = None) -> NDArray[np.void]:
    """Return the sums over the blocks of a run at each layer.

    Parameters
    ----------
    stats : iterable of LayerStats
        Of one run, in any order, as a callback of `infer` collects them.
    layers : int, optional
        How many layers the network has (default: as many as were reached).

    Returns
    -------
    structured ndarray, shape (layers,)
        The fields ``layer`` (from 0), ``blocks``, ``inputs``, ``live``, ``distinct``, ``entries``
        and ``seconds``, each the sum over the blocks, as `LayerStats` counts them; 0 at a layer
        that no input reached. ``seconds`` of blocks side by side are added, too: with several
        threads they are more than the wall time.

    Raises
    ------
    ArgumentError
        A record is of a layer that a network of so many `layers` has not.

    Notes
    -----
    Dead inputs may have been dropped, and are then no longer among ``inputs``. Where equal inputs
    are deduplicated, ``live`` counts all of them and ``distinct`` those that were computed;
    ``entries / (distinct * neurons)`` is the density of the activations.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> W, X = np.array([[0.5, 0.0], [1.0, -1.0]]), np.array([[2.0, 0.0], [0.0, 3.0], [0.0, 0.1]])
    >>> stats = []
    >>> Y = gbdnn.infer([W, W], X, bias=-0.25, callback=stats.append)
    >>> table = gbdnn.inference.per_layer(stats)
    >>> table["live"], table["entries"]
    (array([2, 2]), array([2, 2]))
    """
    records = as_records(stats, LayerStats, "stats")
    if layers is not None:
        layers = whole_number(layers, "layers", least=0)
    deepest = max((record.layer for record in records), default=-1)
    count = deepest + 1 if layers is None else layers
    if deepest >= count:
        raise ArgumentError(f"a record is of layer {deepest}, counted from 0, of {count} layers")
    table = np.zeros(count, _PER_LAYER)
    table["layer"] = np.arange(count)
    for record in records:
        row = table[record.layer]
        row["blocks"] += 1
        for name in (*_COUNTS[2:], "seconds"):
            row[name] += getattr(record, name)
    return table
