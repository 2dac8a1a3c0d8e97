"""LAGraph's loop and gbdnn's kernels on 1, 2, 4, ... threads, as in LAGraph's dnn_demo.

    python benchmarks/papers/threads.py --json threads.json
    python benchmarks/papers/threads.py --networks 16384x120 --threads 1,8,16,32,64
    python benchmarks/papers/threads.py --quick

Every network runs with LAGraph's loop (ours, in python-graphblas) and with the sparse, full and
fused kernels on every number of threads, each in its own process, interleaved, without
deduplication. Categories are compared with the official ones, or with SciPy in FP64. Then the
operations of the sparse kernel are timed separately, and both ways of using threads for them:
OpenMP in each operation, or a part of the rows per thread. These runs are of strong scaling, with
the same inputs on every number of threads; in those of weak scaling, each thread has the same
number of inputs, and a speed-up is the ratio of inputs per second. At last, batches on one worker
with all threads are timed for `replay.py`.

By default all networks of 120 layers run whose 60,000 inputs fit into memory. Networks given by
``--networks`` run on as many inputs as fit. Speed-ups are median ratios to the smallest number of
threads; the efficiency is the speed-up over the ideal one. OMP_WAIT_POLICY, OMP_PROC_BIND and
OMP_PLACES are recorded, not set. `docs/tables.py` shows the JSON.

T. Davis, M. Aznaveh, S. Kolodziej, "Write Quick, Run Fast: Sparse Deep Neural Network in 20 Minutes
of Development Time via SuiteSparse:GraphBLAS", HPEC 2019, and ``dnn_demo.c`` in LAGraph.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import batches
import challenge_turns
import loops
import options
import problems
import report
from peers import KERNELS
from processes import busy
from turns import checked

import gbdnn
from gbdnn.thread_scaling import Run, Scaling

if TYPE_CHECKING:
    from gbdnn.challenge import Problem

NEURONS = (1024, 4096, 16384, 65536)
DEGREE = 32  # edges into every neuron
# Bytes that a process needs per edge, and per feature, about 20 % of which are not 0.
EDGE, FEATURE = 24, 12 * 0.2
ACTIVATION = 24  # bytes per activation in the running process, for Y and Z
BUSY_SHARE = 6  # fraction of the inputs for the ways of using threads, inverse
SHARE = 0.75  # fraction of the machine's memory


def main(
    networks: Annotated[
        list[str] | None,
        typer.Option(metavar="NxL", help="Neurons x layers; several by comma or repetition."),
    ] = None,
    threads: options.Several = None,
    inputs: Annotated[int | None, typer.Option(min=1, help="Maximum; default: 60,000.")] = None,
    data: options.Data = None,
    images: options.Images = None,
    seed: options.Seed = 0,
    rounds: options.Rounds = 3,
    quick: options.Quick = False,
    json_file: options.Json = None,
) -> None:
    """Sweep networks, threads and kernels; print seconds, speed-up, efficiency and edge rate."""
    found = report.circumstances()
    machine = found["machine"]
    counts = sorted(options.numbers(threads, powers(machine["cores"])))
    if quick:
        networks, inputs, rounds = networks or ["1024x12"], inputs or 1024, 1
    memory = SHARE * machine["memory_gib"] * 2**30
    found |= {"rounds": rounds, "threads": counts, "networks": []}
    report.say_load(found)
    for neurons, layers in sizes(networks, memory):
        size = min(inputs or problems.INPUTS, fitting(neurons, layers, memory))
        if size < 1:
            print(f"{neurons} x {layers}: skipped, does not fit into memory", flush=True)
            continue
        official = problems.known_weights(data, neurons, layers)
        problem = problems.Choice(neurons, layers, size, official, images, seed).build()
        found["networks"].append(study(problem, counts, rounds))
        show(found["networks"][-1])
        report.write(json_file, found)
    kinds = ("rows", "weak", "operations", "ways")
    rows = [row for each in found["networks"] for kind in kinds for row in each[kind]]
    rows += [each["batches"] for each in found["networks"]]
    report.finish(json_file, found, rows)


def powers(cores: int) -> list[int]:
    """Return 1, 2, 4, ... and the number of cores."""
    return sorted({cores, *(2**k for k in range(cores.bit_length()) if 2**k < cores)})


def sizes(asked: list[str] | None, memory: float) -> list[tuple[int, int]]:
    """Return neurons and layers of the requested networks, or of those that fit."""
    found = [tuple(map(int, word.split("x"))) for word in options.words(asked, [])]
    fits = [(n, 120) for n in NEURONS if fitting(n, 120, memory) >= problems.INPUTS]
    return found or fits or [(NEURONS[0], 120)]


def fitting(neurons: int, layers: int, memory: float) -> int:
    """Return the number of inputs that fit into the memory (bytes) of all processes."""
    left = memory - len(KERNELS) * EDGE * DEGREE * neurons * layers
    return int(left / (neurons * (len(KERNELS) * FEATURE + ACTIVATION)))


def study(problem: Problem, counts: list[int], rounds: int) -> dict[str, Any]:
    """Return the times of a network by program and threads, and by operation and threads."""
    found = report.problem_facts(problem)
    print(f"\n{problem.name}\ncomputing the reference categories ...", flush=True)
    truth, found["checked_against"] = problems.true_categories(problem)
    parts = {n: max(1, problem.inputs * n // max(counts)) for n in counts}
    with challenge_turns.workers(problem, KERNELS, found) as able:
        for name, kind, inputs in (
            ("rows", "strong", lambda *_: problem.inputs),
            ("weak", "weak", lambda _, n: parts[n]),
        ):
            runs = challenge_turns.interleaved(able, counts, rounds, truth, inputs)
            timed = [run | {"program": KERNELS[run["program"]]} for run in runs if run["round"]]
            found[name] = rows(timed, kind)
            for row in found[name]:
                edges = row["inputs"] * problem.network.edges
                row["edges_per_second"] = edges / row["seconds"]
    found["operations"] = operations_of(problem, counts, rounds, truth)
    found["ways"] = ways_of(problem, counts, rounds, truth)
    found["batches"] = batches.measure(problem, 1, max(counts), rounds, truth)
    return found


def rows(runs: list[dict[str, Any]], kind: str = "strong") -> list[dict[str, Any]]:
    """Return the statistics of runs by program and threads, with inputs and check."""
    times = [
        Run(run["program"], kind, run["nthreads"], run["round"], run["seconds"], run.get("cpu", 0))
        for run in runs
    ]
    more: dict[Any, list[dict[str, Any]]] = {}
    for run in runs:
        more.setdefault((run["program"], run["nthreads"]), []).append(run)
    return [
        {"program": row.pop("program"), "threads": row.pop("threads"), "inputs": of[0]["inputs"]}
        | row
        | {"check": min(run["check"] for run in of)}
        for row in Scaling(times).rows
        for of in [more[row["program"], row["threads"]]]
    ]


def operations_of(
    problem: Problem, counts: list[int], rounds: int, truth: np.ndarray
) -> list[dict[str, Any]]:
    """Return the seconds of each operation of the sparse kernel, on each number of threads."""
    runs = []
    for turn in range(rounds):
        for n in counts:
            seconds, found = loops.timed(problem.network, problem.features, n)
            facts = {"nthreads": n, "round": turn, "inputs": problem.inputs}
            facts["check"] = checked(np.array_equal(found, truth))
            for name, taken in zip(loops.OPERATIONS, seconds.sum(axis=0).tolist(), strict=True):
                runs.append(facts | {"program": name, "seconds": taken})
    return [{"operation": row.pop("program"), **row} for row in rows(runs)]


def ways_of(
    problem: Problem, counts: list[int], rounds: int, truth: np.ndarray
) -> list[dict[str, Any]]:
    """Return the seconds of the sparse loop by way of using threads, also next to a busy process.

    OpenMP divides each operation, or each thread takes a part of the rows through all layers.
    """
    network, count = problem.network, max(1, problem.inputs // BUSY_SHARE)
    X, truth, found = problem.features[:count, :].new(), truth[truth < count], []
    step, parts = partial(loops.sparse, network), loops.batches(X)
    ways = {
        "OpenMP in each operation": partial(loops.categories, step, parts),
        "parts of the rows": partial(loops.in_parts, network, X),
    }
    right = {way: all(np.array_equal(call(n), truth) for n in counts) for way, call in ways.items()}
    for neighbour in ("nothing", "a busy process"):
        with nullcontext() if neighbour == "nothing" else busy():
            times = gbdnn.scaling(ways, counts, rounds=rounds).rows
        for row in times:
            way = row.pop("program")
            facts = {"way": way, "next_to": neighbour, "inputs": count}
            found.append(facts | row | {"check": checked(right[way])})
    return found


def show(network: dict[str, Any]) -> None:
    """Print the tables of a network."""
    for kind in ("rows", "weak", "operations", "ways"):
        print(f"\n{kind}")
        hidden = [f"{name}_{end}" for name in ("seconds", "efficiency") for end in ("low", "high")]
        report.table(network[kind], *hidden, "kind", "rounds", "inputs")
    most = max(row["threads"] for row in network["operations"])
    last = [row for row in network["operations"] if row["threads"] == most]
    worst = min(last, key=lambda row: row["efficiency"])
    share = worst["seconds"] / sum(row["seconds"] for row in last)
    print(
        f"least efficient on {most} threads: {worst['operation']}, {worst['efficiency']:.0%}"
        f" ({share:.0%} of the time)"
    )


if __name__ == "__main__":
    options.run(main)
