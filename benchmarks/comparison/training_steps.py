"""Compare training steps on a fixed pattern: forward, backward and update for minibatches.

    python benchmarks/comparison/training_steps.py --nthreads 1 --nthreads 2 --json steps.json
    python benchmarks/comparison/training_steps.py --network 784-1024x2-10@5 --inputs 32,1024

`gbdnn.train` is compared with `gbdnn.torch.SparseSequential` and with PyTorch (dense with a mask;
CSR weights, without autograd), sparselab and SparseProp, each in its own process, interleaved, with
the same weights and minibatches. Losses of the first steps are compared with FP64. Slower programs
make fewer steps per round. With several threads, set ``OMP_WAIT_POLICY=passive``: otherwise
waiting threads of OpenMP use a processor.
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from itertools import product
from math import inf
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import dense_problems
import options
import report
from training_programs import MOMENTUM, PROGRAMS, RATE
from turns import checked, in_turn

if TYPE_CHECKING:
    from processes import Process

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
INPUTS = 8192
_CHECKED = 4  # steps
_PAUSE = 0.2
TOLERANCE = 1e-4


def main(
    network: options.Specs = None,
    inputs: options.Several = None,
    nthreads: options.Several = None,
    programs: options.Several = None,
    rounds: options.Rounds = 7,
    at_least: options.AtLeast = 0.3,
    seed: options.Seed = 0,
    quick: options.Quick = False,
    json_file: options.Json = None,
) -> None:
    """Compare training steps of gbdnn with other programs."""
    if quick:
        network, rounds, at_least = ["64x3@20"], 1, 0.001
    counts, batches = options.numbers(nthreads, [2]), options.numbers(inputs, [128])
    names = options.words(programs, PROGRAMS, PROGRAMS)
    found = report.started(
        "steps of training, FP32", rounds=rounds, seed=seed, skipped={}, cells=[]
    )
    for spec in network or NETWORKS:
        problem = dense_problems.random_problem(spec, INPUTS, seed)
        outputs = problem.weights[-1].shape[1]
        problem.labels = np.random.default_rng(seed).integers(0, outputs, INPUTS)
        problem.limits[-1] = (-inf, inf)  # the last layer has no ReLU, whatever its size
        print(f"{problem.name} ...", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            problem.save(Path(folder))
            with PROGRAMS.started(names, found, folder) as able:
                for count, batch in product(counts, batches):
                    asked = {"nthreads": count, "batch": batch}
                    found["cells"].append(_cell(problem, able, asked, rounds, at_least))
        report.write(json_file, found)
    _show(found, counts)
    report.finish(json_file, found, found["cells"])


def _cell(
    problem: dense_problems.DenseProblem,
    able: dict[str, Process],
    asked: dict[str, int],
    rounds: int,
    at_least: float,
) -> dict[str, Any]:
    """Return the times of steps of interleaved programs, without the warm-up round."""
    truth = _first_loss(problem, asked["batch"])
    # One step at a time, since gbdnn shuffles the inputs of an epoch.
    losses = {
        name: mean(each.ask(**asked, steps=1)["loss"] for _ in range(_CHECKED))
        for name, each in able.items()
    }
    calls = {}
    for name, each in able.items():
        taken = each.ask(**asked, steps=2)["seconds"]
        steps = max(2, min(60, int(at_least / taken)))
        calls[name] = partial(each.ask, **asked, steps=steps)
    turns = in_turn(calls, rounds, pause=_PAUSE, twice=True)
    right = all(abs(loss - truth) <= TOLERANCE * truth for loss in losses.values())
    return {
        "network": problem.name,
        "nthreads": asked["nthreads"],
        "inputs": asked["batch"],
        "edges": problem.edges,
        "seconds": {name: turns.seconds(name) for name in calls},
        "median": {name: turns.median(name) for name in calls},
        "times": {
            name: median(turns.ratios(name, "gbdnn"))
            for name in calls
            if "gbdnn" in calls and name != "gbdnn"
        },
        "loss": losses | {"FP64": truth},
        "check": checked(right),
    }


def _first_loss(problem: dense_problems.DenseProblem, batch: int) -> float:
    """Return the losses of the first steps in FP64."""
    W = [each.astype(np.float64) for each in problem.weights]
    b = [each.astype(np.float64) for each in problem.biases]
    masks, moments = [each != 0 for each in W], [np.zeros_like(each) for each in (*W, *b)]
    losses = []
    for step in range(_CHECKED):
        rows = slice(step * batch, (step + 1) * batch)
        Y, y = [problem.features[rows].astype(np.float64)], problem.labels[rows]
        for k in range(len(W)):
            Z = Y[-1] @ W[k] + b[k]
            Y.append(np.maximum(Z, 0) if k < len(W) - 1 else Z)
        P = np.exp(Y[-1] - Y[-1].max(1, keepdims=True))
        P /= P.sum(1, keepdims=True)
        losses.append(-np.log(P[np.arange(batch), y]).mean())
        P[np.arange(batch), y] -= 1
        D = P / batch
        for k in reversed(range(len(W))):
            gradients = Y[k].T @ D * masks[k], D.sum(0)
            D = D @ W[k].T * (Y[k] > 0)
            for parameter, moment, gradient in zip(
                (W[k], b[k]), (moments[k], moments[len(W) + k]), gradients, strict=True
            ):
                moment[:] = MOMENTUM * moment + gradient
                parameter -= RATE * moment
    return float(np.mean(losses))


def _show(found: dict[str, Any], counts: list[int]) -> None:
    for nthreads in counts:
        report.table(
            [
                {
                    f"ms a step, {nthreads} threads": cell["network"],
                    "edges": cell["edges"],
                    "inputs": cell["inputs"],
                    **{PROGRAMS[name].title: 1e3 * s for name, s in cell["median"].items()},
                    **{f"{PROGRAMS[n].title} / gbdnn": x for n, x in cell["times"].items()},
                    "losses": "right" if cell["check"] == "PASSED" else "WRONG",
                }
                for cell in found["cells"]
                if cell["nthreads"] == nthreads
            ]
        )


if __name__ == "__main__":
    options.run(main)
