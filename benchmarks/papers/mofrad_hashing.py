"""Hasanzadeh-Mofrad et al.: data and model parallelism on MPI ranks, with and without hashing.

    mpiexec -n 2 --bind-to none python benchmarks/papers/mofrad_hashing.py --json mofrad.json
    mpiexec -n 4 --bind-to none python benchmarks/papers/mofrad_hashing.py --json mofrad.json

=====================  ===========================================================================
data                   each rank computes its inputs through all layers; nothing is exchanged
neurons                each rank holds a block of columns of every W and computes them; the ranks
                       exchange the sparse rows of their columns after each layer
data, then neurons     pairs of ranks share the inputs; the two of a pair share the neurons
data, then layers      pairs of ranks share the inputs; a pair is a pipeline, cut by a sample
=====================  ===========================================================================

Each method runs without hashing, and with hashing of inputs, of neurons, and of both: the same
permutation on all ranks before rows or columns are divided into blocks. Ranks have one thread. The
table shows the time of the slowest rank, the imbalance (largest compute time over the mean), and
the bytes of activations that all ranks send between layers.

M. Hasanzadeh-Mofrad, R. Melhem, M. Y. Ahmad, M. Hammoud, "Studying the Effects of Hashing of Sparse
Deep Neural Networks on Data and Model Parallelisms", HPEC 2020.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import graphblas as gb
import numpy as np
from mpi4py import MPI

import gbdnn

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import papers

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

    Run = tuple[np.ndarray, float, int]  # categories, seconds of computing, bytes sent

HASHING = {"none": "", "inputs": "i", "neurons": "n", "both": "in"}


class Given(NamedTuple):
    """The data of a rank: all layers, its inputs, and their numbers."""

    network: gbdnn.Network
    features: gb.Matrix
    ids: np.ndarray


def measure(study: papers.Study, neurons: int, layers: int) -> None:
    """Time every method with every hashing."""
    comm = MPI.COMM_WORLD
    study.more["ranks"], study.is_shown = comm.size, comm.rank == 0
    study.published(neurons, layers, ["mofrad"])
    problem = study.problem(neurons, layers, checks=comm.rank == 0)
    for name, hashed in HASHING.items():
        net, X, ids = permuted(problem.network, problem.features, hashed)
        for way, run in ways(comm, net, X, ids).items():
            first, second = measured(comm, run), measured(comm, run)
            if comm.rank == 0:
                right = study.right(first["found"]) and study.right(second["found"])
                more = {each: second[each] for each in ("imbalance", "bytes sent")}
                more |= {"on": f"here, {comm.size} ranks", "hashing": name}
                study.measured(problem, way, 1, second["seconds"], right, **more)


def permuted(net: gbdnn.Network, X: gb.Matrix, hashed: str) -> Given:
    """Return the problem with inputs (``i``) and neurons (``n``) in another order."""
    draw = np.random.default_rng(0).permutation
    ids = draw(X.nrows) if "i" in hashed else np.arange(X.nrows)
    order = draw(X.ncols) if "n" in hashed else np.arange(X.ncols)
    if "n" in hashed:
        net = gbdnn.Network([_layer(each, order, order) for each in net])
    return Given(net, X[ids, order].new(), ids)


def _layer(layer: gbdnn.Layer, rows: np.ndarray, columns: np.ndarray) -> gbdnn.Layer:
    W = layer.weights[rows, columns].new()
    rule = {"bias_rule": layer.bias_rule, "clip": layer.clip}
    return gbdnn.Layer(W, bias=layer.bias, **rule)


def ways(comm: Comm, net: gbdnn.Network, X: gb.Matrix, ids: np.ndarray) -> dict[str, Any]:
    """Prepare the data of a rank, and return a function for each method."""
    found = {
        "data": partial(by_data, _share(net, X, ids, comm.rank, comm.size)),
        "neurons": partial(by_neurons, comm, _columns(comm, net), Given(net, X, ids)),
    }
    if comm.size >= 4 and comm.size % 2 == 0:
        pair = comm.Split(comm.rank // 2, comm.rank)
        mine = _share(net, X, ids, comm.rank // 2, comm.size // 2)
        found["data, then neurons"] = partial(by_neurons, pair, _columns(pair, net), mine)
        found["data, then layers"] = partial(by_layers, pair, mine)
    return found


def _share(net: gbdnn.Network, X: gb.Matrix, ids: np.ndarray, at: int, of: int) -> Given:
    """Return an equal share of consecutive inputs."""
    start, stop = X.nrows * at // of, X.nrows * (at + 1) // of
    return Given(net, X[start:stop, :].new(), ids[start:stop])


def _columns(comm: Comm, net: gbdnn.Network) -> list[tuple[int, gbdnn.Network]]:
    """Return the first of this rank's columns, and a network of these, for every layer."""
    found = []
    for layer in net:
        start, stop = (layer.ncols * at // comm.size for at in (comm.rank, comm.rank + 1))
        part = _layer(layer, np.arange(layer.nrows), np.arange(start, stop))
        found.append((start, gbdnn.Network([part])))
    return found


def by_data(mine: Given) -> Run:
    """Compute this rank's inputs."""
    began = perf_counter()
    Y = gbdnn.infer(mine.network, mine.features, deduplicate=False, nthreads=1)
    return mine.ids[gbdnn.categories(Y)], perf_counter() - began, 0


def by_neurons(comm: Comm, layers: list[tuple[int, gbdnn.Network]], mine: Given) -> Run:
    """Compute this rank's columns of Z = Y W, and receive the others, layer by layer."""
    Y, busy, sent = mine.features, 0.0, 0
    for first, net in layers:
        began = perf_counter()
        Z = gbdnn.infer(net, Y, deduplicate=False, nthreads=1)
        rows, columns, values = Z.to_coo()
        piece = (rows.astype(np.uint32), (columns + first).astype(np.uint32), values)
        busy += perf_counter() - began
        pieces = comm.allgather(piece)
        sent += (comm.size - 1) * sum(array.nbytes for array in piece)
        began = perf_counter()
        arrays = [np.concatenate(each) for each in zip(*pieces, strict=True)]
        width = mine.network[0].ncols
        Y = gb.Matrix.from_coo(*arrays, nrows=Y.nrows, ncols=width, dtype=Z.dtype)
        busy += perf_counter() - began
    living = mine.ids[gbdnn.categories(Y)]
    return living if comm.rank == 0 else living[:0], busy, sent


def by_layers(comm: Comm, mine: Given) -> Run:
    """Compute a pair's inputs in a pipeline of its ranks; the second returns the result."""
    stats: list[Any] = []
    Y = gbdnn.distributed.pipeline(
        mine.network, mine.features, comm=comm, deduplicate=False, nthreads=1, report=stats.extend
    )
    found = mine.ids[:0] if Y is None else mine.ids[gbdnn.categories(Y)]
    is_last = comm.rank == comm.size - 1  # sends the result only
    return found, stats[comm.rank].busy, 0 if is_last else stats[comm.rank].sent


def measured(comm: Comm, run: Any) -> dict[str, Any]:
    """Run on all ranks concurrently; return categories and statistics on rank 0."""
    comm.Barrier()
    began = perf_counter()
    found, busy, sent = run()
    gathered = comm.gather((found, busy, sent, perf_counter() - began))
    if gathered is None:
        return {}
    parts, busies, bytes_sent, seconds = zip(*gathered, strict=True)
    return {
        "found": np.sort(np.concatenate(parts)),
        "seconds": max(seconds),
        "imbalance": float(max(busies) / max(np.mean(busies), 1e-9)),
        "bytes sent": sum(bytes_sent),
    }


if __name__ == "__main__":
    papers.run(measure, "Hasanzadeh-Mofrad et al., hashing")
