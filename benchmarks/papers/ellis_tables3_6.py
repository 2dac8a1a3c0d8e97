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
import options
import papers

BEGAN = perf_counter()


def measure(
    study: papers.Study,
    neurons: int,
    layers: int,
    engine: options.Several = None,
    seconds: Annotated[float, typer.Option(help="Start no network after this time.")] = 1800.0,
) -> None:
    """Time the engines with all numbers of threads."""
    study.published(neurons, layers, ["ellis"])
    study.scaling(neurons, layers)
    if perf_counter() - BEGAN > seconds:
        study.more.setdefault("left", []).append(f"{neurons} x {layers}")
        print(f"{neurons} x {layers}: skipped because of the time limit")
        return
    problem = study.problem(neurons, layers)
    for count in study.counts(1, papers.cores()):
        infer = partial(gbdnn.infer, problem.network, problem.features, nthreads=count)
        programs = {
            f'gbdnn, engine="{name}", every input': partial(infer, engine=name, deduplicate=False)
            for name in options.words(engine, ["sparse", "full", "fused", "auto"])
        }
        programs["gbdnn, equal inputs once"] = infer
        study.compare(problem, programs, count, rounds=1)


if __name__ == "__main__":
    papers.run(measure, "Ellis et al., KK-SpDNN, tables III to VI", papers.SIZES)
