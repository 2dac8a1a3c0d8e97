"""What a callback costs: runs with and without one, in turn.

    python benchmarks/overheads/callback.py --images MNIST --engine fused --json callback.json

The callback keeps its records and does nothing else. Ratios are of each pair of runs: medians, and
the quartiles in brackets, of the wall's clock and of the processor's.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Annotated, Any

import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import problems
import report

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
    """Run each form with a callback and without, and print what the callback adds."""
    problem = problems.build(neurons, layers, inputs, data, images, seed)
    found = report.facts(problem, rounds=rounds, nthreads=nthreads)
    report.heading(found)
    found["runs"] = {}
    rows = []
    for form in problems.words(engine, ["fused", "full"]):
        _run(problem, form, nthreads, None)
        pairs = []
        for turn in range(rounds):
            records: list[Any] = []
            order = [None, records.append] if turn % 2 else [records.append, None]
            taken = {
                callback is None: _run(problem, form, nthreads, callback) for callback in order
            }
            pairs.append({"without": taken[True], "with": taken[False], "records": len(records)})
        found["runs"][form] = pairs
        rows.append([form, pairs[0]["records"], *(_added(pairs, at) for at in (0, 1))])
    report.table(["engine", "records", "wall", "processor"], rows)
    report.write(json_file, found)


def _run(problem: Problem, engine: str, nthreads: int, callback: Any) -> tuple[float, float]:
    """Return seconds of the wall's clock and of the processor."""
    import gbdnn

    cpu, began = process_time(), perf_counter()
    gbdnn.infer(
        problem.network, problem.features, engine=engine, nthreads=nthreads, compress=False,
        callback=callback,
    )  # fmt: skip
    return perf_counter() - began, process_time() - cpu


def _added(pairs: list[dict[str, Any]], at: int) -> str:
    percent = [100 * (pair["with"][at] / pair["without"][at] - 1) for pair in pairs]
    low, _, high = quantiles(percent, n=4)
    return f"{median(percent):+.1f} % ({low:+.1f} to {high:+.1f})"


if __name__ == "__main__":
    typer.run(main)
