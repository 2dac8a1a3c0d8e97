"""Compare gbdnn with other programs on one problem, and check the categories of each.

    python benchmarks/comparison/side_by_side.py --nthreads 1 --nthreads 2 --json side_by_side.json
    python benchmarks/comparison/side_by_side.py --engines --data DIR --json engines.json

Every program runs in its own process (`peers`), once per round, so that disturbances of the machine
affect all programs. The first run of each, which includes its preparation, is not timed. A run
starts with the features in the program's own format and ends with the categories.

The best batch size depends on program, machine and threads. Before the first round, every program
that works in batches tries several sizes on the first inputs after a warm-up, repeats those near
the best, and keeps the fastest.

``--engines`` compares gbdnn's engines, LAGraph's loop, PyTorch and MKL on one and two threads with
all inputs; ``python docs/measured.py beside engines.json`` prints the rows of the README's table.
``--quick`` runs a small problem as a test.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import sleep
from typing import Annotated, Any

import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import challenge_turns
import options
import problems
import report
from peers import DEFAULT, DISTINCT, ENGINES, PROGRAMS
from turns import ratios, summary

BATCHES = (500, 1000, 2000, 3000, 6000)
SEARCH_INPUTS = 12_000
_USUAL = 1000  # batch size of a program without a search
_NEAR = 1.25  # times the best time, within which a size is tried again


def main(
    choice: problems.Choice,
    nthreads: options.Several = None,
    rounds: options.Rounds = 5,
    programs: options.Several = None,
    engines: Annotated[
        bool, typer.Option("--engines", help="Run the programs of the README's table.")
    ] = False,
    quick: options.Quick = False,
    slow_inputs: Annotated[
        int | None,
        typer.Option(min=1, help="Also run the slow programs, on this number of inputs."),
    ] = None,
    batch: options.Several = None,
    json_file: options.Json = None,
) -> None:
    """Compare gbdnn with other programs on one problem."""
    if quick:
        choice, rounds = replace(choice, layers=12, inputs=1000), 1
    slow, own = PROGRAMS.having("slow"), PROGRAMS.having("own")
    if engines:
        programs = [*(programs or []), *ENGINES]
    usual = [name for name in PROGRAMS if slow_inputs or name not in slow]
    names = options.words([DISTINCT, DEFAULT, *options.words(programs, usual)], [], PROGRAMS)
    counts = options.numbers(nthreads, [1, 2] if engines else [2])
    problem = choice.build()
    found = report.started(problem, rounds=rounds)
    print("computing the reference categories ...", flush=True)
    truth, found["checked_against"] = problems.true_categories(problem)
    found["categories"] = len(truth)

    def inputs(name: str, _threads: int) -> int:
        return min((name in slow and slow_inputs) or problem.inputs, problem.inputs)

    found["batches"] = []
    with challenge_turns.workers(problem, names, found) as able:
        for name in (name for name in able if name not in own):
            tried, size = options.numbers(batch, BATCHES), inputs(name, 0)
            for threads in [1] if name in PROGRAMS.having("serial") else counts:
                row = {"program": name, "nthreads": threads, "inputs": min(SEARCH_INPUTS, size)}
                found["batches"].append(row | _searched(able[name], row, tried, size))
        sizes = {(row["program"], row["nthreads"]): row["batch"] for row in found["batches"]}
        found["runs"] = challenge_turns.interleaved(
            able, counts, rounds, truth, inputs, lambda *key: sizes.get(key)
        )
    found["summary"], found["strongest"] = [], {}
    for threads in counts:
        rows = _summaries(found["runs"], threads, problem)
        found["summary"] += rows
        peers = [row for row in rows if row["program"] not in own]
        best = min(peers, key=lambda row: row["to_distinct"], default=None)
        found["strongest"][threads] = best
    _show(found, counts)
    report.finish(json_file, found, found["runs"])


def _searched(process: Any, row: dict[str, Any], sizes: list[int], inputs: int) -> dict[str, Any]:
    """Return the best batch size of a program, and the times of all on the first inputs."""
    program, nthreads, first = PROGRAMS[row["program"]], row["nthreads"], row["inputs"]
    tried = sorted({size for size in sizes if size <= first} or {min(sizes)})
    tried += [inputs] if "at once" in program.traits and inputs not in tried else []
    if "slow" in program.traits:
        tried = [_USUAL]
    if len(tried) == 1:
        return {"batch": tried[0], "seconds": {}}

    def once(size: int) -> float:
        return process.ask(nthreads=nthreads, batch=size, inputs=first)["seconds"]

    once(tried[0])
    least = {size: once(size) for size in tried}
    limit = _NEAR * min(least.values())
    least |= {size: min(least[size], once(size)) for size in tried if least[size] <= limit}
    best = min(least, key=lambda size: least[size])
    told = ", ".join(f"{size}: {taken:.3f} s" for size, taken in least.items())
    words = f"{program.title}, {nthreads} threads: batches of {best}"
    print(f"{words} (on {first} inputs, {told})", flush=True)
    sleep(challenge_turns.PAUSE)
    return {"batch": best, "seconds": least}


def _summaries(runs: list[dict[str, Any]], nthreads: int, problem: Any) -> list[dict[str, Any]]:
    """Return a row for each program next to gbdnn on a number of threads."""
    serial = PROGRAMS.having("serial")

    def of(name: str, threads: int = nthreads) -> list[dict[str, Any]]:
        at = name, 1 if name in serial else threads
        return [run for run in runs if (run["program"], run["nthreads"]) == at and run["round"]]

    rows = []
    for name in dict.fromkeys(run["program"] for run in runs):
        mine = of(name)
        row = {
            "title": PROGRAMS[name].title,
            "program": name,
            "beside_nthreads": nthreads,
            **{key: mine[0][key] for key in ("nthreads", "batch")},
            **summary(mine),
            "seconds_first": next(run["seconds"] for run in runs if run["program"] == name),
            "to_distinct": median(ratios(mine, of(DISTINCT))),
            "to_default": median(ratios(mine, of(DEFAULT))),
        }
        row["edges_per_second"] = row["inputs"] * problem.network.edges / row["seconds_median"]
        if name not in serial:
            fewest = min(run["nthreads"] for run in runs if run["program"] == name)
            row["speed_up"] = median(ratios(of(name, fewest), mine))
        rows.append(row)
    return rows


def _show(found: dict[str, Any], counts: list[int]) -> None:
    """Print a table for each number of threads, and the main ratios."""
    for nthreads in counts:
        rows = [row for row in found["summary"] if row["beside_nthreads"] == nthreads]
        report.table(rows, "program", "beside_nthreads", "seconds_max")
    print(
        "\nto distinct, to default: median ratio of the seconds per input to those of gbdnn auto in"
        "\nthe same round, with deduplicate=False (every input computed), and with the default."
        f"\nSeconds of programs that ran on fewer inputs are not scaled."
        f"\nspeed up: ratio of the seconds to those on {counts[0]} threads."
    )
    for nthreads, best in found["strongest"].items():
        if best is not None:
            print(
                f"strongest peer beside {nthreads} threads: {best['title']}, batches of"
                f" {best['batch']}: x {best['to_distinct']:.2f} gbdnn deduplicate=False,"
                f" x {best['to_default']:.2f} by default"
            )


if __name__ == "__main__":
    options.run(main)
