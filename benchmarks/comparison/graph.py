"""Compare graph convolutions and products of a graph matrix and features with other programs.

    python benchmarks/comparison/graph.py --what gcn,sage --nthreads 1,2
    python benchmarks/comparison/graph.py --what gcn,sage --nthreads 1,2 --graph products --rounds 1
    python benchmarks/comparison/graph.py --what product --features 64

The graphs are symmetric R-MAT graphs, whose degrees follow a power law, of the sizes of ogbn-arxiv
and ogbn-products; ``--graph NODES,EDGES`` chooses another size. The matrix is normalised
beforehand, as in GCN (with loops) or GraphSAGE (mean of the neighbours).

- `gcn` and `sage` are two layers, F features to F and to 40, of A Y W + b or A Y W + Y V + b.
- `product` is A Y, by `gbdnn.graph.spmm`.

Each program runs in its own process, interleaved with the others. The two rows of a table show
median seconds, and the peak memory of each process in GiB. A thousand rows of the answers are
compared.
"""

from __future__ import annotations

import sys
import tempfile
from itertools import product
from math import ceil, log2
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import scipy.sparse as sp
import typer

import gbdnn

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import options
import problems
import report
from graph_programs import PROGRAMS
from turns import in_turn

OTHERS = {
    "gcn": ("pyg", "pyg-csr", "torch", "scipy"),
    "sage": ("pyg", "pyg-csr", "torch", "scipy"),
    "product": ("torch", "torch-mkl", "scipy", "graphblas"),
}
GRAPHS = {  # nodes, and edges drawn before symmetrising
    "arxiv": (169_343, 1_300_000),
    "products": (2_449_029, 36_000_000),
}
TOLERANCE = 1e-4  # relative to the largest value
_PAUSE = 0.3  # until idle threads of the previous program sleep
_MESSAGES = 6 * 2**30  # maximum bytes of messages along edges for `pyg`


def rmat(nodes: int, edges: int, seed: int) -> sp.csr_array:
    """Return a symmetric R-MAT graph without loops."""
    rng, i, j = np.random.default_rng(seed), np.zeros(edges, np.int32), np.zeros(edges, np.int32)
    for _ in range(ceil(log2(nodes))):
        r = rng.random(edges, np.float32)
        i = 2 * i + (r >= 0.76)
        j = 2 * j + (((r >= 0.57) & (r < 0.76)) | (r >= 0.95))
    keep = (i < nodes) & (j < nodes) & (i != j)
    return symmetric(i[keep], j[keep], nodes)


def symmetric(i: np.ndarray, j: np.ndarray, nodes: int) -> sp.csr_array:
    """Return the adjacency matrix of a graph and its transpose."""
    A = sp.csr_array((np.ones(len(i), np.float32), (i, j)), shape=(nodes, nodes))
    A = (A + A.T).tocsr()
    A.data[:] = 1
    return A


def normalised(A: sp.csr_array, what: str) -> sp.csr_array:
    """Return D^-1 A for GraphSAGE, D^-1/2 (A + I) D^-1/2 otherwise."""
    kind = "mean" if what == "sage" else "symmetric"
    return problems.csr(gbdnn.graph.normalized(A, kind))


def compare(
    what: str, A: sp.csr_array, features: int, nthreads: int, rounds: int, names: tuple[str, ...]
) -> dict[str, Any]:
    """Run the programs interleaved; return their times."""
    limits = {f"{each}_NUM_THREADS": str(nthreads) for each in ("OMP", "MKL", "OPENBLAS")}
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sp.save_npz(folder / "A.npz", sp.csr_array(A), compressed=False)
        arguments = (folder, what, features, nthreads)
        with PROGRAMS.started(("gbdnn", *names), found, *arguments, **limits) as able:
            calls = {name: each.ask for name, each in able.items()}
            turns = in_turn(calls, rounds, pause=_PAUSE, twice=True)
        rows = {name: np.load(folder / f"{name}.npy") for name in able}
    for name, Y in rows.items():
        error = np.abs(Y - rows["gbdnn"]).max() / np.abs(rows["gbdnn"]).max()
        if not error <= TOLERANCE:
            raise SystemExit(f"{name}: answers differ from gbdnn's by {error:.2g} of the largest")
    return found | {
        "seconds": {name: turns.median(name) for name in turns.runs},
        "runs": {name: turns.seconds(name) for name in turns.runs},
        "GiB": {name: max(run["GiB"] for run in runs) for name, runs in turns.runs.items()},
    }


def main(
    what: options.Several = None,
    features: Annotated[list[int] | None, typer.Option(help="Per node; default: 128.")] = None,
    graph: Annotated[
        list[str] | None,
        typer.Option(help="arxiv (default), products, or NODES,EDGES; may be repeated."),
    ] = None,
    nthreads: options.Several = None,
    rounds: options.Rounds = 5,
    seed: options.Seed = 0,
    quick: options.Quick = False,
    json_file: options.Json = None,
) -> None:
    """Compare gbdnn with other programs on graphs."""
    if quick:
        graph, features, rounds = ["500,2000"], [8], 1
    counts = options.numbers(nthreads, [2])
    told: dict[str, Any] = {**report.circumstances(), "cells": [], "rounds": rounds}
    report.say_load(told)
    whats = options.words(what, ["product"], OTHERS)
    for name in graph or ["arxiv"]:
        G = rmat(*(GRAPHS.get(name) or map(int, name.split(","))), seed)
        for each in whats:
            A = normalised(G, each)
            for width, count in product(features or [128], counts):
                fits = 4 * A.nnz * width <= _MESSAGES
                names = tuple(n for n in OTHERS[each] if fits or n != "pyg")
                found = compare(each, A, width, count, rounds, names)
                told["versions"] |= found.pop("versions")
                facts = {"what": each, "graph": name, "nodes": A.shape[0], "edges": A.nnz}
                facts |= {"features": width, "nthreads": count}
                told["cells"].append(facts | found)
                report.table([facts | found["seconds"], facts | found["GiB"]])
                report.write(json_file, told)


if __name__ == "__main__":
    options.run(main)
