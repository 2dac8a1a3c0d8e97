"""Measure the cost of a callback by interleaved runs with and without one.

    python benchmarks/overheads/callback.py --images MNIST --engine fused --json callback.json

The callback only stores its records. The table shows medians, and quartiles in brackets, of the
ratios of each pair of runs, in wall-clock time and processor time.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import problems
import report
from turns import in_turn, quartiles, timed

if TYPE_CHECKING:
    from gbdnn.challenge import Problem


def main(
    neurons: problems.Neurons = 1024,
    layers: problems.Layers = 120,
    inputs: problems.Inputs = None,
    data: problems.Data = None,
    images: problems.Images = None,
    seed: problems.Seed = 0,
    nthreads: Annotated[int, typer.Option(min=1, help="Threads.")] = 1,
    engine: problems.Engines = None,
    rounds: Annotated[int, typer.Option(min=2, help="Pairs of runs.")] = 15,
    json_file: problems.Json = None,
) -> None:
    """Run each kernel with and without a callback, and print the ratio of the times."""
    problem = problems.build(neurons, layers, inputs, data, images, seed)
    found = report.facts(problem, rounds=rounds, nthreads=nthreads)
    report.heading(found)
    found["runs"] = {}
    rows = []
    for kernel in problems.words(engine, ["fused", "full"]):
        infer = partial(_infer, problem, kernel, nthreads)
        turns = in_turn(
            {
                "without": timed(infer),
                "with": timed(lambda run=infer: run([]), lambda kept: {"records": len(kept)}),
            },
            rounds,
        )
        pairs = [
            {way: (run["seconds"], run["cpu"]) for way, run in zip(turns.runs, both, strict=True)}
            | {"records": both[1]["records"]}
            for both in zip(*turns.runs.values(), strict=True)
        ]
        found["runs"][kernel] = pairs
        rows.append([kernel, pairs[0]["records"], *(_added(pairs, at) for at in (0, 1))])
    report.table(["engine", "records", "wall", "processor"], rows)
    report.write(json_file, found)


def _infer(problem: Problem, engine: str, nthreads: int, kept: list[Any] | None = None) -> Any:
    """Run without a callback, or with one that stores its records; return them."""
    import gbdnn

    gbdnn.infer(
        problem.network, problem.features, engine=engine, nthreads=nthreads, deduplicate=False,
        callback=None if kept is None else kept.append,
    )  # fmt: skip
    return kept


def _added(pairs: list[dict[str, Any]], at: int) -> str:
    percent = [100 * (pair["with"][at] / pair["without"][at] - 1) for pair in pairs]
    low, middle, high = quartiles(percent)
    return f"{middle:+.1f} % ({low:+.1f} to {high:+.1f})"


if __name__ == "__main__":
    typer.run(main)
