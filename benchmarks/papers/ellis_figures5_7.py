"""Ellis, Rajamanickam (KK-SpDNN), figures 5 to 7: quartiles of the workers' times, rows per part.

    python benchmarks/papers/ellis_figures5_7.py --workers 4 --images MNIST --json figures5_7.json

Workers are spawned processes with one thread each. ``static`` assigns consecutive inputs to each
worker, as in the paper; ``dynamic`` assigns four smaller batches per worker to free workers;
``hashed`` assigns inputs by a hash of their numbers. Then the active inputs after the first layers
of 16384 x 1920 are counted in 24 parts of consecutive and of random inputs.

The paper's ranks differ by up to 50 s of about 75, and its largest part has about twice the mean.

J. A. Ellis, S. Rajamanickam, "Scalable Inference for Sparse Deep Neural Networks using Kokkos
Kernels", HPEC 2019.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

import gbdnn

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import papers
import pools
import report
from turns import quartiles

if TYPE_CHECKING:
    from gbdnn.challenge import Problem

# Batches per worker, and the order of the inputs.
KINDS = {"static": (1, "given"), "hashed": (1, "hashed"), "dynamic": (4, "given")}
_PARTS, _LAYERS = 24, 8
_PUBLISHED = {"ranks differ by up to, s": 50, "of, s": 75, "largest part over the mean": 2}


def measure(
    study: papers.Study,
    neurons: int,
    layers: int,
    workers: Annotated[int | None, typer.Option(min=2, help="Default: one per core.")] = None,
    rows_of: Annotated[
        int, typer.Option(help="Neurons of the network whose rows are counted.")
    ] = 16384,
) -> None:
    """Print the quartiles of the workers' times, and the rows of the parts."""
    count = workers or max(2, papers.cores())
    study.published(neurons, layers, ["ellis"], "KK-SpDNN, best")
    problem = study.problem(neurons, layers)
    with pools.opened("spawned", count) as pool:
        for name, (batches, order) in KINDS.items():
            options = {"batch": -(-problem.inputs // (count * batches)), "order": order}
            over(study, problem, name, pool, count, options)
    if "rows" in study.more:
        return
    problem = study.problem(1024 if study.quick else rows_of, _LAYERS)
    began = perf_counter()
    rows, ids = living(problem)
    seconds = perf_counter() - began
    study.measured(problem, "gbdnn, layer by layer", papers.cores(), seconds, study.right(ids))
    head = [f"after layer, rows in {_PARTS} parts", "consecutive, max / mean", "random, max / mean"]
    report.table([dict(zip(head, (k, *map(_uneven, pair)), strict=True)) for k, pair in rows])
    study.more |= {"published": _PUBLISHED, "rows": rows}


def over(
    study: papers.Study, problem: Problem, name: str, pool: Any, count: int, options: dict[str, Any]
) -> None:
    """Add the row of one order of batches; a first run loads the network."""
    records: list[Any] = []
    each = gbdnn.distributed.Workers(pool, count=count, stats=records.append, **options)
    infer = partial(
        gbdnn.infer, problem.network, problem.features,
        executor=each, deduplicate=False, nthreads=1,
    )  # fmt: skip
    study.compare(problem, {f"gbdnn, {name} batches": infer}, count, rounds=1)
    found = gbdnn.distributed.balance(records[-records[-1].batches :], count)
    low, middle, high = quartiles(found.workers["seconds"].tolist())
    study.rows[-1] |= {
        "on": f"here, {count} processes",
        "lower quartile, s": low,
        "median, s": middle,
        "upper quartile, s": high,
        "max / mean": found.seconds.imbalance,
    }


def living(problem: Problem) -> tuple[list[tuple[str, list[list[int]]]], np.ndarray]:
    """Return the active rows of each part after each layer in two orders, and the last ones."""
    order = np.random.default_rng(0).permutation(problem.inputs)
    place = np.empty_like(order)
    place[order] = np.arange(problem.inputs)
    found, ids, Y = [], np.arange(problem.inputs), problem.features
    for k in range(len(problem.network)):
        Y = gbdnn.infer(problem.network[k : k + 1], Y, deduplicate=False)
        rows = gbdnn.categories(Y)
        Y, ids = Y[rows, :].new(), ids[rows]
        parts = [at * _PARTS // problem.inputs for at in (ids, place[ids])]
        found.append((str(k + 1), [np.bincount(p, minlength=_PARTS).tolist() for p in parts]))
    return found, ids


def _uneven(rows: list[int]) -> float:
    return float(max(rows) / max(np.mean(rows), 1e-9))


if __name__ == "__main__":
    papers.run(measure, "Ellis et al., KK-SpDNN, figures 5 to 7", [(4096, 120)])
