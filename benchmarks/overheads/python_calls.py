"""Measure what calls of Python add to a run: a callback of `infer`, a loss in NumPy.

    python benchmarks/overheads/python_calls.py callback --images MNIST --engine fused
    python benchmarks/overheads/python_calls.py loss --nthreads 1,2 --json loss.json

The callback only stores its records. The loss is cross-entropy in steps of 784-1024-1024-10 with
minibatches of 128. Runs with and without are interleaved; the tables show medians of the ratios of
each pair.
"""

from __future__ import annotations

import sys
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal

import numpy as np
import typer

import gbdnn
from gbdnn.training import SGD, Constant, erdos_renyi
from gbdnn.training.losses import CrossEntropy

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import options
import problems  # noqa: TC002 -- typer reads the annotations
import report
from turns import Turns, in_turn, timed

SIZES, BATCH, STEPS = [784, 1024, 1024, 10], 128, 64


class InNumPy(CrossEntropy):
    """The methods of a subclass run in NumPy."""


def main(
    what: Literal["callback", "loss"],
    choice: problems.Choice,
    nthreads: options.Several = None,
    engine: options.Several = None,
    density: options.Several = None,
    rounds: Annotated[int, typer.Option(min=2, help="Pairs of runs.")] = 15,
    json_file: options.Json = None,
) -> None:
    """Compare runs with and without calls of Python."""
    counts = options.numbers(nthreads, [1])
    found: dict[str, Any]
    if what == "callback":
        problem = choice.build()
        found = report.started(problem, rounds=rounds, cells=[])
        for threads, kernel in product(counts, options.words(engine, ["fused", "full"])):
            infer = partial(
                gbdnn.infer, problem.network, problem.features, engine=kernel, nthreads=threads,
                deduplicate=False,
            )  # fmt: skip

            calls = {"without": infer, "with": partial(infer, callback=[].append)}
            turns = in_turn({name: timed(call) for name, call in calls.items()}, rounds)
            cell = {"threads": threads, "engine": kernel} | _added(turns)
            found["cells"].append(cell)
    else:
        found = report.started("784-1024-1024-10, minibatches of 128", rounds=rounds, cells=[])
        random = np.random.default_rng(0)
        X = random.random((BATCH * STEPS, SIZES[0]), np.float32)
        y = random.integers(0, SIZES[-1], len(X))
        for threads, percent in product(counts, options.numbers(density, [100, 5, 1], float, 0)):
            net = erdos_renyi(SIZES, percent / 100, seed=0)

            def steps(loss: Any, net: Any = net, threads: int = threads) -> dict[str, float]:
                run = gbdnn.train(
                    net, X, y, epochs=1, batch_size=BATCH, optimizer=SGD(0.01, 0.9), seed=0,
                    schedule=Constant(), loss=loss, nthreads=threads,
                )  # fmt: skip
                return {"seconds": run.history[-1].seconds / STEPS}

            losses = {"without": CrossEntropy(), "with": InNumPy()}
            turns = in_turn({name: partial(steps, loss) for name, loss in losses.items()}, rounds)
            cell = {"threads": threads, "density": percent} | _added(turns)
            found["cells"].append(cell | {"ms": 1e3 * turns.median("without")})
    report.table(found["cells"])
    report.write(json_file, found)


def _added(turns: Turns) -> dict[str, float]:
    """Return what runs take longer, in percent."""
    return {"added, %": 100 * (median(turns.ratios("with", "without")) - 1)}


if __name__ == "__main__":
    options.run(main)
