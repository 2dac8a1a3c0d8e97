"""Compare graph convolutions and products of a graph matrix and features with other programs.

    python benchmarks/comparison/graph.py --what gcn,sage --nthreads 1,2
    python benchmarks/comparison/graph.py --what gcn,sage --nthreads 1,2 --graph products --rounds 1
    python benchmarks/comparison/graph.py --what product --features 64 --dtype FP32 --dtype FP64
    python benchmarks/comparison/graph.py --what nodes --features 256
    python benchmarks/comparison/graph.py --what shapes --features 16

The graphs are symmetric R-MAT graphs, whose degrees follow a power law, of the sizes of ogbn-arxiv
and ogbn-products; ``--graph NODES,EDGES`` chooses another size. The matrix is normalised
beforehand, as in GCN (with loops) or GraphSAGE (mean of the neighbours).

- `gcn` and `sage` are two layers, F features to F and to 40, of A Y W + b or A Y W + Y V + b.
- `product` is A Y, by `gbdnn.graph.spmm`. `nodes` compares 1,000 nodes of two GCN layers with all
  nodes. `shapes` are products on a path, a star and a random tree.

Each program runs in its own process, interleaved with the others. The table shows medians, the
peak memory of each process, and the time of the fastest other program divided by gbdnn's.
A thousand rows of the answers are compared.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import warnings
from itertools import product
from math import ceil, log2
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import scipy.sparse as sp
import typer

# Not this folder, whose accelerate.py would hide the package of that name.
sys.path[0] = str(Path(__file__).parents[1] / "support")
import problems
import report
from processes import Process, prepared, serve
from turns import in_turn, timed

if TYPE_CHECKING:
    from collections.abc import Callable

LAYERS = {
    "pyg": "PyTorch Geometric, `edge_index`",
    "pyg-csr": "PyTorch Geometric, CSR",
    "torch": 'PyTorch, `torch.sparse.mm(A, X, "sum")`',
    "scipy": "SciPy and NumPy",
}
OTHERS = {
    "gcn": tuple(LAYERS),
    "sage": tuple(LAYERS),
    "product": ("torch", "torch-mkl", "scipy", "graphblas", "pyg"),
    "nodes": ("gbdnn-all",),
    "shapes": (),
}
GRAPHS = {  # nodes, and edges drawn before symmetrising
    "arxiv": (169_343, 1_300_000),
    "products": (2_449_029, 36_000_000),
}
DTYPES = {"FP32": np.float32, "FP64": np.float64}
CLASSES = 40
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
    if what != "sage":
        A = (A + sp.eye_array(A.shape[0], dtype=np.float32)).tocsr()
    degrees = np.diff(A.indptr)
    inverse = 1 / np.maximum(degrees, 1).astype(np.float32)
    if what != "sage":
        inverse = np.sqrt(inverse)
    values = np.repeat(inverse, degrees)
    if what != "sage":
        values *= inverse[A.indices]
    return sp.csr_array((values, A.indices, A.indptr), shape=A.shape)


def as_graphblas(A: sp.csr_array) -> Any:
    """Return a graphblas.Matrix."""
    import graphblas as gb

    return gb.io.from_scipy_sparse(A)


def weights(features: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return W and V of two layers, scaled to keep activations in range."""
    rng = np.random.default_rng(1)
    return [
        tuple(
            (rng.normal(size=(features, after)) * np.sqrt(2 / features)).astype(np.float32)
            for _ in "WV"
        )
        for after in (features, CLASSES)
    ]


def gbdnn_program(what: str, A: sp.csr_array, X: np.ndarray, nthreads: int) -> Callable[[], Any]:
    """Return a function that computes the problem with gbdnn."""
    from gbdnn import graph

    held = as_graphblas(A)
    if what in ("product", "shapes"):
        return lambda: graph.spmm(held, X, nthreads=nthreads)
    first, last = weights(X.shape[1])
    layers = [
        graph.Convolution(
            W,
            0.01,
            self_weights=V if what == "sage" else None,
            activation="relu" if W is first[0] else "identity",
        )
        for W, V in (first, last)
    ]
    some = np.random.default_rng(2).choice(len(X), min(1000, len(X)), replace=False)
    options = {"nodes": some} if what == "nodes" else {}
    return lambda: graph.infer(layers, X, held, nthreads=nthreads, **options)


def scipy_program(what: str, A: sp.csr_array, X: np.ndarray) -> Callable[[], Any]:
    """Return a function that uses SciPy, and NumPy for the weights."""
    if what == "product":
        return lambda: A @ X

    def run() -> np.ndarray:
        Y = X
        for k, (W, V) in enumerate(weights(X.shape[1])):
            Z = A @ (Y @ W)
            if what == "sage":
                Z += Y @ V
            Z += np.float32(0.01)
            Y = Z if k else np.maximum(Z, 0, out=Z)
        return Y

    return run


def torch_program(name: str, what: str, A: sp.csr_array, X: np.ndarray) -> Callable[[], Any]:
    """Return a function that uses PyTorch or PyTorch Geometric."""
    import torch

    warnings.simplefilter("ignore")  # CSR support is in beta
    torch.set_grad_enabled(False)
    x = torch.from_numpy(X)
    indptr, indices, values = map(torch.from_numpy, (A.indptr, A.indices, A.data))
    csr = torch.sparse_csr_tensor(indptr, indices, values, A.shape)
    if name == "torch-mkl":
        return lambda: csr @ x
    if name == "torch" and what == "product":
        return lambda: torch.sparse.mm(csr, x, "sum")
    if name == "torch":
        layers = [tuple(map(torch.from_numpy, each)) for each in weights(X.shape[1])]

        def by_hand() -> Any:
            y = x
            for k, (W, V) in enumerate(layers):
                z = torch.sparse.mm(csr, y @ W, "sum").add_(0.01)
                if what == "sage":
                    z.addmm_(y, V)
                y = z if k else z.relu_()
            return y

        return by_hand
    from torch_geometric import nn

    if name == "pyg":
        coo = A.tocoo()
        edges = torch.from_numpy(np.array([coo.col, coo.row], np.int64))
        del csr, coo
    if what == "product":
        conv = nn.SimpleConv(aggr="sum")
        return lambda: conv(x, edges, values)
    convs = []
    for W, V in weights(X.shape[1]):
        if what == "sage":
            conv = nn.SAGEConv(*W.shape)  # mean aggregation
            own, conv.lin_r.weight[:] = conv.lin_l, torch.from_numpy(V.T)
            own.bias[:] = 0.01
        else:
            conv = nn.GCNConv(*W.shape, normalize=False)
            own, conv.bias[:] = conv.lin, 0.01
        own.weight[:] = torch.from_numpy(W.T)
        convs.append(conv)
    if what == "sage" and name == "pyg-csr":
        values.fill_(1)
    given = (edges if name == "pyg" else csr,)
    if what == "gcn" and name == "pyg":
        given = (edges, values)

    def run() -> Any:
        first, last = convs
        return last(first(x, *given).relu_(), *given)

    return run


def program(name: str, what: str, A: sp.csr_array, X: np.ndarray, nthreads: int) -> Any:
    """Return a function that computes the problem."""
    if name.startswith("gbdnn"):
        return gbdnn_program("all" if name == "gbdnn-all" else what, A, X, nthreads)
    if name == "scipy":
        return scipy_program(what, A, X)
    if name == "graphblas":
        import graphblas as gb

        held, Y = as_graphblas(A), gb.Matrix.from_dense(X)
        return lambda: gb.semiring.plus_times(held @ Y).new()
    return torch_program(name, what, A, X)


def prepared_program(
    name: str, what: str, folder: str, features: str, nthreads: str, dtype: str
) -> Callable[[], dict[str, Any]]:
    """Return a function that runs a program, stores rows of its result and returns peak memory."""
    A = sp.csr_array(sp.load_npz(Path(folder) / "A.npz"), dtype=DTYPES[dtype])
    X = np.random.default_rng(0).standard_normal((A.shape[0], int(features)), DTYPES[dtype])
    call = program(name, what, A, X, int(nthreads))
    checked = np.unique(np.linspace(0, len(X) - 1, 1000).astype(int))

    def then(Y: Any) -> dict[str, float]:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        if what != "nodes":
            if isinstance(Y, np.ndarray):
                rows = Y[checked]
            elif hasattr(Y, "numpy"):
                rows = Y.numpy()[checked]
            else:
                rows = Y[checked, :].new().to_dense(fill_value=0)
            np.save(Path(folder) / f"{name}.npy", rows)
        return {"GiB": peak}

    return timed(call, then)


def compare(
    what: str, A: sp.csr_array, features: int, nthreads: int, rounds: int, names: tuple[str, ...],
    dtype: str,
) -> dict[str, Any]:  # fmt: skip
    """Run the programs interleaved; return their times."""
    limits = {f"{each}_NUM_THREADS": str(nthreads) for each in ("OMP", "MKL", "OPENBLAS", "NUMBA")}
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sp.save_npz(folder / "A.npz", sp.csr_matrix(A), compressed=False)
        started = [
            Process(
                name, __file__, "--child", name, what, folder, features, nthreads, dtype, **limits
            )
            for name in ("gbdnn", *names)
        ]
        with prepared(started, found) as able:
            turns = in_turn({name: each.ask for name, each in able.items()}, rounds, pause=_PAUSE)
        rows = {name: np.load(folder / f"{name}.npy") for name in able if what != "nodes"}
    for name, Y in rows.items():
        error = np.abs(Y - rows["gbdnn"]).max() / np.abs(rows["gbdnn"]).max()
        if not error <= TOLERANCE:
            raise SystemExit(f"{name}: answers differ from gbdnn's by {error:.2g} of the largest")
    return found | {
        "seconds": {name: turns.median(name) for name in turns.runs},
        "runs": {name: turns.seconds(name) for name in turns.runs},
        "GiB": {name: max(run["GiB"] for run in runs) for name, runs in turns.runs.items()},
    }


def show(where: str, found: dict[str, Any]) -> None:
    """Print a line of a table."""
    seconds = dict(found["seconds"])
    words = [f"{name} {each:.3f} ({found['GiB'][name]:.1f})" for name, each in seconds.items()]
    mine = seconds.pop("gbdnn")
    if seconds:
        words.append(f"times {min(seconds.values()) / mine:.2f}")
    print(f"{where}, s (GiB): " + ", ".join(words), flush=True)


def graphs(names: list[str], seed: int) -> dict[str, sp.csr_array]:
    """Return the named R-MAT graphs."""
    found = {}
    for name in names:
        nodes, edges = GRAPHS.get(name) or map(int, name.split(","))
        found[name] = rmat(nodes, edges, seed)
    return found


def shapes(nodes: int, seed: int) -> dict[str, sp.csr_array]:
    """Return a path, a star and a random tree."""
    rest = np.arange(1, nodes)
    anywhere = (np.random.default_rng(seed).random(nodes - 1) * rest).astype(int)
    ends = {"path": rest - 1, "star": np.zeros(nodes - 1, int), "tree": anywhere}
    return {name: symmetric(rest, end, nodes) for name, end in ends.items()}


def main(
    whats: Annotated[
        list[str] | None,
        typer.Option("--what", help="gcn, sage, product, nodes, shapes; several by comma."),
    ] = None,
    features: Annotated[list[int] | None, typer.Option(help="Per node; default: 128.")] = None,
    graph: Annotated[
        list[str] | None,
        typer.Option(help="arxiv (default), products, or NODES,EDGES; may be repeated."),
    ] = None,
    dtype: Annotated[
        list[str] | None,
        typer.Option(help="FP32 (default) or FP64, for products; may be repeated."),
    ] = None,
    nthreads: problems.Threads = None,
    rounds: Annotated[int, typer.Option(min=1, help="Timed rounds.")] = 5,
    seed: int = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Run a small problem as a test.")] = False,
    json_file: problems.Json = None,
) -> None:
    """Compare gbdnn with other programs on graphs."""
    if quick:
        graph, features, rounds = ["500,2000"], [8], 1
    counts = problems.thread_counts(nthreads, [2])
    told: dict[str, Any] = {**report.circumstances(), "cells": [], "rounds": rounds}
    report.say_load(told)
    whats = problems.names(whats, ["product"], OTHERS)
    made = graphs(graph or ["arxiv"], seed) if {*whats} - {"shapes"} else {}
    for what in whats:
        for name, G in (shapes(1_500_000, seed) if what == "shapes" else made).items():
            A = normalised(G, what)
            for each in features or [128]:
                fits = 4 * A.nnz * each <= _MESSAGES
                names = tuple(n for n in OTHERS[what] if fits or n != "pyg")
                kinds = dtype or ["FP32"] if what == "product" else ["FP32"]
                for count, kind in product(counts, kinds):
                    found = compare(what, A, each, count, rounds, names, kind)
                    told["versions"] |= found.pop("versions")
                    facts = {"what": what, "graph": name, "nodes": A.shape[0], "edges": A.nnz}
                    facts |= {"features": each, "nthreads": count, "dtype": kind}
                    told["cells"].append(facts | found)
                    where = (
                        f"{what}, {name}: {A.shape[0]:,} nodes, {A.nnz:,} edges, {each} features"
                    )
                    show(f"{where}, {kind}, {count} threads", found)
                    report.write(json_file, told)


if __name__ == "__main__":
    if "--child" in sys.argv:
        serve(lambda: prepared_program(*sys.argv[2:]))
    else:
        typer.run(main)
