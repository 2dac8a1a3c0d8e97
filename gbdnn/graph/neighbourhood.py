"""The nodes on which the result for some nodes depends, layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbdnn.arrays.checks import as_array, as_list
from gbdnn.arrays.labels import aligned, places
from gbdnn.arrays.matrices import as_rows, is_graphblas, is_scipy
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.errors import ArgumentError, ArgumentTypeError, ShapeError
from gbdnn.runtime.first_use import complete, is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.graph.convolution import Convolution

__all__ = ["Step", "as_nodes", "steps"]


class Step(NamedTuple):
    """The part of a graph that a layer reads: rows of A, with one column per row of features.

    ``own`` are the rows of the nodes' own features; None for all in order.
    """

    rows: SparseRows | None
    own: np.ndarray | None


def as_nodes(nodes: Any, labels: Sequence[Any]) -> np.ndarray:
    """Return the ids of nodes, given as ids (as labels if the graph has them), mask or Vector."""
    complete(nodes)
    count = len(labels)
    if is_object(nodes) and type(nodes).__module__ == "graphblas.core.vector":
        if nodes.size != count:
            raise ShapeError(f"nodes is a Vector of size {nodes.size} but A has {count} nodes")
        ids, values = nodes.to_coo()
        return ids.astype(np.int64)[values != 0]
    if not isinstance(labels, range):
        what = "nodes must be a Vector, a boolean mask or a list of nodes"
        given = as_list(nodes, what)
        if not all(isinstance(flag, bool | np.bool_) for flag in given):
            place = places(labels, "the labels of A")
            try:
                return np.array([place[node] for node in given], np.int64)
            except (KeyError, TypeError) as err:
                raise ArgumentError(f"{what} of the graph, which does not have {err}") from err
    ids = as_array(nodes, "nodes")
    if ids.dtype.kind == "b":
        ids = np.asarray(aligned(nodes, labels, "nodes", "the nodes of A"))
        if ids.shape != (count,):
            raise ShapeError(f"nodes is a mask of shape {ids.shape} but A has {count} nodes")
        return np.flatnonzero(ids)
    if ids.ndim != 1 or (ids.dtype.kind not in "iu" and ids.size):
        raise ArgumentTypeError("nodes must be a Vector, a boolean mask or a list of integers")
    if ids.size and not 0 <= ids.min() <= ids.max() < count:
        bad = ids.min() if ids.min() < 0 else ids.max()
        raise ArgumentError(f"nodes contains {bad}; ids must be from 0 to {count - 1}")
    return ids.astype(np.int64)


def steps(
    A: MatrixLike, dtype: np.dtype, layers: Sequence[Convolution], ids: np.ndarray | None
) -> tuple[list[Step], np.ndarray | None]:
    """Return the step of each layer, and the nodes whose features the first layer reads.

    `ids` are the nodes of the result, ascending; None for all.
    """
    if ids is None:
        rows = as_rows(A, what="A", dtype=dtype)
        return [Step(rows if layer.gathers else None, None) for layer in layers], None
    take, steps = _taking(A, dtype), []
    for layer in reversed(layers):
        if not layer.gathers:
            steps.append(Step(None, None))
            continue
        some = take(ids)
        columns = some.columns.view(np.int64)
        is_read = np.zeros(some.ncols, bool)
        is_read[columns] = True
        if layer.self_weights is not None:
            is_read[ids] = True
        place = np.cumsum(is_read) - 1
        own, ids = place[ids], np.flatnonzero(is_read)
        local = place[columns].view(np.uint64)
        steps.append(Step(SparseRows(some.indptr, local, some.values, len(ids)), own))
    return steps[::-1], ids


def _taking(A: MatrixLike, dtype: np.dtype) -> Callable[[np.ndarray], SparseRows]:
    """Return a function that takes rows of A; only SciPy arrays are copied and checked whole."""
    complete(A)
    if is_scipy(A):
        return as_rows(A, what="A", dtype=dtype).take
    if is_graphblas(A):
        # A(ids, :)
        return lambda ids: as_rows(A[ids, :].new(), what="A", dtype=dtype, copy=False)
    return lambda ids: as_rows(np.asarray(A)[ids], what="A", dtype=dtype)
