"""Run a challenge problem, and compare its categories with the truth.

The truth is official, or computed independently by SciPy in FP64.
"""

from __future__ import annotations

from contextlib import nullcontext
from copy import copy
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from statistics import median, median_low
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from gbdnn.answers import categories
from gbdnn.arrays.checks import as_flag, require_callable, whole_number
from gbdnn.challenge.machine import machine, versions
from gbdnn.challenge.problems import Problem
from gbdnn.challenge.scipy_check import left_to_rounding, scipy_categories
from gbdnn.distributed import balance
from gbdnn.distributed.executors.batches import cuts
from gbdnn.distributed.executors.tasks import stored
from gbdnn.distributed.executors.workers import workers_of
from gbdnn.distributed.stats import edges_by_kernel
from gbdnn.engine.choice import MEMORY
from gbdnn.engine.progress import RunProgress, current, watched
from gbdnn.errors import require_kind
from gbdnn.inference import infer, infer_batches
from gbdnn.kernels.fused import FUSED
from gbdnn.runtime.threads import available

if TYPE_CHECKING:
    from collections.abc import Callable

    import graphblas as gb

    from gbdnn.distributed import Balance, BatchStats
    from gbdnn.distributed.executors.workers import Workers
    from gbdnn.engine.choice import Engine
    from gbdnn.engine.stats import LayerStats
    from gbdnn.model.network import Network

    Progress = Callable[[int, int], object]

T = TypeVar("T")

_FEW = 10  # inputs


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
    check_seconds : float, optional
        What the check took; None without one.
    borderline : ndarray of int64
        0-based ids of inputs that are in one of `categories` and `truth` alone because a value lies
        so near to zero that rounding in the network's dtype decides; none of them fails the check.
    nthreads : int
        Threads available to the run; of each worker, if there are workers.
    engine : str
        As given to `infer`.
    kernels : dict of str to float
        Part of the processed edges that each kernel computed, ``{"fused": 1.0}``.
    compiling : float
        Seconds in which the fused kernel's code was compiled; 0 if it was on disk.
    deduplicate : bool
        Whether equal inputs were computed once.
    processed : int, optional
        Edges processed in the last run, summed over the inputs computed: fewer than `edges` times
        inputs where inputs die, or equal ones are computed once. None with workers.
    balances : list of Balance, optional
        What each worker did in each run; None without workers.
    records : list of LayerStats, optional
        The records of one further run that is not timed, if asked for.
    machine : dict
        Processor, cores, memory in GiB and operating system.
    versions : dict
        Of Python, gbdnn and the libraries that do the arithmetic.

    Examples
    --------
    >>> from gbdnn import challenge
    >>> outcome = challenge.run(challenge.generated(1024, 6, inputs=100), repeat=3)
    >>> outcome.check, len(outcome.seconds), outcome.edge_rate > 0
    ('PASSED', 3, True)
    """

    problem: Problem
    seconds: list[float]
    categories: np.ndarray
    truth: np.ndarray | None
    checked_against: str
    nthreads: int
    engine: Engine
    deduplicate: bool = False
    kernels: dict[str, float] = field(default_factory=dict)
    compiling: float = 0.0
    check_seconds: float | None = None
    borderline: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    processed: int | None = None
    balances: list[Balance] | None = None
    records: list[LayerStats] | None = field(default=None, repr=False)
    machine: dict[str, Any] = field(default_factory=machine)
    versions: dict[str, str] = field(default_factory=versions)

    @property
    def check(self) -> str:
        """``"PASSED"``, ``"FAILED"`` or ``"NOT CHECKED"``."""
        if self.truth is None:
            return "NOT CHECKED"
        differing = np.setxor1d(self.categories, self.truth)
        return "PASSED" if np.array_equal(differing, self.borderline) else "FAILED"

    @property
    def seconds_median(self) -> float:
        """The median of `seconds`."""
        return median(self.seconds)

    @property
    def balance(self) -> Balance | None:
        """What each worker did in the run that took the median of the seconds, or just less."""
        if self.balances is None:
            return None
        return self.balances[self.seconds.index(median_low(self.seconds))]

    @property
    def edge_rate(self) -> float:
        """Inputs times edges over the median of the seconds."""
        return self.problem.inputs * self.problem.network.edges / self.seconds_median

    def checked(self, progress: Progress | None = None) -> Outcome:
        """Return the outcome with its categories compared with the truth.

        Parameters
        ----------
        progress : callable, optional
            Called as ``progress(k, count)`` while SciPy computes.

        Returns
        -------
        Outcome
            This one, with what the check found.
        """
        began = perf_counter()
        truth, source = _truth(self.problem, progress)
        borderline = _borderline(self.problem, self.categories, truth)
        return replace(
            self, truth=truth, checked_against=source, borderline=borderline,
            check_seconds=perf_counter() - began,
        )  # fmt: skip

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
            "kernels": self.kernels,
            "compile_seconds": self.compiling,
            "deduplicate": self.deduplicate,
            "edges_processed": self.processed,
            "workers": None if self.balances is None else len(self.balances[0].workers),
            "busy_seconds": None if self.balances is None else [_spread(b) for b in self.balances],
            "seconds": self.seconds,
            "seconds_median": self.seconds_median,
            "edges_per_second": self.edge_rate,
            "categories": (self.categories + 1).tolist(),
            "check": self.check,
            "checked_against": self.checked_against,
            "check_seconds": self.check_seconds,
            "borderline": (self.borderline + 1).tolist(),
        }


def run(
    problem: Problem,
    *,
    nthreads: int | None = None,
    engine: Engine = "auto",
    deduplicate: bool = False,
    memory: int = MEMORY,
    repeat: int = 1,
    check: bool = True,
    record: bool = False,
    executor: Any = None,
    progress: Progress | None = None,
) -> Outcome:
    """Infer a problem's categories `repeat` times, and compare them with the truth.

    Parameters
    ----------
    problem : Problem
        From `official` or `generated`.
    nthreads, engine, memory
        As for `infer`.
    deduplicate : bool, default False
        Compute equal inputs once. The edge rate, which counts every input, is then effective.
    repeat : int, default 1
        Number of timed runs.
    check : bool, default True
        Compare the categories with ``Problem.truth`` or, where it is None, with SciPy's in FP64.
    record : bool, default False
        Keep the records of each layer, as the outcome's `records`.
    executor
        As for `infer`; the workers have to be countable. A network that is not stored is saved for
        them to read, in the folder for temporary files (``TMPDIR``), and removed at the end.
    progress : callable, optional
        Called as ``progress(k, count)`` while SciPy computes.

    Returns
    -------
    Outcome
        Seconds, categories and the result of the check.

    Notes
    -----
    No timed run has a callback: `record` takes one further run, in this process.

    The fused kernel is compiled before the timed runs if it is not on disk, once per machine.
    With `executor`, two batches for each worker are computed before the first timed run, so that
    workers have started and read the weights. The timed runs include sending the features and the
    answer.

    Examples
    --------
    >>> import gbdnn.challenge as challenge
    >>> challenge.run(challenge.generated(1024, 6, inputs=100)).check
    'PASSED'
    """
    require_kind(problem, Problem, "problem is a Problem")
    whole_number(repeat, "repeat", least=1)
    for name, flag in (("deduplicate", deduplicate), ("check", check), ("record", record)):
        as_flag(flag, name)
    require_callable(progress, "progress")
    options: dict[str, Any] = {
        "engine": engine,
        "deduplicate": "auto" if deduplicate else False,
        "memory": memory,
        "nthreads": nthreads,
    }
    features = problem.features
    seconds: list[float] = []
    balances: list[Balance] = []
    dtype = problem.network.dtype
    before = FUSED.seconds_compiling(dtype)
    if isinstance(engine, str) and engine in ("auto", "fused") and dtype is not None:
        FUSED.keep_code(dtype)
    with nullcontext(problem.network) if executor is None else stored(problem.network) as net:
        workers, count = None, None
        if executor is not None:
            workers = copy(workers_of(executor))
            workers.stats, given = None, workers.stats
            count = _warmed(net, features, workers, options)
        for _ in range(repeat):
            batches: list[BatchStats] = []
            if workers is not None:
                workers.stats = partial(_add, batches, given)
            with watched(current() if current().is_watched else RunProgress()) as work:
                started = perf_counter()
                Y = infer(net, features, **options, executor=workers)
                seconds.append(perf_counter() - started)
            if executor is not None:
                balances.append(balance(batches, count))
                nthreads = max(each.threads for each in batches)
    processed = work.done if executor is None else None
    found = categories(Y)
    records: list[LayerStats] = []
    if record:
        infer(problem.network, features, callback=records.append, **options)
    outcome = Outcome(
        problem=problem,
        seconds=seconds,
        categories=found,
        truth=None,
        checked_against="nothing",
        nthreads=nthreads or available(),
        engine=engine,
        kernels=_shares(work.kernels if executor is None else edges_by_kernel(batches)),
        compiling=FUSED.seconds_compiling(dtype) - before,
        deduplicate=deduplicate,
        balances=balances or None,
        processed=processed,
        records=records if record else None,
    )
    return outcome.checked(progress) if check else outcome


def _warmed(
    network: Network, features: gb.Matrix, workers: Workers, options: dict[str, Any]
) -> int:
    """Compute two batches for each worker; return the number of workers.

    Afterwards processes have started, and weights have been read and prepared.
    """
    count = workers.count
    batch = features[: int(cuts(features.nrows, count)[1]), :].new()
    for _ in infer_batches(network, [batch] * (2 * count), executor=workers, **options):
        pass
    return count


def _truth(problem: Problem, progress: Progress | None) -> tuple[np.ndarray, str]:
    """Return the true categories, and where they are from."""
    if problem.truth is not None:
        return problem.truth, "the official categories"
    found = scipy_categories(problem.network, problem.features, progress=progress)
    return found, "SciPy in FP64"


def _shares(edges: dict[str, int]) -> dict[str, float]:
    total = sum(edges.values())
    return {kernel: each / total for kernel, each in edges.items() if each}


def _borderline(problem: Problem, found: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the inputs in one of two answers alone for which rounding decides.

    Where more than one in a hundred differs, that is not looked for: it takes SciPy's time.
    """
    differing = np.setxor1d(found, truth)
    if not 0 < len(differing) <= max(_FEW, problem.inputs // 100):
        return differing[:0]
    return differing[left_to_rounding(problem.network, problem.features[differing, :].new())]


def _add(records: list[T], further: Callable[[T], object] | None, record: T) -> None:
    records.append(record)
    if further is not None:
        further(record)


def _spread(found: Balance) -> dict[str, float]:
    return {**asdict(found.seconds), "imbalance": found.seconds.imbalance}
