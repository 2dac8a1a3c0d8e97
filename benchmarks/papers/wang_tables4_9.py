"""Wang et al. (cuSPARSE), tables IV to IX: inference with and without dropping dead inputs.

    python benchmarks/papers/wang_tables4_9.py --network 1024x120,4096x120 --json wang.json

The paper's filter removes the inputs whose activations are all zero after a layer. This script runs
a loop over single GraphBLAS calls with and without the filter, with activations in sparse and in
full matrices (`support/loops.py`); gbdnn always drops such inputs. The published times are of
cuSPARSE on two GPUs. Tables VII to IX contain edge rates, which this script computes from the
times; the 4.709e9 of table IX at 4096 x 120 on the GTX 1080 does not agree with its 51.59 s, but
1.83e10 does.

J. Wang, Z. Huang, L. Kong, J. Xiao, P. Wang et al., "Performance of Training Sparse Deep Neural
Networks on GPUs", HPEC 2019.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gbdnn

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import loops
import papers

if TYPE_CHECKING:
    from collections.abc import Callable

    from gbdnn.challenge import Problem

_BLOCK = 1000  # inputs of a full matrix
_DROPS = ((False, "all inputs kept"), (True, "dead inputs dropped"))


def measure(study: papers.Study, neurons: int, layers: int) -> None:
    """Time both kernels with and without the filter, and gbdnn."""
    study.published(neurons, layers, ["wang"])
    problem = study.problem(neurons, layers)
    infer = partial(gbdnn.infer, problem.network, problem.features, deduplicate=False)
    for count in study.counts():
        programs = graphblas_loops(problem, count)
        programs["gbdnn, every input"] = partial(infer, nthreads=count)
        study.compare(problem, programs, count, rounds=1)


def graphblas_loops(problem: Problem, count: int) -> dict[str, Callable[[], Any]]:
    """Return loops of GraphBLAS calls by name."""
    net, X = problem.network, problem.features
    kinds = {
        "sparse": (loops.sparse, loops.batches(X, entries=loops.FEW_ENTRIES)),
        "full": (partial(loops.full, weights=loops.columnwise(net)), loops.batches(X, _BLOCK)),
    }
    return {
        f"{kind} matrices, {words}": partial(
            loops.categories, partial(infer, net, drop=drop), parts, count
        )
        for drop, words in _DROPS
        for kind, (infer, parts) in kinds.items()
    }


if __name__ == "__main__":
    papers.run(measure, "Wang et al., cuSPARSE, tables IV to IX")
