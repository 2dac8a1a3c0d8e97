"""The stages of a pipeline: consecutive layers on one rank, and the cuts between them."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.sources import as_source
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.engine.run import infer_network
from gbdnn.engine.stats import LayerStats, per_layer
from gbdnn.errors import naming
from gbdnn.kernels import costs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import ArrayLike

    from gbdnn.arrays.sources import RowSource
    from gbdnn.model.network import Network

__all__ = ["Stage", "balanced_cuts", "batches", "held_layers", "measured_cuts"]

_SURVIVORS = 2048  # rows that are sent together: from here on the engine reorders neurons
_SAMPLE, _RANGES = 1024, 8  # inputs of a sample, and the ranges that they are taken from


class Stage:
    """Consecutive layers of a network, and counts of the rows that they computed.

    Parameters
    ----------
    part : Network
        The layers.
    first : int
        Number of the first of these layers in the whole network.
    drops : bool
        Whether rows without entries are dropped.
    options : dict
        Options of `infer_network`.

    Attributes
    ----------
    inputs, alive : int
        Rows received and passed on so far.
    busy : float
        Seconds of computing.
    """

    def __init__(self, part: Network, first: int, *, drops: bool, options: dict[str, Any]) -> None:
        self._part, self._first, self._drops = part, first, drops
        self._options = dict(options)
        if (callback := options.get("callback")) is not None:  # in terms of the whole network
            self._options["callback"] = lambda x: callback(replace(x, layer=x.layer + first))
        self.inputs = self.alive = 0
        self.busy = 0.0

    def rows(self, batches: Iterable[SparseRows | np.ndarray]) -> Iterator[SparseRows]:
        """Yield the rows after these layers, some thousands at a time, with their ids.

        Rows of arrays are numbered consecutively.
        """
        collected: list[SparseRows] = []
        for batch in batches:
            began = perf_counter()
            collected.append(self._advance(batch))
            together = None
            if sum(rows.nrows for rows in collected) >= _SURVIVORS:
                together = SparseRows.joined(collected)
                collected = []
            self.busy += perf_counter() - began
            if together is not None:
                self.alive += together.nrows
                yield together
        if any(rows.nrows for rows in collected):
            together = SparseRows.joined(collected)
            self.alive += together.nrows
            yield together

    def _advance(self, batch: SparseRows | np.ndarray) -> SparseRows:
        """Return one batch after these layers."""
        if isinstance(batch, np.ndarray):
            ids = np.arange(self.inputs, self.inputs + len(batch))
        else:
            ids = batch.ids
        self.inputs += len(ids)
        last = self._first + len(self._part) - 1
        with naming(f"layers {self._first} to {last}, counted from 0"):
            Y = infer_network(self._part, _as_inputs(batch, self._part), **self._options)
        rows = SparseRows.from_matrix(Y, ids)
        return rows.without_empty_rows() if self._drops else rows


def held_layers(net: Network, start: int, stop: int) -> Network:
    """Return some layers of a network in memory, for `Network.prepared`."""
    return net[start:stop].loaded()


def batches(X: RowSource, size: int) -> Iterator[SparseRows | np.ndarray]:
    """Yield all features in batches of `size` rows, arrays if they are dense."""
    read = X.dense_rows or X.sparse_rows
    return (read(start, min(start + size, X.nrows)) for start in range(0, X.nrows, size))


def measured_cuts(
    net: Network, X: RowSource, ranks: int, options: dict[str, Any]
) -> tuple[int, ...]:
    """Return the cuts that balance the seconds of each layer for a sample of the features.

    `options` are keywords of `infer_network`.
    """
    some, records = _sample(X), list[LayerStats]()
    infer_network(net, _as_inputs(some, net), **options | {"callback": records.append})
    table = per_layer(records, len(net))
    seconds = table["seconds"] if X.nrows else [info.edges for info in net.infos]
    before = some.size if isinstance(some, np.ndarray) else some.nvals
    # Equal rows were computed once, but all of them move.
    entries = table["entries"] * table["alive"] / np.maximum(table["distinct"], 1)
    moving = 2e-9 * costs.CONVERT * np.append(before, entries)
    return balanced_cuts(seconds, moving, ranks)


def balanced_cuts(seconds: ArrayLike, moving: ArrayLike, ranks: int) -> tuple[int, ...]:
    """Return the cuts that minimise the time of the slowest rank.

    Parameters
    ----------
    seconds : array of float, shape (layers,)
        Time of each layer.
    moving : array of float, shape (layers + 1,)
        Time to receive rows before layer k, or to send them after layer k - 1; both ranks at a cut
        spend it.
    ranks : int
        Number of ranks, at most the number of layers.

    Returns
    -------
    tuple of int, length ``ranks - 1``
        The first layers of ranks 1, 2, ..., ascending.

    Notes
    -----
    ``best[r, b] = min over a < b of max(best[r - 1, a], cost(a, b))``, where ranks 0 to r hold the
    layers before b.

    Examples
    --------
    >>> from gbdnn.distributed.mpi.stages import balanced_cuts
    >>> balanced_cuts([4, 1, 1, 2], [0, 0, 0, 0, 0], 2)
    (1,)
    """
    total = np.concatenate(([0.0], np.cumsum(seconds)))
    moved = np.asarray(moving, np.float64)
    cost = total[None, :] - total[:, None] + moved[:, None] + moved[None, :]
    cost[np.tril_indices(len(total))] = np.inf  # every rank has a layer
    best, cut_before = cost[0], []
    for _ in range(1, ranks):
        slowest = np.maximum(best[:, None], cost)
        cut_before.append(np.argmin(slowest, axis=0))
        best = np.min(slowest, axis=0)
    cuts, b = [], len(total) - 1
    for before in reversed(cut_before):
        b = int(before[b])
        cuts.append(b)
    return tuple(reversed(cuts))


def _sample(X: RowSource) -> Any:
    """Return up to 1,024 features, from ranges spread over all of them."""
    each = _SAMPLE // _RANGES
    if X.nrows > _SAMPLE:
        starts = np.linspace(0, X.nrows - each, _RANGES).astype(int).tolist()
    else:
        starts, each = [0], X.nrows
    read = X.dense_rows or X.sparse_rows
    parts: list[Any] = [read(start, start + each) for start in starts]
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return SparseRows.joined(parts)


def _as_inputs(batch: SparseRows | np.ndarray, net: Network) -> RowSource:
    """Return a batch as `infer_network` takes it, with its rows counted from 0."""
    batch = batch if isinstance(batch, np.ndarray) else batch.with_ids()
    return as_source(batch, net.infos[0].dtype)
