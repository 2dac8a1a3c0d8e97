"""Run a challenge problem, and compare its categories with the truth.

The truth is official, or computed independently by SciPy in FP64.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.answers import categories
from gbdnn.arrays.arguments import as_flag, require_callable
from gbdnn.arrays.first_use import gb
from gbdnn.arrays.threads import available
from gbdnn.arrays.values import whole_number
from gbdnn.challenge.machine import machine, versions
from gbdnn.challenge.problems import Problem
from gbdnn.engine.memory import MEMORY
from gbdnn.engine.stats import edge_rate
from gbdnn.errors import require_kind
from gbdnn.inference import infer
from gbdnn.model.network import Network
from gbdnn.optional import require

if TYPE_CHECKING:
    from collections.abc import Callable

    from gbdnn.engine.stats import LayerStats
    from gbdnn.inference import Engine

    Progress = Callable[[int, int], object]

# Activations have some ten times as many entries as the features: about a gigabyte a block.
_BLOCK_ENTRIES = 5_000_000


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The measurements and the categories of a problem that was run.

    Attributes
    ----------
    problem : Problem
        What was run.
    seconds : list of float
        Wall time of each run of `infer`, in order.
    categories : ndarray of int64
        0-based categories found.
    truth : ndarray of int64, optional
        The categories they were compared with; None if they were not.
    checked_against : str
        The source of `truth`.
    nthreads : int
        Threads available to the run.
    engine : str
        As given to `infer`.
    compress : bool
        Whether equal inputs were computed once.
    processed : int, optional
        Edges processed, summed over the inputs computed; counted if `compress`.
    records : list of LayerStats, optional
        The records of one further run that is not timed, if asked for.
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
        """Return all but the matrices and records, for JSON; categories count from 1."""
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
        Compute equal inputs once. The edges processed are then counted: the edge rate, which
        counts every input, is effective.
    repeat : int, default 1
        Number of timed runs.
    check : bool, default True
        Compare the categories with ``Problem.truth`` or, where it is None, with SciPy's in FP64.
    record : bool, default False
        Keep the records of each layer, as the outcome's `records`.
    progress : callable, optional
        Called as ``progress(k, count)`` while SciPy computes.

    Returns
    -------
    Outcome
        Seconds, categories and the result of the check.

    Notes
    -----
    Records and processed edges are from one further run, because a callback takes time.

    Examples
    --------
    >>> import gbdnn.challenge as challenge
    >>> challenge.run(challenge.generated(1024, 6, inputs=100)).check
    'PASSED'
    """
    require_kind(problem, Problem, "problem is a Problem")
    whole_number(repeat, "repeat", least=1)
    for name, flag in (("compress", compress), ("check", check), ("record", record)):
        as_flag(flag, name)
    require_callable(progress, "progress")
    compute = partial(
        infer,
        problem.network,
        problem.features,
        engine=engine,
        compress="auto" if compress else False,
        memory=memory,
        nthreads=nthreads,
    )
    seconds = []
    for _ in range(repeat):
        started = perf_counter()
        Y = compute(callback=callback)
        seconds.append(perf_counter() - started)
    truth, source = None, "nothing"
    if check:
        truth, source = problem.truth, "the official categories"
        if truth is None:
            truth = scipy_categories(problem.network, problem.features, progress=progress)
            source = "SciPy in FP64"
    records: list[LayerStats] = []
    if compress or record:
        compute(callback=records.append)
    edges = [info.edges for info in problem.network.infos]
    return Outcome(
        problem=problem,
        seconds=seconds,
        categories=categories(Y),
        truth=truth,
        checked_against=source,
        nthreads=nthreads or available(),
        engine=engine,
        compress=compress,
        processed=sum(r.inputs * edges[r.layer] for r in records) if compress else None,
        records=records if record else None,
    )


def scipy_categories(
    network: Network, features: gb.Matrix, *, progress: Progress | None = None
) -> np.ndarray:
    """Return the categories of a challenge network, computed by SciPy in FP64.

    Parameters
    ----------
    network : Network
        Layers with the bias rule ``"entries"``, a ReLU, and weights >= 0 (SciPy drops sums that
        cancel).
    features : Matrix, shape (inputs, neurons)
        The inputs; dead ones are dropped after each layer.
    progress : callable, optional
        Called as ``progress(k, count)`` after each layer.

    Returns
    -------
    ndarray of int64
        0-based ids in ascending order.
    """
    require_kind(network, Network, "network is a Network")
    require_kind(features, gb.Matrix, "features is a graphblas.Matrix")
    require_callable(progress, "progress")
    sp = require("scipy.sparse", "challenge", "the check needs SciPy")
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
