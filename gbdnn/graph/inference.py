"""Inference with graph convolutions, for all nodes or some of them.

    Y' = min(max(A Y W + Y V + b, 0), clip)

Each product with A is computed on the smaller number of features: before the weights, as (A Y) W in
blocks of nodes, or after them, as A (Y W), in one pass that starts the sums at ``Y V + b`` and ends
with the activation. Rows depend on each other, so no rows are dropped between layers.
"""

from __future__ import annotations

import sys
from time import perf_counter
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from gbdnn.arrays.checks import (
    as_bytes,
    as_dtype,
    as_nthreads,
    as_word,
    floating,
    require_callable,
    rows_within,
)
from gbdnn.arrays.labels import aligned
from gbdnn.arrays.matrices import as_held, to_array
from gbdnn.arrays.sources import as_source, is_source
from gbdnn.engine.plan import ENGINES, MEMORY, Engine
from gbdnn.engine.run import infer_network
from gbdnn.engine.stats import layer_stats
from gbdnn.errors import NonFiniteError, ShapeError
from gbdnn.graph.convolution import as_convolutions
from gbdnn.graph.features import as_answer, as_array, as_graph, as_node_features, kind_of
from gbdnn.graph.neighbourhood import as_nodes, steps
from gbdnn.kernels import costs
from gbdnn.kernels.dense_product import BLOCK_ROWS, can_multiply, multiply, target
from gbdnn.kernels.gather import Aggregate, Gather
from gbdnn.kernels.overflow import non_finite, require_finite
from gbdnn.model.layer import Layer
from gbdnn.model.network import Network
from gbdnn.runtime.threads import available, engaged, restored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import graphblas as gb

    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.arrays.sparse_rows import SparseRows
    from gbdnn.engine.stats import LayerStats
    from gbdnn.graph.convolution import Convolution
    from gbdnn.graph.neighbourhood import Step

__all__ = ["infer"]

_WIDEST = 1 << 16  # maximum nodes of a block
_NARROWEST = 64
_AT_ONCE = 1 << 15  # maximum nodes per product with sparse weights


def infer(
    layers: Network | Iterable[Convolution | Layer | MatrixLike],
    features: Any,
    A: MatrixLike,
    *,
    nodes: Any = None,
    aggregate: Aggregate = "sum",
    dtype: Any = None,
    engine: Engine = "auto",
    memory: int | str | None = None,
    nthreads: int | None = None,
    callback: Callable[[LayerStats], object] | None = None,
) -> gb.Matrix:
    """Return the activations of nodes after the last graph convolution.

    Parameters
    ----------
    layers : Network, or list of Convolution, Layer, or matrices (features before, features)
        A Layer computes ``A Y W + b``, then its activation and clip; matrices get a ReLU. Rows of
        labelled matrices are aligned as in `gbdnn.infer`.
    features : ndarray, Matrix, SciPy sparse or stored features, shape (nodes, features of layer 0)
        One row per node; a Vector is one feature. Rows of a labelled pandas or xarray object may be
        in any order if A has the same labels; other labels are refused. The numbers 0 to n - 1 in
        any order, as of shuffled rows, are no labels.
    A : Matrix, SciPy sparse or 2-D ndarray, shape (nodes, nodes)
        ``A(j, i)`` propagates features from node i to node j. Pass the result of `normalized` or
        the transpose of an adjacency matrix. Columns of a labelled pandas or xarray object are
        aligned to its rows.
    nodes : array_like of int, boolean mask of length nodes, or Vector, optional
        Nodes whose activations are returned: numbers, or labels if A has labels; for a Vector those
        of its nonzero entries. Only these nodes and their neighbourhoods are computed. Default: all
        nodes.
    aggregate : {"sum", "max", "min"}, default "sum"
        ``"max"`` and ``"min"`` replace ``A Y`` by the maximum or minimum over neighbours, computed
        by GraphBLAS; the values of A are ignored, and nodes without neighbours get 0.
    dtype : {"FP32", "FP64"} or NumPy dtype, optional
        As for `gbdnn.infer`.
    engine : {"auto", "graphblas", "fused", "full", "sparse"}, default "auto"
        ``"auto"`` uses compiled code where the cost model prefers it. ``"graphblas"`` uses only
        GraphBLAS. ``"fused"`` forces compiled code. ``"sparse"`` and ``"full"`` force this kernel
        for the weights, and GraphBLAS for A.
    memory : int or str, optional
        Budget in bytes, or with a unit, for the products of one layer; if it is too small, (A Y) W
        is computed in blocks of nodes. Stored features that do not fit are read in groups of
        columns. It does not include activations of all nodes after a layer or a copy of A.
        Default: 512 MiB for stored features, otherwise no limit.
    nthreads : int, optional
        As for `gbdnn.infer`.
    callback : callable, optional
        Called with a `LayerStats` after each layer, whose kernel is that of the product with A.

    Returns
    -------
    graphblas.Matrix, shape (nodes, features after the last layer)
        A new Matrix without stored zeros, with a row per node or per item of `nodes`.

    Raises
    ------
    ShapeError
        A is not square, the features do not have one row per node, or a layer does not fit.
    ArgumentError, ArgumentTypeError
        A value is not finite, an option is invalid, or `memory` is too small for 64 nodes; the
        message states the required bytes.
    NonFiniteError
        A sum overflowed; the message names the layer.

    Notes
    -----
    GCN is a Network and ``normalized(G)``; GraphSAGE is ``Convolution(W, self_weights=V)`` and
    ``normalized(G, "mean")``; GIN is ``Convolution(W, self_weights=(1 + eps) * W)``,
    ``Convolution(self_weights=W2)`` and ``G.T``. T. Kipf, M. Welling, ICLR 2017; W. Hamilton,
    R. Ying, J. Leskovec, NIPS 2017; K. Xu et al., ICLR 2019.

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
    as_word(engine, "engine", ENGINES)
    require_callable(callback, "callback")
    nthreads = as_nthreads(nthreads)
    if memory is not None:
        memory = as_bytes(memory)
    A, labels = as_graph(A, "A")
    X = aligned(as_node_features(features), labels, "features", "the nodes of A")
    count = len(labels)
    with restored(), engaged(nthreads):
        convolutions = as_convolutions(layers, X, None if dtype is None else as_dtype(dtype))
        X = as_held(X, "features")
        ncols, own = kind_of(X, count)
        if convolutions:
            first = convolutions[0].layer
            if first.nrows != ncols:
                raise ShapeError(
                    f"the features are {count} x {ncols} but layer 0, {first.nrows} x"
                    f" {first.ncols}, reads {first.nrows}"
                )
            kind = first.dtype
        else:
            kind = floating(own, "features") if dtype is None else as_dtype(dtype)
        wanted = None
        if nodes is not None:
            wanted = np.unique(as_nodes(nodes, labels), return_inverse=True)
        ids = None if wanted is None else wanted[0]
        Y: Any = as_source(X, kind)
        plan, read = steps(A, kind, convolutions, ids)
        if memory is None and is_source(X):
            memory = MEMORY
        run = _Products(aggregate, engine, memory)
        # Sparse features stay sparse where the first layer's weights come first, or if they do not
        # fit as an array.
        stays = ids is None and convolutions and Y.dense_rows is None
        large = is_source(X) and count * ncols * kind.itemsize > run.memory
        if not (stays and (large or run.may_multiply_first(convolutions[0], plan[0]))):
            Y = as_array(Y, run.nthreads, read)
        for k, (layer, step) in enumerate(zip(convolutions, plan, strict=True)):
            began, before = perf_counter(), [Y]
            del Y
            Y, kernel = run.layer(k, layer, step, before)
            if callback is not None:
                alive = int(Y.any(axis=1).sum())
                counts = np.array([[len(Y), alive, alive, np.count_nonzero(Y != 0), 0]])
                for stats in layer_stats(k, counts, 0, engine, kernel, perf_counter() - began):
                    callback(stats)
        if wanted is not None:
            Y = Y[wanted[1]]
        return as_answer(Y, run.nthreads)


class _Products:
    """The products of one call; parameters as for `infer`."""

    def __init__(self, aggregate: Aggregate, engine: Engine, memory: int | None) -> None:
        self._aggregate, self._engine, self.nthreads = aggregate, engine, available()
        self.memory = sys.maxsize if memory is None else memory
        self._gather: Gather | None = None

    def may_multiply_first(self, layer: Convolution, step: Step) -> bool:
        """Whether Y W can be computed before the product with A within `memory`."""
        if step.rows is None:
            return True
        product = step.rows.ncols * layer.layer.ncols * layer.layer.dtype.itemsize
        return self._aggregate == "sum" and product <= self.memory

    def layer(
        self, k: int, layer: Convolution, step: Step, before: list[Any]
    ) -> tuple[np.ndarray, str]:
        """Return the activations after a layer, and the kernel of its product with A.

        The activations before it are removed from the list `before`, to free their memory.
        """
        info, rows, Y = layer.layer, step.rows, before.pop()
        if rows is None:
            Z = np.empty((len(Y) if isinstance(Y, np.ndarray) else Y.nrows, info.ncols), info.dtype)
            self._times(k, Y, info, Z, _bias(info), _limits(info))
            return Z, self._engine if self._engine in ("sparse", "fused") else "full"
        gather = self._gather
        if gather is None or gather.rows is not rows:
            gather = self._gather = Gather(rows, self._aggregate, self.nthreads, self._engine)
        first = self.may_multiply_first(layer, step)
        if first and (not isinstance(Y, np.ndarray) or _multiplies_first(info, rows)):
            before.append(Y)
            del Y
            return self._weights_first(k, layer, step, before, gather), gather.kernel
        if not isinstance(Y, np.ndarray):
            return self._by_columns(k, layer, Y, gather), gather.kernel
        width = rows_within(
            self.memory, info.nrows * info.dtype.itemsize, f"nodes at layer {k}",
            least=_NARROWEST, most=min(_WIDEST, max(rows.nrows, 1)),
        )  # fmt: skip
        return self._edges_first(k, layer, step, Y, gather, width), gather.kernel

    def _weights_first(
        self, k: int, layer: Convolution, step: Step, held: list[Any], gather: Gather
    ) -> np.ndarray:
        """Compute A (Y W): sums start at Y V + b and end as activations."""
        info, Y = layer.layer, held.pop()
        T, Z = (
            np.empty((n, info.ncols), info.dtype) for n in (gather.rows.ncols, gather.rows.nrows)
        )
        self._times(k, Y, info, T, np.zeros(info.ncols, info.dtype))
        start = self._start(k, layer, step, Y, Z)
        del Y
        low, high = _limits(info)
        if not gather.into(gather.operand(T), Z, start, low=low, high=high):
            raise non_finite(k, info)
        return Z

    def _edges_first(
        self, k: int, layer: Convolution, step: Step, Y: np.ndarray, gather: Gather, width: int
    ) -> np.ndarray:
        """Compute (A Y) W in blocks of up to `width` nodes."""
        info, count, (low, high) = layer.layer, gather.rows.nrows, _limits(layer.layer)
        Z, operand = np.empty((count, info.ncols), info.dtype), gather.operand(Y)
        start = self._start(k, layer, step, Y, Z)
        if gather.kernel == "fused" and can_multiply(info):
            most = max(1, width // BLOCK_ROWS)
            if not gather.into(operand, Z, start, low=low, high=high, then=info, most=most):
                raise non_finite(k, info)
            return Z
        block, nothing = np.empty((width, info.nrows), info.dtype), np.zeros(info.nrows, info.dtype)
        for first in range(0, count, width):
            last = min(first + width, count)
            part, result = block[: last - first], Z[first:last]
            if not gather.into(operand, part, nothing, first=first, last=last):
                raise non_finite(k, info)
            self._times(k, part, info, result, result if start is Z else start, (low, high))
        return Z

    def _by_columns(self, k: int, layer: Convolution, Y: Any, gather: Gather) -> np.ndarray:
        """Compute A Y W + Y V as the sum over groups of columns of Y, which are read in turn."""
        info, nodes = layer.layer, gather.rows.nrows
        each = 2 * nodes * info.dtype.itemsize
        width = rows_within(self.memory, each, f"features at layer {k}", least=1, most=info.nrows)
        Z = np.broadcast_to(_bias(info), (nodes, info.ncols)).copy()
        for first in range(0, info.nrows, width):
            some = slice(first, min(first + width, info.nrows))
            part = as_array(Y, self.nthreads, columns=some)
            gathered, nothing = np.empty_like(part), np.zeros(part.shape[1], info.dtype)
            if not gather.into(gather.operand(part), gathered, nothing):
                raise non_finite(k, info)
            for array, of in ((gathered, info), (part, layer.self_weights)):
                if of is not None:
                    W = Layer(of.W[some, :].new(), activation="identity")
                    self._times(k, array, W, Z, Z)
        return np.clip(Z, *_limits(info), out=Z)

    def _start(self, k: int, layer: Convolution, step: Step, Y: Any, Z: np.ndarray) -> np.ndarray:
        """Return what sums start at: the bias, or Y V + b, which is written to Z."""
        b = _bias(layer.layer)
        if layer.self_weights is None:
            return b
        self._times(k, Y, layer.self_weights, Z, b, own=step.own)
        return Z

    def _times(
        self, k: int, Y: Any, layer: Layer, out: np.ndarray, start: np.ndarray,
        limits: tuple[float, float] = (-np.inf, np.inf), own: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        """Compute out = min(max(start + Y W, low), high): in compiled code, or by `infer`.

        `start`, of shape (features,) or that of `out`, may be `out`. `own` are rows of Y.
        """
        is_array = isinstance(Y, np.ndarray)
        if self._engine in ("auto", "fused") and is_array and can_multiply(layer):
            result = target(out, start, *limits) | {"ids": own}
            if not multiply(layer, Y, result, self.nthreads):
                raise non_finite(k, layer)
            return
        chain, memory = layer.prepared(_chain), min(self.memory, MEMORY)
        each = layer.dtype.itemsize * (layer.nrows + layer.ncols)
        step = rows_within(memory, each, f"nodes at layer {k}", least=_NARROWEST, most=_AT_ONCE)
        for first in range(0, len(out), step):
            last = min(first + step, len(out))
            some = slice(first, last) if own is None else own[first:last]
            part = Y[some] if is_array else Y.sparse_rows(first, last).with_ids()
            X = as_source(part, layer.dtype)
            try:
                Z = to_array(
                    infer_network(
                        chain, X, engine=self._engine, memory=MEMORY, nthreads=self.nthreads
                    )
                )
            except NonFiniteError:
                raise non_finite(k, layer) from None
            Z = np.add(Z, start[first:last] if start.ndim == 2 else start, out=out[first:last])
            require_finite(k, layer, Z)
            np.clip(Z, *limits, out=Z)


def _multiplies_first(info: Layer, rows: SparseRows) -> bool:
    """Whether A (Y W) is expected to be faster than (A Y) W."""
    # Of equal costs, (A Y) W is faster with dense weights, since A Y stays in the caches.
    is_dense = costs.dense_layer_pays(info.edges, *info.shape)
    row = info.edges * (costs.speeds().product if is_dense else costs.speeds().fused)
    gathered = rows.nvals * costs.MOVE
    later = rows.ncols * row + gathered * info.ncols
    first = rows.nrows * row + gathered * info.nrows
    return later < first or (later == first and not is_dense)


def _bias(layer: Layer) -> np.ndarray:
    return np.broadcast_to(np.asarray(layer.bias, layer.dtype), (layer.ncols,)).copy()


def _limits(layer: Layer) -> tuple[float, float]:
    low = 0.0 if layer.activation == "relu" else -np.inf
    return low, np.inf if layer.clip is None else layer.clip


def _chain(layer: Layer) -> Network:
    """Return a network that computes only the product with the weights."""
    return Network([Layer(layer.W, activation="identity")])
