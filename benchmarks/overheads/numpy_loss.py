"""Measure training steps with a loss in NumPy, compared with the same loss in compiled code.

    python benchmarks/overheads/numpy_loss.py --nthreads 1,2

The network is 784-1024-1024-10 with minibatches of 128 and cross-entropy. The table shows medians
of milliseconds per step in interleaved epochs of 64 steps, and of the ratios of each pair.
"""

from __future__ import annotations

import sys
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import gbdnn
from gbdnn.training import SGD, Constant, CrossEntropy, erdos_renyi

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import options
import report
from turns import in_turn

SIZES, BATCH, STEPS = [784, 1024, 1024, 10], 128, 64


class InNumPy(CrossEntropy):
    """The methods of a subclass run in NumPy."""


def main(
    nthreads: options.Several = None,
    density: options.Several = None,
    rounds: options.Rounds = 9,
    json_file: options.Json = None,
) -> None:
    """Compare the time of a step with a loss in NumPy and in compiled code."""
    found = report.started("784-1024-1024-10, minibatches of 128", rounds=rounds, cells=[])
    random = np.random.default_rng(0)
    X = random.random((BATCH * STEPS, SIZES[0]), np.float32)
    y = random.integers(0, SIZES[-1], len(X))
    counts = options.numbers(nthreads, [1, 2])
    for threads, percent in product(counts, options.numbers(density, [100, 10, 5, 1], float, 0)):
        net = erdos_renyi(SIZES, percent / 100, seed=0)

        def steps(loss: Any, net: Any = net, threads: int = threads) -> dict[str, float]:
            run = gbdnn.train(
                net, X, y, epochs=1, batch_size=BATCH, optimizer=SGD(0.01, 0.9), seed=0,
                schedule=Constant(), loss=loss, nthreads=threads,
            )  # fmt: skip
            return {"seconds": run.history[-1].seconds / STEPS}

        losses = {"compiled": CrossEntropy(), "numpy": InNumPy()}
        turns = in_turn({name: partial(steps, loss) for name, loss in losses.items()}, rounds)
        cell = {"threads": threads, "density": percent, "ms": 1e3 * turns.median("compiled")}
        cell["numpy_ms"] = 1e3 * turns.median("numpy")
        found["cells"].append(cell | {"ratio": median(turns.ratios("numpy", "compiled"))})
    report.table(found["cells"])
    report.write(json_file, found)


if __name__ == "__main__":
    options.run(main)
