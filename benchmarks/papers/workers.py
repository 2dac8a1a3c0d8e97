"""Chunks and kinds of workers (Sattar, Arifuzzaman), and balance (Ellis, Rajamanickam).

    python benchmarks/papers/workers.py --network 1024x120,4096x120 --json workers.json
    mpiexec -n 3 python -m mpi4py.futures benchmarks/papers/workers.py --pool mpi
    python benchmarks/papers/workers.py --balance --network 4096x120 --images MNIST

For tables III and IV of Sattar and Arifuzzaman, who send 60 chunks of 1,000 inputs to their
devices, this script first calls `gbdnn.infer` on consecutive chunks of several sizes. Then several
kinds of pools with the same number of workers, one thread each, compute the same batches; the table
shows their times, and the bytes of features and results sent. Threads share memory and send
nothing.

For figures 5 to 7 of Ellis and Rajamanickam, ``--balance`` assigns batches to spawned processes:
``static`` assigns consecutive inputs to each worker, as in the paper; ``dynamic`` assigns four
smaller batches per worker to free workers; ``hashed`` assigns inputs by a hash of their numbers.
The paper's ranks differ by up to 50 s of about 75, and its largest part has about twice the mean.

Workers read the network from a folder.

N. S. Sattar, S. Arifuzzaman, "Data Parallel Large Sparse Deep Neural Network on GPU", IPDPS
Workshops 2020.
J. A. Ellis, S. Rajamanickam, "Scalable Inference for Sparse Deep Neural Networks using Kokkos
Kernels", HPEC 2019.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

import gbdnn

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import options
import papers
import pools

if TYPE_CHECKING:
    import graphblas as gb

    from gbdnn.challenge import Problem

CHUNKS = [100, 1000, 10_000, 60_000]
# Batches per worker, and the order of the inputs.
ORDERS = {"static": (1, "given"), "hashed": (1, "hashed"), "dynamic": (4, "given")}


def measure(
    study: papers.Study,
    neurons: int,
    layers: int,
    balance: Annotated[bool, typer.Option("--balance", help="Compare orders of batches.")] = False,
    chunk: options.Several = None,
    pool: options.Several = None,
    workers: options.Cores = None,
) -> None:
    """Time chunks of inputs and kinds of workers, or orders of batches."""
    quick, count = study.quick, workers or max(2, papers.cores())
    study.published(
        neurons, layers, ["sattar", "ellis"], "KK-SpDNN, best" if balance else "TensorFlow"
    )
    problem = study.problem(neurons, layers)
    with tempfile.TemporaryDirectory() as name:
        gbdnn.save(problem.network, Path(name) / "net")
        shared = replace(problem, network=gbdnn.load(Path(name) / "net"))
        if balance:
            with pools.opened("spawned", count) as executor:
                for kind, (batches, order) in ORDERS.items():
                    last = over(study, shared, f"{kind} batches", executor, count, batches, order)
                    uneven = gbdnn.distributed.balance(last, count).seconds.imbalance
                    study.rows[-1]["max / mean"] = uneven
            return
        for size in options.numbers(chunk, [60, 240] if quick else CHUNKS):
            parts = [
                problem.features[k : k + size, :].new() for k in range(0, problem.inputs, size)
            ]
            name = f"gbdnn, {len(parts)} chunks of {min(size, problem.inputs):,}"
            study.compare(problem, {name: partial(chunks, problem.network, parts, count)}, count)
        usual = ["threads", "spawned"] if quick else pools.POOLS
        for kind in options.words(pool, usual, pools.POOLS):
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


def over(
    study: papers.Study, problem: Problem, kind: str, executor: Any, count: int, batches: int = 4,
    order: str = "given",
) -> list[Any]:  # fmt: skip
    """Add the row of a kind of workers; return the records of its last run."""
    records: list[Any] = []
    workers = gbdnn.distributed.Workers(
        executor,
        batch_size=-(-problem.inputs // (batches * count)),
        order=order,
        callback=records.append,
    )
    call = partial(
        gbdnn.infer, problem.network, problem.features,
        nthreads=1, deduplicate=False, executor=workers,
    )  # fmt: skip
    study.compare(problem, {f"gbdnn, {kind}, {count} workers": call}, count)
    last = records[-records[-1].batches :]
    sent = 0 if workers.shares_memory else sum(each.bytes for each in last)
    study.rows[-1] |= {"batches": len(last), "bytes sent": sent}
    return last


if __name__ == "__main__":
    papers.run(measure, "Chunks, workers, and their balance")
