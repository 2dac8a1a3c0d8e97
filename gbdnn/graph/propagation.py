"""Normalised adjacency matrices, and products of a sparse and a dense matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from gbdnn.arrays.checks import (
    as_bytes,
    as_dtype,
    as_flag,
    as_nthreads,
    as_word,
    floating,
    rows_within,
    whole_number,
)
from gbdnn.arrays.labels import aligned, labels_of
from gbdnn.arrays.matrices import as_columns, as_held, as_rows, dtype_of, is_vector, shape_of
from gbdnn.arrays.sources import as_source, is_source
from gbdnn.engine.plan import ENGINES, MEMORY, Engine
from gbdnn.errors import ArgumentError, NonFiniteError, ShapeError, naming
from gbdnn.graph.features import (
    as_answer,
    as_array,
    as_graph,
    as_node_features,
    form_of,
    from_networkx,
    is_networkx,
    is_shared,
    kind_of,
)
from gbdnn.kernels.gather import Aggregate, Gather
from gbdnn.runtime.first_use import gb
from gbdnn.runtime.threads import available, engaged, restored

if TYPE_CHECKING:
    from gbdnn.arrays.matrices import MatrixLike

__all__ = ["Normalization", "normalized", "propagate", "spmm"]

Normalization = Literal["symmetric", "mean"]


def normalized(
    G: MatrixLike,
    kind: Normalization = "symmetric",
    *,
    self_loops: bool | None = None,
    weight: str | None = "weight",
    dtype: Any = None,
) -> gb.Matrix:
    r"""Return the normalised matrix A of a graph, so that ``A Y`` aggregates neighbour features.

    Parameters
    ----------
    G : Matrix, SciPy sparse, 2-D ndarray, shape (nodes, nodes), or networkx graph
        ``G(i, j)`` is the weight, at least 0, of the edge from node i to node j, as in GraphBLAS
        and networkx. Any dtype; stored zeros are not edges. Nodes of a networkx graph are numbered
        in the order of ``list(G)``. The result has no labels, and labelled features are refused
        with it: pass ``X.loc[list(G)].to_numpy()``.
    kind : {"symmetric", "mean"}, default "symmetric"
        ``D^-1/2 (G^T + I) D^-1/2``, or ``D^-1 G^T``, whose rows sum to 1. D is the diagonal matrix
        of weighted in-degrees, including loops.
    self_loops : bool, optional
        Whether to add loops of weight 1 to nodes without one. Default: only for ``"symmetric"``.
    weight : str or None, default "weight"
        Edge attribute of a networkx graph with the weights; edges without it have weight 1. None:
        all edges have weight 1.
    dtype : {"FP32", "FP64"} or NumPy dtype, optional
        Of A. Default: FP64 for FP64, otherwise FP32.

    Returns
    -------
    graphblas.Matrix, shape (nodes, nodes)
        New, row-wise. ``A(j, i)`` propagates features from node i to node j. Rows of nodes without
        incoming edges are empty.

    Raises
    ------
    ShapeError
        G is not square.
    ArgumentError
        A weight is negative or not finite, the weights of a node add up to infinity, or no edge has
        an attribute other than ``"weight"``.

    Notes
    -----
    T. Kipf, M. Welling, "Semi-Supervised Classification with Graph Convolutional Networks", ICLR
    2017 (symmetric, as in PyTorch Geometric's ``GCNConv``); W. Hamilton, R. Ying, J. Leskovec,
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
    G = from_networkx(G, "G", weight) if is_networkx(G) else as_graph(G, "G")[0]
    columns = as_columns(G, what="G", dtype=None if dtype is None else as_dtype(dtype))
    if columns.nvals and columns.values.min() < 0:
        raise ArgumentError(f"G: weights must be at least 0, not {columns.values.min():g}")
    scalar = columns.dtype.type
    # A = G^T
    A = columns.matrix()
    # A(i, i) = 1 where it is not stored
    if loops:
        ones = gb.Vector(A.dtype, A.nrows)
        ones[:] = scalar(1)
        A << gb.binary.first(A | ones.diag(name="I"))
    # d = A 1;  D = diag(d^-1), or diag(d^-1/2)
    d = A.reduce_rowwise(gb.monoid.plus["FP64"]).new(name="d")
    nodes, degrees = d.to_coo()
    if not np.isfinite(degrees).all():
        raise ArgumentError(
            f"G: the weights at node {nodes[~np.isfinite(degrees)][0]} add up to infinity;"
            " divide all weights by a constant"
        )
    inverse = 1 / (degrees if kind == "mean" else np.sqrt(degrees))
    D = gb.Vector.from_coo(nodes, inverse.astype(scalar), size=A.nrows).diag(name="D")
    # A = D A, or D A D
    times = gb.semiring.any_times[A.dtype]
    A << times(D @ A)
    if kind == "symmetric":
        A << times(A @ D)
    return A


def propagate(
    A: MatrixLike,
    features: Any,
    *,
    hops: int = 1,
    all_hops: bool = False,
    aggregate: Aggregate = "sum",
    dtype: Any = None,
    engine: Engine = "auto",
    memory: int | str = MEMORY,
    nthreads: int | None = None,
) -> Any:
    """Return ``A^hops X``: features X aggregated over neighbourhoods of `hops` hops.

    Parameters
    ----------
    A : Matrix, SciPy sparse or 2-D ndarray, shape (nodes, nodes)
        As for `infer`.
    features : ndarray, Matrix, SciPy sparse or stored features, shape (nodes, features)
        Converted to a dense array. A data frame as for `infer`.
    hops : int, default 1
        Number of products with A.
    all_hops : bool, default False
        Whether to return the columns of ``X, A X, A^2 X, ...``, shape (nodes, (hops + 1) x
        features).
    aggregate : {"sum", "max", "min"}, default "sum"
        As for `infer`.
    dtype : {"FP32", "FP64"} or NumPy dtype, optional
        Of the computation. Default: FP64 if A or the features are FP64, otherwise FP32.
    engine : {"auto", "graphblas", "fused", "full", "sparse"}, default "auto"
        ``"fused"`` forces compiled code; ``"auto"`` uses it where the cost model prefers it.
        The others use GraphBLAS.
    memory : int or str, default "512MiB"
        Budget in bytes, or with a unit, for the activations of stored features, which are read and
        propagated in groups of columns. It does not include A and the result.
    nthreads : int, optional
        As for `gbdnn.infer`. The result has the same bits for any number of threads.

    Returns
    -------
    ndarray, graphblas.Matrix or Vector
        An array if the features are, else a new Matrix without stored zeros; a Vector, which is one
        feature, has a Vector as result unless `all_hops`.

    Raises
    ------
    ShapeError
        A is not square, or the features do not have one row per node.
    ArgumentError, ArgumentTypeError
        A value is not finite, an option is invalid, or `memory` is too small for one column.
    NonFiniteError
        A sum overflowed; the message names the hop.

    Notes
    -----
    Use the result as features of any classifier: F. Wu et al., "Simplifying Graph Convolutional
    Networks", ICML 2019 (SGC); F. Frasca et al., "SIGN: Scalable Inception Graph Neural Networks",
    2020 (``all_hops=True``).

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
    as_word(engine, "engine", ENGINES)
    nthreads, memory = as_nthreads(nthreads), as_bytes(memory)
    A, labels = as_graph(A, "A")
    X = aligned(as_node_features(features), labels, "features", "the nodes of A")
    X = as_held(X, "features")
    nodes = len(labels)
    count, own = kind_of(X, nodes)
    wanted = _common(A, own, "features") if dtype is None else as_dtype(dtype)
    with restored(), engaged(nthreads):
        source, threads = as_source(X, wanted), available()
        rows = as_rows(A, what="A", dtype=wanted)
        gather = Gather(rows, aggregate, threads, engine)
        width, every = count, count * (hops + 1 if all_hops else 1)
        if is_source(X):
            each = 2 * nodes * wanted.itemsize
            width = rows_within(memory, each, "features", least=1, most=count)
        parts = np.empty((nodes, every), wanted) if all_hops or width < count else None
        Y, nothing = np.empty((nodes, 0), wanted), np.zeros(width, wanted)
        for first in range(0, count, max(width, 1)):
            some = slice(first, min(first + width, count))
            Y = as_array(source, threads, columns=some)
            for hop in range(hops + 1):
                Z, at = None, first + (count * hop if all_hops else 0)
                if parts is not None and (all_hops or hop == hops):
                    Z = parts[:, at : at + Y.shape[1]]
                if hop == 0:
                    if Z is not None:
                        Z[:] = Y
                    continue
                Z = np.empty_like(Y) if Z is None else Z
                if not gather.into(gather.operand(Y), Z, nothing[: Y.shape[1]]):
                    raise NonFiniteError(f"hop {hop}: A Y overflows {wanted}")
                Y = Z
        product = Y if parts is None else parts
        if isinstance(X, np.ndarray):
            return product.copy() if is_shared(product, X) else product
        S = as_answer(product, threads)
        return S[:, 0].new() if is_vector(features) and not all_hops else S


def spmm(
    A: MatrixLike, Y: MatrixLike, *, engine: Engine = "auto", nthreads: int | None = None
) -> Any:
    """Return the product ``A @ Y`` of a sparse and a dense matrix (SpMM).

    Parameters
    ----------
    A : Matrix, SciPy sparse or 2-D ndarray, shape (nrows, inner)
    Y : ndarray, Matrix, SciPy sparse or stored features, shape (inner, ncols)
        Converted to a dense array. Rows of a labelled object are aligned to the columns of A.
    engine, nthreads
        As for `propagate`.

    Returns
    -------
    ndarray or graphblas.Matrix, shape (nrows, ncols)
        An array if Y is an array, else a new Matrix without stored zeros. FP64 if A or Y is FP64,
        otherwise FP32.

    Raises
    ------
    ShapeError
        A does not have one column per row of Y.
    ArgumentError, ArgumentTypeError
        A value is not finite, or an option is invalid.
    NonFiniteError
        A sum overflowed.

    See Also
    --------
    propagate : Products with the square matrix of a graph.

    Examples
    --------
    >>> import graphblas as gb, numpy as np
    >>> from gbdnn import graph
    >>> A = gb.Matrix.from_coo([0, 0, 1], [0, 2, 1], [1.0, 2.0, 3.0])
    >>> graph.spmm(A, np.ones((3, 2))).tolist()
    [[3.0, 3.0], [3.0, 3.0]]
    """
    as_word(engine, "engine", ENGINES)
    nthreads = as_nthreads(nthreads)
    columns, A = labels_of(A, 1), as_held(A, "A")
    nrows, inner = shape_of(A, "A")
    labels = range(inner) if columns is None else columns
    Y = as_held(aligned(Y, labels, "Y", "the columns of A"), "Y")
    rows, features, own = form_of(Y, "Y")
    if rows != inner:
        raise ShapeError(f"A is {nrows} x {inner} but Y is {rows} x {features}")
    wanted = _common(A, own, "Y")
    with restored(), engaged(nthreads):
        threads = available()
        with naming("Y"):
            operand = as_array(as_source(Y, wanted), threads)
        gather = Gather(as_rows(A, what="A", dtype=wanted), "sum", threads, engine)
        Z = np.empty((nrows, features), wanted)
        if not gather.into(gather.operand(operand), Z, np.zeros(features, wanted)):
            raise NonFiniteError(f"A Y overflows {wanted}")
        return Z if isinstance(Y, np.ndarray) else as_answer(Z, threads)


def _common(A: MatrixLike, own: Any, x: str) -> np.dtype:
    """Return the dtype of a product: FP64 if the matrix or the features are FP64, else FP32."""
    return np.result_type(floating(dtype_of(A), "A"), floating(own, x))
