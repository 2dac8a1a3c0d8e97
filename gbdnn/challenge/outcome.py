"""Challenge problems, run and held against the truth.

A problem is a network, features, and categories to compare with: the official ones, or those of an
independent computation with SciPy in FP64.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.answers import categories
from gbdnn.arrays.threads import available
from gbdnn.challenge.machine import machine, versions
from gbdnn.engine.memory import MEMORY
from gbdnn.engine.stats import edge_rate
from gbdnn.errors import ArgumentError, MissingPackageError
from gbdnn.inference import infer

if TYPE_CHECKING:
    from collections.abc import Callable

    import graphblas as gb

    from gbdnn.challenge.problems import Problem
    from gbdnn.engine.stats import LayerStats
    from gbdnn.inference import Engine
    from gbdnn.model.network import Network

    Progress = Callable[[int, int], object]

__all__ = ["Outcome", "run", "scipy_categories"]

# Activations grow to some ten times the features' entries: blocks keep them near a gigabyte.
_BLOCK_ENTRIES = 5_000_000


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What running a problem gave.

    Attributes
    ----------
    problem : Problem
        What was run.
    seconds : list of float
        Wall time of each run of `infer`, in order.
    categories : ndarray of int64
        0-based categories found.
    truth : ndarray of int64, optional
        The categories they were compared with, None if they were not.
    checked_against : str
        Where `truth` is from.
    nthreads : int
        Threads that could be used.
    engine : str
        As `infer` was told.
    compress : bool
        Whether equal inputs went on as one.
    processed : int, optional
        Edges that were really processed, over all inputs computed; counted where `compress`.
    records : list of LayerStats, optional
        What one more run, which is not among the `seconds`, did at each layer; if it was asked for.
    machine : dict
        Processor, cores, memory in GiB and operating system.
    versions : dict
        Of Python, gbdnn and the libraries that do the arithmetic.
    """

    problem: Problem
    seconds: list[float]
    categories: np.ndarray
    truth: np.ndarray | None
    checked_against: str
    nthreads: int
    engine: Engine
    compress: bool = False
    processed: int | None = None
    records: list[LayerStats] | None = field(default=None, repr=False)
    machine: dict[str, Any] = field(default_factory=machine)
    versions: dict[str, str] = field(default_factory=versions)

    @property
    def check(self) -> str:
        """``"PASSED"``, ``"FAILED"`` or ``"NOT CHECKED"``."""
        if self.truth is None:
            return "NOT CHECKED"
        return "PASSED" if np.array_equal(self.categories, self.truth) else "FAILED"

    @property
    def seconds_median(self) -> float:
        """The median of `seconds`."""
        return median(self.seconds)

    @property
    def edge_rate(self) -> float:
        """Inputs times edges over the median of the seconds."""
        return edge_rate(self.problem.inputs, self.problem.network.edges, self.seconds_median)

    def as_json(self) -> dict[str, Any]:
        """Return everything but the matrices, as JSON can hold it; categories count from 1."""
        net = self.problem.network
        return {
            "problem": {
                "name": self.problem.name,
                "neurons": net.shape[0],
                "layers": len(net),
                "edges": net.edges,
                "inputs": self.problem.inputs,
                "seed": self.problem.seed,
            },
            "machine": self.machine,
            "versions": self.versions,
            "nthreads": self.nthreads,
            "engine": self.engine,
            "compress": self.compress,
            "edges_processed": self.processed,
            "seconds": self.seconds,
            "seconds_median": self.seconds_median,
            "edges_per_second": self.edge_rate,
            "categories": (self.categories + 1).tolist(),
            "check": self.check,
            "checked_against": self.checked_against,
        }


def run(
    problem: Problem,
    *,
    nthreads: int | None = None,
    engine: Engine = "auto",
    compress: bool = False,
    memory: int = MEMORY,
    repeat: int = 1,
    check: bool = True,
    record: bool = False,
    callback: Callable[[LayerStats], object] | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Infer a problem's categories `repeat` times, and compare them with the truth.

    Parameters
    ----------
    problem : Problem
        From `official` or `generated`.
    nthreads, engine, memory, callback
        As for `infer`.
    compress : bool, default False
        Whether equal inputs go on as one. The edges that are really processed are then counted:
        the edge rate alone would mislead.
    repeat : int, default 1
        How often to run `infer`.
    check : bool, default True
        Whether to compare; without official truth, SciPy computes it in FP64.
    record : bool, default False
        Whether to keep what was done at each layer, as the outcome's `records`.
    progress : callable, optional
        Called as ``progress(k, count)`` while SciPy computes.

    Returns
    -------
    Outcome
        Seconds, categories and the verdict on them.

    Notes
    -----
    What is counted or kept is from one more run, which is not timed: a callback costs time.

    Examples
    --------
    >>> import gbdnn.challenge as challenge
    >>> challenge.run(challenge.generated(1024, 6, inputs=100)).check
    'PASSED'
    """
    if repeat < 1:
        raise ArgumentError(f"repeat is at least 1, not {repeat}")
    seconds = []
    for _ in range(repeat):
        started = perf_counter()
        Y = infer(
            problem.network,
            problem.features,
            engine=engine,
            compress="auto" if compress else False,
            memory=memory,
            nthreads=nthreads,
            callback=callback,
        )
        seconds.append(perf_counter() - started)
    truth, source = None, "nothing"
    if check:
        truth, source = problem.truth, "the official categories"
        if truth is None:
            truth = scipy_categories(problem.network, problem.features, progress=progress)
            source = "SciPy in FP64"
    records = _records(problem, nthreads, engine, compress, memory) if compress or record else []
    return Outcome(
        problem=problem,
        seconds=seconds,
        categories=categories(Y),
        truth=truth,
        checked_against=source,
        nthreads=nthreads or available(),
        engine=engine,
        compress=compress,
        processed=_processed(problem, records) if compress else None,
        records=records if record else None,
    )


def _records(
    problem: Problem, nthreads: int | None, engine: Engine, compress: bool, memory: int
) -> list[LayerStats]:
    """Run once more, and return what was done at each layer."""
    records: list[LayerStats] = []
    infer(
        problem.network,
        problem.features,
        engine=engine,
        compress="auto" if compress else False,
        memory=memory,
        nthreads=nthreads,
        callback=records.append,
    )
    return records


def _processed(problem: Problem, records: list[LayerStats]) -> int:
    """Return the edges of every layer times the inputs that are computed there, summed."""
    return sum(record.inputs * problem.network[record.layer].edges for record in records)


def scipy_categories(
    network: Network, features: gb.Matrix, *, progress: Progress | None = None
) -> np.ndarray:
    """Return the categories of a challenge network, computed by SciPy alone in FP64.

    Parameters
    ----------
    network : Network
        Layers with the rule ``"entries"`` and a ReLU, of weights that are not negative (SciPy drops
        sums that cancel).
    features : Matrix, shape (inputs, neurons)
        The inputs; those that have died are dropped after each layer.
    progress : callable, optional
        Called as ``progress(k, count)`` after each layer.

    Returns
    -------
    ndarray of int64
        0-based ids in ascending order.
    """
    try:
        import scipy.sparse as sp
    except ImportError as err:
        raise MissingPackageError('the check needs SciPy: pip install "gbdnn[challenge]"') from err
    rows, columns, values = features.to_coo()
    X = sp.csr_array((values.astype(np.float64), (rows, columns)), shape=features.shape)
    blocks = np.array_split(np.arange(features.nrows), 1 + X.nnz // _BLOCK_ENTRIES)
    found = []
    for block, alive in enumerate(blocks):
        Y = X[alive]
        for k, layer in enumerate(network):
            rows, columns, values = layer.weights.to_coo()
            W = sp.csr_array((values.astype(np.float64), (rows, columns)), shape=layer.shape)
            Z = Y @ W
            Z.data += np.broadcast_to(layer.bias, (layer.ncols,))[Z.indices]
            np.clip(Z.data, 0, layer.clip, out=Z.data)
            Z.eliminate_zeros()
            lives = np.diff(Z.indptr) > 0
            Y, alive = Z[lives], alive[lives]
            if progress is not None:
                progress(block * len(network) + k + 1, len(blocks) * len(network))
        found.append(alive)
    return np.concatenate(found)
