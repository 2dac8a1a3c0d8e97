"""Compare programs on networks of a few layers with 1 to 60 % of all edges and dense features.

    python benchmarks/comparison/real_networks.py --nthreads 1 --nthreads 2 --json real.json
    python benchmarks/comparison/real_networks.py --network 1024x7@5 --inputs 1,2,4,8,16,32
    python benchmarks/comparison/real_networks.py --inputs 1,32 --nthreads 1,4 --apart 0 --apart 2
    python benchmarks/comparison/real_networks.py --model model.onnx --programs infer,onnxruntime

gbdnn is compared with PyTorch (dense and CSR weights), ONNX Runtime, OpenVINO (FP32, and bfloat16
if the processor supports it) and DeepSparse. Each program runs in its own process, interleaved with
the others; DeepSparse needs its own interpreter: ``--python deepsparse=VENV/bin/python``. In each
round a program is called repeatedly for at least `--at-least` seconds, back to back or `--apart` ms
apart, and its time is the median of the calls; ratios compare runs of the same round. All programs
except OpenVINO in bfloat16 compute in FP32, and ratios refer to these. Results are compared with
NumPy in FP64. The file is written after each network.

With ``--model`` your own ONNX model is measured: ONNX Runtime, OpenVINO and DeepSparse run the file
itself, PyTorch the layers that gbdnn reads from it. The last line names the faster program.
"""

from __future__ import annotations

import json
import shutil
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
_LEVEL = 0.03  # relative difference of times that counts as equal
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
    model: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Your model in ONNX, in FP32, alone.")
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
    apart: Annotated[
        list[float] | None, typer.Option(min=0, metavar="MS", help="Between calls; repeatable.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights and features.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Run a small problem as a test.")] = False,
    json_file: problems.Json = None,
) -> None:
    """Compare gbdnn with other programs on networks with dense features."""
    if quick:
        network, inputs, rounds, at_least = ["64x3@20"], ["1,32"], 1, 0.001
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
    asked["aparts"] = apart or [0.0]
    asked["pythons"] = problems.interpreters(pythons, PROGRAMS)
    if model is not None:
        _run(_given(model, max(sizes), seed), found, sizes=sizes, model=model, **asked)
    for spec in network or (NETWORKS if model is None else ()):
        problem = dense_problems.random_problem(spec, max(sizes), seed)
        _run(problem, found, sizes=sizes, **asked)
        report.write(json_file, found)
    if network is None and model is None:
        problem = dense_problems.random_problem(FEATURES, max(sizes), seed)
        _run(problem, found, sizes=[max(sizes)], features_alone=True, **asked)
    if mnist is not None:
        problem = dense_problems.trained_problem(mnist)
        fitting = [size for size in sizes if size <= len(problem.features)]
        _run(problem, found, sizes=fitting, **asked)
    found["groups"] = {n: groups(found["cells"], n) for n in counts}
    found["gains"] = gains(found["cells"], counts)
    show(found, counts)
    if model is not None:
        found["verdict"] = verdict(found["cells"])
        print(f"\n{found['verdict']}")
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
    aparts: list[float],
    features_alone: bool = False,
    model: Path | None = None,
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
        if model is None:
            _write_onnx(problem, folder / "net.onnx")
        else:
            shutil.copy(model, folder / "net.onnx")
        for size in sizes:
            np.save(folder / f"answer-{size}.npy", problem.answer(size))
        with prepared(processes(names, folder, pythons), found) as able:
            for size in sizes:
                for apart in aparts:
                    asked = {"inputs": size, "at_least": at_least, "apart": apart}
                    cells = _cells(able, counts, asked, rounds)
                    found["cells"] += [facts | asked | cell for cell in cells]


def _given(model: Path, inputs: int, seed: int) -> dense_problems.DenseProblem:
    """Return the layers that gbdnn reads from a model, and inputs for them."""
    from gbdnn import io
    from gbdnn.errors import GbdnnError

    try:
        net = io.read_onnx(model)
    except (GbdnnError, OSError) as err:
        raise SystemExit(str(err)) from err
    if net[0].dtype != np.float32:
        raise SystemExit(f"{model}: weights in {net[0].dtype}; programs are compared in FP32")
    X = np.random.default_rng(seed).normal(0.3, 1, (inputs, net.shape[0])).astype(np.float32)
    return dense_problems.of_network(model.name, net, X)


def _write_onnx(problem: dense_problems.DenseProblem, file: Path) -> None:
    from gbdnn import io
    from gbdnn.errors import MissingPackageError

    try:
        io.write_onnx(problem.network(), file)
    except MissingPackageError:
        return


def _cells(
    able: dict[str, Process], counts: list[int], asked: dict[str, Any], rounds: int
) -> list[dict[str, Any]]:
    """Return a cell for each number of threads; programs and threads are interleaved."""
    calls = {
        (name, n): partial(each.ask, nthreads=n, **asked)
        for n in counts
        for name, each in able.items()
    }
    turns = in_turn(calls, rounds, pause=_PAUSE)
    return [
        _cell(*({name: runs[name, n] for name in able} for runs in (turns.first, turns.runs)), n)
        for n in counts
    ]


def _cell(first: dict[str, list[Any]], runs: dict[str, list[Any]], nthreads: int) -> dict[str, Any]:
    """Return the times of the programs, without the warm-up round."""
    seconds = {name: [run["seconds"] for run in mine] for name, mine in runs.items()}
    errors = {name: max(run["error"] for run in (*first[name], *runs[name])) for name in runs}
    wrong = [
        name
        for name, error in errors.items()
        if not error <= (LOOSE if name in PRECISIONS else TOLERANCE)
    ]
    apart = (*OWN, *wrong, *PRECISIONS)
    others = [taken for name, taken in seconds.items() if name not in apart]
    best = [min(taken) for taken in zip(*others, strict=True)]
    return {
        "nthreads": nthreads,
        "seconds": seconds,
        "first": {name: mine[0]["seconds"] for name, mine in first.items()},
        "median": {name: median(taken) for name, taken in seconds.items()},
        "p99": {
            name: float(np.percentile(np.concatenate([run["calls"] for run in mine]), 99))
            for name, mine in runs.items()
        },
        # Ratio to the fastest other program in FP32 with correct results.
        "times": {
            name: median(b / own for b, own in zip(best, seconds[name], strict=True))
            for name in seconds
            if best and name in OWN
        },
        "error": errors,
        "right": {name: mine[-1]["right"] for name, mine in runs.items()},
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
            and not cell["apart"]
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


def gains(cells: list[dict[str, Any]], counts: list[int]) -> list[dict[str, Any]]:
    """Return the speed-up of gbdnn's programs over the first number of threads."""
    keys = ("network", "inputs", "apart")
    one = {tuple(c[k] for k in keys): c["seconds"] for c in cells if c["nthreads"] == counts[0]}
    found: dict[tuple[Any, ...], list[float]] = {}
    for cell in cells if len(counts) > 1 else ():
        before = one[tuple(cell[k] for k in keys)]
        for name in [name for name in OWN if name in before and cell["nthreads"] != counts[0]]:
            pairs = zip(before[name], cell["seconds"][name], strict=True)
            row = (name, cell["inputs"], cell["apart"], cell["nthreads"])
            found.setdefault(row, []).append(median(few / many for few, many in pairs))
    head = ("program", "inputs", "apart", "nthreads")
    return [
        dict(zip(head, row, strict=True)) | {"mean": geometric_mean(each), "least": min(each)}
        for row, each in found.items()
    ]


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
                "ms apart",
                *(f"{TITLES[name]} ms" for name in names),
                *(f"times {TITLES[name]}" for name in own),
                "answers",
            ],
            [
                (
                    cell["network"],
                    cell["inputs"],
                    f"{cell['apart']:g}",
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
    for row in found["gains"]:
        words = f"{row['inputs']} inputs, {row['apart']:g} ms apart, {row['nthreads']} threads"
        gain = f"x {row['mean']:.2f} as fast as {counts[0]}, at least x {row['least']:.2f}"
        print(f"{TITLES[row['program']]}, {words}: {gain}")
    for cell in found["cells"]:
        right = {TITLES[name]: f"{share:.2%}" for name, share in cell["right"].items() if share}
        if right and cell["inputs"] == max(each["inputs"] for each in found["cells"]):
            print(f"\n{cell['network']}, right: {json.dumps(right)}")
    print(
        "\ntimes: median ratio of the fastest other program in FP32 to the program, by round."
        f"\nResults are correct to {TOLERANCE:g} ({LOOSE:g} in bfloat16) of their largest value,"
        " compared with FP64."
    )


def verdict(cells: list[dict[str, Any]]) -> str:
    """Return a sentence that names the faster program for each number of inputs and threads."""
    told: dict[str, list[str]] = {}
    for cell in cells:
        here, size = cell["median"], cell["inputs"]
        own = min((name for name in here if name in OWN), key=lambda name: here[name])
        best = min((name for name in here if name not in OWN), key=lambda n: here[n], default=None)
        if best is None:
            return "There is nothing to compare with: no other program is installed."
        ratio = here[best] / here[own]
        first, second = (own, best) if ratio > 1 else (best, own)
        who = f"{TITLES[first]} is faster"
        words = f"{max(ratio, 1 / ratio):.2f} times as fast as {TITLES[second]}"
        if abs(ratio - 1) <= _LEVEL:
            who, words = "neither is faster", f"{TITLES[own]} and {TITLES[best]}"
        inputs = f"with {size:,} input{'s'[: size != 1]} on {cell['nthreads']} threads"
        told.setdefault(who, []).append(f"{inputs} ({words})")
    return "; ".join(f"{who} {', '.join(cases)}" for who, cases in told.items()) + "."


if __name__ == "__main__":
    typer.run(main)
