"""Ellis, Rajamanickam (KK-SpDNN), tables III to VI: every engine at its best number of threads.

    python benchmarks/papers/ellis_tables3_6.py --images MNIST --seconds 3600 --json ellis.json

The published times are of one Skylake and one KNL node, with LAGraph on the same, and of 2 to 24
nodes. Networks run in the order of their edges until the time limit.

J. A. Ellis, S. Rajamanickam, "Scalable Inference for Sparse Deep Neural Networks using Kokkos
Kernels", HPEC 2019.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

import gbdnn

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import papers
import problems


def main(
    networks: papers.Networks = None,
    inputs: problems.Inputs = None,
    data: problems.Data = None,
    images: problems.Images = None,
    nthreads: problems.Threads = None,
    engine: problems.Engines = None,
    seconds: Annotated[float, typer.Option(help="Start no network after this time.")] = 1800,
    quick: papers.Quick = False,
    json_file: problems.Json = None,
) -> None:
    """Time the engines with all numbers of threads; keep the best of each."""
    title = "Ellis et al., KK-SpDNN, tables III to VI"
    study = papers.Study(title, quick, json_file, inputs, data, images)
    counts = problems.thread_counts(nthreads, [1, papers.cores()])
    engines = problems.words(engine, ["sparse", "full", "fused", "auto"])
    began, left = perf_counter(), []
    for neurons, layers in study.networks(networks, papers.SIZES):
        study.published(neurons, layers, ["ellis"])
        study.scaling(neurons, layers)
        if perf_counter() - began > seconds:
            left.append(f"{neurons} x {layers}")
            continue
        problem = study.problem(neurons, layers)
        rows = len(study.rows)
        for count in counts:
            programs = {
                f'gbdnn, engine="{name}", every input': partial(
                    gbdnn.infer, problem.network, problem.features,
                    engine=name, deduplicate=False, nthreads=count,
                )
                for name in engines
            }  # fmt: skip
            programs["gbdnn, equal inputs once"] = partial(
                gbdnn.infer, problem.network, problem.features, nthreads=count
            )
            study.compare(problem, programs, count, rounds=1)
        study.keep_best(rows)
    if left:
        print(f"skipped because of the time limit: {', '.join(left)}")
    study.end(left=left)


if __name__ == "__main__":
    typer.run(main)
