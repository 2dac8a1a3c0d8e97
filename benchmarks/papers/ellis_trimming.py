"""Ellis, Rajamanickam (KK-SpDNN), trimming: stored zeros are removed above a fraction tau.

    python benchmarks/papers/ellis_trimming.py --network 1024x120 --json trimming.json

KK-SpDNN keeps the zeros that the ReLU creates until their fraction of the entries reaches a
threshold. This script removes them never, from 50 % on, and always, in a loop over single GraphBLAS
calls (`support/loops.py`). Without trimming the matrices become full, so the default is the
first 6,000 inputs. The paper has no table of these times.

J. A. Ellis, S. Rajamanickam, "Scalable Inference for Sparse Deep Neural Networks using Kokkos
Kernels", HPEC 2019.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import loops
import papers

TAUS = {"never": 2.0, "from 50 %": 0.5, "always": 1e-9}


def measure(study: papers.Study, neurons: int, layers: int) -> None:
    """Time the loop with three thresholds; count its stored entries."""
    study.inputs = study.inputs or (None if study.quick else 6000)
    study.published(neurons, layers, ["ellis"], "KK-SpDNN, one node")
    problem = study.problem(neurons, layers)
    parts = loops.batches(problem.features, entries=loops.FEW_ENTRIES)
    for count in study.counts():
        counts: dict[str, list[int]] = {name: [] for name in TAUS}
        programs = {
            f"zeros trimmed: {name}": partial(
                loops.categories,
                partial(loops.sparse, problem.network, trim=tau, told=counts[name].append),
                parts,
                count,
            )
            for name, tau in TAUS.items()
        }
        study.compare(problem, programs, count, rounds=1)
        for name, row in zip(TAUS, study.rows[-len(TAUS) :], strict=True):
            row["entries, all layers"] = sum(counts[name]) // 2  # two runs


if __name__ == "__main__":
    papers.run(measure, "Ellis et al., KK-SpDNN, trimming")
