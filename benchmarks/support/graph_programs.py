"""The programs that `graph` compares, each in its own process.

Each function takes a graph's matrix A, features X, the layers' weights (none for a product), and
what to compute, and returns the function to time.
"""

from __future__ import annotations

import resource
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from processes import Program, Programs, serve
from turns import timed

if TYPE_CHECKING:
    from collections.abc import Callable

    Weights = list[tuple[np.ndarray, np.ndarray]]

CLASSES, BIAS = 40, 0.01


def gbdnn(
    A: sp.csr_array, X: np.ndarray, weights: Weights, what: str, nthreads: int
) -> Callable[[], Any]:
    """gbdnn, with a GraphBLAS matrix."""
    import graphblas as gb

    from gbdnn import graph

    held = gb.io.from_scipy_sparse(A)
    if not weights:
        return lambda: graph.spmm(held, X, nthreads=nthreads)
    layers = [
        graph.Convolution(
            W, BIAS, self_weights=V if what == "sage" else None, activation=activation
        )
        for (W, V), activation in zip(weights, ("relu", "identity"), strict=True)
    ]
    return lambda: graph.infer(layers, X, held, nthreads=nthreads)


def scipy(A: sp.csr_array, X: np.ndarray, weights: Weights, what: str, _: int) -> Callable[[], Any]:
    """SciPy, and NumPy for the weights."""
    if not weights:
        return lambda: A @ X

    def add(Z: np.ndarray, Y: np.ndarray, V: np.ndarray) -> None:
        Z += Y @ V

    added = add if what == "sage" else None
    return _by_hand(A.__matmul__, X, weights, added, lambda Z: np.maximum(Z, 0, out=Z))


def graphblas(A: sp.csr_array, X: np.ndarray, *_: Any) -> Callable[[], Any]:
    """GraphBLAS: a product."""
    import graphblas as gb

    held, Y = gb.io.from_scipy_sparse(A), gb.Matrix.from_dense(X)
    return lambda: gb.semiring.plus_times(held @ Y).new()


def torch(
    A: sp.csr_array, X: np.ndarray, weights: Weights, what: str, _: int, mkl: bool
) -> Callable[[], Any]:
    """PyTorch, with its own product, which is its fastest, or MKL's."""
    import torch

    csr, x = _tensors(torch, A, X)

    def multiply(y: Any) -> Any:
        return csr @ y if mkl else torch.sparse.mm(csr, y, "sum")

    if not weights:
        return lambda: multiply(x)
    layers = [tuple(map(torch.from_numpy, each)) for each in weights]
    add = torch.Tensor.addmm_ if what == "sage" else None
    return _by_hand(multiply, x, layers, add, torch.relu_)


def pyg(
    A: sp.csr_array, X: np.ndarray, weights: Weights, what: str, _: int, csr: bool
) -> Callable[[], Any]:
    """PyTorch Geometric with a CSR matrix, or with ``edge_index``."""
    import torch
    from torch_geometric import nn

    held, x = _tensors(torch, A, X)
    given = (held,)
    if csr and what == "sage":
        held.values().fill_(1)
    elif not csr:
        coo = A.tocoo()
        given = (torch.from_numpy(np.array([coo.col, coo.row], np.int64)),)
        given += () if what == "sage" else (torch.from_numpy(A.data),)
        del held, coo
    convs = []
    for W, V in weights:
        if what == "sage":
            conv = nn.SAGEConv(*W.shape)  # mean aggregation
            own, conv.lin_r.weight[:] = conv.lin_l, torch.from_numpy(V.T)
            own.bias[:] = BIAS
        else:
            conv = nn.GCNConv(*W.shape, normalize=False)
            own, conv.bias[:] = conv.lin, BIAS
        own.weight[:] = torch.from_numpy(W.T)
        convs.append(conv)
    first, last = convs
    return lambda: last(first(x, *given).relu_(), *given)


def _by_hand(
    multiply: Callable[[Any], Any], X: Any, weights: Any, add: Any, relu: Callable[[Any], Any]
) -> Callable[[], Any]:
    """Return two layers in single calls: A Y W + b, and `add` adds Y V."""

    def run() -> Any:
        Y = X
        for k, (W, V) in enumerate(weights):
            Z = multiply(Y @ W)
            Z += BIAS
            if add is not None:
                add(Z, Y, V)
            Y = Z if k else relu(Z)
        return Y

    return run


def _tensors(torch: Any, A: sp.csr_array, X: np.ndarray) -> tuple[Any, Any]:
    warnings.simplefilter("ignore")  # CSR support is in beta
    torch.set_grad_enabled(False)
    arrays = map(torch.from_numpy, (A.indptr, A.indices, A.data))
    return torch.sparse_csr_tensor(*arrays, A.shape), torch.from_numpy(X)


PROGRAMS = Programs(__file__)
PROGRAMS |= {
    "gbdnn": Program("gbdnn", gbdnn, "own"),
    "pyg": Program("PyTorch Geometric, `edge_index`", pyg, csr=False),
    "pyg-csr": Program("PyTorch Geometric, CSR", pyg, csr=True),
    "torch": Program('PyTorch, `torch.sparse.mm(A, X, "sum")`', torch, mkl=False),
    "torch-mkl": Program("PyTorch, `A @ X`", torch, mkl=True),
    "scipy": Program("SciPy and NumPy", scipy),
    "graphblas": Program("GraphBLAS", graphblas),
}


def _prepared(
    name: str, folder: str, what: str, features: str, nthreads: str
) -> Callable[[], dict[str, Any]]:
    """Return a function that runs a program, stores rows of its result and returns peak memory."""
    A = sp.csr_array(sp.load_npz(Path(folder) / "A.npz"), dtype="float32")
    X = np.random.default_rng(0).standard_normal((A.shape[0], int(features)), "float32")
    rng, width = np.random.default_rng(1), X.shape[1]
    weights = [
        tuple(
            (rng.normal(size=(width, after)) * np.sqrt(2 / width)).astype(np.float32) for _ in "WV"
        )
        for after in (() if what == "product" else (width, CLASSES))
    ]
    call = PROGRAMS.prepared(name, A, X, weights, what, int(nthreads))
    checked = np.unique(np.linspace(0, len(X) - 1, 1000).astype(int))

    def then(Y: Any) -> dict[str, float]:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        rows = Y[checked, :].new().to_dense(fill_value=0) if hasattr(Y, "ss") else Y[checked]
        np.save(Path(folder) / f"{name}.npy", rows)
        return {"GiB": peak}

    return timed(call, then)


if __name__ == "__main__":
    serve(_prepared)
