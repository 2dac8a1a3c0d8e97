"""Measure the accuracy of sparse networks by density and rewiring rule.

    GBDNN_DATA=data python benchmarks/learning/training_accuracy.py --json accuracy.json

Networks of 784-1024-1024-10 (64-256-256-10 for the digits of scikit-learn) with random edges,
Erdős–Rényi by layer, are trained with the same options at each density.
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path
from statistics import mean
from time import perf_counter
from typing import Any

import gbdnn
from gbdnn.training import SGD, Adjustment, RigL, erdos_renyi

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import options
import report
from images_to_learn import Images, images

RULES: dict[str, tuple[Adjustment, ...]] = {"fixed": (), "rigl": (RigL(),)}
_SIZES = {"MNIST": [784, 1024, 1024, 10], "digits of scikit-learn": [64, 256, 256, 10]}


def main(
    density: options.Several = None,
    rules: options.Several = None,
    epochs: options.Count = 20,
    seeds: options.Count = 3,
    nthreads: options.Count = 1,
    json_file: options.Json = None,
) -> None:
    """Print the accuracy of sparse networks after training."""
    densities = options.numbers(density, [10, 5, 2, 1], float, 0)
    names = options.words(rules, ["fixed", "rigl"], RULES)
    data = images()
    sizes = _SIZES[data.name]
    given: dict[str, Any] = {
        "epochs": epochs, "batch_size": 128, "nthreads": nthreads, "optimizer": SGD(0.05),
    }  # fmt: skip
    print(f"{data.name}; {'-'.join(map(str, sizes))}; {epochs} epochs")
    rows, cells = [], []
    for percent, name in product(densities, names):
        if percent == 100 and name != "fixed":
            continue  # a dense network has no edges to move
        adjusted = given | {"adjustments": RULES[name], "input_dropout": 0.1}
        mine = [_row(sizes, percent, name, seed, data, adjusted) for seed in range(seeds)]
        accuracies = [row["accuracy"] for row in mine]
        cell = {key: mine[0][key] for key in ("rule", "density", "edges")}
        cell |= {"accuracy": mean(accuracies), "least": min(accuracies), "most": max(accuracies)}
        cells.append(cell | {"seconds": mean(row["seconds"] for row in mine)})
        rows += mine
    report.table(cells)
    found = {"images": data.name, "rows": rows, "summary": cells}
    report.write(json_file, found | report.circumstances())


def _row(
    sizes: list[int], percent: float, name: str, seed: int, data: Images, given: dict[str, Any]
) -> dict[str, Any]:
    net = erdos_renyi(sizes, percent / 100, seed=seed)
    began = perf_counter()
    run = gbdnn.train(net, data.X, data.y, seed=seed, **given)
    seconds = (perf_counter() - began) / given["epochs"]
    row = {
        "density": percent,
        "rule": name,
        "seed": seed,
        "edges": net.edges,
        "accuracy": data.accuracy(run.network),
        "loss": run.history[-1].loss,
        "seconds": seconds,
    }
    print(f"  {name}, {percent:g} %, seed {seed}: {row['accuracy']:.2f}", flush=True)
    return row


if __name__ == "__main__":
    options.run(main)
