"""Sattar, Arifuzzaman (TensorFlow), tables III and IV: seconds, chunks of inputs, workers.

    python benchmarks/papers/sattar_tables3_4.py --network 1024x120,4096x120 --json sattar.json
    mpiexec -n 3 python -m mpi4py.futures benchmarks/papers/sattar_tables3_4.py --pool mpi

The paper sends 60 chunks of 1,000 inputs to its devices. This script first calls `gbdnn.infer` on
consecutive chunks of several sizes. Then several kinds of pools with the same number of workers,
one thread each, compute the same batches; the table shows their times, and the bytes of features
and results sent. Workers read the network from a folder. Threads share memory and send nothing.

N. S. Sattar, S. Arifuzzaman, "Data Parallel Large Sparse Deep Neural Network on GPU", IPDPS
Workshops 2020.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import gbdnn

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import options
import papers
import pools

if TYPE_CHECKING:
    import graphblas as gb

    from gbdnn.challenge import Problem

CHUNKS = [100, 1000, 10_000, 60_000]


def measure(
    study: papers.Study,
    neurons: int,
    layers: int,
    chunk: options.Several = None,
    pool: options.Several = None,
    workers: options.Cores = None,
) -> None:
    """Time chunks of inputs, and kinds of workers."""
    quick, count = study.quick, workers or papers.cores()
    sizes = options.numbers(chunk, [60, 240] if quick else CHUNKS)
    kinds = options.words(pool, ["threads", "spawned"] if quick else pools.POOLS, pools.POOLS)
    study.published(neurons, layers, ["sattar"])
    problem = study.problem(neurons, layers)
    for size in sizes:
        parts = [
            problem.features[start : start + size, :].new()
            for start in range(0, problem.inputs, size)
        ]
        name = f"gbdnn, {len(parts)} chunks of {min(size, problem.inputs):,}"
        study.compare(problem, {name: partial(chunks, problem.network, parts, count)}, count)
    with tempfile.TemporaryDirectory() as name:
        gbdnn.save(problem.network, Path(name) / "net")
        shared = replace(problem, network=gbdnn.load(Path(name) / "net"))
        for kind in kinds:
            try:
                with pools.opened(kind, count) as executor:
                    over(study, shared, kind, executor, count)
            except ImportError as err:
                study.more.setdefault("skipped", {})[kind] = str(err)
                print(f"{kind}: skipped: {err}")


def chunks(network: gbdnn.Network, parts: list[gb.Matrix], nthreads: int) -> np.ndarray:
    """Return the categories of consecutive chunks, without deduplication."""
    found, first = [], 0
    for X in parts:
        Y = gbdnn.infer(network, X, deduplicate=False, nthreads=nthreads)
        found.append(first + gbdnn.categories(Y))
        first += X.nrows
    return np.concatenate(found)


def over(study: papers.Study, problem: Problem, kind: str, executor: Any, count: int) -> None:
    """Add the row of a kind of workers."""
    records: list[Any] = []
    batch = max(1, problem.inputs // (4 * count))
    workers = gbdnn.distributed.Workers(executor, batch=batch, stats=records.append)
    call = partial(
        gbdnn.infer, problem.network, problem.features,
        nthreads=1, deduplicate=False, executor=workers,
    )  # fmt: skip
    name = f"gbdnn, {kind}, {count} workers"
    study.compare(problem, {name: call}, count)
    last = records[-records[-1].batches :]
    sent = 0 if workers.shares_memory else sum(each.bytes for each in last)
    study.rows[-1] |= {"batches": len(last), "bytes sent": sent}


if __name__ == "__main__":
    papers.run(measure, "Sattar, Arifuzzaman, tables III and IV")
