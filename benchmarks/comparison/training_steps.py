"""Compare training steps on a fixed pattern: forward, backward and update for minibatches of 128.

    python benchmarks/comparison/training_steps.py --nthreads 1 --nthreads 2 --json steps.json
    python benchmarks/comparison/training_steps.py --network 784-1024x2-10@5 --nthreads 2

gbdnn is compared with PyTorch (dense with a mask; CSR weights, without autograd), sparselab and
SparseProp, each in its own process, interleaved, with the same weights and minibatches. Losses of
the first steps are compared with FP64. Slower programs make fewer steps per round. The floor of one
thread is the time of the multiply-adds alone, at the rates that `floor` measures.
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer

SUPPORT = Path(__file__).parents[1] / "support"
sys.path.insert(0, str(SUPPORT))
import dense_problems
import problems
import report
from processes import Process, prepared
from training_programs import BATCH, MOMENTUM, PROGRAMS, RATE, TITLES
from turns import in_turn

NETWORKS = (
    "784-1024x2-10@10",
    "784-1024x2-10@5",
    "784-1024x2-10@1",
    "784-4096x2-10@5",
    "784-4096x2-10@1",
    "3072-1024-512-10@10",
    "3072-1024-512-10@5",
    "3072-1024-512-10@1",
)
INPUTS = 64 * BATCH
_CHECKED = 4  # steps
_PAUSE = 0.2
TOLERANCE = 1e-4
FORWARD, GRADIENT = 18e9, 13e9  # multiply-adds per second and core


def main(
    network: Annotated[
        list[str] | None,
        typer.Option(metavar="SPEC", help="As in real_networks: 784-1024x2-10@5; may be repeated."),
    ] = None,
    nthreads: problems.Threads = None,
    programs: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"By comma or repetition: {', '.join(PROGRAMS)}."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Timed rounds.")] = 7,
    at_least: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Approximate time per round.")
    ] = 0.3,
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights, features and labels.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Run a small problem as a test.")] = False,
    json_file: problems.Json = None,
) -> None:
    """Compare training steps of gbdnn with other programs."""
    if quick:
        network, rounds, at_least = ["64x3@20"], 1, 0.001
    counts = problems.thread_counts(nthreads, [2])
    names = problems.names(programs, PROGRAMS, PROGRAMS)
    for spec in network or []:
        if not dense_problems.is_spec(spec):
            raise typer.BadParameter(f"{spec!r} is not as 784-1024x2-10@5")
    found: dict[str, Any] = {"problem": {"name": f"steps of training, {BATCH} inputs, FP32"}}
    found |= report.circumstances() | {"rounds": rounds, "seed": seed, "skipped": {}, "cells": []}
    report.heading(found)
    for spec in network or NETWORKS:
        problem = _with_labels(dense_problems.random_problem(spec, INPUTS, seed), seed)
        print(f"{problem.name} ...", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            problem.save(Path(folder))
            script = SUPPORT / "training_programs.py"
            with prepared([Process(each, script, each, folder) for each in names], found) as able:
                for count in counts:
                    found["cells"].append(_cell(problem, able, count, rounds, at_least))
    _show(found, counts)
    report.write(json_file, found)
    if any(cell["check"] == "FAILED" for cell in found["cells"]):
        raise typer.Exit(1)


def _with_labels(problem: dense_problems.DenseProblem, seed: int) -> dense_problems.DenseProblem:
    random = np.random.default_rng(seed)
    labels = random.integers(0, problem.weights[-1].shape[1], INPUTS)
    # The last layer has no ReLU, whatever its size.
    limits = [*problem.limits[:-1], (None, None)]
    return dense_problems.DenseProblem(
        problem.name, problem.weights, problem.biases, limits, problem.features, labels
    )


def _cell(
    problem: dense_problems.DenseProblem,
    able: dict[str, Process],
    nthreads: int,
    rounds: int,
    at_least: float,
) -> dict[str, Any]:
    """Return the times of steps of interleaved programs, without the warm-up round."""
    truth = _first_loss(problem)
    # One step at a time, since gbdnn shuffles the inputs of an epoch.
    losses = {
        name: float(
            np.mean([each.ask(nthreads=nthreads, steps=1)["loss"] for _ in range(_CHECKED)])
        )
        for name, each in able.items()
    }
    calls = {}
    for name, each in able.items():
        taken = each.ask(nthreads=nthreads, steps=2)["seconds"]
        steps = max(2, min(60, int(at_least / taken)))
        calls[name] = partial(each.ask, nthreads=nthreads, steps=steps)
    turns = in_turn(calls, rounds, pause=_PAUSE)
    right = all(abs(loss - truth) <= TOLERANCE * truth for loss in losses.values())
    return {
        "network": problem.name,
        "nthreads": nthreads,
        "edges": problem.edges,
        "seconds": {name: turns.seconds(name) for name in calls},
        "median": {name: turns.median(name) for name in calls},
        "times": {
            name: median(turns.ratios(name, "gbdnn"))
            for name in calls
            if "gbdnn" in calls and name != "gbdnn"
        },
        "floor": _floor(problem) / nthreads,
        "loss": losses | {"FP64": truth},
        "check": "PASSED" if right else "FAILED",
    }


def _first_loss(problem: dense_problems.DenseProblem) -> float:
    """Return the losses of the first steps in FP64."""
    W = [each.astype(np.float64) for each in problem.weights]
    b = [each.astype(np.float64) for each in problem.biases]
    masks, moments = [each != 0 for each in W], [np.zeros_like(each) for each in (*W, *b)]
    losses = []
    for step in range(_CHECKED):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        Y, y = [problem.features[rows].astype(np.float64)], problem.labels[rows]
        for k in range(len(W)):
            Z = Y[-1] @ W[k] + b[k]
            Y.append(np.maximum(Z, 0) if k < len(W) - 1 else Z)
        P = np.exp(Y[-1] - Y[-1].max(1, keepdims=True))
        P /= P.sum(1, keepdims=True)
        losses.append(-np.log(P[np.arange(BATCH), y]).mean())
        P[np.arange(BATCH), y] -= 1
        D = P / BATCH
        for k in reversed(range(len(W))):
            gradients = Y[k].T @ D * masks[k], D.sum(0)
            D = D @ W[k].T * (Y[k] > 0)
            for parameter, moment, gradient in zip(
                (W[k], b[k]), (moments[k], moments[len(W) + k]), gradients, strict=True
            ):
                moment[:] = MOMENTUM * moment + gradient
                parameter -= RATE * moment
    return float(np.mean(losses))


def _floor(problem: dense_problems.DenseProblem) -> float:
    edges = [int(np.count_nonzero(W)) for W in problem.weights]
    return BATCH * ((sum(edges) + sum(edges[1:])) / FORWARD + sum(edges) / GRADIENT)


def _show(found: dict[str, Any], counts: list[int]) -> None:
    for nthreads in counts:
        cells = [cell for cell in found["cells"] if cell["nthreads"] == nthreads]
        names = [name for name in TITLES if any(name in cell["median"] for cell in cells)]
        report.table(
            [
                f"ms a step, {nthreads} threads", "edges", *(TITLES[name] for name in names),
                *(f"{TITLES[name]} / gbdnn" for name in names if name != "gbdnn"), "/ floor",
                "losses",
            ],
            [
                (
                    cell["network"], cell["edges"],
                    *(f"{1e3 * cell['median'][name]:.3g}" for name in names),
                    *(f"{cell['times'][name]:.2f}" for name in names if name in cell["times"]),
                    f"{cell['median'].get('gbdnn', 0) / cell['floor']:.2f}",
                    "right" if cell["check"] == "PASSED" else "WRONG",
                )
                for cell in cells
            ],
        )  # fmt: skip
    for name, why in found["skipped"].items():
        print(f"{name}: skipped: {why}")


if __name__ == "__main__":
    typer.run(main)
