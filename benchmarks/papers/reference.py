"""The challenge's reference (Kepner et al.), and when stored zeros are removed (Ellis et al.).

    python benchmarks/papers/reference.py --data DIR --images MNIST --json reference.json
    python benchmarks/papers/reference.py --trimming --network 1024x120 --json trimming.json

The reference is the challenge's definition in SciPy, in FP64 on one thread, without dropping
inputs. Reading and inference are timed separately. The challenge's rate is inputs x edges /
seconds; Sattar and Arifuzzaman note that some authors omit the number of inputs, so the table shows
both rates. Without official files, the network is first written in their format.

KK-SpDNN keeps the zeros that the ReLU creates until their fraction of the entries reaches a
threshold. With ``--trimming`` a loop over single GraphBLAS calls (`support/loops.py`) removes them
never, from 50 % on, and always. Without trimming the matrices become full, so the default is the
first 6,000 inputs. The paper has no table of these times.

J. Kepner, S. Alford, V. Gadepalli et al., "Sparse Deep Neural Network Graph Challenge", HPEC 2019,
arXiv:1909.05631.
J. A. Ellis, S. Rajamanickam, "Scalable Inference for Sparse Deep Neural Networks using Kokkos
Kernels", HPEC 2019.
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import graphblas as gb
import numpy as np
import scipy.sparse as sp
import typer

import gbdnn

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import loops
import papers

if TYPE_CHECKING:
    from gbdnn.challenge import Problem

TAUS = {"never": 2.0, "from 50 %": 0.5, "always": 1e-9}
_ENTRIES = 1 << 25  # maximum of a batch's activations


def measure(
    study: papers.Study,
    neurons: int,
    layers: int,
    trimming: Annotated[
        bool, typer.Option("--trimming", help="Time the removal of stored zeros.")
    ] = False,
) -> None:
    """Time reading and inference of the reference and of gbdnn, or the thresholds."""
    if trimming:
        study.inputs = study.inputs or (None if study.quick else 6000)
    name = "KK-SpDNN, one node" if trimming else "Serial reference"
    study.published(neurons, layers, ["ellis"], name)
    (_trimming if trimming else _reference)(study, study.problem(neurons, layers))


def _reference(study: papers.Study, problem: Problem) -> None:
    weights, seconds = reading(problem)
    X = sp.csr_array(gb.io.to_scipy_sparse(problem.features), dtype=np.float64)
    study.compare(problem, {"SciPy in FP64": partial(reference, problem, weights, X)}, 1, 1)
    for count in study.counts(1, papers.cores()):
        infer = partial(gbdnn.infer, problem.network, problem.features, nthreads=count)
        programs = {
            "gbdnn, every input": partial(infer, deduplicate=False),
            "gbdnn, equal inputs once": infer,
        }
        study.compare(problem, programs, count)
    for row in study.rows:
        if "inputs" in row and "reading, s" not in row:
            row["reading, s"] = seconds["SciPy" if row["program"].startswith("SciPy") else "gbdnn"]
            row["edges/s, inputs not counted"] = problem.network.edges / row["seconds"]


def _trimming(study: papers.Study, problem: Problem) -> None:
    parts = loops.batches(problem.features, entries=loops.FEW_ENTRIES)
    for count in study.counts():
        programs = {
            f"zeros trimmed: {name}": partial(
                loops.categories,
                partial(loops.sparse, problem.network, trim=tau),
                parts,
                count,
            )
            for name, tau in TAUS.items()
        }
        study.compare(problem, programs, count, rounds=1)


def reading(problem: Problem) -> tuple[list[sp.csr_array], dict[str, float]]:
    """Return SciPy's weights, and the seconds of NumPy and gbdnn to read the official files."""
    neurons, layers = problem.network.shape[0], len(problem.network)
    with tempfile.TemporaryDirectory() as name:
        gbdnn.save(problem.network, name, "tsv")
        began, weights = perf_counter(), []
        for k in range(layers):
            (file,) = Path(name).rglob(f"n{neurons}-l{k + 1}.tsv")
            rows, columns, values = np.loadtxt(file, delimiter="\t").T
            at = (rows.astype(np.int64) - 1, columns.astype(np.int64) - 1)
            weights.append(sp.csr_array((values, at), shape=(neurons, neurons)))
        scipy_seconds, began = perf_counter() - began, perf_counter()
        gbdnn.load(name)
        return weights, {"SciPy": scipy_seconds, "gbdnn": perf_counter() - began}


def reference(problem: Problem, weights: list[sp.csr_array], X: sp.csr_array) -> np.ndarray:
    """Return the categories; Y' = min(max(Y W + b, 0), 32), b added to the entries of Y W."""
    size, found = max(1, _ENTRIES // X.shape[1]), []
    for start in range(0, X.shape[0], size):
        Y = X[start : start + size]
        for layer, W in zip(problem.network, weights, strict=True):
            Y = Y @ W
            Y.data += layer.bias
            np.clip(Y.data, 0, layer.clip, out=Y.data)
            Y.eliminate_zeros()
        found.append(start + np.flatnonzero(np.diff(Y.indptr)))
    return np.concatenate(found)


if __name__ == "__main__":
    papers.run(measure, "The challenge's reference, and stored zeros")
