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
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import problems
import report
from turns import in_turn, timed

if TYPE_CHECKING:
    from gbdnn.challenge import Problem
    from gbdnn.engine.stats import LayerStats


class Way(NamedTuple):
    """Options of a call of gbdnn."""

    nthreads: int
    engine: str
    deduplicate: bool

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of `infer`."""
        return {
            "nthreads": self.nthreads,
            "engine": self.engine,
            **problems.merging(self.deduplicate),
        }


def main(
    neurons: problems.Neurons = 1024,
    layers: problems.Layers = 120,
    inputs: problems.Inputs = None,
    data: problems.Data = None,
    images: problems.Images = None,
    seed: problems.Seed = 0,
    nthreads: problems.Threads = None,
    engine: problems.Engines = None,
    rounds: Annotated[int, typer.Option(min=1, help="Runs of gbdnn per configuration.")] = 5,
    repeat: Annotated[int, typer.Option(min=1, help="Calls of each hardware loop.")] = 21,
    check: Annotated[bool, typer.Option(help="Check the categories.")] = True,
    json_file: problems.Json = None,
) -> None:
    """Print the floor, and the ratio of gbdnn's time to it."""
    import hardware

    import gbdnn

    counts = problems.thread_counts(nthreads, [1, 2])
    engines = problems.words(engine, ["auto", "fused", "full"])
    problem = problems.build(neurons, layers, inputs, data, images, seed)
    found = report.facts(problem, rounds=rounds, repeat=repeat)
    report.heading(found)
    truth = problems.true_categories(problem)[0] if check else None
    living, Y = _living(problem)
    edges = np.array([layer.edges for layer in problem.network], float)
    work = float(living @ edges)
    found["living"], found["multiply_adds"] = living.tolist(), work
    right = truth is None or np.array_equal(gbdnn.categories(Y), truth)
    found["check"] = "NOT CHECKED" if truth is None else "PASSED" if right else "FAILED"
    ways = [
        Way(count, each, deduplicate)
        for count in counts
        for each in engines
        for deduplicate in ((True, False) if each == "auto" else (False,))
    ]
    for way in ways:  # prepares the network, and loads or compiles the kernels
        answer = gbdnn.infer(problem.network, problem.features, **way.options)
        if not np.array_equal(gbdnn.categories(answer), gbdnn.categories(Y)):
            found["check"] = "FAILED"
    print(f"{work / 1e9:.2f} G multiply-adds for active inputs; categories: {found['check']}")

    def run(way: Way) -> dict[str, Any]:
        before = hardware.rates(way.nthreads, repeat)
        taken = timed(lambda: gbdnn.infer(problem.network, problem.features, **way.options))()
        after = hardware.rates(way.nthreads, repeat)
        return taken | {"rates": {cache: (before[cache] + after[cache]) / 2 for cache in before}}

    turns = in_turn({way: partial(run, way) for way in ways}, rounds, warm=0)
    found["summary"] = [
        _summary(work, way, [each["rates"] for each in turns.runs[way]], turns.seconds(way))
        for way in ways
    ]
    _print(found)
    report.write(json_file, found)
    if found["check"] == "FAILED":
        raise typer.Exit(1)


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


def _summary(
    work: float, way: Way, rates: list[dict[str, float]], seconds: list[float]
) -> dict[str, Any]:
    """Return floors and times; each run has the rates measured before and after it."""
    ratios = {
        cache: [taken * own[cache] / work for taken, own in zip(seconds, rates, strict=True)]
        for cache in rates[0]
    }
    middle = {cache: median(own[cache] for own in rates) for cache in rates[0]}
    return {
        **way._asdict(),
        "seconds": seconds,
        "seconds_median": median(seconds),
        "seconds_min": min(seconds),
        "rates": middle,
        "floor_seconds": {cache: work / rate for cache, rate in middle.items()},
        "ratios": ratios,
        "ratio_median": {cache: median(each) for cache, each in ratios.items()},
        "ratio_min": {cache: min(each) for cache, each in ratios.items()},
    }


def _print(found: dict[str, Any]) -> None:
    head = ["engine", "merging", "threads", "median s", "min s"]
    head += ["L2 G/s", "L2 floor s", "time / L2 floor", "least"]
    head += ["L1 G/s", "L1 floor s", "time / L1 floor"]
    rows = []
    for row in found["summary"]:
        rate, floor, ratio = row["rates"], row["floor_seconds"], row["ratio_median"]
        rows.append(
            (
                row["engine"],
                "yes" if row["deduplicate"] else "no",
                row["nthreads"],
                f"{row['seconds_median']:.3f}",
                f"{row['seconds_min']:.3f}",
                f"{rate['L2'] / 1e9:.1f}",
                f"{floor['L2']:.3f}",
                f"{ratio['L2']:.2f}",
                f"{row['ratio_min']['L2']:.2f}",
                f"{rate['L1'] / 1e9:.1f}",
                f"{floor['L1']:.3f}",
                f"{ratio['L1']:.2f}",
            )
        )
    report.table(head, rows)


if __name__ == "__main__":
    typer.run(main)
