"""Products of a graph's matrix with features, and layers of convolutions, beside other programs.

    python benchmarks/comparison/graph.py --features 64 --features 256
    python benchmarks/comparison/graph.py --what layers --features 256
    python benchmarks/comparison/graph.py --what nodes --features 256
    python benchmarks/comparison/graph.py --what large --features 128 --scale 22 --edges 31_000_000
    python benchmarks/comparison/graph.py --what shapes --features 16

The graph is a symmetric R-MAT graph with a loop at each node, normalised as GCN does; the default
has the size of ogbn-arxiv. Each program is a process of its own, and they run in turn: another's
threads that spin would take its cores. Shown are medians, and the time of the best other program
over gbdnn's. `layers` are three of A Y W + b and a ReLU. `nodes` are 1,000 nodes of two layers,
beside all. `large` runs gbdnn alone, three layers, and tells its memory; `shapes` runs a product on
a path, a star and a random tree.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import scipy.sparse as sp
import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import report
from processes import Process, prepared, serve
from turns import in_turn, timed

if TYPE_CHECKING:
    from collections.abc import Callable

OTHERS = {
    "product": ("torch", "scipy", "graphblas", "pyg"),
    "layers": ("pyg", "pyg-csr"),
    "nodes": ("gbdnn-all",),
}
PAUSE = 0.3  # until another program's threads sleep


def rmat(scale: int, edges: int, nodes: int, seed: int) -> sp.csr_array:
    """Return a symmetric R-MAT graph with loops, normalised by the square roots of degrees."""
    rng, i, j = np.random.default_rng(seed), np.zeros(edges, np.int32), np.zeros(edges, np.int32)
    for _ in range(scale):
        r = rng.random(edges, np.float32)
        i = 2 * i + (r >= 0.76)
        j = 2 * j + (((r >= 0.57) & (r < 0.76)) | (r >= 0.95))
    keep = (i < nodes) & (j < nodes) & (i != j)
    i, j = i[keep], j[keep]
    A = sp.csr_array((np.ones(len(i), np.float32), (i, j)), shape=(nodes, nodes))
    return symmetric(A)


def symmetric(A: sp.csr_array) -> sp.csr_array:
    """Return a graph with its transpose and loops, normalised."""
    A = (A + A.T + sp.eye_array(A.shape[0], dtype=np.float32)).tocsr()
    A.data[:] = 1
    inverse = 1 / np.sqrt(np.diff(A.indptr).astype(np.float32))
    A.data = np.repeat(inverse, np.diff(A.indptr)) * inverse[A.indices]
    return A


def as_graphblas(A: sp.csr_array) -> Any:
    """Return the matrix in GraphBLAS."""
    import graphblas as gb

    return gb.io.from_scipy_sparse(A)


def weights(features: int, layers: int) -> list[np.ndarray]:
    """Return weights that keep activations in range."""
    rng = np.random.default_rng(1)
    found = rng.normal(size=(layers, features, features)) * np.sqrt(2 / features)
    return list(found.astype(np.float32))


def gbdnn_program(what: str, A: sp.csr_array, X: np.ndarray, nthreads: int) -> Callable[[], Any]:
    """Return a call of gbdnn."""
    import gbdnn

    graph, held = gbdnn.graph, as_graphblas(A)
    if what in ("product", "shapes"):
        return lambda: graph.propagate(held, X, nthreads=nthreads)
    count = 2 if what in ("nodes", "all") else 3
    layers = gbdnn.Network([gbdnn.Layer(W, 0.01) for W in weights(X.shape[1], count)])
    some = np.random.default_rng(2).choice(len(X), min(1000, len(X)), replace=False)
    options = {"nodes": some} if what == "nodes" else {}
    return lambda: graph.infer(layers, X, held, nthreads=nthreads, **options)


def torch_program(name: str, what: str, A: sp.csr_array, X: np.ndarray) -> Callable[[], Any]:
    """Return a call of PyTorch or PyTorch Geometric."""
    import torch

    warnings.simplefilter("ignore")  # CSR is a beta
    torch.set_grad_enabled(False)
    x = torch.from_numpy(X)
    arrays = (torch.from_numpy(each.astype(np.int64)) for each in (A.indptr, A.indices))
    csr = torch.sparse_csr_tensor(*arrays, torch.from_numpy(A.data), A.shape)
    if name == "torch":
        return lambda: csr @ x
    from torch_geometric.nn import GCNConv, SimpleConv

    coo = A.tocoo()
    edges = torch.from_numpy(np.array([coo.col, coo.row], np.int64))
    values = torch.from_numpy(coo.data)
    if what == "product":
        conv = SimpleConv(aggr="sum")
        return lambda: conv(x, edges, values)
    convs = []
    for W in weights(X.shape[1], 3):
        conv = GCNConv(*W.shape, normalize=False)
        conv.lin.weight[:], conv.bias[:] = torch.from_numpy(W.T), 0.01
        convs.append(conv)

    def run() -> Any:
        y = x
        for conv in convs:
            y = conv(y, csr) if name == "pyg-csr" else conv(y, edges, values)
            y = y.relu_()
        return y

    return run


def program(name: str, what: str, A: sp.csr_array, X: np.ndarray, nthreads: int) -> Any:
    """Return a call that computes the problem."""
    if name.startswith("gbdnn"):
        return gbdnn_program("all" if name == "gbdnn-all" else what, A, X, nthreads)
    if name == "scipy":
        return lambda: A @ X
    if name == "graphblas":
        import graphblas as gb

        held, Y = as_graphblas(A), gb.Matrix.from_dense(X)
        return lambda: gb.semiring.plus_times(held @ Y).new()
    return torch_program(name, what, A, X)


def total(Y: np.ndarray) -> float:
    """Return the sum of absolute values, which does not depend on where zeros are stored."""
    return float(np.abs(Y).sum(dtype=np.float64))


def prepared_program(
    name: str, what: str, folder: str, features: str, nthreads: str
) -> Callable[[], dict[str, Any]]:
    """Return what runs a program, and tells a sum over its answer and the memory it took."""
    A = sp.csr_array(sp.load_npz(Path(folder) / "A.npz"))
    X = np.random.default_rng(0).normal(size=(A.shape[0], int(features))).astype(np.float32)
    call = program(name, what, A, X, int(nthreads))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def then(Y: Any) -> dict[str, float]:
        taken = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
        if not isinstance(Y, np.ndarray):
            Y = Y.numpy() if hasattr(Y, "numpy") else Y.to_coo(rows=False, columns=False)[2]
        return {"sum": 0.0 if what == "large" else total(Y), "GiB": taken}

    return timed(call, then)


def compare(
    what: str, A: sp.csr_array, features: int, nthreads: int, rounds: int
) -> dict[str, Any]:
    """Run the programs in turn; return seconds by program."""
    limits = {f"{each}_NUM_THREADS": str(nthreads) for each in ("OMP", "MKL", "OPENBLAS", "NUMBA")}
    with tempfile.TemporaryDirectory() as folder:
        sp.save_npz(Path(folder) / "A.npz", sp.csr_matrix(A), compressed=False)
        started = [
            Process(name, __file__, "--child", name, what, folder, features, nthreads, **limits)
            for name in ("gbdnn", *OTHERS.get(what, ()))
        ]
        with prepared(started, {}) as able:
            turns = in_turn({name: each.ask for name, each in able.items()}, rounds, pause=PAUSE)
    if what in ("product", "layers"):
        sums = {name: runs[0]["sum"] for name, runs in turns.first.items()}
        if not np.allclose([*sums.values()], sums["gbdnn"], rtol=1e-4):
            raise SystemExit(f"answers differ: {sums}")
    return {
        "seconds": {name: turns.median(name) for name in turns.runs},
        "runs": {name: turns.seconds(name) for name in turns.runs},
        "GiB": turns.runs["gbdnn"][-1]["GiB"] if what == "large" else None,
    }


def show(what: str, label: str, found: dict[str, Any]) -> None:
    """Print a line of a table."""
    seconds = dict(found["seconds"])
    words = [f"{name} {1e3 * each:,.0f}" for name, each in seconds.items()]
    mine = seconds.pop("gbdnn")
    if seconds:
        words.append(f"times {min(seconds.values()) / mine:.2f}")
    if found["GiB"]:
        words.append(f"GiB beyond A and X: {found['GiB']:.2f}")
    print(f"{what}, {label}, ms: " + ", ".join(words), flush=True)


def main(
    what: Annotated[str, typer.Option(help="product, layers, nodes, large or shapes")] = "product",
    features: Annotated[list[int] | None, typer.Option(help="Of a node.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Default: 169,343.")] = None,
    scale: Annotated[int, typer.Option(help="2^scale nodes are drawn from.")] = 18,
    edges: Annotated[
        int, typer.Option(help="That are drawn, before they are mirrored.")
    ] = 1_300_000,
    nthreads: int = 2,
    rounds: int = 7,
    seed: int = 0,
    json_file: Annotated[Path | None, typer.Option("--json")] = None,
) -> None:
    """Compare."""
    count = nodes or (169_343 if scale == 18 else int(0.584 * 2**scale))
    graphs = {}
    if what == "shapes":
        count, rng = nodes or 1_500_000, np.random.default_rng(seed)
        one = np.ones(count - 1, np.float32)
        rest, before = np.arange(1, count), np.zeros(count - 1, int)
        anywhere = (rng.random(count - 1) * rest).astype(int)
        for name, other in (("path", rest - 1), ("star", before), ("tree", anywhere)):
            graphs[name] = symmetric(sp.csr_array((one, (rest, other)), shape=(count, count)))
    else:
        graphs["R-MAT"] = rmat(scale, edges, count, seed)
    told: dict[str, Any] = {**report.circumstances(), "what": what, "found": {}}
    for name, A in graphs.items():
        print(f"{name}: {count:,} nodes, {A.nnz:,} edges, {nthreads} threads")
        for each in features or [64]:
            found = compare(what, A, each, nthreads, rounds)
            told["found"][f"{name} {each}"] = found
            show(what, f"{each} features", found)
    report.write(json_file, told)


if __name__ == "__main__":
    if "--child" in sys.argv:
        serve(lambda: prepared_program(*sys.argv[2:]))
    else:
        typer.run(main)
