"""Statistics of a run: a record per layer and block, and sums per layer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import chain, count
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from gbdnn.arrays.checks import as_records, whole_number
from gbdnn.engine.progress import current
from gbdnn.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from gbdnn.engine.progress import RunProgress
    from gbdnn.kernels.fused_run import Piece

__all__ = ["LayerStats", "Watch", "layer_stats", "of_layers", "per_layer"]

_COUNTS = ("layer", "blocks", "inputs", "alive", "distinct", "entries")
_PER_LAYER = np.dtype([*((name, np.int64) for name in _COUNTS), ("seconds", np.float64)])


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerStats:
    """Statistics of one layer on one block of inputs, as passed to the `callback` of `infer`.

    Attributes
    ----------
    layer : int
        Layer, counted from 0.
    block : int
        Block of inputs, counted from 0. It is the same for all layers that these inputs pass
        through together, as a block or as sparse rows.
    inputs : int
        Inputs computed in this block, including dead ones that have not been dropped yet.
    alive : int
        Inputs with at least one entry after the layer. Merged inputs count individually.
    distinct : int
        Inputs alive that were computed; less than `alive` if equal inputs were merged.
    entries : int
        Nonzero activations after the layer, over the inputs that were computed.
    engine : str
        Engine passed to `infer`.
    kernel : str
        Kernel that computed the layer: ``"sparse"``, ``"full"``, ``"fused"`` or
        ``"lagraph"``.
    seconds : float
        Wall time of the layer on this block.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> records = []
    >>> Y = gbdnn.infer([np.eye(3), np.eye(3)], np.eye(3)[:2], callback=records.append)
    >>> [(record.layer, record.alive, record.entries) for record in records]
    [(0, 2, 2), (1, 2, 2)]
    """

    layer: int
    block: int
    inputs: int
    alive: int
    distinct: int
    entries: int
    engine: str
    kernel: str
    seconds: float


class Watch:
    """What a run reports: its progress, and records for a callback.

    Attributes
    ----------
    progress : RunProgress
    kernels : set of str
        Kernels that have computed a layer.
    multiplicity : ndarray of int64, optional
        Number of inputs that each id represents; None without a callback.
    number : callable
        Returns the number of a new block.
    """

    def __init__(
        self, engine: str, callback: Callable[[LayerStats], object] | None = None,
        multiplicity: np.ndarray | None = None, progress: RunProgress | None = None,
    ) -> None:  # fmt: skip
        self._engine, self._callback, self.progress = engine, callback, progress or current()
        self.kernels, self.multiplicity = set[str](), multiplicity if callback else None
        self.number = partial(next, count())
        self._records: list[Iterator[LayerStats]] = []

    @property
    def is_watched(self) -> bool:
        """Whether anything reads the statistics of layers."""
        return bool(self._callback or self.progress.is_watched)

    def computed(
        self, k: int, counts: np.ndarray | None, left: int, kernel: str, number: int, began: float
    ) -> None:
        """Record the counters of layer `k` and the next ones, of which `left` inputs remain."""
        self.kernels.add(kernel)
        if counts is not None:
            seconds = perf_counter() - began
            self.progress.computed(k, counts[:, 0], left, kernel, seconds * of_layers(counts))
            if self._callback:
                layers = layer_stats(k, counts, number, self._engine, kernel, seconds)
                self._records.append(layers)

    def pieces(self, piece: Piece, kernel: str, *, is_last: bool) -> None:
        """Record pieces of a compiled run that passed the same layers, or a merge."""
        k, layers = piece.layer, piece.counts.shape[1]
        if not layers:
            self.progress.dropped(k, int(piece.before.sum()))
            return
        counts, seconds = piece.counts.sum(0), 1e-9 * float(piece.computing.sum())
        left, what = int(piece.left.sum()), "writing" if is_last else "regrouping"
        self.progress.computed(k, counts[:, 0], left, kernel, seconds * of_layers(counts))
        reading, rest = (1e-9 * float(ns.sum()) for ns in (piece.reading, piece.rest))
        self.progress.spent(**{"reading": reading, what: rest})
        if self._callback:
            of_pieces = zip(piece.counts, 1e-9 * piece.computing, strict=True)
            self._records += [
                layer_stats(k, counts, self.number(), self._engine, kernel, float(seconds))
                for counts, seconds in of_pieces
            ]

    def tell(self) -> None:
        """Call the callback with the records."""
        records, self._records = self._records, []
        for layer in chain.from_iterable(records):
            self._callback(layer)  # type: ignore[misc]


def layer_stats(
    first: int, counts: np.ndarray, block: int, engine: str, kernel: str, seconds: float
) -> Iterator[LayerStats]:
    """Yield the records of one block for layer `first` and the layers after it.

    Parameters
    ----------
    counts : ndarray of int64, shape (layers, 5)
        Inputs computed, distinct inputs alive, inputs alive, entries, and clock ticks in proportion
        to which `seconds` is divided.
    """
    of_layer = seconds * of_layers(counts)
    for k, (inputs, distinct, alive, entries, _) in enumerate(counts.tolist(), first):
        if inputs:
            yield LayerStats(
                layer=k, block=block, inputs=inputs, alive=alive, distinct=distinct,
                entries=entries, engine=engine, kernel=kernel, seconds=float(of_layer[k - first]),
            )  # fmt: skip


def of_layers(counts: np.ndarray) -> np.ndarray:
    """Return the shares of the layers in the time of a block; `counts` as for `layer_stats`."""
    ticks = counts[:, 4]
    total = int(ticks.sum())
    return ticks / total if total else np.full(len(counts), 1 / len(counts))


def per_layer(stats: Iterable[LayerStats], layers: int | None = None) -> NDArray[np.void]:
    """Sum the records of a run per layer.

    Parameters
    ----------
    stats : iterable of LayerStats
        Records of one run in any order, collected by a callback of `infer`.
    layers : int, optional
        Number of layers of the network (default: as many as were reached).

    Returns
    -------
    structured ndarray, shape (layers,)
        Fields ``layer`` (from 0), ``blocks``, ``inputs``, ``alive``, ``distinct``, ``entries`` and
        ``seconds``: sums over the blocks of the attributes of `LayerStats`, 0 for layers that no
        input reached. With several threads, ``seconds`` exceeds the wall time.

    Raises
    ------
    ArgumentError
        A record belongs to a layer beyond `layers`.

    Notes
    -----
    ``entries / (distinct * neurons)`` is the density of the activations.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> W, X = np.array([[0.5, 0.0], [1.0, -1.0]]), np.array([[2.0, 0.0], [0.0, 3.0], [0.0, 0.1]])
    >>> stats = []
    >>> Y = gbdnn.infer([W, W], X, bias=-0.25, callback=stats.append)
    >>> table = gbdnn.per_layer(stats)
    >>> table["alive"], table["entries"]
    (array([2, 2]), array([2, 2]))
    """
    records = as_records(stats, LayerStats, "stats")
    if layers is not None:
        layers = whole_number(layers, "layers", least=0)
    deepest = max((record.layer for record in records), default=-1)
    count = deepest + 1 if layers is None else layers
    if deepest >= count:
        raise ArgumentError(f"stats has a record of layer {deepest}, but layers={count}")
    table = np.zeros(count, _PER_LAYER)
    table["layer"] = np.arange(count)
    for record in records:
        row = table[record.layer]
        row["blocks"] += 1
        for name in (*_COUNTS[2:], "seconds"):
            row[name] += getattr(record, name)
    return table
