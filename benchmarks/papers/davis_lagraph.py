"""Davis, Aznaveh, Kolodziej (LAGraph): their loop in python-graphblas, and gbdnn's engines.

    python benchmarks/papers/davis_lagraph.py --network 1024x120,4096x120 --json davis.json

"LAGraph's calls from Python" is `support/lagraph.py`: four GraphBLAS calls per layer. The published
times are of C programs.

T. Davis, M. Aznaveh, S. Kolodziej, "Write Quick, Run Fast: Sparse Deep Neural Network in 20 Minutes
of Development Time via SuiteSparse:GraphBLAS", HPEC 2019.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import gbdnn

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import lagraph
import loops
import papers


def measure(study: papers.Study, neurons: int, layers: int) -> None:
    """Time LAGraph's calls, the same with a mask, the sparse kernel and gbdnn's default."""
    study.published(neurons, layers, ["davis", "demo", "ellis"], "GraphBLAS")
    study.published(neurons, layers, ["ellis"], "LAGraph")
    problem = study.problem(neurons, layers)
    net, X = problem.network, problem.features
    lagraph_on = partial(lagraph.categories, lagraph.prepare(net), loops.batches(X))
    for count in study.counts():
        infer = partial(gbdnn.infer, net, X, nthreads=count)
        programs = {
            "LAGraph's calls from Python": partial(lagraph_on, count),
            "with a Boolean mask": partial(lagraph_on, count, lagraph.infer_masked),
            "gbdnn, sparse kernel": partial(infer, engine="sparse", deduplicate=False),
            "gbdnn, every input": partial(infer, deduplicate=False),
            "gbdnn, equal inputs once": infer,
        }
        study.compare(problem, programs, count)


if __name__ == "__main__":
    papers.run(measure, "Davis et al., LAGraph", [(1024, 120), (4096, 120)])
