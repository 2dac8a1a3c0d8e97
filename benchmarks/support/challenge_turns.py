"""The side-by-side comparison: search for batch sizes, timed rounds, and summary.

The best batch size depends on program, machine and threads. Before the first round, every program
that works in batches tries several sizes on the first inputs after a warm-up, repeats those near
the best, and keeps the fastest.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from time import sleep
from typing import TYPE_CHECKING, Any

import numpy as np
import problems
import report
import typer
from processes import prepared
from programs import DEFAULT, DISTINCT, PROGRAMS, Worker
from turns import in_turn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gbdnn.challenge import Problem

BATCHES = (500, 1000, 2000, 3000, 6000)
SEARCH_INPUTS = 12_000

_USUAL = 1000  # batch size of a program without a search
_NEAR = 1.25  # times the best time, within which a size is tried again
# An OpenMP runtime's idle threads spin for up to 0.2 s before they sleep.
_PAUSE = 0.3


@contextmanager
def workers(
    problem: Problem, names: Sequence[str], found: dict[str, Any], slow_inputs: int | None = None
) -> Iterator[list[Worker]]:
    """Start the programs and wait until they have prepared the problem.

    Programs whose packages are missing are listed in ``found["skipped"]``.
    """
    fewer = min(slow_inputs or problem.inputs, problem.inputs)
    with tempfile.TemporaryDirectory() as folder:
        problems.save(problem, Path(folder))
        started = [
            Worker(name, Path(folder), fewer if PROGRAMS[name].slow else problem.inputs)
            for name in names
        ]
        with prepared(started, found) as able:
            found["prepared"] = {
                name: {"seconds": each.prepared["seconds"], **each.prepared["facts"]}
                for name, each in able.items()
            }
            yield list(able.values())


def search(
    able: list[Worker], counts: list[int], sizes: Sequence[int], inputs: int
) -> list[dict[str, Any]]:
    """Return best batch size and all times for each program and number of threads."""
    rows = []
    for worker in able:
        program = PROGRAMS[worker.name]
        if not program.batched:
            continue
        first = min(inputs, worker.inputs)
        tried = sorted({size for size in sizes if size <= first} or {min(sizes)})
        tried += [worker.inputs] if program.at_once and worker.inputs not in tried else []
        for nthreads in [1] if program.serial else counts:
            row = {"program": worker.name, "nthreads": nthreads, "inputs": first}
            if program.slow or len(tried) == 1:
                rows.append({**row, "batch": _USUAL if program.slow else tried[0], "seconds": {}})
                continue
            worker.run(nthreads, tried[0], first)
            least = {size: worker.run(nthreads, size, first)["seconds"] for size in tried}
            limit = _NEAR * min(least.values())
            for size in [size for size in tried if least[size] <= limit]:
                again = worker.run(nthreads, size, first)["seconds"]
                least[size] = min(least[size], again)
            best = min(least, key=lambda size: least[size])
            rows.append({**row, "batch": best, "seconds": least})
            told = ", ".join(f"{size}: {taken:.3f} s" for size, taken in least.items())
            print(
                f"{program.title}, {nthreads} threads: batches of {best}"
                f" (on {first} inputs, {told})",
                flush=True,
            )
            sleep(_PAUSE)
    return rows


def interleaved(
    able: list[Worker],
    counts: list[int],
    rounds: int,
    truth: np.ndarray,
    searched: list[dict[str, Any]],
    sizes: Mapping[int, int] | None = None,
) -> list[dict[str, Any]]:
    """Run all programs interleaved; round 0 is the warm-up.

    `sizes` is the number of first inputs for each number of threads; default: all inputs.
    """
    batches = {(row["program"], row["nthreads"]): row["batch"] for row in searched}
    runs = []

    def once(worker: Worker, threads: int) -> dict[str, Any]:
        batch, inputs = batches.get((worker.name, threads)), (sizes or {}).get(threads)
        inputs = inputs or worker.inputs
        answer = worker.run(threads, batch or inputs, inputs)
        right = np.array_equal(answer["categories"], truth[truth < inputs])
        return {
            "nthreads": threads,
            "inputs": inputs,
            "batch": batch,
            "seconds": answer["seconds"],
            "cpu": answer["cpu"],
            "check": "PASSED" if right else "FAILED",
        }

    def note(turn: int, key: tuple[str, int], run: dict[str, Any]) -> None:
        name, threads = key
        runs.append({"program": name, "round": turn, **run})
        print(
            f"round {turn}: {PROGRAMS[name].title}, {threads} threads:"
            f" {run['seconds']:.3f} s, {run['check']}",
            flush=True,
        )

    def calls(counts: list[int]) -> dict[tuple[str, int], Any]:
        keys = [(each, 1 if PROGRAMS[each.name].serial else n) for n in counts for each in able]
        return {(each.name, threads): partial(once, each, threads) for each, threads in keys}

    in_turn(calls([max(counts)]), 0, pause=_PAUSE, told=note)
    in_turn(calls(counts), rounds, warm=0, pause=_PAUSE, told=note)
    return runs


def summary(
    problem: Problem, runs: list[dict[str, Any]], counts: list[int], rounds: int
) -> list[dict[str, Any]]:
    """Return a row for each program and number of threads; ratios are medians over rounds."""

    def of(name: str, nthreads: int, timed: bool = True) -> list[dict[str, Any]]:
        threads = 1 if PROGRAMS[name].serial else nthreads
        return [
            run
            for run in runs
            if run["program"] == name
            and (run["round"] > 0) == timed
            and (run["nthreads"] == threads or not timed)
        ]

    def ratio(mine: list[dict[str, Any]], other: list[dict[str, Any]]) -> float:
        return median(
            (run["seconds"] / run["inputs"]) / (ref["seconds"] / ref["inputs"])
            for run, ref in zip(mine, other, strict=True)
        )

    rows = []
    for nthreads in counts:
        for name in dict.fromkeys(run["program"] for run in runs):
            mine = of(name, nthreads)
            seconds = [run["seconds"] for run in mine]
            inputs, middle = mine[0]["inputs"], median(seconds)
            row = {
                "program": name,
                "title": PROGRAMS[name].title,
                "beside_nthreads": nthreads,
                "nthreads": mine[0]["nthreads"],
                "inputs": inputs,
                "batch": mine[0]["batch"],
                "rounds": rounds,
                "seconds_median": middle,
                "seconds_min": min(seconds),
                "seconds_first": of(name, nthreads, timed=False)[0]["seconds"],
                "to_distinct": ratio(mine, of(DISTINCT, nthreads)),
                "to_default": ratio(mine, of(DEFAULT, nthreads)),
                "edges_per_second": inputs * problem.network.edges / middle,
                "cpu_to_wall": median(run["cpu"] / run["seconds"] for run in mine),
                "check": sorted({run["check"] for run in mine})[0],
            }
            if not PROGRAMS[name].serial:
                row["speed_up"] = ratio(of(name, counts[0]), mine)
            rows.append(row)
    return rows


def strongest(rows: list[dict[str, Any]], nthreads: int) -> dict[str, Any] | None:
    """Return the row of the fastest program per input other than gbdnn."""
    peers = [
        row
        for row in rows
        if row["beside_nthreads"] == nthreads and not PROGRAMS[row["program"]].own
    ]
    return min(peers, key=lambda row: row["to_distinct"], default=None)


def chosen(programs: list[str] | None, *, slow: bool) -> list[str]:
    """Return the requested names, with the reference programs first."""
    usual = [name for name, program in PROGRAMS.items() if slow or not program.slow]
    asked = [name for item in programs or [] for name in item.split(",")] or usual
    for name in asked:
        if name not in PROGRAMS:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(PROGRAMS)}")
    return list(dict.fromkeys([DISTINCT, DEFAULT, *asked]))


def show(found: dict[str, Any], counts: list[int]) -> None:
    """Print a table for each number of threads, and the main ratios."""
    rows = found["summary"]
    head = ["program", "threads", "inputs", "batch", "median s", "min s", "first s"]
    head += ["to distinct", "to default", "edges/s", "cpu/wall", "categories"]
    for nthreads in counts:
        report.table(
            head,
            [
                (
                    row["title"],
                    row["nthreads"],
                    row["inputs"],
                    row["batch"] or "-",
                    f"{row['seconds_median']:.3f}",
                    f"{row['seconds_min']:.3f}",
                    f"{row['seconds_first']:.3f}",
                    f"x {row['to_distinct']:.2f}",
                    f"x {row['to_default']:.2f}",
                    f"{row['edges_per_second']:.3g}",
                    f"{row['cpu_to_wall']:.2f}",
                    "right" if row["check"] == "PASSED" else "WRONG",
                )
                for row in rows
                if row["beside_nthreads"] == nthreads
            ],
        )
    print(
        "\nto distinct, to default: median ratio of the seconds per input to those of gbdnn auto in"
        "\nthe same round, with deduplicate=False (every input computed), and with the default."
        "\nSeconds of programs that ran on fewer inputs are not scaled."
    )
    for nthreads in counts:
        best = strongest(rows, nthreads)
        if best is not None:
            print(
                f"strongest peer beside {nthreads} threads: {best['title']}, batches of"
                f" {best['batch']}: x {best['to_distinct']:.2f} gbdnn deduplicate=False,"
                f" x {best['to_default']:.2f} by default"
            )
    for row in rows:
        if PROGRAMS[row["program"]].own and row["beside_nthreads"] != counts[0]:
            print(
                f"{row['title']}: {row['nthreads']} threads x {row['speed_up']:.2f} as fast as"
                f" {counts[0]}"
            )
    for name, facts in found["prepared"].items():
        if "code_seconds" in facts:
            kernel = "fused kernel" if facts["compiled"] else "no compiled code"
            print(
                f"{PROGRAMS[name].title}: {kernel}, code loaded or compiled in"
                f" {facts['code_seconds']:.3f} s, before all runs"
            )
