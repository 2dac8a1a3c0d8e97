"""Ellis, Rajamanickam (KK-SpDNN), figure 4: seconds per operation and layer of the sparse kernel.

    python benchmarks/papers/ellis_figure4.py --network 1024x120,4096x120 --json figure4.json

The operations of gbdnn's sparse kernel are timed separately (`support/operations.py`). The JSON
contains every layer; the table shows the first ten, and the sum of the others. The paper prints no
numbers for this figure.

J. A. Ellis, S. Rajamanickam, "Scalable Inference for Sparse Deep Neural Networks using Kokkos
Kernels", HPEC 2019.
"""

from __future__ import annotations

import sys
from pathlib import Path

import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import operations
import papers
import problems
import report

_SHOWN = 10


def main(
    networks: papers.Networks = None,
    inputs: problems.Inputs = None,
    data: problems.Data = None,
    images: problems.Images = None,
    nthreads: problems.Threads = None,
    quick: papers.Quick = False,
    json_file: problems.Json = None,
) -> None:
    """Time each operation in each layer after a warm-up run."""
    title = "Ellis et al., KK-SpDNN, figure 4"
    study = papers.Study(title, quick, json_file, inputs, data, images)
    layers_of = []
    for neurons, layers in study.networks(networks, [(1024, 120)]):
        study.published(neurons, layers, ["ellis"], "KK-SpDNN, one node")
        problem = study.problem(neurons, layers)
        for count in problems.thread_counts(nthreads, [papers.cores()]):
            for _ in range(2):
                seconds, found = operations.timed(problem.network, problem.features, count)
            sums = dict(zip(operations.OPERATIONS, seconds.sum(axis=0).tolist(), strict=True))
            right = study.right(found)
            study.measured(problem, "sparse kernel", count, seconds.sum(), right, **sums)
            layers_of.append({"problem": problem.name, "nthreads": count, "s": seconds.tolist()})
            rows = [(str(k), *map(papers.cell, each)) for k, each in enumerate(seconds[:_SHOWN])]
            rows.append(("others", *map(papers.cell, seconds[_SHOWN:].sum(axis=0))))
            report.table([f"layer, {count} threads", *operations.OPERATIONS], rows)
    study.end(operations=operations.OPERATIONS, layers=layers_of)


if __name__ == "__main__":
    typer.run(main)
