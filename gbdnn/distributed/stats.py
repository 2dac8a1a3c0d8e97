"""What workers and ranks did: a record for each batch and rank, and how even workers are."""

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

__all__ = ["Balance", "BatchStats", "RankStats", "Spread", "balance", "forms"]

_SUMS = ("inputs", "living", "seconds", "bytes")
_PER_WORKER = np.dtype(
    [
        ("worker", np.str_, 64),
        ("batches", np.int64),
        ("inputs", np.int64),
        ("living", np.int64),
        ("seconds", np.float64),
        ("bytes", np.int64),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStats:
    """What a worker did with one batch of inputs; calls with ``executor=`` pass it to ``stats=``.

    Attributes
    ----------
    batch : int
        The batch, counted from 0.
    worker : str
        Who computed it: host, process and thread.
    inputs : int
        Inputs of the batch.
    living : int
        Inputs with at least one entry after the last layer.
    entries : int
        Activations after the last layer that are not 0.
    seconds : float
        Wall time of the worker: features read, weights read if they were not there, computed.
    loading : float
        Seconds of it for reading the network; 0 where the worker had it.
    bytes : int
        Bytes of features and answer that moved between caller and worker.
    threads : int
        Threads that computed.
    cores : int
        Cores that the worker may run on.
    forms : dict of str to int
        Edges, summed over the inputs, by the form that computed them: ``{"fused": 3932160}``.
    compiling : float
        Seconds in which the worker's process compiled code; 0 if it was on disk.
    done : int
        Batches that are done, this one among them.
    batches : int, optional
        Batches in all; None where the caller's iterator does not tell.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> import numpy as np, gbdnn
    >>> records = []
    >>> with ThreadPoolExecutor(2) as pool:
    ...     Y = gbdnn.infer([np.eye(3)], np.eye(3), executor=pool, batch=1, stats=records.append)
    >>> sorted((each.batch, each.inputs, each.living) for each in records)
    [(0, 1, 1), (1, 1, 1), (2, 1, 1)]
    """

    batch: int
    worker: str
    inputs: int
    living: int
    entries: int
    seconds: float
    loading: float
    bytes: int
    threads: int
    cores: int
    forms: dict[str, int] = field(default_factory=dict)
    compiling: float = 0.0
    done: int
    batches: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStats:
    """What one rank of a pipeline did; `pipeline` passes all ranks' to its `report`.

    Attributes
    ----------
    rank : int
        The rank.
    layers : (int, int)
        Its first layer, and the one behind its last.
    inputs : int
        Rows that came: all inputs on rank 0, survivors elsewhere.
    survivors : int
        Rows that went on, or to the answer.
    sent : int
        Bytes that it sent to other ranks; from the last rank, the answer.
    busy, waited : float
        Seconds of computing, and of waiting for other ranks.
    forms : dict of str to int
        Edges, summed over the inputs, by the form that computed them.
    compiling : float
        Seconds in which code was compiled; 0 if it was on disk.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> told = []
    >>> Y = gbdnn.pipeline([np.eye(2), np.eye(2)], np.diag([1.0, 0.0]), report=told.extend)
    >>> [(each.rank, each.layers, each.inputs, each.survivors) for each in told]
    [(0, (0, 2), 2, 1)]
    """

    rank: int
    layers: tuple[int, int]
    inputs: int
    survivors: int
    sent: int
    busy: float
    waited: float
    forms: dict[str, int] = field(default_factory=dict)
    compiling: float = 0.0


@dataclass(frozen=True, slots=True)
class Spread:
    """How evenly something is spread over workers.

    Attributes
    ----------
    min, mean, max : float
        Over the workers.

    Examples
    --------
    >>> import gbdnn
    >>> gbdnn.distributed.Spread(min=1.0, mean=2.0, max=3.0).imbalance  # the largest over the mean
    1.5
    """

    min: float
    mean: float
    max: float

    @property
    def imbalance(self) -> float:
        """The largest over the mean: 1 where all are equal."""
        return self.max / self.mean if self.mean else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """What each worker did, and how evenly.

    Attributes
    ----------
    workers : structured ndarray
        A row per worker: ``worker``, ``batches``, and the sums ``inputs``, ``living``, ``seconds``
        (busy) and ``bytes``.
    seconds, inputs, living, bytes : Spread
        Of these sums over the workers.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> import numpy as np, gbdnn
    >>> records = []
    >>> with ThreadPoolExecutor(1) as pool:
    ...     Y = gbdnn.infer([np.eye(3)], np.eye(3), executor=pool, batch=1, stats=records.append)
    >>> found = gbdnn.distributed.balance(records)
    >>> found.inputs
    Spread(min=3.0, mean=3.0, max=3.0)
    """

    workers: NDArray[np.void]
    seconds: Spread
    inputs: Spread
    living: Spread
    bytes: Spread

    def __str__(self) -> str:
        rows = [f"{'':8}{'min':>12}{'mean':>12}{'max':>12}  imbalance"]
        for name in ("seconds", "inputs", "living", "bytes"):
            found: Spread = getattr(self, name)
            numbers = "".join(f"{x:12.4g}" for x in (found.min, found.mean, found.max))
            rows.append(f"{name:8}{numbers}  {found.imbalance:.2f}")
        return "\n".join(rows)


def forms(stats: Iterable[BatchStats | RankStats]) -> tuple[dict[str, int], float]:
    """Return edges by the form that computed them, and the most that a record has of compiling."""
    found, seconds = Counter[str](), 0.0
    for record in stats:
        found.update(record.forms)
        seconds = max(seconds, record.compiling)
    return dict(found), seconds


def balance(stats: Iterable[BatchStats], workers: int | None = None) -> Balance:
    """Return what each worker did, and how evenly.

    Parameters
    ----------
    stats : iterable of BatchStats
        Of one call, in any order.
    workers : int, optional
        How many workers there are; those without a batch count with 0 (default: those that had
        one).

    Returns
    -------
    Balance

    Raises
    ------
    ArgumentError
        There are no records, or records of more than `workers` workers.

    Notes
    -----
    The imbalance, the largest over the mean, is what KK-SpDNN reports per rank.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> import numpy as np, gbdnn
    >>> records = []
    >>> with ThreadPoolExecutor(1) as pool:
    ...     Y = gbdnn.infer([np.eye(3)], np.eye(3), executor=pool, batch=1, stats=records.append)
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
        raise ArgumentError(f"records of {len(names)} workers; workers={workers}")
    table = np.zeros(count, _PER_WORKER)
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
