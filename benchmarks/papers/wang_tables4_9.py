"""Wang et al. (cuSPARSE), tables IV to IX: inference with and without dropping dead inputs.

    python benchmarks/papers/wang_tables4_9.py --network 1024x120,4096x120 --json wang.json

The paper's filter removes the inputs whose activations are all zero after a layer. This script runs
a loop over single GraphBLAS calls with and without the filter, with activations in sparse and in
full matrices (`support/sparse_loop.py`); gbdnn always drops such inputs. The published times are of
two GPUs. Tables VII to IX contain edge rates, which this script computes from the times; the
4.709e9 of table IX at 4096 x 120 on the GTX 1080 does not agree with its 51.59 s, but 1.83e10 does.

J. Wang, Z. Huang, L. Kong, J. Xiao, P. Wang et al., "Performance of Training Sparse Deep Neural
Networks on GPUs", HPEC 2019.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import gbdnn

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import papers
import problems
import sparse_loop

if TYPE_CHECKING:
    from collections.abc import Callable

_BLOCK = 1000  # inputs of a full matrix


def main(
    networks: papers.Networks = None,
    inputs: problems.Inputs = None,
    data: problems.Data = None,
    images: problems.Images = None,
    nthreads: problems.Threads = None,
    quick: papers.Quick = False,
    json_file: problems.Json = None,
) -> None:
    """Time both kernels with and without the filter, and gbdnn."""
    title = "Wang et al., cuSPARSE, tables IV to IX"
    study = papers.Study(title, quick, json_file, inputs, data, images)
    for neurons, layers in study.networks(networks, [(1024, 120)]):
        study.published(neurons, layers, ["wang"])
        problem = study.problem(neurons, layers)
        net, X = problem.network, problem.features
        weights = sparse_loop.columnwise(net)
        for count in problems.thread_counts(nthreads, [papers.cores()]):
            programs: dict[str, Callable[[], Any]] = {}
            for drops, words in ((False, "all inputs kept"), (True, "dead inputs dropped")):
                step = partial(sparse_loop.sparse, net, drops=drops)
                programs[f"sparse matrices, {words}"] = partial(
                    sparse_loop.in_batches, step, X, count
                )
                step = partial(sparse_loop.full, net, weights=weights, drops=drops)
                programs[f"full matrices, {words}"] = partial(
                    sparse_loop.in_batches, step, X, count, _BLOCK
                )
            programs["gbdnn, every input"] = partial(
                gbdnn.infer, net, X, deduplicate=False, nthreads=count
            )
            study.compare(problem, programs, count, rounds=1)
    study.end()


if __name__ == "__main__":
    typer.run(main)
