"""Inference over a graph: layers of convolutions, on all nodes or on some.

    Y' = min(max(A Y W + Y V + b, 0), clip)

Every product with A is computed on as few features as it can be: before the weights, (A Y) W, in
blocks of nodes; or after them, A (Y W), where sums start at ``Y V + b`` and end as activations in
one pass. Rows depend on each other: nothing is dropped between two products with A.
"""

from __future__ import annotations

import sys
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

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
from gbdnn.engine.memory import MEMORY
from gbdnn.engine.run import infer_network
from gbdnn.engine.sources import as_array as dense_values
from gbdnn.engine.sources import bytes_copied
from gbdnn.engine.stats import layer_stats
from gbdnn.errors import ArgumentError, NonFiniteError, ShapeError
from gbdnn.graph.convolution import as_convolutions
from gbdnn.graph.features import (
    as_answer,
    as_array,
    bytes_of_array,
    is_shared,
    kind_of,
    source_of,
)
from gbdnn.graph.neighbourhood import as_nodes, bytes_copying, steps
from gbdnn.graph.propagation import require_square
from gbdnn.kernels import costs
from gbdnn.kernels.gather import Aggregate, Gather
from gbdnn.kernels.overflow import non_finite, require_finite
from gbdnn.model.layer import Layer
from gbdnn.model.network import Network
from gbdnn.runtime.threads import engaged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import graphblas as gb

    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.engine.sources import RowSource
    from gbdnn.engine.stats import LayerStats
    from gbdnn.graph.convolution import Convolution
    from gbdnn.graph.neighbourhood import Step

__all__ = ["infer"]

_WIDEST = 1 << 16  # nodes of a block
_NARROWEST = 64
_AT_ONCE = 1 << 15  # nodes that are multiplied by sparse weights, at most
_PORTION = 1 << 23  # bytes for these where memory is limited, about


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
        gathered before the weights; too few are told before the first layer is computed. Default:
        no limit; that is the activations of all nodes before and after the widest layer, and a copy
        of A, or with `nodes` of its rows that are read.
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
        ids = None if wanted is None else wanted[0]
        Y: Any = source_of(X, features, kind)
        begun = bytes_copying(A, kind, ids)
        plan, read = steps(A, kind, convolutions, ids)
        held = sum({id(step.rows): step.rows.nbytes for step in plan if step.rows}.values())
        run = _Run(aggregate, held, memory, nthreads)
        # Sparse features are left to the chain, where nothing is gathered before the weights.
        stays = ids is None and convolutions and not hasattr(Y, "dense_rows")
        stays = stays and run.may_multiply_first(convolutions[0])
        taken, making = (bytes_copied(Y, X),) * 2 if stays else bytes_of_array(Y, X, read)
        ways = run.plan(
            convolutions, plan, nodes=count if read is None else len(read), taken=taken,
            begun=max(begun, held + making), is_array=not stays, answers=ids is not None,
        )  # fmt: skip
        if not stays:
            Y = as_array(Y, read)
        for k, (layer, step, way) in enumerate(zip(convolutions, plan, ways, strict=True)):
            began, before = perf_counter(), [Y]
            del Y
            Y = run.layer(k, layer, step, way, before)
            if callback is not None:
                live = int(Y.any(axis=1).sum())
                counts = np.array([[len(Y), live, live, np.count_nonzero(Y), 0]])
                form = "full" if way.gather is None else way.gather.form
                for stats in layer_stats(k, counts, 0, form, perf_counter() - began):
                    callback(stats)
        if wanted is not None:
            Y = Y[wanted[1]]
        return as_answer(Y.copy() if is_shared(Y, X) else Y)


class _Way(NamedTuple):
    """How a layer is computed: products with A, and how many nodes at a time; 0: weights first."""

    gather: Gather | None
    width: int = 0


class _Portion(NamedTuple):
    """Nodes that are multiplied by sparse weights at once, with which memory, and all it takes."""

    nodes: int
    memory: int
    nbytes: int


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
        self._aggregate, self._nthreads = aggregate, nthreads
        self._held, self._memory = held, memory

    def may_multiply_first(self, layer: Convolution) -> bool:
        """Whether Y W may come before the product with A."""
        return not layer.gathers or self._aggregate == "sum"

    def plan(
        self,
        layers: Sequence[Convolution],
        plan: Sequence[Step],
        *,
        nodes: int,
        taken: int,
        begun: int,
        is_array: bool,
        answers: bool,
    ) -> list[_Way]:
        """Return how each layer is computed, or say which memory would do for all of them.

        Parameters
        ----------
        nodes, taken : int
            Whose features there are, and the bytes of these.
        begun : int
            Bytes that have been taken to get A and them.
        is_array : bool
            Whether the features are an array.
        answers : bool
            Whether the last activations are counted; else they are the answer.
        """
        ways, least, at = [], begun, 0
        for k, (layer, step) in enumerate(zip(layers, plan, strict=True)):
            info = layer.layer
            nodes = nodes if step.rows is None else step.rows.nrows
            computed = nodes * info.ncols * info.dtype.itemsize
            after = computed if answers or k + 1 < len(plan) else 0
            way, needed = self._way(layer, step, taken, after, is_array=is_array)
            ways.append(way)
            if self._held + needed > least:
                least, at = self._held + needed, k
            taken, is_array = computed, True
        if self._memory is not None and least > self._memory:
            raise ArgumentError(
                f"memory={self._memory} is too small: layer {at} takes memory={least} at least,"
                f" {self._held} of it for a copy of A"
            )
        return ways

    def _way(
        self, layer: Convolution, step: Step, before: int, after: int, *, is_array: bool
    ) -> tuple[_Way, int]:
        """Return how a layer is computed between so many bytes, and the least that this takes."""
        info, rows, has_own = layer.layer, step.rows, layer.own is not None
        chain = self._chain_bytes(layer, is_array=is_array)
        if rows is None:
            return _Way(None), before + after + chain
        features, row = min(info.shape), info.ncols * info.dtype.itemsize
        gather = Gather(rows, self._aggregate, self._nthreads, features)
        own = info.nrows * info.dtype.itemsize if has_own and step.own is not None else 0
        product = rows.ncols * row
        # Without own weights, activations before it are gone when those after it come.
        most = product + max(
            before + chain + (after + rows.nrows * own if has_own else 0),
            after + gather.nbytes(info.ncols),
        )
        per_node = info.nrows * info.dtype.itemsize + (row + own if has_own else 0)
        fixed = before + after + gather.nbytes(info.nrows) + self._chain_bytes(layer, is_array=True)
        least = fixed + min(rows.nrows, _NARROWEST) * per_node
        room = sys.maxsize if self._memory is None else self._memory - self._held
        may = self.may_multiply_first(layer)
        if may and most <= room and (not is_array or least > room or _multiplies_first(info, rows)):
            return _Way(gather), most
        if not is_array:
            return _Way(gather), most
        width = max(1, min((room - fixed) // max(per_node, 1), _WIDEST, rows.nrows))
        return _Way(gather, width), min(least, most) if may else least

    def layer(
        self, k: int, layer: Convolution, step: Step, way: _Way, before: list[Any]
    ) -> np.ndarray:
        """Return the activations after a layer; those before it are taken from the list."""
        info, Y = layer.layer, before.pop()
        if way.gather is None:
            Z = np.empty((Y.nrows if hasattr(Y, "nrows") else len(Y), info.ncols), info.dtype)
            self._times(k, Y, info, Z)
            _finish(k, info, Z)
            return Z
        if way.width:
            return self._edges_first(k, layer, step, Y, way.gather, way.width)
        before.append(Y)
        del Y
        return self._weights_first(k, layer, step, before, way.gather)

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

    def _chain_bytes(self, layer: Convolution, *, is_array: bool) -> int:
        """Return the bytes that products of Y with a layer's weights take, beyond Y and them."""
        both = (each for each in (layer.layer, layer.own) if each is not None)
        return max(
            0 if is_array and _is_dense(each) else self._portion(each).nbytes for each in both
        )

    def _portion(self, layer: Layer) -> _Portion:
        """Return how many nodes the chain computes at once."""
        if self._memory is None:
            return _Portion(_AT_ONCE, MEMORY, 0)
        size = layer.dtype.itemsize
        each = layer.nrows * (8 + size) + layer.ncols * (2 * size + 1)  # read, computed, copied
        nodes = max(1, min(_AT_ONCE, _PORTION // max(each, 1)))
        memory = max(_PORTION, 1024 * size * max(layer.shape))
        return _Portion(nodes, memory, memory + nodes * each)

    def _times(self, k: int, Y: Any, layer: Layer, out: np.ndarray) -> np.ndarray:
        """Write Y W: NumPy's product where W and Y are dense, else the chain's."""
        if isinstance(Y, np.ndarray) and _is_dense(layer):
            with np.errstate(over="ignore", invalid="ignore"):
                return np.matmul(Y, layer.prepared(_dense), out=out)
        chain, portion = layer.prepared(_chain), self._portion(layer)
        for start in range(0, len(out), portion.nodes):
            stop = min(start + portion.nodes, len(out))
            part = Y[start:stop] if isinstance(Y, np.ndarray) else _rows(Y, start, stop)
            try:
                found = infer_network(chain, part, memory=portion.memory, nthreads=self._nthreads)
            except NonFiniteError:
                raise non_finite(k, layer) from None
            dense = found.ss.format[:4] in ("full", "bitm")
            out[start:stop] = dense_values(found) if dense else found.to_dense(fill_value=0)
            release(found)
        return out


def _is_dense(layer: Layer) -> bool:
    return costs.dense_layer_pays(layer.edges, *layer.shape)


def _multiplies_first(info: Layer, rows: SparseRows) -> bool:
    """Whether A (Y W) takes less time than (A Y) W."""
    row = info.edges * (costs.MACHINE.product if _is_dense(info) else costs.MACHINE.fused)
    gathered = rows.nvals * costs.GATHER
    later = rows.ncols * row + gathered * info.ncols
    return later <= rows.nrows * row + gathered * info.nrows


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
