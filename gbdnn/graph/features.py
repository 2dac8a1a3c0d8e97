"""Graphs and features of nodes: conversion of a caller's objects, and of the result back."""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.answer import matrix_of
from gbdnn.arrays.checks import are_finite
from gbdnn.arrays.labels import aligned, labels_of
from gbdnn.arrays.matrices import as_held, dtype_of, shape_of
from gbdnn.arrays.sources import is_source
from gbdnn.errors import ArgumentError, ArgumentTypeError, ShapeError
from gbdnn.runtime.optional import if_imported, require
from gbdnn.runtime.threads import share

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import graphblas as gb

    from gbdnn.arrays.sources import RowSource

__all__ = ["as_answer", "as_array", "as_graph", "form_of", "is_shared", "kind_of"]

_AT_ONCE = 4096  # rows per read


def as_graph(
    G: Any, what: str, *, transposed: bool = False, weight: str | None = "weight"
) -> tuple[Any, Sequence[Any]]:
    """Return the matrix of a graph, in which G(i, j) is the edge from i to j, and its labels.

    Networkx graphs are converted; with `transposed`, to the transpose. Labels are the nodes of a
    networkx graph, or those of the rows of a pandas or xarray object, to which its columns are
    aligned; otherwise a range. Raise ShapeError if the matrix is not square.
    """
    kind = if_imported("networkx", "Graph")
    if kind is not None and isinstance(G, kind):
        A = _from_networkx(sys.modules["networkx"], G, what, weight)
        return A.T if transposed else A, list(G)
    labels = labels_of(G, 0)
    A = as_held(aligned(G, labels, what, "those of its rows", axis=1), what)
    nrows, ncols = shape_of(A, what)
    if nrows != ncols:
        raise ShapeError(f"{what} must be square, not {nrows} x {ncols}")
    return A, labels_of(G, 1) or range(nrows) if labels is None else labels


def _from_networkx(networkx: Any, G: Any, what: str, weight: str | None) -> Any:
    if not len(G):
        return np.zeros((0, 0), np.float32)
    require("scipy.sparse", "challenge", "networkx graphs need SciPy")
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


def kind_of(X: Any, nodes: int) -> tuple[int, np.dtype]:
    """Return the number and dtype of features; raise if X does not have a row per node."""
    nrows, ncols, dtype = form_of(X, "X")
    if nrows != nodes:
        raise ShapeError(f"X is {nrows} x {ncols} but A, {nodes} x {nodes}, has {nodes} nodes")
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
