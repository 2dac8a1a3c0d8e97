"""Features of nodes, brought along the edges of a graph once or several times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from gbdnn.arrays.checks import (
    as_dtype,
    as_flag,
    as_nthreads,
    as_word,
    floating,
    whole_number,
)
from gbdnn.arrays.matrices import as_rows
from gbdnn.errors import NonFiniteError
from gbdnn.graph.features import as_answer, as_array, is_shared, kind_of, source_of
from gbdnn.graph.normalization import require_square
from gbdnn.kernels.gather import Aggregate, Gather
from gbdnn.runtime.threads import engaged

if TYPE_CHECKING:
    from gbdnn.arrays.matrices import MatrixLike

__all__ = ["propagate"]


def propagate(
    A: MatrixLike,
    X: Any,
    *,
    hops: int = 1,
    all_hops: bool = False,
    aggregate: Aggregate = "sum",
    dtype: Any = None,
    nthreads: int | None = None,
) -> Any:
    """Return ``A^hops X``: what nodes gather from their neighbours, and these from theirs.

    Parameters
    ----------
    A : Matrix, SciPy sparse or 2-D ndarray, shape (nodes, nodes)
        ``A(j, i)`` brings i's features to j: what `normalized` returns, or the transpose of a
        graph.
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
    nthreads = as_nthreads(nthreads)
    nodes = require_square(A, "A")
    features, own = kind_of(X, nodes)
    wanted = floating(own, "X") if dtype is None else as_dtype(dtype)
    with engaged(nthreads):
        Y = as_array(source_of(X, features, wanted))
        rows = as_rows(A, what="A", dtype=wanted)
        gather = Gather(rows, aggregate, nthreads, features * hops)
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
