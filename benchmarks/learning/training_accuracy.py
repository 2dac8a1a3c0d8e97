"""Measure the accuracy of sparse networks by density and rewiring rule.

    GBDNN_DATA=data python benchmarks/learning/training_accuracy.py --json accuracy.json

Networks of 784-1024-1024-10 (64-256-256-10 for the digits of scikit-learn) with random edges,
Erdős–Rényi by layer, are trained with the same options at each density. `--validation` evaluates on
part of the training images, for choosing options.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import mean
from time import perf_counter
from typing import Annotated, Any

import numpy as np
import typer

import gbdnn
from gbdnn.training import SET, SGD, Adjustment, InputDropout, RigL, erdos_renyi

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import report
from images_to_learn import Images, images
from problems import Json  # noqa: TC002 -- typer reads the annotations

RULES: dict[str, tuple[Adjustment, ...]] = {"fixed": (), "rigl": (RigL(),), "set": (SET(),)}
_SIZES = {"MNIST": [784, 1024, 1024, 10], "digits of scikit-learn": [64, 256, 256, 10]}


def main(
    density: Annotated[list[str] | None, typer.Option(help="Percent; may be repeated.")] = None,
    rules: Annotated[list[str] | None, typer.Option(help="fixed, rigl, set; repeatable.")] = None,
    epochs: Annotated[int, typer.Option(min=1)] = 20,
    seeds: Annotated[int, typer.Option(min=1)] = 3,
    batch: Annotated[int, typer.Option(min=1)] = 128,
    learning_rate: float = 0.05,
    weight_decay: float = 0.0,
    input_dropout: float = 0.1,
    validation: Annotated[bool, typer.Option(help="Do not use the test images.")] = False,
    nthreads: Annotated[int, typer.Option(min=1)] = 1,
    json_file: Json = None,
) -> None:
    """Print the accuracy of sparse networks after training."""
    densities = [float(x) for each in density or ["10,5,2,1"] for x in each.split(",")]
    names = [x for each in rules or ["fixed,rigl"] for x in each.split(",")]
    if unknown := set(names) - set(RULES):
        raise typer.BadParameter(f"{', '.join(unknown)}; there are {', '.join(RULES)}")
    data = images()
    sizes = _SIZES[data.name]
    data = data.validation() if validation else data
    options: dict[str, Any] = {
        "epochs": epochs,
        "batch_size": batch,
        "optimizer": SGD(learning_rate, weight_decay=weight_decay),
        "nthreads": nthreads,
    }
    dropout = InputDropout(input_dropout)
    print(f"{data.name}; {'-'.join(map(str, sizes))}; {epochs} epochs")
    # A dense network has no edges to move.
    kinds = [(each, name) for each in densities for name in names if each < 100 or name == "fixed"]
    rows = [
        _row(sizes, percent, name, seed, data, options | {"adjustments": (*RULES[name], dropout)})
        for percent, name in kinds
        for seed in range(seeds)
    ]
    cells = [
        _summary([row for row in rows if (row["density"], row["rule"]) == kind]) for kind in kinds
    ]
    report.table(
        ["rule", "density %", "edges", "accuracy %", "from", "to", "s an epoch"],
        [
            (
                cell["rule"],
                f"{cell['density']:g}",
                cell["edges"],
                *(f"{cell[x]:.2f}" for x in ("accuracy", "least", "most", "seconds")),
            )
            for cell in cells
        ],
    )
    options |= {"input_dropout": input_dropout}
    options = {name: repr(value) for name, value in options.items()}
    found = {"images": data.name, "sizes": sizes, "rows": rows, "summary": cells}
    report.write(
        json_file,
        found | {"options": options} | report.circumstances(),
    )


def _row(
    sizes: list[int], percent: float, name: str, seed: int, data: Images, options: dict[str, Any]
) -> dict[str, Any]:
    net = erdos_renyi(sizes, percent / 100, seed=seed)
    began = perf_counter()
    run = gbdnn.train(net, data.X, data.y, seed=seed, **options)
    seconds = (perf_counter() - began) / options["epochs"]
    found = gbdnn.argmax(gbdnn.infer(run.network, data.X_test, nthreads=1))
    row = {
        "density": percent,
        "rule": name,
        "seed": seed,
        "edges": net.edges,
        "accuracy": float(100 * np.mean(found == data.y_test)),
        "loss": run.history[-1].loss,
        "seconds": seconds,
    }
    print(f"  {name}, {percent:g} %, seed {seed}: {row['accuracy']:.2f}", flush=True)
    return row


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    accuracies = [row["accuracy"] for row in rows]
    return {
        **{name: rows[0][name] for name in ("density", "rule", "edges")},
        "accuracy": mean(accuracies),
        "least": min(accuracies),
        "most": max(accuracies),
        "seconds": mean(row["seconds"] for row in rows),
    }


if __name__ == "__main__":
    typer.run(main)
