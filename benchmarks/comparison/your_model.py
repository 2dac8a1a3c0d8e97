"""Compare gbdnn with other programs on your own pruned ONNX model.

    python benchmarks/comparison/your_model.py model.onnx --inputs 1,32,1000
    python benchmarks/comparison/your_model.py model.onnx --against onnxruntime --nthreads 4

Each program runs in its own process with the same number of threads, warmed up and interleaved, on
normally distributed inputs. ONNX Runtime and DeepSparse run the file itself; PyTorch (`torch`, or
`torch_csr` with CSR weights) computes the layers that gbdnn reads from it. p50 and p99 cover all
timed calls; differences are relative to the largest value of NumPy in FP64. The last line names the
faster program. DeepSparse requires NumPy 1: ``--python deepsparse=VENV/bin/python``.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

SUPPORT = Path(__file__).parents[1] / "support"
sys.path.insert(0, str(SUPPORT))
import dense_problems
import problems
import report
from dense_programs import OWN, PROGRAMS, TITLES, processes
from processes import prepared
from turns import in_turn

_OTHERS = [name for name in PROGRAMS if name not in OWN]
_PAUSE = 0.2  # until idle threads of the previous program sleep
_LEVEL = 0.03  # relative difference of times that counts as equal


def main(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="ONNX file in FP32.")],
    against: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"By comma or repetition: {', '.join(_OTHERS)}."),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(metavar="N", help="Inputs per call; several by comma or repetition."),
    ] = None,
    nthreads: Annotated[int, typer.Option(min=1, help="Threads of every program.")] = 2,
    pythons: problems.Interpreters = None,
    rounds: Annotated[int, typer.Option(min=1, help="Timed rounds.")] = 7,
    at_least: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Time per round.")
    ] = 0.2,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the inputs.")] = 0,
    json_file: problems.Json = None,
) -> None:
    """Compare gbdnn with other programs on your model."""
    sizes = problems.numbers(inputs, "--inputs", [1, 32, 1000])
    others = problems.names(against, ["onnxruntime", "torch"], _OTHERS)
    interpreters = problems.interpreters(pythons, _OTHERS)
    problem = _problem(model, max(sizes), seed)
    found: dict[str, Any] = {"problem": {"name": problem.name}, **report.circumstances()}
    found |= {"nthreads": nthreads, "density": problem.density, "cells": []}
    report.heading(found)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        problem.save(folder)
        shutil.copy(model, folder / "net.onnx")
        for size in sizes:
            np.save(folder / f"answer-{size}.npy", problem.answer(size))
        with prepared(processes((*OWN, *others), folder, interpreters), found) as able:
            for size in sizes:
                asked = {"nthreads": nthreads, "inputs": size, "at_least": at_least}
                calls = {each: partial(able[each].ask, **asked) for each in able}
                turns = in_turn(calls, rounds, pause=_PAUSE)
                found["cells"] += [_cell(size, each, turns.runs[each]) for each in able]
    report.table(
        ["program", "inputs", "p50 ms", "p99 ms", "largest difference"],
        [
            (
                TITLES[cell["program"]],
                cell["inputs"],
                f"{1e3 * cell['p50']:.3g}",
                f"{1e3 * cell['p99']:.3g}",
                f"{cell['error']:.1e}",
            )
            for cell in found["cells"]
        ],
    )
    found["verdict"] = verdict(found["cells"])
    print(f"\n{found['verdict']}")
    report.write(json_file, found)


def _problem(model: Path, inputs: int, seed: int) -> dense_problems.DenseProblem:
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
    problem = dense_problems.of_network("", net, X)
    sizes = "-".join(map(str, (net.shape[0], *(layer.ncols for layer in net))))
    name = f"{model.name}: {sizes}, {problem.density:.1%} of the edges"
    return dense_problems.of_network(name, net, X)


def _cell(size: int, name: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the percentiles of a program's calls, and its largest error."""
    calls = np.concatenate([run["calls"] for run in runs])
    p50, p99 = map(float, np.percentile(calls, [50, 99]))
    error = max(run["error"] for run in runs)
    return {"inputs": size, "program": name, "p50": p50, "p99": p99, "error": error}


def verdict(cells: list[dict[str, Any]]) -> str:
    """Return a sentence that names the faster program for each number of inputs."""
    told: dict[str, list[str]] = {}
    for size in dict.fromkeys(cell["inputs"] for cell in cells):
        here = {cell["program"]: cell["p50"] for cell in cells if cell["inputs"] == size}
        own = min((name for name in here if name in OWN), key=lambda name: here[name])
        others = [name for name in here if name not in OWN]
        if not others:
            return "There is nothing to compare with: no other program is installed."
        best = min(others, key=lambda name: here[name])
        ratio = here[best] / here[own]
        if abs(ratio - 1) <= _LEVEL:
            who, words = "neither is faster", f"{TITLES[own]} and {TITLES[best]}"
        else:
            first, second = (own, best) if ratio > 1 else (best, own)
            who = f"{TITLES[first]} is faster"
            words = f"{max(ratio, 1 / ratio):.2f} times as fast as {TITLES[second]}"
        told.setdefault(who, []).append(f"with {size:,} input{'s'[: size != 1]} ({words})")
    return "; ".join(f"{who} {', '.join(cases)}" for who, cases in told.items()) + "."


if __name__ == "__main__":
    typer.run(main)
