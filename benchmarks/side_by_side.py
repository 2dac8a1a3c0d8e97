"""Gbdnn and other programs on one problem, in turn, each checked for the right categories.

    python benchmarks/side_by_side.py --nthreads 1,2 --json side_by_side.json

Every program has a process of its own (`worker`) and runs once per round, one after the other: what
disturbs the machine for a while disturbs all of them. The first run of each, which prepares what it
keeps, is not among the timed ones. A run begins with the features in the program's own format and
ends with the categories.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median
from time import sleep
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import problems
import report
import typer
from programs import PROGRAMS, REFERENCE
from worker import Worker

from gbdnn.engine.stats import edge_rate

if TYPE_CHECKING:
    from gbdnn.challenge import Problem

# An OpenMP runtime's idle threads spin for up to 0.2 s before they sleep.
_PAUSE = 0.3


def main(
    neurons: problems.Neurons = 1024,
    layers: problems.Layers = 120,
    inputs: problems.Inputs = None,
    data: problems.Data = None,
    images: problems.Images = None,
    seed: problems.Seed = 0,
    nthreads: problems.Threads = None,
    rounds: Annotated[int, typer.Option(min=1, help="Timed runs of each program.")] = 5,
    programs: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"By comma or repetition: {', '.join(PROGRAMS)}."),
    ] = None,
    slow_inputs: Annotated[
        int | None, typer.Option(min=1, help="Give the slow programs the first so many only.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Inputs at a time, for the peers.")] = 1000,
    json_file: problems.Json = None,
) -> None:
    """Run gbdnn and others on one problem, interleaved."""
    names = _chosen(programs)
    counts = problems.thread_counts(nthreads, [2])
    problem = problems.build(neurons, layers, inputs, data, images, seed)
    found = report.facts(problem, rounds=rounds, batch=batch, skipped={})
    report.heading(found)
    print("computing the right categories ...", flush=True)
    truth, found["checked_against"] = problems.true_categories(problem)
    found["categories"] = len(truth)
    with tempfile.TemporaryDirectory() as folder:
        problems.save(problem, Path(folder))
        fewer = min(slow_inputs or problem.inputs, problem.inputs)
        workers = [
            Worker(name, Path(folder), fewer if PROGRAMS[name].slow else problem.inputs, batch)
            for name in names
        ]
        try:
            workers = _prepared(workers, found)
            runs = _interleaved(workers, counts, rounds, truth)
        finally:
            for worker in workers:
                worker.close()
    found["runs"] = runs
    found["summary"] = _summary(problem, runs, counts, rounds)
    _print(found["summary"], counts)
    report.write(json_file, found)
    if not all(run["check"] == "PASSED" for run in runs):
        raise typer.Exit(1)


def _chosen(programs: list[str] | None) -> list[str]:
    """Return the names asked for, the reference first."""
    asked = [name for item in programs or [] for name in item.split(",")] or list(PROGRAMS)
    for name in asked:
        if name not in PROGRAMS:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(PROGRAMS)}")
    return list(dict.fromkeys([REFERENCE, *asked]))


def _prepared(workers: list[Worker], found: dict[str, Any]) -> list[Worker]:
    """Return the workers whose packages are there."""
    able = []
    for worker in workers:
        answer = worker.ready()
        if "missing" in answer:
            print(f"{worker.name}: skipped: {answer['missing']}")
            found["skipped"][worker.name] = answer["missing"]
            worker.close()
        else:
            found["versions"] |= answer["versions"]
            able.append(worker)
    return able


def _interleaved(
    workers: list[Worker], counts: list[int], rounds: int, truth: np.ndarray
) -> list[dict[str, Any]]:
    """Run all programs in turn; round 0 is each one's first run, on the most threads."""
    runs = []
    for turn in range(rounds + 1):
        for nthreads in counts if turn else [max(counts)]:
            first = turn % len(workers)  # so that none always follows the same one
            for worker in workers[first:] + workers[:first]:
                program = PROGRAMS[worker.name]
                if program.serial and nthreads != (counts[0] if turn else max(counts)):
                    continue
                threads = 1 if program.serial else nthreads
                answer = worker.run(threads)
                right = np.array_equal(answer["categories"], truth[truth < worker.inputs])
                run = {
                    "program": worker.name,
                    "round": turn,
                    "nthreads": threads,
                    "inputs": worker.inputs,
                    "seconds": answer["seconds"],
                    "cpu": answer["cpu"],
                    "check": "PASSED" if right else "FAILED",
                }
                runs.append(run)
                print(
                    f"round {turn}: {program.title}, {threads} threads:"
                    f" {run['seconds']:.3f} s, {run['check']}",
                    flush=True,
                )
                sleep(_PAUSE)
    return runs


def _summary(
    problem: Problem, runs: list[dict[str, Any]], counts: list[int], rounds: int
) -> list[dict[str, Any]]:
    """Return a row per program and number of threads."""

    def of(name: str, nthreads: int, timed: bool = True) -> list[dict[str, Any]]:
        threads = 1 if PROGRAMS[name].serial else nthreads
        return [
            run
            for run in runs
            if run["program"] == name
            and (run["round"] > 0) == timed
            and (run["nthreads"] == threads or not timed)
        ]

    rows = []
    for nthreads in counts:
        reference = of(REFERENCE, nthreads)
        for name in dict.fromkeys(run["program"] for run in runs):
            mine = of(name, nthreads)
            seconds = [run["seconds"] for run in mine]
            per_input = [
                (run["seconds"] / run["inputs"]) / (ref["seconds"] / ref["inputs"])
                for run, ref in zip(mine, reference, strict=True)
            ]
            inputs, middle = mine[0]["inputs"], median(seconds)
            rows.append(
                {
                    "program": name,
                    "title": PROGRAMS[name].title,
                    "beside_nthreads": nthreads,
                    "nthreads": mine[0]["nthreads"],
                    "inputs": inputs,
                    "rounds": rounds,
                    "seconds_median": middle,
                    "seconds_min": min(seconds),
                    "seconds_first": of(name, nthreads, timed=False)[0]["seconds"],
                    "seconds_per_input_to_gbdnn": median(per_input),
                    "edges_per_second": edge_rate(inputs, problem.network.edges, middle),
                    "cpu_to_wall": median(run["cpu"] / run["seconds"] for run in mine),
                    "check": sorted({run["check"] for run in mine})[0],
                }
            )
    return rows


def _print(rows: list[dict[str, Any]], counts: list[int]) -> None:
    """Print a table per number of threads."""
    head = ["program", "threads", "inputs", "median s", "min s", "first s", "s per input"]
    head += ["edges/s", "cpu/wall", "categories"]
    for nthreads in counts:
        chosen = [row for row in rows if row["beside_nthreads"] == nthreads]
        report.table(
            head,
            [
                (
                    row["title"],
                    row["nthreads"],
                    row["inputs"],
                    f"{row['seconds_median']:.3f}",
                    f"{row['seconds_min']:.3f}",
                    f"{row['seconds_first']:.3f}",
                    f"x {row['seconds_per_input_to_gbdnn']:.2f}",
                    f"{row['edges_per_second']:.3g}",
                    f"{row['cpu_to_wall']:.2f}",
                    "right" if row["check"] == "PASSED" else "WRONG",
                )
                for row in chosen
            ],
        )
    print(
        "\ns per input: seconds per input over those of gbdnn auto in the same round, median."
        "\nPrograms that ran on fewer inputs say so; their seconds are not scaled."
    )


if __name__ == "__main__":
    typer.run(main)
