"""Seconds of `gbdnn.infer` on 1, 2, ... threads, in turn.

    python benchmarks/scale/thread_scaling.py --nthreads 1,2,4,8 --json thread_scaling.json

Strong scaling: the same inputs on any number of threads. With ``--weak`` n threads compute n times
the inputs of one: the last of the numbers takes all inputs, and the ideal is a constant time.

Where the system places threads is its own choice unless ``OMP_PROC_BIND`` and ``OMP_PLACES`` say
otherwise; they are recorded. Blocks side by side run in Python threads, which they do not bind.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import problems
import report
from turns import in_turn, timed


def main(
    neurons: problems.Neurons = 1024,
    layers: problems.Layers = 120,
    inputs: problems.Inputs = None,
    data: problems.Data = None,
    images: problems.Images = None,
    seed: problems.Seed = 0,
    nthreads: problems.Threads = None,
    rounds: Annotated[int, typer.Option(min=1, help="Timed runs on each number.")] = 5,
    engine: Annotated[str, typer.Option(help="auto, full or sparse.")] = "auto",
    deduplicate: problems.Deduplicate = True,
    weak: Annotated[bool, typer.Option("--weak", help="As many inputs for each thread.")] = False,
    check: Annotated[bool, typer.Option(help="Compare categories with the right ones.")] = True,
    json_file: problems.Json = None,
) -> None:
    """Run gbdnn on 1 to all cores, or --nthreads, interleaved; print speed-up and efficiency."""
    import gbdnn
    from gbdnn.challenge.machine import machine

    cores = int(machine()["cores"] or 1)
    counts = problems.thread_counts(nthreads, list(range(1, cores + 1)))
    problem = problems.build(neurons, layers, inputs, data, images, seed)
    found = report.facts(problem, rounds=rounds, engine=engine, deduplicate=deduplicate, weak=weak)
    part = {n: problem.inputs * n // max(counts) if weak else problem.inputs for n in counts}
    features = {n: problem.features[: part[n], :].new() for n in counts}
    options = {"engine": engine} | problems.merging(deduplicate)
    report.heading(found)
    print({name: found["environment"][name] for name in ("OMP_PROC_BIND", "OMP_PLACES")})
    truth = problems.true_categories(problem)[0] if check else None
    runs: list[dict[str, Any]] = []

    def checked(count: int, Y: Any) -> dict[str, str]:
        if truth is None:
            return {"check": "NOT CHECKED"}
        right = np.array_equal(gbdnn.categories(Y), truth[truth < part[count]])
        return {"check": "PASSED" if right else "FAILED"}

    def note(turn: int, count: int, run: dict[str, Any]) -> None:
        runs.append({"round": turn, "nthreads": count, "inputs": part[count], **run})

    infer = partial(gbdnn.infer, problem.network, **options)
    calls = {
        count: timed(partial(infer, features[count], nthreads=count), partial(checked, count))
        for count in counts
    }
    in_turn(calls, rounds, told=note)
    found["runs"] = runs
    found["summary"] = _summary(runs, counts)
    _print(found["summary"])
    report.write(json_file, found)
    if any(run["check"] == "FAILED" for run in runs):
        raise typer.Exit(1)


def _summary(runs: list[dict[str, Any]], counts: list[int]) -> list[dict[str, Any]]:
    """Return a row per number of threads; speed-ups are medians over rounds of the ratio.

    With more inputs on more threads it is the ratio of inputs per second.
    """

    def of(count: int) -> list[dict[str, Any]]:
        return [run for run in runs if run["nthreads"] == count and run["round"]]

    base = of(min(counts))
    rows = []
    for count in counts:
        mine = of(count)
        ratios = [
            one["seconds"] / run["seconds"] * run["inputs"] / one["inputs"]
            for one, run in zip(base, mine, strict=True)
        ]
        speed_up = median(ratios)
        rows.append(
            {
                "nthreads": count,
                "inputs": mine[0]["inputs"],
                "seconds_median": median(run["seconds"] for run in mine),
                "seconds_min": min(run["seconds"] for run in mine),
                "seconds_max": max(run["seconds"] for run in mine),
                "speed_up": speed_up,
                "speed_up_min": min(ratios),
                "speed_up_max": max(ratios),
                "efficiency": speed_up * min(counts) / count,
                "cpu_to_wall": median(run["cpu"] / run["seconds"] for run in mine),
                "check": sorted({run["check"] for run in mine})[0],
            }
        )
    return rows


def _print(rows: list[dict[str, Any]]) -> None:
    report.table(
        ["threads", "median s", "min s", "speed-up", "efficiency", "cpu/wall", "categories"],
        [
            (
                row["nthreads"],
                f"{row['seconds_median']:.3f}",
                f"{row['seconds_min']:.3f}",
                f"x {row['speed_up']:.2f}",
                f"{row['efficiency']:.0%}",
                f"{row['cpu_to_wall']:.2f}",
                row["check"],
            )
            for row in rows
        ],
    )


if __name__ == "__main__":
    typer.run(main)
