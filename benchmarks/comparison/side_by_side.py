"""Gbdnn and other programs on one problem, in turn, each checked for the right categories.

    python benchmarks/comparison/side_by_side.py --nthreads 1 --nthreads 2 --json side_by_side.json
    python benchmarks/comparison/side_by_side.py --engines --data DIR --json engines.json

Every program has a process of its own (`programs`) and runs once per round, one after the other:
what disturbs the machine for a while disturbs all of them. Each runs at the best of several batch
sizes, which it has looked for before (`challenge_turns`). The first run of each, which prepares
what it keeps, is not among the timed ones. A run begins with the features in the program's own
format and ends with the categories.

``--engines`` compares gbdnn's engines, LAGraph's loop, PyTorch and MKL on one and two threads, each
with all inputs: ``python docs/tables.py engines.json`` prints the rows of the README's table.
``--quick`` shows that everything works, on a small problem.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import challenge_turns
import problems
import report
from programs import ENGINES, PROGRAMS


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
    engines: Annotated[
        bool, typer.Option("--engines", help="Run the programs of the README's table.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="12 layers, 1,000 inputs, one round.")
    ] = False,
    slow_inputs: Annotated[
        int | None,
        typer.Option(min=1, help="Run the slow programs as well, on the first so many inputs."),
    ] = None,
    batch: problems.Batches = None,
    search_inputs: Annotated[
        int, typer.Option(min=1, help="First inputs on which batch sizes are tried.")
    ] = challenge_turns.SEARCH_INPUTS,
    json_file: problems.Json = None,
) -> None:
    """Run gbdnn and others on one problem, interleaved."""
    if quick:
        layers, inputs, rounds = 12, 1000, 1
    if engines:
        programs = [*(programs or []), *ENGINES]
    names = challenge_turns.chosen(programs, slow=slow_inputs is not None)
    counts = problems.thread_counts(nthreads, [1, 2] if engines else [2])
    sizes = problems.numbers(batch, "--batch", list(challenge_turns.BATCHES))
    problem = problems.build(neurons, layers, inputs, data, images, seed)
    found = report.facts(problem, rounds=rounds)
    report.heading(found)
    print("computing the right categories ...", flush=True)
    truth, found["checked_against"] = problems.true_categories(problem)
    found["categories"] = len(truth)
    with challenge_turns.workers(problem, names, found, slow_inputs) as able:
        found["batches"] = challenge_turns.search(able, counts, sizes, search_inputs)
        found["runs"] = challenge_turns.interleaved(able, counts, rounds, truth, found["batches"])
    found["summary"] = challenge_turns.summary(problem, found["runs"], counts, rounds)
    found["strongest"] = {n: challenge_turns.strongest(found["summary"], n) for n in counts}
    challenge_turns.show(found, counts)
    report.write(json_file, found)
    if not all(run["check"] == "PASSED" for run in found["runs"]):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
