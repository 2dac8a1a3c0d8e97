"""Measure time and memory of gbdnn's engines on the larger networks.

    python benchmarks/scale/larger.py --neurons 4096 --no-deduplicate --json 4096.json
    python benchmarks/scale/larger.py --neurons 65536 --layers 480 --store FOLDER --memory 4

With `--store` the network is streamed from a store, which is created if it does not exist. Memory
is that of this process without pages of mapped files: after loading the libraries, before the
inference, and the maximum during the first one.

With `--features` the features are kept in a store for later runs with the same number of neurons;
creating them from 60,000 images takes minutes at 65536.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import problems
import report
from turns import in_turn, timed

if TYPE_CHECKING:
    import gbdnn
    from gbdnn.challenge import Problem


def main(
    neurons: problems.Neurons = 4096,
    layers: problems.Layers = 120,
    inputs: problems.Inputs = None,
    data: problems.Data = None,
    images: problems.Images = None,
    seed: problems.Seed = 0,
    nthreads: Annotated[
        int | None, typer.Option(min=1, help="Threads; default: that of GraphBLAS.")
    ] = None,
    engine: problems.Engines = None,
    rounds: Annotated[
        int,
        typer.Option(min=0, help="Timed runs of each engine."),
    ] = 1,
    deduplicate: problems.Deduplicate = True,
    store: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Stream the network from this store.")
    ] = None,
    features: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Read the features from this store, or create it."),
    ] = None,
    budget: Annotated[
        float, typer.Option("--memory", min=0, metavar="GIB", help="As for infer, in GiB.")
    ] = 0.5,
    check: Annotated[bool, typer.Option(help="Check all categories, which takes long.")] = False,
    json_file: problems.Json = None,
) -> None:
    """Run gbdnn on a larger network, and report seconds, edge rate, categories and memory."""
    import graphblas as gb
    import memory

    import gbdnn
    from gbdnn import challenge

    gb.Vector("FP32", 1).wait()  # GraphBLAS is loaded and initialised
    libraries = memory.now()
    nthreads = nthreads or int(gb.ss.global_context["nthreads"])
    if store is None and features is None:
        problem = problems.build(neurons, layers, inputs, data, images, seed)
    else:
        if data is not None:
            raise typer.BadParameter("--data goes without --store and --features")
        X = _features(features, neurons, inputs, images)
        net = gbdnn.radixnet(neurons, layers, seed=seed) if store is None else None
        called = f"{neurons} neurons x {layers} layers, generated (seed {seed})"
        problem = challenge.Problem(
            name=f"{called}, on {X.nrows} inputs",
            network=net or _stored(store, neurons, layers, seed),
            features=X,
            seed=seed,
        )
    found = report.facts(
        problem, nthreads=nthreads, deduplicate=deduplicate, streamed=store is not None
    )
    report.heading(found)

    budget_bytes = int(budget * 2**30)
    before = memory.now()
    engines = problems.words(engine, ["auto"])
    options = problems.merging(deduplicate) | {"memory": budget_bytes, "nthreads": nthreads}
    with memory.Peak() as peak:
        first = {engines[0]: _run(problem, engines[0], options)}
    first |= {each: _run(problem, each, options) for each in engines[1:]}
    first_run = {each: run["seconds"] for each, run in first.items()}
    answers = [run["rows"] for run in first.values()]
    if rounds:
        calls = {each: partial(_run, problem, each, options) for each in engines}
        turns = in_turn(calls, rounds, warm=0)
        runs = {each: turns.seconds(each) for each in engines}
        answers += [run["rows"] for each in engines for run in turns.runs[each]]
    else:
        runs = {each: [seconds] for each, seconds in first_run.items()}
    rows, seconds = answers[0], runs[engines[0]]
    agree = all(np.array_equal(rows, other) for other in answers)
    rate = problem.inputs * problem.network.edges / median(seconds)
    found |= {
        "engine": engines[0],
        "rounds": rounds,
        "seconds": runs,
        "seconds_first": first_run,
        "ratios": {
            each: median(other / own for own, other in zip(seconds, runs[each], strict=True))
            for each in engines
        },
        "edges_per_second": rate,
        "categories": len(rows),
        "agree": agree,
        "check": _check(problem, rows) if check else "NOT CHECKED",
        "memory_libraries": libraries,
        "memory_before": before,
        "memory_peak": peak.most,
    }
    report.table(
        ["engine", "threads", "first s", "median s", "min s", f"to {engines[0]}"],
        [
            (
                each,
                nthreads,
                f"{first_run[each]:.3f}",
                f"{median(runs[each]):.3f}",
                f"{min(runs[each]):.3f}",
                f"x {found['ratios'][each]:.2f}",
            )
            for each in engines
        ],
    )
    print(
        f"\n{engines[0]}: {rate:.3g} edges/s, {len(rows)} categories ({found['check']};"
        f" {'all agree' if agree else 'they DIFFER'})\n"
        f"memory: {memory.mib(libraries)} with the libraries, {memory.mib(before)} before"
        f" inference, {memory.mib(peak.most)} at most\n"
        f"inference took {memory.mib((peak.most or 0) - (before or 0))}, with the answer; the"
        f" budget is {memory.mib(budget_bytes)}"
    )
    report.write(json_file, found)
    if found["check"] == "FAILED" or not agree:
        raise typer.Exit(1)


def _run(problem: Problem, engine: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return seconds and categories (`rows`)."""
    import gbdnn

    run = timed(
        lambda: gbdnn.infer(problem.network, problem.features, engine=engine, **options),
        lambda Y: {"rows": gbdnn.categories(Y)},
    )()
    print(f"{engine}: {run['seconds']:.3f} s", flush=True)
    return run


def _stored(folder: Path, neurons: int, layers: int, seed: int) -> gbdnn.Network:
    """Return the network of a store, which is created if it does not exist."""
    import gbdnn

    if not (folder / "index.json").exists():
        began = perf_counter()
        gbdnn.save(gbdnn.radixnet(neurons, layers, seed=seed, lazy=True), folder)
        print(f"store written in {perf_counter() - began:.1f} s", flush=True)
    net = gbdnn.load(folder, lazy=True)
    if (net.shape[0], len(net)) != (neurons, layers):
        raise SystemExit(f"{folder} holds another network: {len(net)} layers of {net.shape[0]}")
    return net


def _features(folder: Path | None, neurons: int, inputs: int | None, images: Path | None) -> Any:
    """Return features made from images, or kept in a store, which is created if necessary."""
    import gbdnn

    if folder is None or not (folder / "index.json").exists():
        X = problems.build(neurons, 1, inputs, None, images).features
        if folder is not None:
            gbdnn.save(X, folder)
        return X
    X = gbdnn.load(folder)
    if X.shape != (inputs or problems.INPUTS, neurons):
        raise SystemExit(f"{folder} holds other features, of shape {X.shape}")
    return X


def _check(problem: Problem, rows: np.ndarray) -> str:
    truth, _ = problems.true_categories(problem)
    return "PASSED" if np.array_equal(rows, truth) else "FAILED"


if __name__ == "__main__":
    typer.run(main)
