"""How close `gbdnn.infer` is to the limit: the seconds that its products alone would take.

    python benchmarks/floor.py --nthreads 1,2 --json floor.json

    floor = sum over layers of (living inputs x edges) / rate

Living inputs are those with an entry before the layer; the others need no work. The rate is the
best that the product alone reaches over block sizes and numberings of the neurons, on layers of
this network sampled evenly; for T threads it is that of T threads side by side. It is one number
per problem and number of threads. Inputs that have become equal count each: where gbdnn lets them
go on as one (`compress`), it may take less than the floor, so it is timed without that too. A
second, stricter floor takes for all layers the best rate of any one of them.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import problems
import report
import typer

if TYPE_CHECKING:
    from gbdnn.challenge import Problem
    from gbdnn.metrics import LayerStats


def main(
    neurons: problems.Neurons = 1024,
    layers: problems.Layers = 120,
    inputs: problems.Inputs = None,
    data: problems.Data = None,
    images: problems.Images = None,
    seed: problems.Seed = 0,
    nthreads: problems.Threads = None,
    rounds: Annotated[int, typer.Option(min=1, help="Runs of gbdnn.")] = 5,
    repeat: Annotated[int, typer.Option(min=1, help="Times that a product is timed.")] = 15,
    sample: Annotated[int, typer.Option(min=1, help="Layers whose product is timed.")] = 12,
    check: Annotated[bool, typer.Option(help="Compare categories with the right ones.")] = True,
    json_file: problems.Json = None,
) -> None:
    """Print the floor, and gbdnn's time over it."""
    import kernel

    import gbdnn

    counts = problems.thread_counts(nthreads, [1, 2])
    problem = problems.build(neurons, layers, inputs, data, images, seed)
    found = report.facts(problem, rounds=rounds, repeat=repeat)
    report.heading(found)
    living, Y = _living(problem)
    edges = np.array([layer.edges for layer in problem.network], float)
    work = float(living @ edges)
    found["living"], found["multiply_adds"] = living.tolist(), work
    found["check"] = "NOT CHECKED"
    if check:
        truth, _ = problems.true_categories(problem)
        right = np.array_equal(gbdnn.categories(Y), truth)
        found["check"] = "PASSED" if right else "FAILED"
    print(f"{work / 1e9:.2f} G multiply-adds for living inputs; categories: {found['check']}")

    ks = kernel.sampled(len(problem.network), sample)
    found["sampled_layers"] = ks
    sweeps = {count: kernel.sweep(problem.network, ks, repeat, count) for count in counts}
    found["sweeps"] = sweeps
    ways = [(count, compress) for count in counts for compress in (False, True)]
    seconds: dict[tuple[int, bool], list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for count, compress in ways:
            options = problems.merging(compress)
            began = perf_counter()
            gbdnn.infer(problem.network, problem.features, nthreads=count, **options)
            seconds[count, compress].append(perf_counter() - began)
    found["summary"] = [_summary(work, way, sweeps[way[0]], seconds[way]) for way in ways]
    _print(sweeps, found["summary"])
    report.write(json_file, found)
    if found["check"] == "FAILED":
        raise typer.Exit(1)


def _living(problem: Problem) -> tuple[np.ndarray, Any]:
    """Return the living inputs before each layer, and the activations after the last one."""
    import graphblas as gb

    import gbdnn

    living = np.zeros(len(problem.network) + 1)
    living[0] = problem.features.reduce_rowwise(gb.monoid.any).new().nvals

    def count(stats: LayerStats) -> None:
        living[stats.layer + 1] += stats.live

    Y = gbdnn.infer(problem.network, problem.features, callback=count, compress=False)
    return living[:-1], Y


def _summary(
    work: float, way: tuple[int, bool], sweep: list[dict[str, Any]], seconds: list[float]
) -> dict[str, Any]:
    """Return floors and what gbdnn takes."""
    best = max(sweep, key=lambda row: row["rate"])
    peak = max(max(row["rates"]) for row in sweep)
    return {
        "nthreads": way[0],
        "compress": way[1],
        "seconds": seconds,
        "numbering": best["numbering"],
        "width": best["width"],
        "rate": best["rate"],
        "floor_seconds": work / best["rate"],
        "peak_rate": peak,
        "strict_floor_seconds": work / peak,
        "seconds_median": median(seconds),
        "seconds_min": min(seconds),
        "median_to_floor": median(seconds) * best["rate"] / work,
        "min_to_floor": min(seconds) * best["rate"] / work,
        "median_to_strict_floor": median(seconds) * peak / work,
    }


def _print(sweeps: dict[int, list[dict[str, Any]]], summary: list[dict[str, Any]]) -> None:
    head = ["product alone, G multiply-adds/s", "inputs per block"]
    head += [f"{count} threads" for count in sweeps]
    columns = list(sweeps.values())
    rows = [
        (row["numbering"], row["width"], *(f"{each[at]['rate'] / 1e9:.1f}" for each in columns))
        for at, row in enumerate(columns[0])
    ]
    report.table(head, rows)
    head = ["threads", "merging", "G/s", "floor s", "gbdnn median s", "min s", "median / floor"]
    head += ["min / floor", "peak G/s", "median / strict floor"]
    report.table(
        head,
        [
            (
                row["nthreads"],
                "yes" if row["compress"] else "no",
                f"{row['rate'] / 1e9:.1f}",
                f"{row['floor_seconds']:.3f}",
                f"{row['seconds_median']:.3f}",
                f"{row['seconds_min']:.3f}",
                f"{row['median_to_floor']:.2f}",
                f"{row['min_to_floor']:.2f}",
                f"{row['peak_rate'] / 1e9:.1f}",
                f"{row['median_to_strict_floor']:.2f}",
            )
            for row in summary
        ],
    )


if __name__ == "__main__":
    typer.run(main)
