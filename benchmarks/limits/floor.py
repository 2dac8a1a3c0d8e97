"""Compare the time of `gbdnn.infer` with a lower bound given by the hardware.

    python benchmarks/limits/floor.py --nthreads 1 --nthreads 2 --json floor.json

    floor = sum over layers of (active inputs x edges) / rate

Active inputs are those with an entry before the layer; the others need no work. The rate is that of
a compiled loop of multiply-adds only, each with one load from the L1 cache (`hardware`), run by T
threads concurrently. It is measured before and after every inference, since the speed of a shared
machine varies. The floor counts equal inputs separately, so every input is computed.
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
    rounds: options.Rounds = 5,
    repeat: Annotated[int, typer.Option(min=1, help="Calls of the hardware loop.")] = 21,
    json_file: options.Json = None,
) -> None:
    """Print the floor, and the ratio of gbdnn's time to it."""
    import hardware

    import gbdnn

    counts = options.numbers(nthreads, [1, 2])
    problem = choice.build()
    found = report.started(problem, rounds=rounds, repeat=repeat)
    living, Y = _living(problem)
    work = float(living @ np.array([layer.edges for layer in problem.network], float))
    found["living"], found["multiply_adds"] = living.tolist(), work
    calls = {
        count: partial(
            gbdnn.infer, problem.network, problem.features, nthreads=count, deduplicate=False
        )
        for count in counts
    }
    # Prepares the network, and loads the kernels.
    answers = [gbdnn.categories(each) for each in (Y, *(call() for call in calls.values()))]
    truth = problems.true_categories(problem)[0]
    found["check"] = checked(all(np.array_equal(answer, truth) for answer in answers))
    print(f"{work / 1e9:.2f} G multiply-adds for active inputs; categories: {found['check']}")

    def run(count: int) -> dict[str, Any]:
        before = hardware.rate(count, repeat)
        calls[count]()  # see `twice` of `in_turn`
        taken = timed(calls[count])()
        return taken | {"rate": (before + hardware.rate(count, repeat)) / 2}

    turns = in_turn({count: partial(run, count) for count in counts}, rounds, warm=0)
    found["summary"] = [
        {
            "nthreads": count,
            "seconds": turns.median(count),
            "G/s": median(each["rate"] for each in runs) / 1e9,
            "ratio": median(each["seconds"] * each["rate"] / work for each in runs),
        }
        for count, runs in turns.runs.items()
    ]
    report.table(found["summary"])
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


if __name__ == "__main__":
    options.run(main)
