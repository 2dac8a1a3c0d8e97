"""Inference over a graph: layers of convolutions, on all nodes or on some.

    Y' = min(max(A Y W + Y V + b, 0), clip)

Every product with A is computed on as few features as it can be: before the weights, (A Y) W, in
blocks of nodes; or after them, A (Y W), where sums start at ``Y V + b`` and end as activations in
one pass. Rows depend on each other: nothing is dropped between two products with A.
"""

from __future__ import annotations

import sys
from time import perf_counter
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from gbdnn.arrays.checks import (
    as_dtype,
    as_nthreads,
    as_word,
    floating,
    require_callable,
    whole_number,
)
from gbdnn.arrays.sparse_rows import SparseRows, release
from gbdnn.engine.run import infer_network
from gbdnn.engine.sources import as_array as dense_values
from gbdnn.engine.stats import layer_stats
from gbdnn.errors import ArgumentError, NonFiniteError, ShapeError
from gbdnn.graph.convolution import as_convolutions
from gbdnn.graph.features import as_answer, as_array, is_shared, kind_of, source_of
from gbdnn.graph.neighbourhood import as_nodes, steps
from gbdnn.graph.normalization import require_square
from gbdnn.kernels import costs
from gbdnn.kernels.gather import Aggregate, Gather
from gbdnn.kernels.overflow import non_finite, require_finite
from gbdnn.model.layer import Layer
from gbdnn.model.network import Network
from gbdnn.runtime.threads import engaged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import graphblas as gb

    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.engine.sources import RowSource
    from gbdnn.engine.stats import LayerStats
    from gbdnn.graph.convolution import Convolution
    from gbdnn.graph.neighbourhood import Step

__all__ = ["infer"]

_WIDEST = 1 << 16  # nodes of a block
_NARROWEST = 64
_AT_ONCE = 1 << 15  # nodes that are multiplied by sparse weights


def infer(
    layers: Network | Iterable[Convolution | Layer | MatrixLike],
    X: Any,
    A: MatrixLike,
    *,
    nodes: Any = None,
    aggregate: Aggregate = "sum",
    dtype: Any = None,
    memory: int | None = None,
    nthreads: int | None = None,
    callback: Callable[[LayerStats], object] | None = None,
) -> gb.Matrix:
    """Return the activations of nodes after the last layer of graph convolutions.

    Parameters
    ----------
    layers : Network, or list of Convolution, Layer, or matrices (features before, features)
        A Layer is ``A Y W + b`` with its activation and clip; a bare matrix has a ReLU.
    X : ndarray, Matrix, SciPy sparse or stored features, shape (nodes, features of the first layer)
        A row per node. Sparse features stay sparse where the first layer's weights come first.
    A : Matrix, SciPy sparse or 2-D ndarray, shape (nodes, nodes)
        ``A(j, i)`` brings i's features to j: what `normalized` returns, or the transpose of a
        graph.
    nodes : array_like of int, or Vector, optional
        Whose activations are wanted; of a Vector those of its entries that are not 0. Only what
        they depend on is computed: their neighbours, and as many hops more as layers gather.
    aggregate : {"sum", "max", "min"}, default "sum"
        In place of ``A Y`` the largest or smallest of the neighbours' activations, whatever A's
        values; 0 for nodes without neighbours. They are computed by GraphBLAS alone.
    dtype : {"FP32", "FP64"} or NumPy dtype, optional
        As for `gbdnn.infer`: the weights decide.
    memory : int, optional
        Bytes that may be taken beyond A, X, weights and answer. With less, blocks of nodes are
        gathered before the weights. Default: no limit; that is the activations of all nodes before
        and after the widest layer, and a copy of A.
    nthreads : int, optional
        Threads of products with A and with sparse weights, as for `gbdnn.infer`. Products with
        weights of which 40 % are there or more are NumPy's, on NumPy's threads.
    callback : callable, optional
        Called with a `LayerStats` after each layer.

    Returns
    -------
    graphblas.Matrix, shape (nodes, features after the last layer)
        A new Matrix, which stores no zero, with a row per node, or per item of `nodes`.

    Raises
    ------
    ShapeError
        A is not square, X has another number of rows, or a layer does not fit.
    ArgumentError, ArgumentTypeError
        A value that is read is not finite, `memory` is too small (the message says what is needed),
        or an option has no meaning.
    NonFiniteError
        A sum overflowed; the message names the layer.

    Notes
    -----
    GCN is a Network and ``normalized(G)``; GraphSAGE is ``Convolution(W, own=V)`` and
    ``normalized(G, "mean")``; GIN is ``Convolution(W, own=(1 + eps) * W)``, ``Convolution(own=W2)``
    and ``G.T``. T. Kipf, M. Welling, ICLR 2017; W. Hamilton, R. Ying, J. Leskovec, NIPS 2017; K. Xu
    et al., "How Powerful are Graph Neural Networks?", ICLR 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from gbdnn import graph
    >>> G = np.eye(3, k=1)  # 0 to 1 to 2
    >>> Y = graph.infer([np.array([[2.0]])], np.array([[1.0], [3.0], [5.0]]), G.T)
    >>> Y.to_dense(fill_value=0).ravel()
    array([0., 2., 6.])
    """
    as_word(aggregate, "aggregate", get_args(Aggregate))
    require_callable(callback, "callback")
    nthreads = as_nthreads(nthreads)
    if memory is not None:
        memory = whole_number(memory, "memory")
    count = require_square(A, "A")
    with engaged(nthreads):
        convolutions = as_convolutions(layers, None if dtype is None else as_dtype(dtype))
        features, own = kind_of(X, count)
        if convolutions:
            first = convolutions[0].layer
            if first.nrows != features:
                raise ShapeError(
                    f"X is {count} x {features} but layer 0, {first.nrows} x {first.ncols}, reads"
                    f" {first.nrows} features"
                )
            kind = first.dtype
        else:
            kind = floating(own, "X") if dtype is None else as_dtype(dtype)
        wanted = None if nodes is None else np.unique(as_nodes(nodes, count), return_inverse=True)
        source = source_of(X, features, kind)
        plan, read = steps(A, kind, convolutions, None if wanted is None else wanted[0])
        copies = {id(step.rows): step.rows.nbytes for step in plan if step.rows is not None}
        run = _Run(aggregate, sum(copies.values()), memory, nthreads)
        # Sparse features are left to the chain, where nothing is gathered before the weights.
        stays = wanted is None and convolutions and not hasattr(source, "dense_rows")
        Y: Any = source
        if not (stays and run.may_multiply_first(convolutions[0])):
            Y = as_array(source, read)
        taken = 0 if is_shared(Y, X) else getattr(Y, "nbytes", 0)
        for k, (layer, step) in enumerate(zip(convolutions, plan, strict=True)):
            began, held = perf_counter(), [Y]
            del Y
            Y = run.layer(k, layer, step, held, taken, is_last=k + 1 == len(plan))
            taken = Y.nbytes
            if callback is not None:
                live = int((Y != 0).any(axis=1).sum())
                counts = np.array([[len(Y), live, live, np.count_nonzero(Y), 0]])
                for stats in layer_stats(k, counts, 0, run.form, perf_counter() - began):
                    callback(stats)
        if wanted is not None:
            Y = Y[wanted[1]]
        return as_answer(Y.copy() if is_shared(Y, X) else Y)


class _Run:
    """Layers of one call.

    Parameters
    ----------
    aggregate, memory, nthreads
        As for `infer`.
    held : int
        Bytes of the memory that are taken throughout.
    """

    def __init__(
        self, aggregate: Aggregate, held: int, memory: int | None, nthreads: int | None
    ) -> None:
        self._aggregate, self._nthreads, self.form = aggregate, nthreads, "full"
        self._held, self._memory = held, memory

    def may_multiply_first(self, layer: Convolution) -> bool:
        """Whether Y W may come before the product with A."""
        return not layer.gathers or self._aggregate == "sum"

    def layer(
        self, k: int, layer: Convolution, step: Step, held: list[Any], taken: int, *, is_last: bool
    ) -> np.ndarray:
        """Return the activations after a layer.

        Parameters
        ----------
        held : list of ndarray or RowSource
            The activations before it, which are taken from the list.
        taken : int
            Bytes of these.
        is_last : bool
            Whether what is returned is the answer, which is not counted.
        """
        info, rows = layer.layer, step.rows
        size = info.dtype.itemsize
        if rows is None:
            Y = held.pop()
            Z = np.empty((Y.nrows if hasattr(Y, "nrows") else len(Y), info.ncols), info.dtype)
            self._reserve(k, taken + (0 if is_last else Z.nbytes))
            self._times(k, Y, info, Z)
            _finish(k, info, Z)
            return Z
        gather = Gather(rows, self._aggregate, self._nthreads, min(info.shape))
        self.form = gather.form
        after = 0 if is_last else rows.nrows * info.ncols * size
        product = rows.ncols * info.ncols * size
        # Without own weights, activations before it are gone when those after it come.
        most = product + (max(taken, after) if layer.own is None else taken + after)
        if not isinstance(held[0], np.ndarray) or self._multiplies_first(layer, rows, most):
            self._reserve(k, most)
            return self._weights_first(k, layer, step, held, gather)
        per_node = (info.nrows + (1 if layer.own is None else 2) * info.ncols) * size
        per_node += 0 if layer.own is None or step.own is None else info.nrows * size
        least = taken + after + min(rows.nrows, _NARROWEST) * per_node
        room = self._reserve(k, least) - taken - after
        width = max(1, min(room // max(per_node, 1), _WIDEST, rows.nrows))
        return self._edges_first(k, layer, step, held.pop(), gather, width)

    def _weights_first(
        self, k: int, layer: Convolution, step: Step, held: list[Any], gather: Gather
    ) -> np.ndarray:
        """A (Y W): sums start at Y V + b and end as activations."""
        info, Y = layer.layer, held.pop()
        nodes, features, dtype = gather.rows.nrows, info.ncols, info.dtype
        T = self._times(k, Y, info, np.empty((gather.rows.ncols, features), dtype))
        start = _bias(info)
        if layer.own is not None:
            mine = Y if step.own is None else Y[step.own]
            Z = self._times(k, mine, layer.own, np.empty((nodes, features), dtype))
            Z += start
            start = Z
            del mine
        del Y
        if layer.own is None:
            Z = np.empty((nodes, features), dtype)
        low, high = _limits(info)
        if not gather.into(gather.operand(T), Z, start, low=low, high=high):
            raise non_finite(k, info)
        return Z

    def _edges_first(
        self, k: int, layer: Convolution, step: Step, Y: np.ndarray, gather: Gather, width: int
    ) -> np.ndarray:
        """(A Y) W, so many nodes at a time."""
        info, count = layer.layer, gather.rows.nrows
        Z = np.empty((count, info.ncols), info.dtype)
        block = np.empty((width, info.nrows), info.dtype)
        operand, nothing = gather.operand(Y), np.zeros(info.nrows, info.dtype)
        for first in range(0, count, width):
            last = min(first + width, count)
            part, target = block[: last - first], Z[first:last]
            if not gather.into(operand, part, nothing, first=first, last=last):
                raise non_finite(k, info)
            self._times(k, part, info, target)
            if layer.own is not None:
                mine = Y[first:last] if step.own is None else Y[step.own[first:last]]
                target += self._times(k, mine, layer.own, np.empty_like(target))
            _finish(k, info, target)
        return Z

    def _multiplies_first(self, layer: Convolution, rows: SparseRows, most: int) -> bool:
        """Whether A (Y W) takes less time than (A Y) W, and is within the memory."""
        info = layer.layer
        if not self.may_multiply_first(layer):
            return False
        if self._memory is not None and self._held + most > self._memory:
            return False
        dense = costs.dense_layer_pays(info.edges, *info.shape)
        row = info.edges * (costs.DENSE_PRODUCT if dense else costs.EDGE_FUSED)
        gathered = rows.nvals * costs.GATHER
        later = rows.ncols * row + gathered * info.ncols
        return later <= rows.nrows * row + gathered * info.nrows

    def _reserve(self, k: int, needed: int) -> int:
        """Return the bytes that a layer may take, or say that they are too few."""
        if self._memory is None:
            return sys.maxsize
        if self._held + needed > self._memory:
            raise ArgumentError(
                f"memory={self._memory} is too small: layer {k} takes memory="
                f"{self._held + needed} at least, {self._held} of it for a copy of A"
            )
        return self._memory - self._held

    def _times(self, k: int, Y: Any, layer: Layer, out: np.ndarray) -> np.ndarray:
        """Write Y W: NumPy's product where W and Y are dense, else the chain's."""
        if isinstance(Y, np.ndarray) and costs.dense_layer_pays(layer.edges, *layer.shape):
            with np.errstate(over="ignore", invalid="ignore"):
                return np.matmul(Y, layer.prepared(_dense), out=out)
        chain = layer.prepared(_chain)
        for start in range(0, len(out), _AT_ONCE):
            stop = min(start + _AT_ONCE, len(out))
            part = Y[start:stop] if isinstance(Y, np.ndarray) else _rows(Y, start, stop)
            try:
                found = infer_network(chain, part, nthreads=self._nthreads)
            except NonFiniteError:
                raise non_finite(k, layer) from None
            dense = found.ss.format[:4] in ("full", "bitm")
            out[start:stop] = dense_values(found) if dense else found.to_dense(fill_value=0)
            release(found)
        return out


def _finish(k: int, layer: Layer, Z: np.ndarray) -> None:
    """Z = min(max(Z + b, 0), clip), in place."""
    Z += _bias(layer)
    require_finite(k, layer, Z)
    np.clip(Z, *_limits(layer), out=Z)


def _bias(layer: Layer) -> np.ndarray:
    return np.broadcast_to(np.asarray(layer.bias, layer.dtype), (layer.ncols,)).copy()


def _limits(layer: Layer) -> tuple[float, float]:
    low = 0.0 if layer.activation == "relu" else -np.inf
    return low, np.inf if layer.clip is None else layer.clip


def _rows(Y: RowSource, start: int, stop: int) -> SparseRows:
    """Return rows that count from 0."""
    rows = Y.sparse_rows(start, stop)
    return SparseRows(rows.indptr, rows.columns, rows.values, rows.ncols)


def _dense(layer: Layer) -> np.ndarray:
    found: np.ndarray = layer.W.to_dense(fill_value=0, dtype=layer.W.dtype)
    return found


def _chain(layer: Layer) -> Network:
    """Return a network of the product alone."""
    return Network([Layer(layer.W, activation="identity")])
