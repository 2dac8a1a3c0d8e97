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
import memory
import options
import problems
import report
from turns import checked, in_turn, timed

if TYPE_CHECKING:
    import gbdnn
    from gbdnn.challenge import Problem

USUAL = problems.Choice(neurons=4096)


def main(
    choice: problems.Choice = USUAL,
    nthreads: options.Cores = None,
    engine: options.Several = None,
    rounds: Annotated[int, typer.Option(min=0, help="Timed runs of each engine.")] = 1,
    deduplicate: options.Deduplicate = True,
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
    json_file: options.Json = None,
) -> None:
    """Run gbdnn on a larger network, and report seconds, edge rate, categories and memory."""
    import graphblas as gb

    gb.Vector("FP32", 1).wait()  # GraphBLAS is loaded and initialised
    libraries = memory.now()
    nthreads = nthreads or int(gb.ss.global_context["nthreads"])
    problem = _problem(choice, store, features)
    found = report.started(
        problem, nthreads=nthreads, deduplicate=deduplicate, streamed=store is not None
    )
    before, size = memory.now(), int(budget * 2**30)
    engines = options.words(engine, ["auto"])
    given = problems.merging(deduplicate) | {"memory": size, "nthreads": nthreads}
    calls = {each: partial(_run, problem, each, given) for each in engines}
    with memory.Peak() as peak:
        first = {engines[0]: calls[engines[0]]()}
    first |= {each: calls[each]() for each in engines[1:]}
    turns = in_turn(calls, rounds, warm=0)
    runs = {each: turns.seconds(each) or [run["seconds"]] for each, run in first.items()}
    turned = {n: {"median": median(each), "least": min(each)} for n, each in runs.items()}
    answers = [run["rows"] for run in (*first.values(), *turns.every())]
    rows, seconds = answers[0], runs[engines[0]]
    agree = all(np.array_equal(rows, other) for other in answers)
    rate = problem.inputs * problem.network.edges / median(seconds)
    right = not check or np.array_equal(rows, problems.true_categories(problem)[0])
    found |= {
        "engine": engines[0],
        "rounds": rounds,
        "seconds": runs,
        "seconds_first": {each: run["seconds"] for each, run in first.items()},
        "ratios": {
            each: median(other / own for own, other in zip(seconds, runs[each], strict=True))
            for each in engines
        },
        "edges_per_second": rate,
        "categories": len(rows),
        "agree": agree,
        "check": checked(right) if check else "NOT CHECKED",
        "memory_libraries": libraries,
        "memory_before": before,
        "memory_peak": peak.most,
    }
    keys = ("seconds_first", "ratios")
    report.table(
        [{"engine": each} | {k: found[k][each] for k in keys} | turned[each] for each in runs]
    )
    print(
        f"\n{engines[0]}: {rate:.3g} edges/s, {len(rows)} categories ({found['check']};"
        f" {'all agree' if agree else 'they DIFFER'})\n"
        f"memory: {memory.mib(libraries)} with the libraries, {memory.mib(before)} before"
        f" inference, {memory.mib(peak.most)} at most\n"
        f"inference took {memory.mib((peak.most or 0) - (before or 0))}, with the answer; the"
        f" budget is {memory.mib(size)}"
    )
    report.finish(json_file, found, [found, {"check": checked(agree)}])


def _run(problem: Problem, engine: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return seconds and categories (`rows`)."""
    import gbdnn

    infer = partial(gbdnn.infer, problem.network, problem.features, engine=engine, **given)
    run = timed(infer, lambda Y: {"rows": gbdnn.categories(Y)})()
    print(f"{engine}: {run['seconds']:.3f} s", flush=True)
    return run


def _problem(choice: problems.Choice, store: Path | None, features: Path | None) -> Problem:
    """Return the problem, with the network or the features of a store."""
    import gbdnn
    from gbdnn import challenge

    if store is None and features is None:
        return choice.build()
    if choice.data is not None:
        raise typer.BadParameter("--data goes without --store and --features")
    X = _features(features, choice)
    sizes = choice.neurons, choice.layers, choice.seed
    net = gbdnn.radixnet(*sizes[:2], seed=sizes[2]) if store is None else _stored(store, *sizes)
    name = "{} neurons x {} layers, generated (seed {})".format(*sizes)
    return challenge.Problem(
        name=f"{name}, on {X.nrows} inputs", network=net, features=X, seed=choice.seed
    )


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


def _features(folder: Path | None, choice: problems.Choice) -> Any:
    """Return features made from images, or kept in a store, which is created if necessary."""
    import gbdnn

    if folder is None or not (folder / "index.json").exists():
        X = choice.build(layers=1).features
        if folder is not None:
            gbdnn.save(X, folder)
        return X
    X = gbdnn.load(folder)
    if X.shape != (choice.inputs or problems.INPUTS, choice.neurons):
        raise SystemExit(f"{folder} holds other features, of shape {X.shape}")
    return X


if __name__ == "__main__":
    options.run(main)
