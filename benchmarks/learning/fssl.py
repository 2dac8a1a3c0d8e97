"""Measure the size and test error of networks trained with FSSL (Wang et al., HPEC 2019).

    GBDNN_DATA=data python benchmarks/learning/fssl.py --json fssl.json
    GBDNN_DATA=data python benchmarks/learning/fssl.py --strength 2e-4 --seeds 1 --dense

A dense network of 784-500-300-10 is trained with a group lasso, compacted and fine-tuned. Without
the files of MNIST (see images_to_learn.py) the digits of scikit-learn and a smaller network are
used. With `--dense` a dense network is trained for as many epochs.
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer

import gbdnn
from gbdnn.training import SGD, GroupLasso, compact, erdos_renyi

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import options
import report
from images_to_learn import images

# Sizes, strengths and other options by data set.
_PROBLEMS: dict[str, tuple[list[int], list[float], dict[str, Any]]] = {
    "MNIST": ([784, 500, 300, 10], [2e-4, 5e-4], {}),
    "digits of scikit-learn": ([64, 200, 100, 10], [0.005, 0.01], {"batch_size": 32}),
}


def main(
    strength: options.Several = None,
    epochs: options.Count = 20,
    fine_tuning_epochs: options.Count = 30,
    seeds: options.Count = 3,
    dense: Annotated[bool, typer.Option("--dense", help="Also train a dense network.")] = False,
    nthreads: options.Count = 1,
    json_file: options.Json = None,
) -> None:
    """Print sizes, removed weights and test errors of compact networks."""
    data = images()
    sizes, usual, known = _PROBLEMS[data.name]
    strengths = options.numbers(strength, usual, float, 0)
    known |= {"nthreads": nthreads}
    learning = known | {"epochs": epochs, "optimizer": SGD(0.1)}
    tuning = known | {"epochs": fine_tuning_epochs, "optimizer": SGD(0.05)}
    tuning["input_dropout"] = 0.2
    print(f"{data.name}; {'-'.join(map(str, sizes))}; {epochs} + {fine_tuning_epochs} epochs")
    rows = []
    for each, seed in product(strengths, range(seeds)):

        def trained(net: gbdnn.Network, seed: int = seed, **given: Any) -> gbdnn.Network:
            return gbdnn.train(net, data.X, data.y, seed=seed, **given).network

        began = perf_counter()
        net = erdos_renyi(sizes, density=1, seed=seed)
        learned = trained(net, adjustments=GroupLasso(each), **learning)
        small = trained(compact(learned).network, **tuning)
        seconds = perf_counter() - began
        inputs = compact(small, inputs=True).inputs
        row = {
            "strength": each,
            "seed": seed,
            "sizes": [len(inputs), *(info.ncols for info in small.infos)],
            "edges": small.edges,
            "gone": 100 * (1 - small.edges / net.edges),
            "error_learned": 100 - data.accuracy(learned),
            "error": 100 - data.accuracy(small),
            "seconds": seconds,
        }
        if dense:
            began = perf_counter()
            whole = trained(net, **learning | {"epochs": epochs + fine_tuning_epochs})
            row["dense_seconds"] = perf_counter() - began
            row["dense_error"] = 100 - data.accuracy(whole)
        rows.append(row)
    report.table(rows, "sizes")
    report.write(json_file, {"images": data.name, "rows": rows, **report.circumstances()})


if __name__ == "__main__":
    options.run(main)
