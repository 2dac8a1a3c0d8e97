"""Run a challenge problem and compare its categories with the true ones.

The true categories are those of the problem, or computed independently by SciPy in FP64.
"""

from __future__ import annotations

from contextlib import nullcontext
from copy import copy
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from statistics import median, median_low
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from gbdnn.answers import categories
from gbdnn.arrays.checks import as_flag, require_callable, whole_number
from gbdnn.challenge.machine import versions
from gbdnn.challenge.problems import Problem
from gbdnn.challenge.scipy_check import left_to_rounding, scipy_categories
from gbdnn.distributed import balance
from gbdnn.distributed.executors.batches import cuts
from gbdnn.distributed.executors.tasks import stored
from gbdnn.distributed.executors.workers import workers_of
from gbdnn.distributed.stats import edges_by_kernel
from gbdnn.engine.plan import MEMORY
from gbdnn.engine.progress import RunProgress, current, watched
from gbdnn.errors import require_kind
from gbdnn.inference import infer, infer_batches
from gbdnn.runtime.threads import available
from gbdnn.runtime.topology import described

if TYPE_CHECKING:
    from collections.abc import Callable

    import graphblas as gb

    from gbdnn.distributed.executors.workers import Workers
    from gbdnn.distributed.stats import Balance, BatchStats
    from gbdnn.engine.plan import Engine
    from gbdnn.model.network import Network

    Progress = Callable[[int, int], object]

T = TypeVar("T")

_FEW = 10  # inputs

_IN_JSON = (
    "machine versions nthreads engine kernels deduplicate first_seconds seconds seconds_median"
    " check checked_against check_seconds"
)
_IDS = ("categories", "borderline", "missing", "unexpected")

_none = partial(np.empty, 0, np.int64)


@dataclass(frozen=True, kw_only=True, repr=False)
class Outcome:
    """Measurements and categories of a run.

    Attributes
    ----------
    problem : Problem
    first_seconds : float
        Wall time of the first call of `infer`, which includes the preparation of the network.
    seconds : list of float
        Wall time of each later call, in order; of the first call if there is no other.
    categories : ndarray of int64
        0-based categories.
    truth : ndarray of int64, optional
        True categories; None if the categories were not checked.
    checked_against : str
        Source of `truth`.
    check_seconds : float, optional
        Wall time of the check; None without one.
    borderline : ndarray of int64
        0-based ids of inputs whose category depends on rounding in the network's dtype, and is in
        either `categories` or `truth` only. They do not fail the check.
    missing, unexpected : ndarray of int64
        0-based ids in `truth` only, and in `categories` only, without those in `borderline`.
    nthreads : int
        Threads available to the run, or to each worker.
    engine : str
        As given to `infer`.
    kernels : dict of str to float
        Fraction of the processed edges per kernel, such as ``{"fused": 1.0}``.
    deduplicate : bool
        Whether equal inputs were computed once.
    processed : int, optional
        Edges processed in the last run, summed over the inputs: less than `edges` times inputs if
        inputs die or are merged. None with workers.
    balances : list of Balance, optional
        Work of the workers in each run; None without workers.
    machine : dict
        Processor, cores, memory in GiB and operating system.
    versions : dict
        Versions of Python, gbdnn and its numerical libraries.

    Examples
    --------
    >>> from gbdnn import challenge
    >>> outcome = challenge.run(challenge.generate(1024, 6, inputs=100), repeat=3)
    >>> outcome.check, len(outcome.seconds), outcome.edge_rate > 0
    ('PASSED', 3, True)
    """

    problem: Problem
    first_seconds: float
    seconds: list[float]
    categories: np.ndarray
    truth: np.ndarray | None
    checked_against: str
    nthreads: int
    engine: Engine
    deduplicate: bool = False
    kernels: dict[str, float] = field(default_factory=dict)
    check_seconds: float | None = None
    borderline: np.ndarray = field(default_factory=_none)
    missing: np.ndarray = field(default_factory=_none)
    unexpected: np.ndarray = field(default_factory=_none)
    processed: int | None = None
    balances: list[Balance] | None = None
    machine: dict[str, Any] = field(default_factory=described)
    versions: dict[str, str] = field(default_factory=versions)

    def __repr__(self) -> str:
        return f"Outcome({self.problem.name}: {self.check}, {self.edge_rate:.3g} edges/s)"

    @property
    def check(self) -> str:
        """``"PASSED"``, ``"FAILED"`` or ``"NOT CHECKED"``."""
        if self.truth is None:
            return "NOT CHECKED"
        return "FAILED" if len(self.missing) or len(self.unexpected) else "PASSED"

    @property
    def seconds_median(self) -> float:
        """Median of `seconds`."""
        return median(self.seconds)

    @property
    def balance(self) -> Balance | None:
        """Work of the workers in the run with the median time (or the one just below)."""
        if self.balances is None:
            return None
        return self.balances[self.seconds.index(median_low(self.seconds))]

    @property
    def edge_rate(self) -> float:
        """Inputs times edges divided by the median time."""
        return self.problem.inputs * self.problem.network.edges / self.seconds_median

    def checked(self, progress: Progress | None = None) -> Outcome:
        """Return a copy with the categories compared with the true ones.

        ``progress(k, count)`` is called while SciPy computes.
        """
        began = perf_counter()
        truth, source = _truth(self.problem, progress)
        own, borderline = self.categories, _borderline(self.problem, self.categories, truth)
        return replace(
            self, truth=truth, checked_against=source, borderline=borderline,
            missing=np.setdiff1d(truth, np.union1d(own, borderline)),
            unexpected=np.setdiff1d(own, np.union1d(truth, borderline)),
            check_seconds=perf_counter() - began,
        )  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        """Return a dict for JSON without matrices; categories count from 1."""
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
            **{name: getattr(self, name) for name in _IN_JSON.split()},
            "edges_processed": self.processed,
            "workers": None if self.balances is None else len(self.balances[0].workers),
            "busy_seconds": None if self.balances is None else [_spread(b) for b in self.balances],
            "edges_per_second": self.edge_rate,
            **{name: (getattr(self, name) + 1).tolist() for name in _IDS},
        }


def run(
    problem: Problem,
    *,
    nthreads: int | None = None,
    engine: Engine = "auto",
    deduplicate: bool | Literal["auto"] = False,
    memory: int = MEMORY,
    repeat: int = 3,
    check: bool = True,
    executor: Any = None,
    progress: Progress | None = None,
) -> Outcome:
    """Run a problem, repeat the run, and check its categories.

    Parameters
    ----------
    problem : Problem
        From `load` or `generate`.
    nthreads, engine, memory
        As for `infer`.
    deduplicate : {False, "auto", True}, default False
        As for `infer`. The edge rate counts every input, and is effective unless this is False.
    repeat : int, default 3
        Number of runs after the first one. The median counts only these, unless `repeat` is 0.
    check : bool, default True
        Compare the categories with ``problem.truth``, or with SciPy's in FP64 if it is None.
    executor
        As for `infer`; its number of workers must be known. A network in memory is saved for the
        workers in a temporary folder (``TMPDIR``).
    progress : callable, optional
        Called as ``progress(k, count)`` while SciPy computes.

    Returns
    -------
    Outcome
        Times, categories and the result of the check.

    Notes
    -----
    With `executor`, each worker first computes two batches, so that it has started and loaded the
    weights. Times include sending features and answers.

    Examples
    --------
    >>> import gbdnn.challenge as challenge
    >>> challenge.run(challenge.generate(1024, 6, inputs=100)).check
    'PASSED'
    """
    require_kind(problem, Problem, "problem must be a Problem")
    whole_number(repeat, "repeat", least=0)
    as_flag(check, "check")
    require_callable(progress, "progress")
    options: dict[str, Any] = {
        "engine": engine,
        "deduplicate": deduplicate,
        "memory": memory,
        "nthreads": nthreads,
    }
    features = problem.features
    seconds: list[float] = []
    balances: list[Balance] = []
    with nullcontext(problem.network) if executor is None else stored(problem.network) as net:
        workers, count = None, None
        if executor is not None:
            workers = copy(workers_of(executor))
            workers.callback, given = None, workers.callback
            count = _warmed(net, features, workers, options)
        for _ in range(1 + repeat):
            batches: list[BatchStats] = []
            if workers is not None:
                workers.callback = partial(_add, batches, given)
            with watched(current() if current().is_watched else RunProgress()) as work:
                started = perf_counter()
                Y = infer(net, features, **options, executor=workers)
                seconds.append(perf_counter() - started)
            if executor is not None:
                balances.append(balance(batches, count))
                nthreads = max(batch.threads for batch in batches)
    processed = work.done if executor is None else None
    ids = categories(Y)
    outcome = Outcome(
        problem=problem,
        first_seconds=seconds[0],
        seconds=seconds[1:] or seconds,
        categories=ids,
        truth=None,
        checked_against="nothing",
        nthreads=nthreads or available(),
        engine=engine,
        kernels=_shares(work.kernels if executor is None else edges_by_kernel(batches)),
        deduplicate=bool(deduplicate),
        balances=balances[1:] or balances or None,
        processed=processed,
    )
    return outcome.checked(progress) if check else outcome


def _warmed(
    network: Network, features: gb.Matrix, workers: Workers, options: dict[str, Any]
) -> int:
    """Start the workers and load the weights with two batches each; return their number."""
    count = workers.count
    batch = features[: int(cuts(features.nrows, count)[1]), :].new()
    for _ in infer_batches(network, [batch] * (2 * count), executor=workers, **options):
        pass
    return count


def _truth(problem: Problem, progress: Progress | None) -> tuple[np.ndarray, str]:
    """Return the true categories and their source."""
    if problem.truth is not None:
        return problem.truth, "the given categories"
    expected = scipy_categories(problem.network, problem.features, progress=progress)
    return expected, "SciPy in FP64"


def _shares(edges: dict[str, int]) -> dict[str, float]:
    total = sum(edges.values())
    return {kernel: each / total for kernel, each in edges.items() if each}


def _borderline(problem: Problem, categories: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the inputs on which the answers differ because of rounding.

    If more than 1 % of the inputs differ, this is not examined, since it takes as long as SciPy.
    """
    differing = np.setxor1d(categories, truth)
    if not 0 < len(differing) <= max(_FEW, problem.inputs // 100):
        return differing[:0]
    return differing[left_to_rounding(problem.network, problem.features[differing, :].new())]


def _add(records: list[T], further: Callable[[T], object] | None, record: T) -> None:
    records.append(record)
    if further is not None:
        further(record)


def _spread(load: Balance) -> dict[str, float]:
    return {**asdict(load.seconds), "imbalance": load.seconds.imbalance}
