"""Records of workers and ranks, and the balance of their work."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from gbdnn.arrays.checks import as_records, whole_number
from gbdnn.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

__all__ = ["Balance", "BatchStats", "RankStats", "balance", "edges_by_kernel"]

_SUMS = ("seconds", "inputs", "alive", "bytes")
_NUMBERS = [(name, "f8" if name == "seconds" else "i8") for name in ("batches", *_SUMS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStats:
    """Record of one batch, passed to ``callback=`` of `Workers`.

    Attributes
    ----------
    batch : int
        Number of the batch, from 0.
    worker : str
        Worker that computed it: host, process and thread.
    inputs : int
        Inputs of the batch.
    alive : int
        Inputs with at least one nonzero activation after the last layer.
    entries : int
        Nonzero activations after the last layer.
    seconds : float
        Wall time of the worker, including the time to read features, and weights if needed.
    bytes : int
        Bytes of features and answer sent between caller and worker.
    threads : int
        Threads of the worker.
    kernels : dict of str to int
        Edges, summed over the inputs, per kernel that computed them: ``{"fused": 3932160}``.
    done : int
        Number of finished batches, including this one.
    batches : int, optional
        Number of all batches; None if `infer_batches` got an iterator.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> import numpy as np, gbdnn
    >>> records = []
    >>> with ThreadPoolExecutor(2) as pool:
    ...     workers = gbdnn.distributed.Workers(pool, batch_size=1, callback=records.append)
    ...     Y = gbdnn.infer([np.eye(3)], np.eye(3), executor=workers)
    >>> sorted((each.batch, each.inputs, each.alive) for each in records)
    [(0, 1, 1), (1, 1, 1), (2, 1, 1)]
    """

    batch: int
    worker: str
    inputs: int
    alive: int
    entries: int
    seconds: float
    bytes: int
    threads: int
    kernels: dict[str, int] = field(default_factory=dict)
    done: int
    batches: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStats:
    """Record of one rank, described in `pipeline`."""

    rank: int
    layers: tuple[int, int]
    inputs: int
    alive: int
    sent: int
    busy: float
    waited: float
    kernels: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Spread:
    """Minimum, mean and maximum over the workers."""

    min: float
    mean: float
    max: float

    @property
    def imbalance(self) -> float:
        """Maximum divided by the mean: 1 if all are equal."""
        return self.max / self.mean if self.mean else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """Work of each worker and its spread, described in `balance`."""

    workers: NDArray[np.void]
    seconds: Spread
    inputs: Spread
    alive: Spread
    bytes: Spread

    def __str__(self) -> str:
        rows = [f"{'':8}{'min':>12}{'mean':>12}{'max':>12}  imbalance"]
        for name in _SUMS:
            spread: Spread = getattr(self, name)
            numbers = "".join(f"{x:12.4g}" for x in (spread.min, spread.mean, spread.max))
            rows.append(f"{name:8}{numbers}  {spread.imbalance:.2f}")
        return "\n".join(rows)


def edges_by_kernel(stats: Iterable[BatchStats | RankStats]) -> dict[str, int]:
    """Return the edges of all records per kernel."""
    edges = Counter[str]()
    for record in stats:
        edges.update(record.kernels)
    return dict(edges)


def balance(stats: Iterable[BatchStats], workers: int | None = None) -> Balance:
    """Return the work of each worker and its spread.

    Parameters
    ----------
    stats : iterable of BatchStats
        Records of one call, in any order.
    workers : int, optional
        Number of workers; those without a batch count as 0 (default: the workers of the records).

    Returns
    -------
    Balance
        ``workers`` is a structured array with a row per worker: ``worker``, ``batches``, and the
        sums ``inputs``, ``alive``, ``seconds`` and ``bytes``. Attributes named like the sums have
        ``min``, ``mean``, ``max`` and ``imbalance``, maximum divided by mean. Print it for a table.

    Raises
    ------
    ArgumentError
        There are no records, or records of more than `workers` workers.

    Notes
    -----
    KK-SpDNN reports the imbalance per rank.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> import numpy as np, gbdnn
    >>> records = []
    >>> with ThreadPoolExecutor(1) as pool:
    ...     workers = gbdnn.distributed.Workers(pool, batch_size=1, callback=records.append)
    ...     Y = gbdnn.infer([np.eye(3)], np.eye(3), executor=workers)
    >>> found = gbdnn.distributed.balance(records)
    >>> found.inputs, found.seconds.imbalance
    (Spread(min=3.0, mean=3.0, max=3.0), 1.0)
    """
    records = as_records(stats, BatchStats, "stats")
    if workers is not None:
        workers = whole_number(workers, "workers", least=0)
    names = sorted({record.worker for record in records})
    count = len(names) if workers is None else workers
    if not records or len(names) > count:
        raise ArgumentError(f"stats has records of {len(names)} workers, but workers={workers}")
    table = np.zeros(count, [("worker", np.str_, max(map(len, names), default=1)), *_NUMBERS])
    table["worker"][: len(names)] = names
    for record in records:
        row = table[names.index(record.worker)]
        row["batches"] += 1
        for name in _SUMS:
            row[name] += getattr(record, name)
    spreads = {
        name: Spread(*(float(f(table[name])) for f in (np.min, np.mean, np.max))) for name in _SUMS
    }
    return Balance(workers=table, **spreads)
