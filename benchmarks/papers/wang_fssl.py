"""Wang et al., FSSL: structured sparsity on MNIST, with the time relative to dense training.

    GBDNN_DATA=data python benchmarks/papers/wang_fssl.py --json fssl.json

A dense network of 784-500-300-10 is trained, and again with a group lasso, compaction and
fine-tuning for the same number of epochs. `learning/fssl.py` covers several seeds and strengths.
`published.toml` contains no published figures.

J. Wang, Z. Huang, L. Kong, J. Xiao, P. Wang et al., "Performance of Training Sparse Deep Neural
Networks on GPUs", HPEC 2019.
"""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import numpy as np
import typer

import gbdnn
from gbdnn.training import SGD, erdos_renyi, fssl

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import papers
import problems  # noqa: TC002 -- typer reads the annotations
from images_to_learn import Images, images


def main(
    strength: Annotated[float, typer.Option(help="Strength of the group lasso.")] = 2e-4,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of structure learning.")] = 20,
    fine_tuning_epochs: Annotated[int, typer.Option(min=1)] = 30,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    quick: papers.Quick = False,
    json_file: problems.Json = None,
) -> None:
    """Train a dense and a structured network; compare seconds, edges and errors."""
    study = papers.Study("Wang et al., FSSL", quick, json_file)
    data = images()
    sizes, options = [data.X.shape[1], 500, 300, 10], {"nthreads": 1, "seed": seed}
    if quick:
        sizes[1:3], epochs, fine_tuning_epochs = [40, 20], 2, 1
        data = Images(data.name, data.X[:600], data.y[:600], data.X_test, data.y_test)
    net = erdos_renyi(sizes, density=1, seed=seed)
    began = perf_counter()
    dense = gbdnn.train(
        net, data.X, data.y, epochs=epochs + fine_tuning_epochs, optimizer=SGD(0.1), **options
    )
    dense_seconds, began = perf_counter() - began, perf_counter()
    run = fssl(
        net, data.X, data.y, strength=strength, epochs=epochs,
        fine_tuning_epochs=fine_tuning_epochs, optimizer=SGD(0.1),
        fine_tuning_optimizer=SGD(0.05), fine_tuning_dropout=0.2, **options,
    )  # fmt: skip
    seconds = perf_counter() - began
    for name, trained, taken in (
        ("dense", dense.network, dense_seconds),
        (f"group lasso of {strength:g}, compacted", run.network, seconds),
    ):
        study.rows.append(
            {
                "network": "-".join(map(str, [trained.shape[0], *(w.ncols for w in trained)])),
                "program": name,
                "training, s": taken,
                "over dense": taken / dense_seconds,
                "edges": trained.edges,
                **_tested(trained, data),
            }
        )
    study.end(images=data.name, epochs=[epochs, fine_tuning_epochs])


def _tested(net: gbdnn.Network, data: Images) -> dict[str, Any]:
    """Return the test error; the sparse kernel must predict the same digits."""
    Y = gbdnn.infer(net, data.X_test, nthreads=1)
    again = gbdnn.infer(net, data.X_test, nthreads=1, engine="sparse")
    found, other = gbdnn.argmax(Y), gbdnn.argmax(again)
    near = np.mean(found == other) > 0.99  # kernels differ in the order of additions
    return {
        "error, %": float(100 * np.mean(found != data.y_test)),
        "answer": "right" if near else "WRONG",
    }


if __name__ == "__main__":
    typer.run(main)
