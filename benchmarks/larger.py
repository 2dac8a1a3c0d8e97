"""Gbdnn on the larger networks: seconds, categories and memory; beside it the LAGraph form.

    python benchmarks/larger.py --neurons 65536 --lagraph 3000 --json larger-65536.json
    python benchmarks/larger.py --neurons 65536 --layers 480 --store FOLDER --memory 4

With `--store` the network is not in memory: it is streamed from a store, which is made if it is not
there. Memory is that of this process, pages of mapped files left out: with the libraries alone,
before the inference, and at most during it, beside what `gbdnn.memory_needed` says.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path  # noqa: TC003 -- typer reads the annotations
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import problems
import report
import typer

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
        int | None, typer.Option(min=1, help="Threads; GraphBLAS's default without it.")
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Runs on all inputs.")] = 1,
    compress: problems.Compress = True,
    store: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Stream the network from this store.")
    ] = None,
    budget: Annotated[
        float, typer.Option("--memory", min=0, metavar="GIB", help="As for infer, in GiB.")
    ] = 0.5,
    lagraph: Annotated[
        int | None,
        typer.Option(min=1, help="Compare with the LAGraph form on the first so many inputs."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Runs of each for --lagraph.")] = 3,
    check: Annotated[
        bool, typer.Option(help="Compare all categories with the right ones: takes long.")
    ] = False,
    json_file: problems.Json = None,
) -> None:
    """Run gbdnn on a larger network, and report seconds, edge rate, categories and memory."""
    import graphblas as gb
    import memory

    import gbdnn
    from gbdnn.engine.stats import edge_rate

    gb.Vector("FP32", 1).wait()  # GraphBLAS is loaded and initialised
    libraries = memory.now()
    nthreads = nthreads or int(gb.ss.global_context["nthreads"])
    if store is None:
        problem = problems.build(neurons, layers, inputs, data, images, seed)
    else:
        problem = problems.build(neurons, 1, inputs, None, images, seed)
        problem = replace(
            problem,
            name=f"{neurons} neurons x {layers} layers, from a store, on {problem.inputs} inputs",
            network=_stored(store, neurons, layers, seed),
        )
    found = report.facts(problem, nthreads=nthreads, compress=compress, streamed=store is not None)
    report.heading(found)

    budget_bytes = int(budget * 2**30)
    density = problem.features.nvals / (problem.features.nrows * problem.features.ncols)
    needed = gbdnn.memory_needed(
        problem.network, problem.inputs, density=density, memory=budget_bytes
    )
    before = memory.now()
    seconds = []
    options = problems.merging(compress) | {"memory": budget_bytes, "nthreads": nthreads}
    with memory.Peak() as peak:
        for _ in range(repeat):
            began = perf_counter()
            Y = gbdnn.infer(problem.network, problem.features, **options)
            seconds.append(perf_counter() - began)
            print(f"{seconds[-1]:.3f} s", flush=True)
    rows = gbdnn.categories(Y)
    # The weights are there before, once: half of what they take where neurons are renumbered.
    beyond = needed.working + needed.answer + needed.weights // 2
    rate = edge_rate(problem.inputs, problem.network.edges, median(seconds))
    found |= {
        "seconds": seconds,
        "edges_per_second": rate,
        "categories": len(rows),
        "check": _check(problem, rows) if check else "NOT CHECKED",
        "memory_libraries": libraries,
        "memory_before": before,
        "memory_peak": peak.most,
        "memory_needed": {**asdict(needed), "total": needed.total},
    }
    print(
        f"median {median(seconds):.3f} s on {nthreads} threads, {rate:.3g} edges/s,"
        f" {len(rows)} categories ({found['check']})\n"
        f"memory: {memory.mib(libraries)} with the libraries, {memory.mib(before)} before"
        f" inference, {memory.mib(peak.most)} at most\n"
        f"inference took {memory.mib((peak.most or 0) - (before or 0))}; foretold, beyond weights"
        f" as they are and features: {memory.mib(beyond)}"
    )
    if lagraph is not None:
        del Y
        found["lagraph"] = _beside_lagraph(problem, lagraph, rounds, nthreads, rows)
        print(_told(found["lagraph"]))
    report.write(json_file, found)
    if found["check"] == "FAILED" or not found.get("lagraph", {}).get("agree", True):
        raise typer.Exit(1)


def _stored(folder: Path, neurons: int, layers: int, seed: int) -> gbdnn.Network:
    """Return the network of a store, which is made if it is not there."""
    import gbdnn

    if not (folder / "index.json").exists():
        began = perf_counter()
        gbdnn.save(gbdnn.radixnet(neurons, layers, seed=seed, lazy=True), folder)
        print(f"store written in {perf_counter() - began:.1f} s", flush=True)
    net = gbdnn.load(folder)
    if (net.shape[0], len(net)) != (neurons, layers):
        raise SystemExit(f"{folder} holds another network: {len(net)} layers of {net.shape[0]}")
    return net


def _check(problem: Problem, rows: np.ndarray) -> str:
    truth, _ = problems.true_categories(problem)
    return "PASSED" if np.array_equal(rows, truth) else "FAILED"


def _beside_lagraph(
    problem: Problem, inputs: int, rounds: int, nthreads: int, rows: np.ndarray
) -> dict[str, Any]:
    """Return seconds of both forms in turn, on the first `inputs` inputs."""
    import lagraph

    import gbdnn

    net, inputs = problem.network, min(inputs, problem.inputs)
    X = problem.features[:inputs, :].new()
    weights = (layer.W for layer in net)
    prepared = lagraph.prepare(weights, (layer.bias for layer in net), net[0].clip or np.inf)
    parts = lagraph.batches(X)
    runs: dict[str, list[float]] = {"gbdnn": [], "lagraph": []}
    agree = True
    for turn in range(rounds + 1):
        began = perf_counter()
        mine = gbdnn.categories(gbdnn.infer(net, X, nthreads=nthreads))
        between = perf_counter()
        its = lagraph.categories(prepared, parts, nthreads)
        if turn:  # the first one finds memory and prepares what is kept
            runs["gbdnn"].append(between - began)
            runs["lagraph"].append(perf_counter() - between)
        agree = agree and np.array_equal(mine, its) and np.array_equal(mine, rows[rows < inputs])
    ratios = [its / mine for mine, its in zip(runs["gbdnn"], runs["lagraph"], strict=True)]
    return {
        "inputs": inputs,
        "seconds": runs,
        "ratios": ratios,
        "ratio": median(ratios),
        "categories": len(mine),
        "agree": bool(agree),
    }


def _told(beside: dict[str, Any]) -> str:
    middle = {name: median(seconds) for name, seconds in beside["seconds"].items()}
    low, high = min(beside["ratios"]), max(beside["ratios"])
    return (
        f"on {beside['inputs']} inputs: gbdnn {middle['gbdnn']:.3f} s, LAGraph form"
        f" {middle['lagraph']:.3f} s: x {beside['ratio']:.2f} ({low:.2f} to {high:.2f});"
        f" categories {'agree' if beside['agree'] else 'DIFFER'}"
    )


if __name__ == "__main__":
    typer.run(main)
