"""Where the time of `gbdnn.infer` goes: seconds per part and per layer, on one thread.

    python benchmarks/limits/profile_parts.py --json profile_parts.json

Timers are put around gbdnn's own functions from outside. What they cost shows as the difference
between the runs with them and without. The fused form takes many layers in one call: its seconds
per layer are those of another run, which a callback makes take them one by one.
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
import problems
import report
from timers import Timers
from turns import in_turn, timed

if TYPE_CHECKING:
    from gbdnn.challenge import Problem
    from gbdnn.engine.stats import LayerStats

# The part that is compiled: a callback tells how long each layer takes.
COMPILED = "layers (compiled)"

# Functions where they are looked up when they are called, and the part that each one is.
PLACES = {
    "gbdnn.engine.run:as_source": "check features",
    "gbdnn.engine.choice:FormChoice.__init__": "prepare",
    "gbdnn.engine.run:plan_layers": "prepare",
    "gbdnn.engine.prefetch:read_window": "prepare",
    "gbdnn.engine.prefetch:Prefetch.around": "prepare",
    "gbdnn.engine.sources:MatrixRows.sparse_rows": "read rows",
    "gbdnn.engine.scheduler:BlockScheduler._split": "read rows",
    "gbdnn.engine.scheduler:BlockScheduler._next_task": "schedule, wait",
    "gbdnn.engine.block_run:BlockRun.advance": "rest of the blocks",
    # blocks in the fused form
    "gbdnn.kernels.fused_chain:FusedChain.read": "read",
    "gbdnn.kernels.fused_chain:FusedChain.run": COMPILED,
    "gbdnn.kernels.fused_chain:FusedChain.rows": "leave",
    # direct runs
    "gbdnn.engine.choice:dense_rows_of": "read rows",
    "gbdnn.engine.direct:_Chains.__init__": "prepare",
    "gbdnn.engine.direct:_Singles.__init__": "prepare",
    "gbdnn.kernels.fused_chain:FusedChain.read_dense": "read",
    "gbdnn.kernels.fused_chain:FusedChain.write": "leave",
    "gbdnn.engine.answer:DenseAnswer.matrix": "stack",
    # blocks in the full form
    "gbdnn.kernels.full_chain:FullChain.read": "read",
    "gbdnn.kernels.full:start": "bias",
    "gbdnn.kernels.full:multiply": "product",
    "gbdnn.kernels.full:activate": "activate",
    "gbdnn.kernels.full_chain:any_bit": "find the living",
    "gbdnn.kernels.full_chain:FullChain.rows": "leave",
    "gbdnn.kernels.full_chain:FullChain.run": "calls of a layer",
    # both
    "gbdnn.engine.choice:FormChoice.leaves": "sample",
    "gbdnn.engine.stops:Stops._few_live": "sample",
    "gbdnn.engine.stops:Stops._has_duplicates": "deduplicate",
    "gbdnn.engine.stops:equal_columns": "deduplicate",
    "gbdnn.engine.run:equal_rows": "deduplicate",
    "gbdnn.engine.stops:Stops._move": "move survivors",
    "gbdnn.engine.scheduler:BlockScheduler._share": "move survivors",
    "gbdnn.engine.scheduler:BlockScheduler.add_survivors": "move survivors",
    "gbdnn.engine.stops:Stops.leave": "leave",
    "gbdnn.kernels.buffers:Buffers.get": "memory",
    "gbdnn.kernels.buffers:Buffers.release": "memory",
    "gbdnn.engine.scheduler:BlockScheduler.advanced": "rest of the blocks",
    # the sparse form, and the answer
    "gbdnn.kernels.sparse:SparseForm.advance": "sparse form",
    "gbdnn.engine.run:QueuedRun._sparse": "sparse form",
    "gbdnn.engine.queues:RunState.matrix": "stack",
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

    timers = Timers()
    first = Timers()  # the first run renumbers the network: that is told apart
    with first.around(PLACES):
        Y = gbdnn.infer(problem.network, problem.features, nthreads=nthreads, **options)
    right = truth is not None and np.array_equal(gbdnn.categories(Y), truth)

    def run(places: dict[str, str]) -> dict[str, Any]:
        with timers.around(places):
            return timed(
                lambda: gbdnn.infer(problem.network, problem.features, nthreads=nthreads, **options)
            )()

    turns = in_turn({"plain": partial(run, {}), "timed": partial(run, PLACES)}, rounds, warm=0)
    found |= {
        "check": "NOT CHECKED" if truth is None else "PASSED" if right else "FAILED",
        "seconds": turns.seconds("plain"),
        "seconds_with_timers": turns.seconds("timed"),
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

    A block goes through many layers in one call: how long each takes tells another run, which has a
    callback.
    """
    import gbdnn

    if not {COMPILED, "product"} & timers.seconds.keys():
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
