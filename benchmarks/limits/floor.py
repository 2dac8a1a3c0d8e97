"""Compare the time of `gbdnn.infer` with a lower bound given by the hardware.

    python benchmarks/limits/floor.py --nthreads 1 --nthreads 2 --json floor.json

    floor = sum over layers of (active inputs x edges) / rate

Active inputs are those with an entry before the layer; the others need no work. The rate is that of
a compiled loop of multiply-adds only, each with one load from the L2 or L1 cache (`hardware`), run
by T threads concurrently. It is measured before and after every inference, since the speed of a
shared machine varies.

The floor counts equal inputs separately. With `deduplicate`, gbdnn computes them once and may be
faster than the floor, so all engines are timed without it, and auto also with it.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import options
import problems
import report
from turns import checked, in_turn, timed

if TYPE_CHECKING:
    from gbdnn.challenge import Problem
    from gbdnn.engine.stats import LayerStats


def main(
    choice: problems.Choice,
    nthreads: options.Several = None,
    engine: options.Several = None,
    rounds: options.Rounds = 5,
    repeat: Annotated[int, typer.Option(min=1, help="Calls of each hardware loop.")] = 21,
    json_file: options.Json = None,
) -> None:
    """Print the floor, and the ratio of gbdnn's time to it."""
    import hardware

    import gbdnn

    counts = options.numbers(nthreads, [1, 2])
    engines = options.words(engine, ["auto", "fused", "full"])
    problem = choice.build()
    found = report.started(problem, rounds=rounds, repeat=repeat)
    living, Y = _living(problem)
    work = float(living @ np.array([layer.edges for layer in problem.network], float))
    found["living"], found["multiply_adds"] = living.tolist(), work
    ways = [
        {"nthreads": count, "engine": each, **merging}
        for count in counts
        for each in engines
        for merging in (
            ({}, {"deduplicate": False}) if each == "auto" else ({"deduplicate": False},)
        )
    ]
    calls = [partial(gbdnn.infer, problem.network, problem.features, **way) for way in ways]
    # Prepares the network, and loads the kernels.
    answers = [gbdnn.categories(each) for each in (Y, *(call() for call in calls))]
    truth = problems.true_categories(problem)[0]
    right = all(np.array_equal(answer, truth) for answer in answers)
    found["check"] = checked(right)
    print(f"{work / 1e9:.2f} G multiply-adds for active inputs; categories: {found['check']}")

    def run(k: int) -> dict[str, Any]:
        before = hardware.rates(ways[k]["nthreads"], repeat)
        taken = timed(calls[k])()
        after = hardware.rates(ways[k]["nthreads"], repeat)
        return taken | {"rates": {cache: (before[cache] + after[cache]) / 2 for cache in before}}

    turns = in_turn({k: partial(run, k) for k in range(len(ways))}, rounds, warm=0)
    found["summary"] = [
        {"deduplicate": True, **way, **_summary(work, turns.runs[k])} for k, way in enumerate(ways)
    ]
    report.table(found["summary"], "seconds", "L2_ratios", "L1_ratios")
    report.finish(json_file, found, [found])


def _living(problem: Problem) -> tuple[np.ndarray, Any]:
    """Return the active inputs before each layer, and the activations after the last one."""
    import graphblas as gb

    import gbdnn

    living = np.zeros(len(problem.network) + 1)
    living[0] = problem.features.reduce_rowwise(gb.monoid.any).new().nvals

    def count(stats: LayerStats) -> None:
        living[stats.layer + 1] += stats.alive

    Y = gbdnn.infer(problem.network, problem.features, callback=count, deduplicate=False)
    return living[:-1], Y


def _summary(work: float, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return floors and times; each run has the rates measured before and after it."""
    seconds = [run["seconds"] for run in runs]
    row: dict[str, Any] = {"seconds": seconds, "seconds_median": median(seconds)}
    row["seconds_min"] = min(seconds)
    for cache in ("L2", "L1"):
        rates = [run["rates"][cache] for run in runs]
        ratios = [taken * rate / work for taken, rate in zip(seconds, rates, strict=True)]
        facts = {"G/s": median(rates) / 1e9, "floor_s": work / median(rates), "ratios": ratios}
        facts |= {"ratio_median": median(ratios), "ratio_min": min(ratios)}
        row |= {f"{cache}_{name}": each for name, each in facts.items()}
    return row


if __name__ == "__main__":
    options.run(main)
