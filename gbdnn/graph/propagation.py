"""Normalised adjacency matrices, and features propagated along the edges of a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from gbdnn.arrays.checks import (
    as_dtype,
    as_flag,
    as_nthreads,
    as_word,
    floating,
    whole_number,
)
from gbdnn.arrays.matrices import as_columns, as_held, as_rows, shape_of
from gbdnn.arrays.sparse_rows import release
from gbdnn.engine.choice import Engine
from gbdnn.errors import ArgumentError, NonFiniteError, ShapeError
from gbdnn.graph.features import as_answer, as_array, as_graph, is_shared, kind_of, source_of
from gbdnn.kernels.gather import Aggregate, Gather
from gbdnn.runtime.first_use import gb
from gbdnn.runtime.threads import engaged

if TYPE_CHECKING:
    from gbdnn.arrays.matrices import MatrixLike

__all__ = ["Normalization", "normalized", "propagate", "require_square"]

Normalization = Literal["symmetric", "mean"]


def normalized(
    G: MatrixLike,
    kind: Normalization = "symmetric",
    *,
    self_loops: bool | None = None,
    dtype: Any = None,
) -> gb.Matrix:
    r"""Return the matrix A of a graph with which ``A Y`` brings features along the edges.

    Parameters
    ----------
    G : Matrix, SciPy sparse, 2-D ndarray, shape (nodes, nodes), or networkx graph
        ``G(i, j)`` is an edge from node i to node j, as in GraphBLAS and networkx; a value is its
        weight, >= 0. Of a networkx graph, nodes are numbered in the order of ``list(G)``, and
        weights are its attribute ``weight`` (1 where there is none). Any dtype and orientation;
        where values are bool, or all the same one, none but that is read. Stored zeros are no
        edges. It is not changed.
    kind : {"symmetric", "mean"}, default "symmetric"
        ``D^-1/2 (G^T + I) D^-1/2``, or ``D^-1 G^T``, whose rows sum to 1. D has the degrees, the
        sums of weights of the edges that each node gathers: those that point to it, and its loop.
    self_loops : bool, optional
        Whether to put 1 on the diagonal where no loop is stored; existing loops keep their weight.
        Default: for ``"symmetric"`` alone.
    dtype : {"FP32", "FP64"} or NumPy dtype, optional
        Of A (default: FP64 stays, all else becomes FP32).

    Returns
    -------
    graphblas.Matrix, shape (nodes, nodes)
        New, row-wise. ``A(j, i)`` brings i's features to j. The row of a node without edges is
        empty: it gathers 0.

    Raises
    ------
    ShapeError
        G is not square.
    ArgumentError
        A weight is negative, or not finite.

    Notes
    -----
    T. Kipf, M. Welling, "Semi-Supervised Classification with Graph Convolutional Networks", ICLR
    2017 (symmetric, as PyTorch Geometric's ``GCNConv`` has it); W. Hamilton, R. Ying, J. Leskovec,
    "Inductive Representation Learning on Large Graphs", NIPS 2017 (mean).

    Examples
    --------
    >>> import graphblas as gb
    >>> from gbdnn import graph
    >>> G = gb.Matrix.from_coo([0, 1], [2, 2], True, nrows=3, ncols=3)  # two edges into node 2
    >>> graph.normalized(G, "mean").to_dense(fill_value=0).tolist()
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.5, 0.5, 0.0]]
    """
    as_word(kind, "kind", get_args(Normalization))
    loops = kind == "symmetric" if self_loops is None else as_flag(self_loops, "self_loops")
    G = as_graph(G, "G")
    require_square(G, "G")
    columns = as_columns(G, what="G", dtype=None if dtype is None else as_dtype(dtype))
    if columns.nvals and columns.values.min() < 0:
        raise ArgumentError(f"G: a weight of {columns.values.min():g}; weights are >= 0")
    scalar = columns.dtype.type
    # A = G^T
    A = columns.matrix()
    # A(i, i) = 1 where it is not stored
    if loops:
        I = gb.Vector.from_scalar(scalar(1), A.nrows, dtype=A.dtype).diag(name="I")  # noqa: E741
        A << gb.binary.first(A | I)
        release(I)
    # d = A 1;  D = diag(d^-1), or diag(d^-1/2)
    d = A.reduce_rowwise(gb.monoid.plus[A.dtype]).new(name="d")
    nodes, degrees = d.to_coo()
    inverse = 1 / (degrees if kind == "mean" else np.sqrt(degrees))
    D = gb.Vector.from_coo(nodes, inverse.astype(scalar), size=A.nrows).diag(name="D")
    # A = D A, or D A D
    times = gb.semiring.any_times[A.dtype]
    A << times(D @ A)
    if kind == "symmetric":
        A << times(A @ D)
    release(D)
    return A


def require_square(A: MatrixLike, name: str) -> int:
    """Return the number of nodes, or raise ShapeError if the matrix is not square."""
    nrows, ncols = shape_of(A, name)
    if nrows != ncols:
        raise ShapeError(f"{name} is {nrows} x {ncols}; a graph has a row and a column per node")
    return nrows


def propagate(
    A: MatrixLike,
    X: Any,
    *,
    hops: int = 1,
    all_hops: bool = False,
    aggregate: Aggregate = "sum",
    dtype: Any = None,
    engine: Engine = "auto",
    nthreads: int | None = None,
) -> Any:
    """Return ``A^hops X``: what nodes gather from their neighbours, and these from theirs.

    Parameters
    ----------
    A : Matrix, SciPy sparse, 2-D ndarray, shape (nodes, nodes), or networkx graph
        ``A(j, i)`` brings i's features to j: what `normalized` returns, or the transpose of a
        graph. A networkx graph is transposed for you: an edge from i to j brings i's features to j;
        nodes are numbered in the order of ``list(A)``.
    X : ndarray, Matrix, SciPy sparse or stored features, shape (nodes, features)
        Full in memory, of whatever kind it is.
    hops : int, default 1
        How often.
    all_hops : bool, default False
        Whether to return ``[X, A X, A^2 X, ...]`` side by side, shape (nodes, (hops + 1) x
        features).
    aggregate : {"sum", "max", "min"}, default "sum"
        ``"max"`` and ``"min"`` of the neighbours' features, whatever A's values; 0 for nodes
        without neighbours. They are computed by GraphBLAS alone.
    dtype : {"FP32", "FP64"} or NumPy dtype, optional
        What to compute in (default: that of X; all but FP64 becomes FP32).
    engine : {"auto", "graphblas", "fused", "sparse", "full"}, default "auto"
        ``"fused"`` forces compiled code, ``"auto"`` picks the fastest available code. All others
        compute the products in GraphBLAS and need no numba.
    nthreads : int, optional
        As for `gbdnn.infer`. The bits of the answer do not depend on it.

    Returns
    -------
    ndarray or graphblas.Matrix
        An array for an array; else a new Matrix, which stores no zero.

    Raises
    ------
    ShapeError
        A is not square, or X has another number of rows.
    ArgumentError, ArgumentTypeError
        A value is not finite, or an option has no meaning.
    NonFiniteError
        A sum overflowed; the message names the hop.

    Notes
    -----
    Features that a classifier learns from as from any other: F. Wu et al., "Simplifying Graph
    Convolutional Networks", ICML 2019 (SGC); F. Frasca et al., "SIGN: Scalable Inception Graph
    Neural Networks", 2020 (``all_hops=True``).

    Examples
    --------
    >>> import numpy as np
    >>> from gbdnn import graph
    >>> path = np.eye(4, k=1)  # an edge from each node to the next
    >>> graph.propagate(path.T, np.arange(1.0, 5)[:, np.newaxis], hops=2).ravel()
    array([0., 0., 1., 2.])
    """
    hops = whole_number(hops, "hops", least=0)
    as_flag(all_hops, "all_hops")
    as_word(aggregate, "aggregate", get_args(Aggregate))
    as_word(engine, "engine", get_args(Engine))
    nthreads = as_nthreads(nthreads)
    A, X = as_graph(A, "A", transposed=True), as_held(X, "X")
    nodes = require_square(A, "A")
    features, own = kind_of(X, nodes)
    wanted = floating(own, "X") if dtype is None else as_dtype(dtype)
    with engaged(nthreads):
        Y = as_array(source_of(X, features, wanted))
        rows = as_rows(A, what="A", dtype=wanted)
        gather = Gather(rows, aggregate, nthreads, features * hops, engine)
        parts = np.empty((nodes, features * (hops + 1)), wanted) if all_hops else None
        if parts is not None:
            parts[:, :features] = Y
        nothing = np.zeros(features, wanted)
        for hop in range(1, hops + 1):
            at = slice(features * hop, features * (hop + 1))
            Z = np.empty_like(Y) if parts is None else parts[:, at]
            if not gather.into(gather.operand(Y), Z, nothing):
                raise NonFiniteError(f"hop {hop}: A Y leaves the range of {wanted}")
            Y = Z
        found = Y if parts is None else parts
        if isinstance(X, np.ndarray):
            return found.copy() if is_shared(found, X) else found
        return as_answer(found)
