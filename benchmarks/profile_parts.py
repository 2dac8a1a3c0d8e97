"""Where the time of `gbdnn.infer` goes: seconds per part and per layer, on one thread.

    python benchmarks/profile_parts.py --json profile_parts.json

Timers are put around gbdnn's own functions from outside. What they cost shows as the difference
between the runs with them and without.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import Annotated, Any

import numpy as np
import problems
import report
import typer
from timers import Timers

# Functions where they are looked up when they are called, and the part that each one is.
PLACES = {
    "gbdnn.inference:as_features": "check features",
    "gbdnn.engine.run:plan_layers": "prepare",
    "gbdnn.engine.run:Prefetch.layers_around": "prepare",
    "gbdnn.engine.scheduler:fill": "read",
    "gbdnn.kernels.full:start": "bias",
    "gbdnn.kernels.full:multiply": "product",
    "gbdnn.kernels.full:activate": "activate",
    "gbdnn.engine.block_run:_living": "sample",
    "gbdnn.engine.choice:FormChoice.leaves": "sample",
    "gbdnn.engine.block_run:living": "find the living",
    "gbdnn.engine.block_run:BlockRun._compact": "compact",
    "gbdnn.engine.scheduler:BlockScheduler._share_out": "compact",
    "gbdnn.engine.scheduler:BlockScheduler.add_survivors": "compact",
    "gbdnn.engine.block_run:BlockRun._has_duplicates": "merge",
    "gbdnn.engine.block_run:fingerprints": "merge",
    "gbdnn.engine.block_run:equal_columns": "merge",
    "gbdnn.engine.run:equal_rows": "merge",
    "gbdnn.engine.block_run:sparse_rows": "leave",
    "gbdnn.engine.block_run:BlockRun._leave": "leave",
    "gbdnn.engine.block_run:BlockRun._layer": "calls of a layer",
    "gbdnn.engine.block_run:BlockRun.advance": "rest of the blocks",
    "gbdnn.engine.scheduler:BlockScheduler.run": "rest of the blocks",
    "gbdnn.kernels.sparse:SparseForm.advance": "sparse form",
    "gbdnn.arrays.sparse_rows:SparseRows.matrix": "convert",
    "gbdnn.engine.state:RunState.answer": "stack",
    "gbdnn:infer": "rest",
}


def main(
    neurons: problems.Neurons = 1024,
    layers: problems.Layers = 120,
    inputs: problems.Inputs = None,
    data: problems.Data = None,
    images: problems.Images = None,
    seed: problems.Seed = 0,
    nthreads: Annotated[int, typer.Option(min=1)] = 1,
    engine: Annotated[str, typer.Option(help="auto, full or sparse.")] = "auto",
    rounds: Annotated[int, typer.Option(min=1, help="Runs with timers, and without.")] = 3,
    compress: problems.Compress = True,
    check: Annotated[bool, typer.Option(help="Compare categories with the right ones.")] = True,
    json_file: problems.Json = None,
) -> None:
    """Print seconds per part and per layer."""
    import gbdnn

    problem = problems.build(neurons, layers, inputs, data, images, seed)
    found = report.facts(
        problem, rounds=rounds, nthreads=nthreads, engine=engine, compress=compress
    )
    options = {"engine": engine} | problems.merging(compress)
    report.heading(found)
    truth = problems.true_categories(problem)[0] if check else None

    plain: list[float] = []
    timed: list[float] = []
    timers = Timers()
    first = Timers()  # the first run renumbers the network: that is told apart
    with first.around(PLACES):
        Y = gbdnn.infer(problem.network, problem.features, nthreads=nthreads, **options)
    right = truth is not None and np.array_equal(gbdnn.categories(Y), truth)
    for _ in range(rounds):
        for seconds, places in ((plain, {}), (timed, PLACES)):
            with timers.around(places):
                began = perf_counter()
                gbdnn.infer(problem.network, problem.features, nthreads=nthreads, **options)
                seconds.append(perf_counter() - began)
    found |= {
        "check": "NOT CHECKED" if truth is None else "PASSED" if right else "FAILED",
        "seconds": plain,
        "seconds_with_timers": timed,
        "prepare_first": first.seconds["prepare"],
        "parts": {part: total / rounds for part, total in timers.seconds.items()},
        "calls": {part: total / rounds for part, total in timers.calls.items()},
        "per_layer": {
            k: {part: total / rounds for part, total in parts.items()}
            for k, parts in sorted(timers.layers.items())
        },
        "missing": sorted(set(timers.missing)),
    }
    _print(found)
    report.write(json_file, found)
    if found["check"] == "FAILED":
        raise typer.Exit(1)


def _print(found: dict[str, Any]) -> None:
    parts, calls = found["parts"], found["calls"]
    total = sum(parts.values())
    report.table(
        ["part", "seconds", "share", "calls"],
        [
            (part, f"{parts[part]:.4f}", f"{parts[part] / total:.1%}", f"{calls[part]:.0f}")
            for part in sorted(parts, key=lambda part: -parts[part])
        ],
    )
    per_layer = found["per_layer"]
    names = [part for part in parts if any(part in row for row in per_layer.values())]
    report.table(
        ["layer", "ms", *names],
        [
            (k, f"{1e3 * sum(row.values()):.2f}", *(f"{1e3 * row.get(n, 0):.2f}" for n in names))
            for k, row in per_layer.items()
        ],
    )
    print(
        f"\nmedian: {median(found['seconds']):.3f} s, with timers"
        f" {median(found['seconds_with_timers']):.3f} s; preparing the network, once:"
        f" {found['prepare_first']:.3f} s; categories: {found['check']}"
    )
    if found["nthreads"] > 1:
        print("Seconds of threads side by side are added up.")
    if found["missing"]:
        print("not found, and so not timed:", ", ".join(found["missing"]))


if __name__ == "__main__":
    typer.run(main)
