"""Compare gbdnn with other programs on one problem, and check the categories of each.

    python benchmarks/comparison/side_by_side.py --nthreads 1 --nthreads 2 --json side_by_side.json
    python benchmarks/comparison/side_by_side.py --engines --data DIR --json engines.json

Every program runs in its own process (`programs`), once per round, so that disturbances of the
machine affect all programs. Each uses its best batch size, determined before the first round
(`challenge_turns`). The first run of each, which includes its preparation, is not timed. A run
starts with the features in the program's own format and ends with the categories.

``--engines`` compares gbdnn's engines, LAGraph's loop, PyTorch and MKL on one and two threads with
all inputs; ``python docs/measured.py beside engines.json`` prints the rows of the README's table.
``--quick`` runs a small problem as a test.
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
        typer.Option(min=1, help="Also run the slow programs, on this number of inputs."),
    ] = None,
    batch: problems.Batches = None,
    search_inputs: Annotated[
        int, typer.Option(min=1, help="Number of inputs for trying batch sizes.")
    ] = challenge_turns.SEARCH_INPUTS,
    json_file: problems.Json = None,
) -> None:
    """Compare gbdnn with other programs on one problem."""
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
    print("computing the reference categories ...", flush=True)
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
