"""Where the time of `gbdnn.infer` goes: seconds per part and per layer, on one thread.

    python benchmarks/profile_parts.py --json profile_parts.json

Timers are put around gbdnn's own functions from outside. What they cost shows as the difference
between the runs with them and without. The fused form takes many layers in one call: its seconds
per layer are those of another run, which a callback makes take them one by one.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import problems
import report
import typer
from timers import Timers

if TYPE_CHECKING:
    from gbdnn.challenge import Problem
    from gbdnn.engine.stats import LayerStats

# The part that runs many layers in a call: a callback tells how long each layer takes.
COMPILED = "layers (compiled)"

# Functions where they are looked up when they are called, and the part that each one is.
PLACES = {
    "gbdnn.inference:as_features": "check features",
    "gbdnn.engine.choice:FormChoice.__init__": "prepare",
    "gbdnn.engine.run:plan_layers": "prepare",
    "gbdnn.engine.prefetch:read_layers": "prepare",
    "gbdnn.engine.run:Prefetch.layers_around": "prepare",
    "gbdnn.engine.compiled_run:CompiledRun.__init__": "prepare",
    "gbdnn.engine.features:MatrixFeatures.sparse_rows": "read rows",
    "gbdnn.engine.scheduler:BlockScheduler._split": "read rows",
    "gbdnn.engine.scheduler:BlockScheduler._next_task": "schedule, wait",
    # blocks in the fused form
    "gbdnn.kernels.fused:FusedChain.fill": "read",
    "gbdnn.engine.compiled_run:CompiledRun.read": "read",
    "gbdnn.kernels.fused:FusedChain.run": COMPILED,
    "gbdnn.engine.compiled_run:CompiledRun._layers": COMPILED,
    "gbdnn.kernels.fused:FusedChain.sparse_rows": "leave",
    "gbdnn.engine.compiled_run:CompiledRun.advance": "rest of the blocks",
    # direct runs
    "gbdnn.inference:direct_features": "read rows",
    "gbdnn.engine.direct:DirectNetwork.__init__": "prepare",
    "gbdnn.kernels.fused:FusedChain.from_dense": "read",
    "gbdnn.kernels.fused:FusedChain.to_dense": "leave",
    "gbdnn.engine.direct:DirectNetwork._block": "rest of the blocks",
    "gbdnn.engine.answer:DenseAnswer.matrix": "stack",
    # blocks in the full form
    "gbdnn.engine.block_run:fill": "read",
    "gbdnn.engine.block_run:BlockRun.read": "read",
    "gbdnn.kernels.full:start": "bias",
    "gbdnn.kernels.full:multiply": "product",
    "gbdnn.kernels.full:activate": "activate",
    "gbdnn.engine.block_run:_living": "sample",
    "gbdnn.engine.block_run:living": "find the living",
    "gbdnn.engine.block_run:sparse_rows": "leave",
    "gbdnn.engine.block_run:BlockRun._layer": "calls of a layer",
    "gbdnn.engine.block_run:BlockRun.advance": "rest of the blocks",
    # both
    "gbdnn.engine.choice:FormChoice.leaves": "sample",
    "gbdnn.engine.block_run:BlockRun._compact": "deduplicate",
    "gbdnn.engine.block_run:BlockRun._has_duplicates": "deduplicate",
    "gbdnn.engine.block_run:fingerprints": "deduplicate",
    "gbdnn.engine.block_run:equal_columns": "deduplicate",
    "gbdnn.engine.run:equal_rows": "deduplicate",
    "gbdnn.engine.scheduler:BlockScheduler._share_out": "move survivors",
    "gbdnn.engine.scheduler:BlockScheduler.add_survivors": "move survivors",
    "gbdnn.engine.block_run:BlockRun._leave": "leave",
    "gbdnn.kernels.buffers:Buffers.get": "memory",
    "gbdnn.kernels.buffers:Buffers.release": "memory",
    "gbdnn.engine.scheduler:BlockScheduler.run": "rest of the blocks",
    # the sparse form, and the answer
    "gbdnn.kernels.sparse:SparseForm.advance": "sparse form",
    "gbdnn.engine.run:Run._sparse": "sparse form",
    "gbdnn.engine.state:RunState.matrix": "stack",
    "gbdnn.arrays.sparse_rows:SparseRows.matrix": "convert",
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
    engine: Annotated[str, typer.Option(help="auto, fused, full or sparse.")] = "auto",
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
        "per_layer": _per_layer(problem, timers, rounds, {"nthreads": nthreads, **options}),
        "missing": sorted(set(timers.missing)),
    }
    _print(found)
    report.write(json_file, found)
    if found["check"] == "FAILED":
        raise typer.Exit(1)


def _per_layer(
    problem: Problem, timers: Timers, rounds: int, options: dict[str, Any]
) -> dict[int, dict[str, float]]:
    """Return seconds per layer and part.

    A call of the fused form takes many layers: how long each takes tells another run, which has a
    callback and so takes them one by one.
    """
    import gbdnn

    if COMPILED not in timers.seconds:
        return {
            k: {part: total / rounds for part, total in parts.items()}
            for k, parts in sorted(timers.layers.items())
        }
    seconds: dict[int, dict[str, float]] = {}

    def note(stats: LayerStats) -> None:
        part = COMPILED if stats.form == "fused" else f"{stats.form} form"
        row = seconds.setdefault(stats.layer, {})
        row[part] = row.get(part, 0.0) + stats.seconds

    gbdnn.infer(problem.network, problem.features, callback=note, **options)
    return dict(sorted(seconds.items()))


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
    names = list(dict.fromkeys(part for row in per_layer.values() for part in row))
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
