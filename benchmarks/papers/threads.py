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

import subprocess
import sys
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import batches
import challenge_turns
import problems
import report
from programs import KERNELS
from turns import in_turn

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    threads: Annotated[
        list[str] | None,
        typer.Option(metavar="N", help="By comma or repetition; default: 1, 2, 4, ... all cores."),
    ] = None,
    inputs: Annotated[int | None, typer.Option(min=1, help="Maximum; default: 60,000.")] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Official weights; missing networks are generated."),
    ] = None,
    images: problems.Images = None,
    seed: problems.Seed = 0,
    rounds: Annotated[int, typer.Option(min=1, help="Timed runs of each program.")] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="A small network, one round.")] = False,
    json_file: problems.Json = None,
) -> None:
    """Sweep networks, threads and kernels; print seconds, speed-up, efficiency and edge rate."""
    found = report.circumstances()
    machine = found["machine"]
    counts = sorted(problems.numbers(threads, "--threads", powers(machine["cores"])))
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
        official = data if data and any(data.rglob(f"n{neurons}-l{layers}.tsv*")) else None
        problem = problems.build(neurons, layers, size, official, images, seed)
        found["networks"].append(study(problem, counts, rounds))
        show(found["networks"][-1])
        report.write(json_file, found)
    kinds = ("rows", "weak", "operations", "ways")
    rows = [row for each in found["networks"] for kind in kinds for row in each[kind]]
    rows += [each["batches"] for each in found["networks"]]
    if any(row["check"] == "FAILED" for row in rows):
        raise typer.Exit(1)


def powers(cores: int) -> list[int]:
    """Return 1, 2, 4, ... and the number of cores."""
    return sorted({cores, *(2**k for k in range(cores.bit_length()) if 2**k < cores)})


def sizes(asked: list[str] | None, memory: float) -> list[tuple[int, int]]:
    """Return neurons and layers of the requested networks, or of those that fit."""
    found = []
    for word in problems.words(asked, []):
        neurons, _, layers = word.partition("x")
        if not layers.isdecimal() or neurons not in map(str, NEURONS) or int(layers) < 1:
            raise typer.BadParameter(f"--networks {word} is not of the form 1024x120")
        found.append((int(neurons), int(layers)))
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
    with challenge_turns.workers(problem, list(KERNELS), found) as able:
        runs = challenge_turns.interleaved(able, counts, rounds, truth, [])
        parts = {n: max(1, problem.inputs * n // max(counts)) for n in counts[:-1]}
        weak = challenge_turns.interleaved(able, counts, rounds, truth, [], parts)
    for name, which in (("rows", runs), ("weak", weak)):
        found[name] = [
            {"program": KERNELS[program], **row}
            for program in KERNELS
            for row in scaled([r for r in which if r["program"] == program and r["round"]], counts)
        ]
        for row in found[name]:
            edges = row["inputs"] * problem.network.edges
            row["edges_per_second"] = edges / row["seconds_median"]
    found["operations"] = operations_of(problem, counts, rounds, truth)
    found["ways"] = ways_of(problem, counts, rounds, truth)
    found["batches"] = batches.measure(problem, 1, max(counts), rounds, truth)
    return found


def operations_of(
    problem: Problem, counts: list[int], rounds: int, truth: np.ndarray
) -> list[dict[str, Any]]:
    """Return the seconds of each operation of the sparse kernel, on each number of threads."""
    import sparse_loop

    def program(n: int) -> dict[str, Any]:
        seconds, found = sparse_loop.timed(problem.network, problem.features, n)
        check = "PASSED" if np.array_equal(found, truth) else "FAILED"
        each = dict(zip(sparse_loop.OPERATIONS, seconds.sum(axis=0).tolist(), strict=True))
        return {"seconds": float(seconds.sum()), "check": check, "each": each}

    turns = in_turn({n: lambda n=n: program(n) for n in counts}, rounds, warm=0, pause=0.1)
    rows = []
    for name in sparse_loop.OPERATIONS:
        runs = [
            {
                "nthreads": n,
                "inputs": problem.inputs,
                "seconds": run["each"][name],
                "check": run["check"],
            }
            for n in counts
            for run in turns.runs[n]
        ]
        rows += [{"operation": name, **row} for row in scaled(runs, counts)]
    return rows


def ways_of(
    problem: Problem, counts: list[int], rounds: int, truth: np.ndarray
) -> list[dict[str, Any]]:
    """Return the seconds of the sparse loop by way of using threads, also next to a busy process.

    OpenMP divides each operation, or each thread takes a part of the rows through all layers.
    """
    import sparse_loop

    network, count = problem.network, max(1, problem.inputs // BUSY_SHARE)
    X, truth, rows = problem.features[:count, :].new(), truth[truth < count], []
    whole = partial(sparse_loop.in_batches, partial(sparse_loop.sparse, network), X)
    ways = {
        "OpenMP in each operation": lambda n: whole(n, count),
        "parts of the rows": partial(sparse_loop.in_parts, network, X),
    }

    def program(way: str, n: int) -> dict[str, Any]:
        began = perf_counter()
        found = ways[way](n)
        check = "PASSED" if np.array_equal(found, truth) else "FAILED"
        return {"nthreads": n, "inputs": count, "seconds": perf_counter() - began, "check": check}

    for neighbour in ("nothing", "a busy process"):
        loop = [sys.executable, "-c", "pass" if neighbour == "nothing" else "while True: pass"]
        programs = {(way, n): partial(program, way, n) for way in ways for n in counts}
        with subprocess.Popen(loop) as process:
            turns = in_turn(programs, rounds, pause=0.1)
            process.kill()
        for way in ways:
            runs = [run for n in counts for run in turns.runs[way, n]]
            rows += [{"way": way, "next_to": neighbour, **row} for row in scaled(runs, counts)]
    return rows


def scaled(runs: Sequence[dict[str, Any]], counts: list[int]) -> list[dict[str, Any]]:
    """Return a row for each number of threads; speed-ups are median ratios of rates over rounds."""
    few = counts[0]
    base = [run for run in runs if run["nthreads"] == few]
    rows = []
    for n in counts:
        mine = [run for run in runs if run["nthreads"] == n]
        seconds = [run["seconds"] for run in mine]
        ratios = [
            (some["inputs"] / some["seconds"]) / (one["inputs"] / one["seconds"])
            for one, some in zip(base, mine, strict=True)
        ]
        rows.append(
            {
                "threads": n,
                "inputs": mine[0]["inputs"],
                "seconds_median": median(seconds),
                "seconds_min": min(seconds),
                "seconds_max": max(seconds),
                "speed_up": median(ratios),
                "speed_up_min": min(ratios),
                "speed_up_max": max(ratios),
                "efficiency": median(ratios) * few / n,
                "check": min(run["check"] for run in mine),
            }
        )
        if "cpu" in mine[0]:
            rows[-1]["cpu_to_wall"] = median(run["cpu"] / run["seconds"] for run in mine)
    return rows


def show(network: dict[str, Any]) -> None:
    """Print the tables of a network."""
    head = ["threads", "seconds", "least", "speed-up", "efficiency"]

    def cells(row: dict[str, Any]) -> list[str]:
        return [
            str(row["threads"]),
            f"{row['seconds_median']:.3f}",
            f"{row['seconds_min']:.3f}",
            f"{row['speed_up']:.2f}",
            f"{row['efficiency']:.0%}",
        ]

    for name, title in (("rows", "program"), ("weak", "weak scaling")):
        report.table(
            [title, "inputs", *head, "edges/s", "cpu/wall", "categories"],
            [
                [
                    row["program"],
                    row["inputs"],
                    *cells(row),
                    f"{row['edges_per_second']:.3g}",
                    f"{row['cpu_to_wall']:.2f}",
                    row["check"],
                ]
                for row in network[name]
            ],
        )
    report.table(
        ["sparse kernel", *head, "categories"],
        [[row["operation"], *cells(row), row["check"]] for row in network["operations"]],
    )
    report.table(
        ["LAGraph's operations", "next to", *head, "categories"],
        [[row["way"], row["next_to"], *cells(row), row["check"]] for row in network["ways"]],
    )
    most = max(row["threads"] for row in network["operations"])
    last = [row for row in network["operations"] if row["threads"] == most]
    worst = min(last, key=lambda row: row["efficiency"])
    print(
        f"least efficient on {most} threads: {worst['operation']}, {worst['efficiency']:.0%}"
        f" ({worst['seconds_median'] / sum(row['seconds_median'] for row in last):.0%} of the time)"
    )


if __name__ == "__main__":
    typer.run(main)
