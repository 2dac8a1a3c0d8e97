"""Compare programs on networks of a few layers with 1 to 60 % of all edges and dense features.

    python benchmarks/comparison/real_networks.py --nthreads 1 --nthreads 2 --json real.json
    python benchmarks/comparison/real_networks.py --network 1024x7@5 --inputs 1,2,4,8,16,32

gbdnn is compared with PyTorch (dense and CSR weights), ONNX Runtime, OpenVINO (FP32, and bfloat16
if the processor supports it) and DeepSparse. Each program runs in its own process, interleaved with
the others; DeepSparse needs its own interpreter: ``--python deepsparse=VENV/bin/python``. In each
round a program is called repeatedly for at least `--at-least` seconds, and its time is the median
of the calls; ratios compare runs of the same round. All programs except OpenVINO in bfloat16
compute in FP32, and ratios refer to these. Results are compared with NumPy in FP64. The file is
written after each network.
"""

from __future__ import annotations

import json
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from typing import Annotated, Any

import numpy as np
import typer

SUPPORT = Path(__file__).parents[1] / "support"
sys.path.insert(0, str(SUPPORT))
import dense_problems
import problems
import report
from dense_programs import OWN, PRECISIONS, PROGRAMS, TITLES, processes
from processes import Process, prepared
from turns import in_turn

NETWORKS = (
    "784-512x2-10@2",
    "784-300-100-10@5",
    "1024x7@1",
    "1024x7@5",
    "1024x7@10",
    "1024x7@20",
    "2048-4096-2048@5",
    "768-3072-768@10",
    "768-3072-768@20",
    "784-1024x3-10@5,100",
    "512x2-10@20",
    "1024x4@30",
    "784-128x18-10@60",
)
FEATURES = "1024-1@1"  # about ten edges, so reading the features dominates
INPUTS = (1, 32, 1000, 10_000)

TOLERANCE = 1e-5  # relative to the largest value
LOOSE = 0.05  # in bfloat16, which has 8 significant bits
_PAUSE = 0.2  # until idle threads of the previous program sleep
GROUPS = {
    "up to 10 %, 1,000 inputs or more": lambda d, n: d <= 0.105 and n >= 1000,
    "up to 10 %, fewer inputs": lambda d, n: d <= 0.105 and n < 1000,
    "up to 10 %": lambda d, n: d <= 0.105,
    "10 to 40 %": lambda d, n: 0.105 < d < 0.4,
    "40 % or more": lambda d, n: d >= 0.4,
}


def main(
    network: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SPEC",
            help="Neurons (512 twice) and percentage of edges: 784-512x2-10@5; @5,100 if the last "
            "layer has another percentage. May be repeated.",
        ),
    ] = None,
    mnist: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="MNIST test set, to run the trained network too."),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(metavar="N", help="Inputs per call; several by comma or repetition."),
    ] = None,
    nthreads: problems.Threads = None,
    programs: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"By comma or repetition: {', '.join(PROGRAMS)}."),
    ] = None,
    pythons: problems.Interpreters = None,
    rounds: Annotated[int, typer.Option(min=1, help="Timed rounds.")] = 5,
    at_least: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Time per round.")
    ] = 0.1,
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights and features.")] = 0,
    json_file: problems.Json = None,
) -> None:
    """Compare gbdnn with other programs on networks with dense features."""
    sizes = problems.numbers(inputs, "--inputs", list(INPUTS))
    counts = problems.thread_counts(nthreads, [2])
    names = problems.names(programs, PROGRAMS, PROGRAMS)
    for spec in network or []:
        if not dense_problems.is_spec(spec):
            raise typer.BadParameter(f"{spec!r} is not as 784-512x2-10@5")
    found: dict[str, Any] = {"problem": {"name": "networks with dense features, FP32"}}
    found |= report.circumstances() | {"rounds": rounds, "seed": seed, "skipped": {}, "cells": []}
    found["precision"] = {name: PRECISIONS.get(name, "FP32") for name in names}
    report.heading(found)
    asked = {"rounds": rounds, "counts": counts, "names": names, "at_least": at_least}
    asked["pythons"] = problems.interpreters(pythons, PROGRAMS)
    for spec in network or NETWORKS:
        problem = dense_problems.random_problem(spec, max(sizes), seed)
        _run(problem, found, sizes=sizes, **asked)
        report.write(json_file, found)
    if network is None:
        problem = dense_problems.random_problem(FEATURES, max(sizes), seed)
        _run(problem, found, sizes=[max(sizes)], features_alone=True, **asked)
    if mnist is not None:
        problem = dense_problems.trained_problem(mnist)
        fitting = [size for size in sizes if size <= len(problem.features)]
        _run(problem, found, sizes=fitting, **asked)
    found["groups"] = {n: groups(found["cells"], n) for n in counts}
    show(found, counts)
    report.write(json_file, found)
    if any(cell["check"] == "FAILED" for cell in found["cells"]):
        raise typer.Exit(1)


def _run(
    problem: dense_problems.DenseProblem,
    found: dict[str, Any],
    *,
    sizes: list[int],
    counts: list[int],
    names: list[str],
    pythons: dict[str, str],
    rounds: int,
    at_least: float,
    features_alone: bool = False,
) -> None:
    """Add the results for each number of threads and inputs."""
    print(f"{problem.name} ...", flush=True)
    facts = {
        "network": problem.name,
        "density": problem.density,
        "edges": problem.edges,
        "features_alone": features_alone,
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        problem.save(folder)
        _write_onnx(problem, folder / "net.onnx")
        for size in sizes:
            np.save(folder / f"answer-{size}.npy", problem.answer(size))
        with prepared(processes(names, folder, pythons), found) as able:
            for count in counts:
                for size in sizes:
                    asked = {"nthreads": count, "inputs": size, "at_least": at_least}
                    found["cells"].append(facts | asked | _cell(able, asked, rounds))


def _write_onnx(problem: dense_problems.DenseProblem, file: Path) -> None:
    from gbdnn import io
    from gbdnn.errors import MissingPackageError

    try:
        io.write_onnx(problem.network(), file)
    except MissingPackageError:
        return


def _cell(able: dict[str, Process], asked: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Return the times of the interleaved programs, without the warm-up round."""
    calls = {name: partial(each.ask, **asked) for name, each in able.items()}
    turns = in_turn(calls, rounds, pause=_PAUSE)
    seconds = {name: turns.seconds(name) for name in calls}
    errors = {
        name: max(run["error"] for run in (*turns.first[name], *turns.runs[name])) for name in calls
    }
    wrong = [
        name
        for name, error in errors.items()
        if not error <= (LOOSE if name in PRECISIONS else TOLERANCE)
    ]
    apart = (*OWN, *wrong, *PRECISIONS)
    others = [taken for name, taken in seconds.items() if name not in apart]
    best = [min(taken) for taken in zip(*others, strict=True)]
    return {
        "seconds": seconds,
        "first": {name: runs[0]["seconds"] for name, runs in turns.first.items()},
        "median": {name: turns.median(name) for name in calls},
        # Ratio to the fastest other program in FP32 with correct results.
        "times": {
            name: median(b / own for b, own in zip(best, seconds[name], strict=True))
            for name in calls
            if best and name in OWN
        },
        "error": errors,
        "right": {name: runs[-1]["right"] for name, runs in turns.runs.items()},
        "wrong": wrong,
        "check": "FAILED" if set(OWN) & set(wrong) else "PASSED",
    }


def groups(cells: list[dict[str, Any]], nthreads: int) -> list[dict[str, Any]]:
    """Return geometric mean and minimum of the ratios by density and number of inputs."""
    rows = []
    for title, belongs in GROUPS.items():
        here = [
            cell
            for cell in cells
            if cell["nthreads"] == nthreads
            and not cell["features_alone"]
            and belongs(cell["density"], cell["inputs"])
        ]
        for name in OWN:
            ratios = {
                f"{cell['network']}, {cell['inputs']} inputs": cell["times"][name]
                for cell in here
                if name in cell["times"]
            }
            if ratios:
                worst = min(ratios, key=lambda where: ratios[where])
                mean = geometric_mean(ratios.values())
                row = {"group": title, "program": name, "cells": len(ratios), "mean": mean}
                rows.append(row | {"least": ratios[worst], "at": worst})
    return rows


def show(found: dict[str, Any], counts: list[int]) -> None:
    """Print a table for each number of threads."""
    for nthreads in counts:
        cells = [cell for cell in found["cells"] if cell["nthreads"] == nthreads]
        names = [name for name in TITLES if any(name in cell["median"] for cell in cells)]
        own = [name for name in names if any(name in cell["times"] for cell in cells)]
        report.table(
            [
                f"network, {nthreads} threads",
                "inputs",
                *(f"{TITLES[name]} ms" for name in names),
                *(f"times {TITLES[name]}" for name in own),
                "answers",
            ],
            [
                (
                    cell["network"],
                    cell["inputs"],
                    *(f"{1e3 * cell['median'][name]:.3g}" for name in names),
                    *(f"x {cell['times'][name]:.2f}" for name in own),
                    ", ".join(f"{TITLES[name]} WRONG" for name in cell["wrong"]) or "right",
                )
                for cell in cells
            ],
        )
        report.table(
            [f"geometric means, {nthreads} threads", "program", "cells", "times", "least", "at"],
            [
                (
                    row["group"],
                    TITLES[row["program"]],
                    row["cells"],
                    f"x {row['mean']:.2f}",
                    f"x {row['least']:.2f}",
                    row["at"],
                )
                for row in found["groups"][nthreads]
            ],
        )
    for cell in found["cells"]:
        right = {TITLES[name]: f"{share:.2%}" for name, share in cell["right"].items() if share}
        if right and cell["inputs"] == max(each["inputs"] for each in found["cells"]):
            print(f"\n{cell['network']}, right: {json.dumps(right)}")
    print(
        "\ntimes: median ratio of the fastest other program in FP32 to the program, by round."
        f"\nResults are correct to {TOLERANCE:g} ({LOOSE:g} in bfloat16) of their largest value,"
        " compared with FP64."
    )


if __name__ == "__main__":
    typer.run(main)
