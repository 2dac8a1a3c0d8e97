"""Measure the challenge's twelve networks with and without deduplication; can be resumed.

    python benchmarks/scale/twelve.py RESULTS --images $GBDNN_DATA/mnist --nthreads 2
    python benchmarks/scale/twelve.py RESULTS --network 65536x480

Each case runs in its own process and writes a file to RESULTS; cases with a file are skipped.
Networks that need more than a quarter of the machine's memory are streamed from a store, which is
resumed if it is incomplete, and removed after both cases of the network. Features stay in a store
until all networks with the same number of neurons are done: creating them from 60,000 images takes
minutes at 65536. Memory is the maximum of the process during the first inference, without pages of
mapped files.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import memory
import options
import papers
import problems
import report
from turns import checked, timed

if TYPE_CHECKING:
    from gbdnn.challenge import Problem

DEGREE = 32
ENTRY = 24  # bytes of an edge in memory, with its prepared copy
BUDGETS = {False: 0.5, True: 4.0}  # GiB, of networks in memory and streamed


def main(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="Folder for the results.")],
    network: options.Several = None,
    inputs: options.Inputs = None,
    data: options.Data = None,
    images: options.Images = None,
    nthreads: options.Cores = None,
    stores: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for stores, up to 16 GB.")
    ] = None,
    check: Annotated[bool, typer.Option(help="Check all categories, which takes long.")] = False,
    json_file: options.Json = None,
) -> None:
    """Measure the missing cases, the smallest networks first."""
    stores = stores or results / "stores"
    stores.mkdir(parents=True, exist_ok=True)
    chosen = papers.named(network, papers.SIZES)
    left = Counter(neurons for neurons, _ in chosen)
    for neurons, layers in chosen:
        official = problems.known_weights(data, neurons, layers)
        choice = problems.Choice(neurons, layers, inputs, official, images)
        for deduplicate in (False, True):
            file = _file(results, neurons, layers, deduplicate)
            if file.exists():
                print(f"{file.stem}: already measured", flush=True)
                continue
            print(f"\n{file.stem}", flush=True)
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                case = pool.submit(one_case, choice, stores, nthreads, deduplicate, check)
                if (error := case.exception()) is None:
                    report.write(file, case.result())
                else:
                    print(f"{file.stem}: FAILED, {error!r}; continuing with the next case")
        left[neurons] -= 1
        shutil.rmtree(stores / f"{neurons}x{layers}", ignore_errors=True)
        if not left[neurons]:
            shutil.rmtree(stores / f"features-{neurons}-{inputs}", ignore_errors=True)
    show(results, json_file)


def _file(results: Path, neurons: int, layers: int, deduplicate: bool) -> Path:
    return results / f"{neurons}x{layers}-{'' if deduplicate else 'no-'}deduplicate.json"


def one_case(
    choice: problems.Choice, stores: Path, nthreads: int | None, deduplicate: bool, check: bool
) -> dict[str, Any]:
    """Return time and memory of a network in this process."""
    import graphblas as gb

    import gbdnn

    nthreads = nthreads or int(gb.ss.global_context["nthreads"])
    problem, is_streamed = _problem(choice, stores)
    edges = problem.network.edges
    found = report.started(
        problem, nthreads=nthreads, deduplicate=deduplicate, streamed=is_streamed
    )
    given = {"memory": int(BUDGETS[is_streamed] * 2**30), "nthreads": nthreads}
    infer = timed(
        partial(
            gbdnn.infer, problem.network, problem.features,
            **given, **problems.merging(deduplicate),
        ),
        lambda Y: {"rows": gbdnn.categories(Y)},
    )  # fmt: skip
    with memory.Peak() as peak:
        first = infer()
    rounds = 3 if edges < 1 << 26 else 1 if edges < 1 << 28 else 0
    runs = [infer() for _ in range(rounds)]
    rows, right = first["rows"], True
    if check:
        right = np.array_equal(rows, problems.true_categories(problem)[0])
    seconds = [run["seconds"] for run in runs or [first]]
    return found | {
        "rounds": rounds,
        "seconds": seconds,
        "edges_per_second": problem.inputs * edges / median(seconds),
        "categories": len(rows),
        "check": checked(right and all(np.array_equal(rows, run["rows"]) for run in runs)),
        "memory_peak": peak.most,
    }


def _problem(choice: problems.Choice, stores: Path) -> tuple[Problem, bool]:
    """Return the problem, and whether its network is streamed; both may be in stores."""
    import gbdnn
    from gbdnn.challenge import Problem

    if choice.data is not None:
        return choice.build(), False
    sizes = choice.neurons, choice.layers
    name = "{} neurons x {} layers, generated (seed 0)".format(*sizes)
    kept = stores / f"features-{sizes[0]}-{choice.inputs}"
    if not (kept / "index.json").exists():
        gbdnn.io.write_features(choice.build(layers=1).features, kept)
    X = gbdnn.io.read_features(kept)
    available = report.circumstances()["machine"]["memory_gib"] * 2**30
    is_streamed = ENTRY * DEGREE * sizes[0] * sizes[1] > available / 4
    net = gbdnn.gallery.radixnet(*sizes, seed=0, lazy=is_streamed)
    if is_streamed:
        store = stores / "{}x{}".format(*sizes)
        if not (store / "index.json").exists():
            gbdnn.save(net, store)
        net = gbdnn.load(store, lazy=True)
    problem = Problem(name=f"{name}, on {X.nrows} inputs", network=net, features=X, seed=0)
    return problem, is_streamed


def show(results: Path, json_file: Path | None) -> None:
    """Print a table of all cases, and write them into one file."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
    import measured

    files = [_file(results, *sizes, each) for sizes, each in product(papers.SIZES, (False, True))]
    runs = [json.loads(file.read_text(encoding="utf-8")) for file in files if file.exists()]
    head = ("network", "inputs", "seconds", "edges/s", "peak GiB", "categories")
    report.table([dict(zip(head, measured.run_row(each), strict=True)) for each in runs])
    at = runs[-1] | {"load": max(each["load"] for each in runs)}
    at["commit"] = ", ".join(dict.fromkeys(each["commit"] for each in runs))
    report.finish(json_file, at | {"cases": runs}, runs)


if __name__ == "__main__":
    options.run(main)
