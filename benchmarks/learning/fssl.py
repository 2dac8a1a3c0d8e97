"""Measure the size and test error of networks trained with FSSL (Wang et al., HPEC 2019).

    GBDNN_DATA=data python benchmarks/learning/fssl.py --json fssl.json
    GBDNN_DATA=data python benchmarks/learning/fssl.py --strength 2e-4 --seeds 1 --dense

A dense network of 784-500-300-10 is trained with a group lasso, compacted and fine-tuned. Without
the files of MNIST (see images_to_learn.py) the digits of scikit-learn and a smaller network are
used. `--validation` evaluates on part of the training images, for choosing options. With `--dense`
a dense network is trained for as many epochs, and the ratio of the times is printed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Annotated, Any

import numpy as np
import typer

import gbdnn
from gbdnn.training import SGD, GroupLasso, InputDropout, compact, erdos_renyi

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import report
from images_to_learn import Images, images
from problems import Json  # noqa: TC002 -- typer reads the annotations

# Sizes, strengths and other options by data set.
_PROBLEMS: dict[str, tuple[list[int], list[float], dict[str, Any]]] = {
    "MNIST": ([784, 500, 300, 10], [2e-4, 5e-4], {}),
    "digits of scikit-learn": ([64, 200, 100, 10], [0.005, 0.01], {"batch_size": 32}),
}


def main(
    strength: Annotated[list[str] | None, typer.Option(help="Group lasso; repeatable.")] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of structure learning.")] = 20,
    fine_tuning_epochs: Annotated[int, typer.Option(min=1)] = 30,
    seeds: Annotated[int, typer.Option(min=1)] = 3,
    learning_rate: Annotated[float, typer.Option(help="Rate of structure learning.")] = 0.1,
    fine_tuning_rate: float = 0.05,
    fine_tuning_dropout: float = 0.2,
    dense: Annotated[bool, typer.Option("--dense", help="Also train a dense network.")] = False,
    validation: Annotated[bool, typer.Option(help="Do not use the test images.")] = False,
    nthreads: Annotated[int, typer.Option(min=1)] = 1,
    json_file: Json = None,
) -> None:
    """Print sizes, removed weights and test errors of compact networks."""
    data = images()
    sizes, strengths, known = _PROBLEMS[data.name]
    strengths = [float(x) for each in strength or [] for x in each.split(",")] or strengths
    data = data.validation() if validation else data
    learning = known | {
        "epochs": epochs,
        "optimizer": SGD(learning_rate),
        "nthreads": nthreads,
    }
    tuning = known | {
        "epochs": fine_tuning_epochs,
        "optimizer": SGD(fine_tuning_rate),
        "adjustments": (InputDropout(fine_tuning_dropout),),
        "nthreads": nthreads,
    }
    print(f"{data.name}; {'-'.join(map(str, sizes))}; {epochs} + {fine_tuning_epochs} epochs")
    rows = []
    for each in strengths:
        for seed in range(seeds):
            began = perf_counter()
            net = erdos_renyi(sizes, density=1, seed=seed)
            lasso = GroupLasso(each)
            learned = gbdnn.train(
                net, data.X, data.y, seed=seed, adjustments=lasso, **learning
            ).network
            small = compact(learned).network
            small = gbdnn.train(small, data.X, data.y, seed=seed, **tuning).network
            seconds = perf_counter() - began
            inputs = compact(small, inputs=True).inputs
            rows.append(
                {
                    "strength": each,
                    "seed": seed,
                    "sizes": [len(inputs), *(info.ncols for info in small.infos)],
                    "edges": small.edges,
                    "gone": 100 * (1 - small.edges / net.edges),
                    "error_learned": _error(learned, data),
                    "error": _error(small, data),
                    "seconds": seconds,
                }
            )
            if dense:
                same = {"epochs": epochs + fine_tuning_epochs, "nthreads": nthreads, "seed": seed}
                same |= {"optimizer": SGD(learning_rate)} | known
                began = perf_counter()
                trained = gbdnn.train(net, data.X, data.y, **same).network
                taken = perf_counter() - began
                rows[-1] |= {"dense_seconds": taken, "dense_error": _error(trained, data)}
            print(f"  strength {each:g}, seed {seed}: {_words(rows[-1])}", flush=True)
    summary = [_summary([row for row in rows if row["strength"] == each]) for each in strengths]
    report.table(
        ["strength", "weights gone %", "error %", "from", "to"],
        [
            (f"{row['strength']:g}", *(f"{row[x]:.2f}" for x in ("gone", "error", "least", "most")))
            for row in summary
        ],
    )
    found = {"images": data.name, "sizes": sizes, "rows": rows, "summary": summary}
    options = {
        step: {name: repr(value) for name, value in given.items()}
        for step, given in (("learning", learning), ("fine_tuning", tuning))
    }
    report.write(json_file, found | {"options": options} | report.circumstances())


def _error(net: gbdnn.Network, data: Images) -> float:
    """Return the percentage of misclassified test images."""
    found = gbdnn.argmax(gbdnn.infer(net, data.X_test, nthreads=1))
    return float(100 * np.mean(found != data.y_test))


def _words(row: dict[str, Any]) -> str:
    words = (
        f"{'-'.join(map(str, row['sizes']))}, {row['gone']:.1f} % gone, error"
        f" {row['error_learned']:.2f} %, fine-tuned {row['error']:.2f} %, {row['seconds']:.0f} s"
    )
    if "dense_seconds" in row:
        ratio = row["seconds"] / row["dense_seconds"]
        words += f"; dense: {row['dense_error']:.2f} %, {row['dense_seconds']:.0f} s ({ratio:.2f})"
    return words


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    errors = [row["error"] for row in rows]
    return {
        "strength": rows[0]["strength"],
        "gone": median(row["gone"] for row in rows),
        "error": median(errors),
        "least": min(errors),
        "most": max(errors),
    }


if __name__ == "__main__":
    typer.run(main)
