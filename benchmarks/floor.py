"""How close `gbdnn.infer` is to the limit: the seconds that its products alone would take.

    python benchmarks/floor.py --nthreads 1,2 --json floor.json

    floor = sum over layers of (living inputs x edges) / rate

Living inputs are those with an entry before the layer; the others need no work. The rate is the
best that the product alone reaches over block sizes and numberings of the neurons, on layers of
this network sampled evenly; for T threads it is that of T threads side by side. The best block size
and numbering are fixed first; their rate is then taken again before and after every run of gbdnn,
for a machine that others share is not as fast in one minute as in the next.

Inputs that have become equal count each: where gbdnn computes them once (`compress`), it may take
less than the floor, so it is timed without that too. A second, stricter floor takes for all
layers the best rate of any one of them.
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
    from gbdnn.engine.stats import LayerStats


def main(
    neurons: problems.Neurons = 1024,
    layers: problems.Layers = 120,
    inputs: problems.Inputs = None,
    data: problems.Data = None,
    images: problems.Images = None,
    seed: problems.Seed = 0,
    nthreads: problems.Threads = None,
    rounds: Annotated[int, typer.Option(min=1, help="Runs of gbdnn.")] = 5,
    repeat: Annotated[int, typer.Option(min=1, help="Times that a product is timed.")] = 7,
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
    best = {count: max(sweeps[count], key=lambda row: row["rate"]) for count in counts}
    ways = [(count, compress) for count in counts for compress in (False, True)]
    seconds: dict[tuple[int, bool], list[float]] = {way: [] for way in ways}
    rates: dict[int, list[float]] = {count: [] for count in counts}
    for _ in range(rounds):
        for count in counts:
            way = (count, best[count]["numbering"], best[count]["width"])
            before = kernel.rate(problem.network, ks, repeat, *way)
            for compress in (False, True):
                options = problems.merging(compress)
                began = perf_counter()
                gbdnn.infer(problem.network, problem.features, nthreads=count, **options)
                seconds[count, compress].append(perf_counter() - began)
            rates[count].append((before + kernel.rate(problem.network, ks, repeat, *way)) / 2)
    found["summary"] = [
        _summary(work, way, best[way[0]], rates[way[0]], seconds[way]) for way in ways
    ]
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
    work: float,
    way: tuple[int, bool],
    best: dict[str, Any],
    rates: list[float],
    seconds: list[float],
) -> dict[str, Any]:
    """Return floors and what gbdnn takes; every run beside the rate of its own round."""
    rate = median(rates)
    peak = max(best["rates"]) / best["rate"]
    ratios = [taken * own / work for taken, own in zip(seconds, rates, strict=True)]
    return {
        "nthreads": way[0],
        "compress": way[1],
        "seconds": seconds,
        "rates": rates,
        "ratios": ratios,
        "numbering": best["numbering"],
        "width": best["width"],
        "rate": rate,
        "floor_seconds": work / rate,
        "seconds_median": median(seconds),
        "seconds_min": min(seconds),
        "ratio_median": median(ratios),
        "ratio_min": min(ratios),
        "strict_ratio_median": median(ratios) * peak,
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
    head = ["threads", "merging", "G/s", "floor s", "gbdnn median s", "min s", "time / floor"]
    head += ["least", "time / strict floor"]
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
                f"{row['ratio_median']:.2f}",
                f"{row['ratio_min']:.2f}",
                f"{row['strict_ratio_median']:.2f}",
            )
            for row in summary
        ],
    )


if __name__ == "__main__":
    typer.run(main)
