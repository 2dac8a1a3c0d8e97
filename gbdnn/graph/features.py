"""Features of nodes: conversion of a caller's matrix to an array, and of the result back."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.matrices import as_held, dtype_of, is_matrix, shape_of
from gbdnn.engine.answer import DenseAnswer
from gbdnn.engine.sources import as_source
from gbdnn.errors import ShapeError
from gbdnn.model.layer import Layer
from gbdnn.model.network import Network
from gbdnn.runtime.first_use import COMPLETION, gb

if TYPE_CHECKING:
    from gbdnn.engine.sources import RowSource

__all__ = ["as_answer", "as_array", "as_graph", "is_shared", "kind_of", "source_of"]

_AT_ONCE = 4096  # rows per read


def as_graph(G: Any, what: str, *, transposed: bool = False) -> Any:
    """Return the matrix of a graph, in which G(i, j) is the edge from i to j.

    Networkx graphs are converted; with `transposed`, to the transpose.
    """
    networkx = sys.modules.get("networkx")
    if networkx is not None and isinstance(G, networkx.Graph):
        with COMPLETION:
            A = gb.io.from_networkx(G)
        return A.T if transposed else A
    return as_held(G, what)


def kind_of(X: Any, nodes: int) -> tuple[int, np.dtype]:
    """Return the number and dtype of features; raise if X does not have a row per node."""
    is_stored = hasattr(X, "sparse_rows") and not is_matrix(X)
    nrows, ncols = (X.nrows, X.ncols) if is_stored else shape_of(X, "X")
    if nrows != nodes:
        raise ShapeError(f"X is {nrows} x {ncols} but A, {nodes} x {nodes}, has {nodes} nodes")
    return int(ncols), dtype_of(X)


def source_of(X: Any, features: int, dtype: np.dtype) -> RowSource:
    """Return the features as a source of rows in a dtype, with checks that they are finite."""
    reader = gb.Matrix(dtype, nrows=features, ncols=1)  # a layer with this number of inputs
    return as_source(X, Network([Layer(reader, copy=False)]))


def as_array(X: Any, some: np.ndarray | None = None) -> np.ndarray:
    """Return all rows of a source, or those of some nodes (ascending), as a C-ordered array."""
    is_dense = hasattr(X, "dense_rows")
    if is_dense and some is None:
        found = np.ascontiguousarray(X.dense_rows(0, X.nrows))
    else:
        found = np.empty((X.nrows if some is None else len(some), X.ncols), X.dtype)
        starts = range(0, X.nrows, _AT_ONCE)
        cuts = starts if some is None else np.searchsorted(some, starts).tolist()
        for start, to in zip(starts, cuts, strict=True):
            stop = min(start + _AT_ONCE, X.nrows)
            rows = X.dense_rows(start, stop) if is_dense else X.sparse_rows(start, stop).dense()
            if some is not None:
                rows = rows[some[to : np.searchsorted(some, stop)] - start]
            found[to : to + len(rows)] = rows
    with np.errstate(over="ignore", invalid="ignore"):
        total = found.sum()
    if not np.isfinite(total):
        _ = X.largest  # raises if a value is not finite
    return found


def is_shared(Y: Any, X: Any) -> bool:
    """Whether an array may share memory with a caller's."""
    both = isinstance(X, np.ndarray) and isinstance(Y, np.ndarray)
    return both and np.may_share_memory(X, Y)


def as_answer(Y: np.ndarray) -> gb.Matrix:
    """Return an array as a matrix without stored zeros, taking ownership."""
    answer = DenseAnswer(0, 0, Y.dtype)
    answer.values = Y if Y.base is None and Y.flags.carray else Y.copy()
    answer.present = np.empty(Y.shape, bool)
    answer.note_entries()
    return answer.matrix()
