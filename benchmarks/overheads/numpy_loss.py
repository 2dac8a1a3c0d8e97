"""Measure training steps with a loss in NumPy, compared with the same loss in compiled code.

    python benchmarks/overheads/numpy_loss.py --nthreads 1,2

The network is 784-1024-1024-10 with minibatches of 128 and cross-entropy. The table shows medians
of milliseconds per step in interleaved epochs of 64 steps, and of the ratios of each pair.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer

import gbdnn
from gbdnn.training import SGD, Constant, CrossEntropy, erdos_renyi

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import problems
import report

SIZES, BATCH, STEPS = [784, 1024, 1024, 10], 128, 64


class InNumPy(CrossEntropy):
    """The methods of a subclass run in NumPy."""


def main(
    nthreads: problems.Threads = None,
    density: Annotated[str, typer.Option(metavar="N,...", help="Percent.")] = "100,10,5,1",
    rounds: Annotated[int, typer.Option(min=1)] = 9,
    json_file: problems.Json = None,
) -> None:
    """Compare the time of a step with a loss in NumPy and in compiled code."""
    found: dict[str, Any] = {"problem": {"name": "784-1024-1024-10, minibatches of 128"}}
    found |= report.circumstances() | {"rounds": rounds, "cells": []}
    report.heading(found)
    random = np.random.default_rng(0)
    X = random.random((BATCH * STEPS, SIZES[0]), np.float32)
    y = random.integers(0, SIZES[-1], len(X))
    for threads in problems.thread_counts(nthreads, [1, 2]):
        for percent in map(float, density.split(",")):
            net = erdos_renyi(SIZES, percent / 100, seed=0)

            def steps(loss: Any, net: Any = net, threads: int = threads) -> float:
                run = gbdnn.train(
                    net, X, y, epochs=1, batch_size=BATCH, optimizer=SGD(0.01, 0.9), seed=0,
                    schedule=Constant(), loss=loss, nthreads=threads,
                )  # fmt: skip
                return run.history[-1].seconds / STEPS

            pairs = [(steps(CrossEntropy()), steps(InNumPy())) for _ in range(rounds + 1)][1:]
            compiled, numpy = (1e3 * median(column) for column in zip(*pairs, strict=True))
            ratio = median(b / a for a, b in pairs)
            found["cells"].append(
                {"threads": threads, "density": percent, "ms": compiled, "numpy_ms": numpy,
                 "ratio": ratio}
            )  # fmt: skip
    report.table(
        ["threads", "edges", "compiled, ms", "NumPy, ms", "ratio"],
        [
            [cell["threads"], f"{cell['density']:g} %",
             *(f"{cell[key]:.3g}" for key in ("ms", "numpy_ms", "ratio"))]
            for cell in found["cells"]
        ],
    )  # fmt: skip
    report.write(json_file, found)


if __name__ == "__main__":
    typer.run(main)
