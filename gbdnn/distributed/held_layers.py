"""What one rank of a pipeline does: it takes batches of rows through its layers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.matrices import as_rows
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.engine.run import infer_network
from gbdnn.errors import naming

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gbdnn.engine.sources import RowSource
    from gbdnn.engine.stats import LayerStats
    from gbdnn.model.network import Network

__all__ = ["HeldLayers", "Stage", "as_inputs", "batches", "rows_between"]

_SURVIVORS = 2048  # rows that go on together: the engine reorders neurons from here on
_MOST_BYTES = 1 << 28  # fewer rows go on if they have so many


class Stage:
    """Some consecutive layers, and what has been through them.

    Parameters
    ----------
    part : Network
        The layers.
    first : int
        The number of the first of them in the whole network.
    drops : bool
        Whether rows without entries end here.
    options : dict
        Keywords of `infer_network`.

    Attributes
    ----------
    inputs, survivors : int
        Rows so far that have come, and that went on.
    busy : float
        Seconds of computing.
    """

    def __init__(self, part: Network, first: int, *, drops: bool, options: dict[str, Any]) -> None:
        self._part, self._first, self._drops = part, first, drops
        self._options = dict(options)
        if self._options.get("callback") is not None:
            self._options["callback"] = _Renumbered(first, options["callback"])
        self.inputs = self.survivors = 0
        self.busy = 0.0

    def rows(self, batches: Iterable[SparseRows | np.ndarray]) -> Iterator[SparseRows]:
        """Yield the rows behind the layers, some thousands at a time, by the ids they came with.

        A batch that is an array has the rows behind those of the batch before it.
        """
        collected: list[SparseRows] = []
        count = nbytes = 0
        for batch in batches:
            began = perf_counter()
            rows = self._advance(batch)
            collected.append(rows)
            count, nbytes = count + rows.nrows, nbytes + rows.nbytes
            full = count >= _SURVIVORS or nbytes >= _MOST_BYTES
            together = SparseRows.joined(collected) if full else None
            self.busy += perf_counter() - began
            if together is not None:
                self.survivors += count
                yield together
                collected, count, nbytes = [], 0, 0
        if count:
            self.survivors += count
            yield SparseRows.joined(collected)

    def _advance(self, batch: SparseRows | np.ndarray) -> SparseRows:
        """Return one batch behind the layers."""
        count = len(batch) if isinstance(batch, np.ndarray) else batch.nrows
        if isinstance(batch, np.ndarray):
            ids = np.arange(self.inputs, self.inputs + count)
        else:
            ids = batch.ids
        self.inputs += count
        if len(self._part):
            last = self._first + len(self._part) - 1
            with naming(f"layers {self._first} to {last}, counted from 0"):
                Y = infer_network(self._part, as_inputs(batch), **self._options)
            rows = SparseRows.from_matrix(Y, ids)
        elif isinstance(batch, np.ndarray):
            rows = as_rows(batch, what="features", dtype=batch.dtype)
            rows = SparseRows(rows.indptr, rows.columns, rows.values, rows.ncols, ids)
        else:
            rows = batch
        return rows.without_empty_rows() if self._drops else rows


@dataclass(frozen=True)
class HeldLayers:
    """Some layers of a network, in memory; the network keeps them with what was prepared."""

    start: int
    stop: int

    def __call__(self, net: Network) -> Network:
        """Return the layers."""
        return net[self.start : self.stop].loaded()


def batches(X: RowSource, size: int) -> Iterator[SparseRows | np.ndarray]:
    """Yield all features in batches of so many rows."""
    for start in range(0, X.nrows, size):
        yield rows_between(X, start, min(start + size, X.nrows))


def rows_between(X: RowSource, start: int, stop: int) -> SparseRows | np.ndarray:
    """Return some features: an array if they are dense, else rows with the inputs' numbers."""
    if (dense := getattr(X, "dense_rows", None)) is not None:
        array: np.ndarray = dense(start, stop)
        return array
    rows = X.sparse_rows(start, stop)
    ids = np.arange(start, stop)
    return SparseRows(rows.indptr, rows.columns, rows.values, rows.ncols, ids)


def as_inputs(batch: SparseRows | np.ndarray) -> Any:
    """Return a batch as `infer` takes it, its rows counted from 0."""
    if isinstance(batch, np.ndarray):
        return batch
    return SparseRows(batch.indptr, batch.columns, batch.values, batch.ncols)


@dataclass(frozen=True)
class _Renumbered:
    """A callback of a part's run, told the layers' numbers in the whole network."""

    first: int
    callback: Callable[[LayerStats], object]

    def __call__(self, stats: LayerStats) -> None:
        self.callback(replace(stats, layer=stats.layer + self.first))
