"""Wang et al. (cuSPARSE), tables IV to IX: inference with and without dropping dead inputs.

    python benchmarks/papers/wang_tables4_9.py --network 1024x120,4096x120 --json wang.json
    python benchmarks/papers/wang_tables4_9.py --device cuda

The paper's filter removes the inputs whose activations are all zero after a layer. This script runs
a loop over single GraphBLAS calls with and without the filter, with activations in sparse and in
full matrices (`support/loops.py`); gbdnn always drops such inputs. With ``--device``, PyTorch's
products of sparse and dense matrices compute the network there (`gbdnn.torch.infer`); on a GPU
they are those of cuSPARSE. The published times are of cuSPARSE on two GPUs. Tables VII to IX
contain edge rates, which this script computes from the times; the 4.709e9 of table IX at 4096 x 120
on the GTX 1080 does not agree with its 51.59 s, but 1.83e10 does.

J. Wang, Z. Huang, L. Kong, J. Xiao, P. Wang et al., "Performance of Training Sparse Deep Neural
Networks on GPUs", HPEC 2019.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import gbdnn

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import loops
import papers

if TYPE_CHECKING:
    from collections.abc import Callable

    from gbdnn.challenge import Problem

_BLOCK = 1000  # inputs of a full matrix
_DROPS = ((False, "all inputs kept"), (True, "dead inputs dropped"))


def measure(
    study: papers.Study,
    neurons: int,
    layers: int,
    device: Annotated[str, typer.Option(help="PyTorch's device, such as cuda; or none.")] = "",
) -> None:
    """Time both kernels with and without the filter, gbdnn, and PyTorch on a device."""
    study.published(neurons, layers, ["wang"])
    problem = study.problem(neurons, layers)
    infer = partial(gbdnn.infer, problem.network, problem.features, deduplicate=False)
    for count in study.counts():
        programs = graphblas_loops(problem, count)
        programs["gbdnn, every input"] = partial(infer, nthreads=count)
        if device:
            import torch

            from gbdnn.torch import infer as infer_on

            on = torch.device(device)
            name = torch.cuda.get_device_name(on) if on.type == "cuda" else device
            programs[f"PyTorch's products, {name}"] = partial(
                infer_on, problem.network, problem.features, device=device
            )
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
