"""Gbdnn and other programs on one problem, in turn, each checked for the right categories.

    python benchmarks/side_by_side.py --nthreads 1 --nthreads 2 --json side_by_side.json

Every program has a process of its own (`worker`) and runs once per round, one after the other: what
disturbs the machine for a while disturbs all of them. Each runs at the best of several batch sizes,
which it has looked for before (`turns`). The first run of each, which prepares what it keeps, is
not among the timed ones. A run begins with the features in the program's own format and ends with
the categories.
"""

from __future__ import annotations

from typing import Annotated, Any

import problems
import report
import turns
import typer
from programs import DEFAULT, DISTINCT, PROGRAMS


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
        int | None,
        typer.Option(min=1, help="Run the slow programs as well, on the first so many inputs."),
    ] = None,
    batch: problems.Batches = None,
    search_inputs: Annotated[
        int, typer.Option(min=1, help="First inputs on which batch sizes are tried.")
    ] = turns.SEARCH_INPUTS,
    json_file: problems.Json = None,
) -> None:
    """Run gbdnn and others on one problem, interleaved."""
    names = chosen(programs, slow=slow_inputs is not None)
    counts = problems.thread_counts(nthreads, [2])
    sizes = problems.numbers(batch, "--batch", list(turns.BATCHES))
    problem = problems.build(neurons, layers, inputs, data, images, seed)
    found = report.facts(problem, rounds=rounds)
    report.heading(found)
    print("computing the right categories ...", flush=True)
    truth, found["checked_against"] = problems.true_categories(problem)
    found["categories"] = len(truth)
    with turns.workers(problem, names, found, slow_inputs) as able:
        found["batches"] = turns.search(able, counts, sizes, search_inputs)
        found["runs"] = turns.interleaved(able, counts, rounds, truth, found["batches"])
    found["summary"] = turns.summary(problem, found["runs"], counts, rounds)
    found["strongest"] = {n: turns.strongest(found["summary"], n) for n in counts}
    show(found, counts)
    report.write(json_file, found)
    if not all(run["check"] == "PASSED" for run in found["runs"]):
        raise typer.Exit(1)


def chosen(programs: list[str] | None, *, slow: bool) -> list[str]:
    """Return the names asked for, those first that the others are compared with."""
    usual = [name for name, program in PROGRAMS.items() if slow or not program.slow]
    asked = [name for item in programs or [] for name in item.split(",")] or usual
    for name in asked:
        if name not in PROGRAMS:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(PROGRAMS)}")
    return list(dict.fromkeys([DISTINCT, DEFAULT, *asked]))


def show(found: dict[str, Any], counts: list[int]) -> None:
    """Print a table per number of threads, and the ratios that matter."""
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
        "\nto distinct, to default: seconds per input over those of gbdnn auto in the same round,"
        "\nmedian; with compress=False (every input computed), and as it is by default."
        "\nPrograms that ran on fewer inputs say so; their seconds are not scaled."
    )
    for nthreads in counts:
        best = turns.strongest(rows, nthreads)
        if best is not None:
            print(
                f"strongest peer beside {nthreads} threads: {best['title']}, batches of"
                f" {best['batch']}: x {best['to_distinct']:.2f} gbdnn compress=False,"
                f" x {best['to_default']:.2f} by default"
            )
    for row in rows:
        if PROGRAMS[row["program"]].own and row["beside_nthreads"] != counts[0]:
            print(
                f"{row['title']}: {row['nthreads']} threads x {row['speed_up']:.2f} as fast as"
                f" {counts[0]}"
            )
    for name, prepared in found["prepared"].items():
        if "code_seconds" in prepared:
            form = "fused form" if prepared["compiled"] else "no compiled code"
            print(
                f"{PROGRAMS[name].title}: {form}, code loaded or compiled in"
                f" {prepared['code_seconds']:.3f} s, before all runs"
            )


if __name__ == "__main__":
    typer.run(main)
