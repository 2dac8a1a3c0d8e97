"""Compare gbdnn with other programs on one problem, and check the categories of each.

    python benchmarks/comparison/side_by_side.py --nthreads 1 --nthreads 2 --json side_by_side.json
    python benchmarks/comparison/side_by_side.py --data DIR --json engines.json

Every program runs in its own process (`peers`), once per round, so that disturbances of the machine
affect all programs. The first run of each, which includes its preparation, is not timed. A run
starts with the features in the program's own format and ends with the categories.

The best batch size depends on program, machine and threads. Before the first round, every program
that works in batches tries several sizes on the first inputs after a warm-up, and keeps the
fastest.

``python docs/measured.py beside engines.json`` prints the rows of the README's table. ``--quick``
runs a small problem as a test.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import sleep
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import challenge_turns
import options
import problems
import report
from peers import DEFAULT, DISTINCT, PROGRAMS
from turns import ratios

BATCHES = (500, 1000, 2000, 3000, 6000)
SEARCH_INPUTS = 12_000


def main(
    choice: problems.Choice,
    nthreads: options.Several = None,
    rounds: options.Rounds = 5,
    programs: options.Several = None,
    quick: options.Quick = False,
    batch: options.Several = None,
    json_file: options.Json = None,
) -> None:
    """Compare gbdnn with other programs on one problem."""
    if quick:
        choice, rounds = replace(choice, layers=12, inputs=1000), 1
    own = PROGRAMS.having("own")
    names = options.words([DISTINCT, DEFAULT, *options.words(programs, PROGRAMS)], [], PROGRAMS)
    counts = options.numbers(nthreads, [1, 2])
    problem = choice.build()
    found = report.started(problem, rounds=rounds)
    print("computing the reference categories ...", flush=True)
    truth, found["checked_against"] = problems.true_categories(problem)
    found["categories"] = len(truth)

    found["batches"] = []
    with challenge_turns.workers(problem, names, found) as able:
        for name in (name for name in able if name not in own):
            tried = options.numbers(batch, BATCHES)
            for threads in counts:
                row = {"program": name, "nthreads": threads}
                row["inputs"] = min(SEARCH_INPUTS, problem.inputs)
                found["batches"].append(row | _searched(able[name], row, tried, problem.inputs))
        sizes = {(row["program"], row["nthreads"]): row["batch"] for row in found["batches"]}
        found["runs"] = challenge_turns.interleaved(
            able, counts, rounds, truth, problem.inputs, sizes
        )
    found["summary"] = [
        row for threads in counts for row in _summaries(found["runs"], threads, problem)
    ]
    report.table(found["summary"], "program")
    report.finish(json_file, found, found["runs"])


def _searched(process: Any, row: dict[str, Any], sizes: list[int], inputs: int) -> dict[str, Any]:
    """Return the best batch size of a program, and the times of all on the first inputs."""
    program, nthreads, first = PROGRAMS[row["program"]], row["nthreads"], row["inputs"]
    tried = sorted({size for size in sizes if size <= first} or {min(sizes)})
    tried += [inputs] if "at once" in program.traits and inputs not in tried else []

    def once(size: int) -> float:
        return process.ask(nthreads=nthreads, batch=size, inputs=first)["seconds"]

    once(tried[0])
    least = {size: min(once(size), once(size)) for size in tried}
    best = min(least, key=lambda size: least[size])
    told = ", ".join(f"{size}: {taken:.3f} s" for size, taken in least.items())
    words = f"{program.title}, {nthreads} threads: batches of {best}"
    print(f"{words} (on {first} inputs, {told})", flush=True)
    sleep(challenge_turns.PAUSE)
    return {"batch": best, "seconds": least}


def _summaries(runs: list[dict[str, Any]], nthreads: int, problem: Any) -> list[dict[str, Any]]:
    """Return a row for each program next to gbdnn on a number of threads."""

    def of(name: str, threads: int = nthreads) -> list[dict[str, Any]]:
        at = name, threads
        return [run for run in runs if (run["program"], run["nthreads"]) == at and run["round"]]

    rows = []
    for name in dict.fromkeys(run["program"] for run in runs):
        mine = of(name)
        row = {
            "title": PROGRAMS[name].title,
            "program": name,
            **{key: mine[0][key] for key in ("nthreads", "batch")},
            "seconds_median": median(run["seconds"] for run in mine),
            "cpu_to_wall": median(run["cpu"] / run["seconds"] for run in mine),
            "check": min(run["check"] for run in mine),
            "to_distinct": median(ratios(mine, of(DISTINCT))),
            "to_default": median(ratios(mine, of(DEFAULT))),
        }
        row["edges_per_second"] = problem.inputs * problem.network.edges / row["seconds_median"]
        fewest = min(run["nthreads"] for run in runs)
        row["speed_up"] = median(ratios(of(name, fewest), mine))
        rows.append(row)
    return rows


if __name__ == "__main__":
    options.run(main)
