"""LAGraph's loop and gbdnn's kernels on 1, 2, 4, ... threads, as in LAGraph's dnn_demo.

    python benchmarks/papers/threads.py --json threads.json
    python benchmarks/papers/threads.py --networks 16384x120 --threads 1,8,16,32,64
    python benchmarks/papers/threads.py --wait-policy --inputs 4000 --json wait-policy.json
    python benchmarks/papers/threads.py --quick

Every network runs with LAGraph's loop (ours, in python-graphblas) and with the sparse, full and
fused kernels on every number of threads, each in its own process, interleaved, without
deduplication. Categories are compared with the official ones, or with SciPy in FP64. Then the
operations of the sparse kernel are timed separately. Every number of threads has the same inputs.

Speed-ups are median ratios to the smallest number of threads. The efficiency, the speed-up over the
ideal one, is the product of `parallel` (cores busy) and `computation` (processor time on one thread
over that on n). OMP_WAIT_POLICY, OMP_PROC_BIND and OMP_PLACES are recorded, not set.
`docs/tables.py` shows the JSON.

``--wait-policy`` compares the values of OMP_WAIT_POLICY on all threads of the first network, alone
and next to a loop that keeps one core busy. An OpenMP thread that waits for the next parallel
region spins (active), sleeps (passive), or spins for a while and then sleeps (unset). libgomp reads
the variable when it is loaded, so every run has its own process, which ends before the next one
starts, since spinning threads would disturb it. Its time is the median of its runs after a warm-up.
Unset OMP_WAIT_POLICY, and GOMP_SPINCOUNT, which overrides it, for this.

T. Davis, M. Aznaveh, S. Kolodziej, "Write Quick, Run Fast: Sparse Deep Neural Network in 20 Minutes
of Development Time via SuiteSparse:GraphBLAS", HPEC 2019, and ``dnn_demo.c`` in LAGraph.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import challenge_turns
import loops
import options
import problems
import report
from peers import KERNELS, PROGRAMS
from processes import busy
from turns import checked, in_turn

from gbdnn.thread_scaling.study import Run, Scaling, interval

if TYPE_CHECKING:
    from gbdnn.challenge import Problem

POLICIES = ("unset", "active", "passive")
RUNS = 3  # timed runs per process and policy


def main(
    networks: Annotated[
        list[str] | None,
        typer.Option(metavar="NxL", help="Neurons x layers; several by comma or repetition."),
    ] = None,
    threads: options.Several = None,
    inputs: options.Inputs = None,
    data: options.Data = None,
    images: options.Images = None,
    seed: options.Seed = 0,
    rounds: options.Rounds = 3,
    wait_policy: Annotated[
        bool, typer.Option("--wait-policy", help="Compare OpenMP wait policies instead.")
    ] = False,
    quick: options.Quick = False,
    json_file: options.Json = None,
) -> None:
    """Sweep networks, threads and kernels; print seconds, speed-up, efficiency and edge rate."""
    found = report.circumstances()
    counts = sorted(options.numbers(threads, powers(found["machine"]["cores"])))
    if quick:
        networks, inputs, rounds = networks or ["1024x12"], inputs or 1024, 1
    found |= {"rounds": rounds, "threads": counts, "networks": []}
    report.say_load(found)
    for name in options.words(networks, ["1024x120"]):
        neurons, layers = map(int, name.split("x"))
        official = problems.known_weights(data, neurons, layers)
        problem = problems.Choice(neurons, layers, inputs, official, images, seed).build()
        if wait_policy:
            found |= {"threads": max(counts), "problem": report.problem_facts(problem)}
            found["rows"] = policies(problem, max(counts), 1 if quick else rounds)
            report.table(found["rows"])
            report.finish(json_file, found, found["rows"])
            return
        found["networks"].append(study(problem, counts, rounds))
        show(found["networks"][-1])
        report.write(json_file, found)
    kinds = ("rows", "operations")
    rows = [row for each in found["networks"] for kind in kinds for row in each[kind]]
    report.finish(json_file, found, rows)


def powers(cores: int) -> list[int]:
    """Return 1, 2, 4, ... and the number of cores."""
    return sorted({cores, *(2**k for k in range(cores.bit_length()) if 2**k < cores)})


def study(problem: Problem, counts: list[int], rounds: int) -> dict[str, Any]:
    """Return the times of a network by program and threads, and by operation and threads."""
    found = report.problem_facts(problem)
    print(f"\n{problem.name}\ncomputing the reference categories ...", flush=True)
    truth, found["checked_against"] = problems.true_categories(problem)
    with challenge_turns.workers(problem, KERNELS, found) as able:
        runs = challenge_turns.interleaved(able, counts, rounds, truth, problem.inputs)
    found["rows"] = rows(
        [run | {"program": KERNELS[run["program"]]} for run in runs if run["round"]]
    )
    for row in found["rows"]:
        row["edges_per_second"] = row["inputs"] * problem.network.edges / row["seconds"]
    found["operations"] = operations_of(problem, counts, rounds, truth)
    return found


def rows(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the statistics of runs by program and threads, with inputs and check."""
    times = [
        Run(run["program"], "strong", run["nthreads"], run["round"], run["seconds"], run["cpu"])
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
            facts = {"nthreads": n, "round": turn, "inputs": problem.inputs, "cpu": np.nan}
            facts["check"] = checked(np.array_equal(found, truth))
            for name, taken in zip(loops.OPERATIONS, seconds.sum(axis=0).tolist(), strict=True):
                runs.append(facts | {"program": name, "seconds": taken})
    unknown = ("parallel", "computation")  # by operation, only seconds are known
    return [
        {"operation": row.pop("program")}
        | {name: value for name, value in row.items() if not name.startswith(unknown)}
        for row in rows(runs)
    ]


def policies(problem: Problem, threads: int, rounds: int) -> list[dict[str, Any]]:
    """Return the seconds of processes by wait policy, alone and next to a busy process."""
    truth, _ = problems.true_categories(problem)
    kinds = [(c, name, p) for c in ("quiet", "busy") for name in KERNELS for p in POLICIES]
    with tempfile.TemporaryDirectory() as folder:
        problems.save(problem, Path(folder))

        def once(condition: str, name: str, policy: str) -> dict[str, Any]:
            given = {} if policy == "unset" else {"OMP_WAIT_POLICY": policy}
            with (
                PROGRAMS.started([name], {}, folder, **given) as able,
                busy() if condition == "busy" else nullcontext(),
            ):
                asked = {"nthreads": threads, "batch": None, "inputs": problem.inputs}
                answers = [able[name].ask(**asked) for _ in range(1 + RUNS)]
            right = all(np.array_equal(each["categories"], truth) for each in answers)
            seconds = median(each["seconds"] for each in answers[1:])
            return {"seconds": seconds, "check": checked(right)}

        turns = in_turn({kind: partial(once, *kind) for kind in kinds}, rounds, warm=0)
    rows = []
    for key in kinds:
        condition, name, policy = key
        seconds, low, high = interval(turns.seconds(key))
        rows.append({
            "condition": condition, "program": KERNELS[name], "policy": policy,
            "seconds": seconds, "seconds_low": low, "seconds_high": high,
            "check": min(run["check"] for run in turns.runs[key]),
            "to_unset": median(turns.ratios(key, (condition, name, "unset"))),
        })  # fmt: skip
    return rows


def show(network: dict[str, Any]) -> None:
    """Print the tables of a network."""
    for kind in ("rows", "operations"):
        print(f"\n{kind}")
        names = ("seconds", "efficiency", "parallel", "computation")
        hidden = [f"{name}_{end}" for name in names for end in ("low", "high")]
        report.table(network[kind], *hidden, "kind", "rounds", "inputs", "above_cores")


if __name__ == "__main__":
    options.run(main)
