"""Graphs and features of nodes: conversion of a caller's objects, and of the result back."""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.answer import matrix_of
from gbdnn.arrays.checks import are_finite
from gbdnn.arrays.labels import aligned, labels_of
from gbdnn.arrays.matrices import as_held, dtype_of, is_vector, shape_of
from gbdnn.arrays.sources import is_source
from gbdnn.errors import ArgumentError, ArgumentTypeError, ShapeError
from gbdnn.runtime.first_use import gb
from gbdnn.runtime.optional import if_imported, require
from gbdnn.runtime.threads import share

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gbdnn.arrays.sources import RowSource

__all__ = [
    "as_answer",
    "as_array",
    "as_graph",
    "as_node_features",
    "form_of",
    "from_networkx",
    "is_networkx",
    "is_shared",
    "kind_of",
]

_AT_ONCE = 4096  # rows per read


def as_graph(A: Any, what: str) -> tuple[Any, Sequence[Any]]:
    """Return a square matrix and the labels of its rows, to which its columns are aligned.

    Labels are those of a pandas or xarray object, otherwise a range. Raise ShapeError if the matrix
    is not square.
    """
    if is_networkx(A):
        raise ArgumentTypeError(
            f"{what} is a networkx graph; pass gbdnn.graph.normalized(graph), or the transposed"
            " matrix networkx.to_scipy_sparse_array(graph).T"
        )
    labels = labels_of(A, 0)
    A = as_held(aligned(A, labels, what, "those of its rows", axis=1), what)
    nrows, ncols = shape_of(A, what)
    if nrows != ncols:
        raise ShapeError(f"{what} must be square, not {nrows} x {ncols}")
    return A, labels_of(A, 1) or range(nrows) if labels is None else labels


def as_node_features(x: Any) -> Any:
    """Return features of nodes, a Vector as a matrix of one column."""
    if not is_vector(x):
        return x
    x = as_held(x, "features")
    nodes, values = x.to_coo()
    shape = {"nrows": x.size, "ncols": 1}
    return gb.Matrix.from_coo(nodes, np.zeros(len(nodes), np.uint64), values, **shape)


def is_networkx(G: Any) -> bool:
    """Whether an object is a graph of networkx."""
    kind = if_imported("networkx", "Graph")
    return kind is not None and isinstance(G, kind)


def from_networkx(G: Any, what: str, weight: str | None) -> Any:
    """Return the adjacency matrix of a networkx graph."""
    if not len(G):
        return np.zeros((0, 0), np.float32)
    networkx = sys.modules["networkx"]
    require("scipy.sparse", "files", "networkx graphs need SciPy")
    edges = [] if weight in (None, "weight") else list(G.edges(data=True))
    if edges and not any(weight in data for *_, data in edges):
        raise ArgumentError(f"{what}: no edge has the attribute weight={weight!r}")
    try:
        A = networkx.to_scipy_sparse_array(G, weight=weight)
        if A.dtype.kind in "biu":  # the sum of parallel edges may not fit
            return networkx.to_scipy_sparse_array(G, weight=weight, dtype=np.int64)
        return A
    except (TypeError, ValueError) as err:
        edges = list(G.edges(data=weight, default=1))
        bad = [edge for edge in edges if np.asarray(edge[2]).dtype.kind not in "biuf"] or edges
        raise ArgumentTypeError(f"{what}: {weight} of edge {bad[0]!r} is not a number") from err


def kind_of(features: Any, nodes: int) -> tuple[int, np.dtype]:
    """Return the number and dtype of features; raise unless there is a row per node."""
    nrows, ncols, dtype = form_of(features, "features")
    if nrows != nodes:
        raise ShapeError(
            f"the features are {nrows} x {ncols} but A, {nodes} x {nodes}, has {nodes} nodes"
        )
    return ncols, dtype


def form_of(X: Any, what: str) -> tuple[int, int, np.dtype]:
    """Return the numbers of rows and columns, and the dtype, of a matrix or stored features."""
    nrows, ncols = (X.nrows, X.ncols) if is_source(X) else shape_of(X, what)
    return int(nrows), int(ncols), dtype_of(X)


def as_array(
    X: RowSource, nthreads: int, some: np.ndarray | None = None, columns: slice = slice(None)
) -> np.ndarray:
    """Return rows of a source, all or those of some nodes (ascending), as a C-ordered array.

    Threads check that all values are finite.
    """
    dense, width = X.dense_rows, len(range(X.ncols)[columns])
    if dense is not None and some is None:
        array = np.ascontiguousarray(dense(0, X.nrows)[:, columns])
    else:
        array = np.empty((X.nrows if some is None else len(some), width), X.dtype)
        starts = range(0, X.nrows, _AT_ONCE)
        cuts = starts if some is None else np.searchsorted(some, starts).tolist()
        for start, to in zip(starts, cuts, strict=True):
            stop = min(start + _AT_ONCE, X.nrows)
            rows = dense(start, stop) if dense else X.sparse_rows(start, stop).dense()
            if some is not None:
                rows = rows[some[to : np.searchsorted(some, stop)] - start]
            array[to : to + len(rows)] = rows[:, columns]
    flags: list[bool] = []

    def check(starts: Iterator[int]) -> None:
        for start in starts:
            flags.append(are_finite(array[start : start + _AT_ONCE]))

    share(nthreads, deque(range(0, len(array), _AT_ONCE)), check)
    if not all(flags):
        _ = X.largest  # raises
    return array


def is_shared(Y: Any, X: Any) -> bool:
    """Whether an array may share memory with a caller's."""
    both = isinstance(X, np.ndarray) and isinstance(Y, np.ndarray)
    return both and np.may_share_memory(X, Y)


def as_answer(Y: np.ndarray, nthreads: int) -> gb.Matrix:
    """Return an array as a matrix without stored zeros, taking ownership of all but views."""
    return matrix_of(Y if Y.base is None and Y.flags.carray else Y.copy(), nthreads=nthreads)
