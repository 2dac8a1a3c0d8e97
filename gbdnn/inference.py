"""Inference: the activations of every input after every layer.

    Z   = Y W                      plus_times
    Z  += b                        on every neuron, or on the entries of Z: the bias rule
    Y'  = min(max(Z, 0), clip)     ReLU with an upper limit

Rows of Y are inputs, columns are neurons. A layer is computed in one of two forms: sparse
(`gbdnn.forms.sparse`, every input at once) or full (`gbdnn.forms.full`, in blocks of inputs that
`gbdnn.pooling` takes through as many layers as it can). Between them inputs wait at a layer as
sparse rows, and go on in the form that is the cheaper one there.

J. Kepner, S. Alford, V. Gadepally et al., "Sparse Deep Neural Network Graph Challenge", HPEC 2019,
equations 1 to 4; T. Davis, M. Aznaveh, S. Kolodziej, "Write Quick, Run Fast: Sparse Deep Neural
Network in 20 Minutes of Development Time via SuiteSparse:GraphBLAS", HPEC 2019.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from gbdnn import costs
from gbdnn.blocks import Buffers
from gbdnn.compression import Merges, equal_rows
from gbdnn.errors import ArgumentError, ArgumentTypeError
from gbdnn.features import as_features
from gbdnn.forms import sparse
from gbdnn.matrices import as_dtype, as_matrix
from gbdnn.metrics import LayerStats
from gbdnn.network import as_network
from gbdnn.overflow import require_finite
from gbdnn.pieces import piece_of_matrix, stack
from gbdnn.plan import stages
from gbdnn.pooling import Pooling
from gbdnn.threads import available, engaged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import graphblas as gb

    from gbdnn.features import Features
    from gbdnn.layer import BiasLike, BiasRule, Layer
    from gbdnn.matrices import MatrixLike
    from gbdnn.network import Network
    from gbdnn.pieces import Piece
    from gbdnn.plan import Stage

__all__ = ["Engine", "infer"]

Engine = Literal["auto", "sparse", "full"]

MEMORY = 512 << 20
"""Bytes that `infer` may use by default beyond weights, features and result."""

_log = logging.getLogger(__name__)


def infer(
    layers: Network | Iterable[Layer] | Iterable[MatrixLike],
    features: MatrixLike,
    *,
    bias: BiasLike | Sequence[BiasLike] | None = None,
    bias_rule: BiasRule | None = None,
    clip: float | None = None,
    dtype: Any = None,
    engine: Engine = "auto",
    compress: bool | Literal["auto"] = "auto",
    memory: int = MEMORY,
    nthreads: int | None = None,
    callback: Callable[[LayerStats], object] | None = None,
) -> gb.Matrix:
    """Return the activations of a sparse network's last layer.

    Parameters
    ----------
    layers : Network, list of Layer, or list of matrices of shape (neurons before, neurons)
        Bare matrices (graphblas, SciPy sparse, 2-D NumPy) become Layers with a ReLU and the
        `bias`, `bias_rule` and `clip` given here; a Network has its own.
    features : Matrix, SciPy sparse or 2-D ndarray, shape (inputs, neurons of the first layer)
        One row per input.
    bias : float, or a sequence with one item (a number or a vector) per layer, optional
        Only with bare matrices; 0 by default.
    bias_rule : {"all", "entries"}, optional
        Only with bare matrices; ``"all"`` by default. See `Layer`.
    clip : float, optional
        Only with bare matrices: upper limit of the activations; none by default.
    dtype : {"FP32", "FP64"} or NumPy dtype, optional
        What to compute in. By default the weights decide: FP32 and FP64 stay, bool and integers
        become FP32. Features are cast to it.
    engine : {"auto", "sparse", "full"}, default "auto"
        The form of the layers: the cheaper one by a cost model, or this one. A layer whose answer
        the full form cannot give, a positive bias under the rule ``"entries"``, is sparse always.
    compress : {"auto", True, False}, default "auto"
        Whether inputs whose activations have become equal, bit for bit, go on as one; each gets its
        row of the answer. ``"auto"`` looks less where activations were found distinct.
    memory : int, default 512 MiB
        Bytes to use beyond weights, features and result.
    nthreads : int, optional
        Threads for this call. By default the engaged GraphBLAS Context and configuration decide.
    callback : callable, optional
        Called with a `LayerStats` for each layer of each block, in the caller's thread. What it
        raises ends the inference and reaches the caller.

    Returns
    -------
    graphblas.Matrix, shape (inputs, neurons of the last layer)
        A new matrix, rows in the order of the inputs; it stores no zero. Without layers, the
        features.

    Raises
    ------
    ShapeError
        Layers do not fit each other, or the features do not fit the first layer.
    ArgumentError, ArgumentTypeError
        A value or an option has no meaning: NaN or infinity, ``nthreads=0``, layers of different
        dtypes, ``bias=`` beside a Network, a `memory` that is too small for one block of inputs.
    NonFiniteError
        ``Y W + b`` overflowed or became NaN; the message names the layer.

    Notes
    -----
    Every layer computes ``Y = min(max(Y W + b, 0), clip)`` [1]_. Nothing that is passed in is
    changed, and GraphBLAS's settings are afterwards what they were before. Forms add in different
    orders: answers agree to the last bit where all sums are exact, elsewhere within rounding.
    Which form was chosen where is told to the logger ``gbdnn.inference`` at debug level.

    References
    ----------
    .. [1] J. Kepner et al., "Sparse Deep Neural Network Graph Challenge", HPEC 2019,
       arXiv:1909.05631.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> W = np.array([[0.5, 0.0], [1.0, -1.0]])
    >>> X = np.array([[2.0, 0.0], [0.0, 3.0], [0.0, 0.0]])
    >>> Y = gbdnn.infer([W, W], X, bias=-0.25, clip=2)
    >>> Y.to_dense(fill_value=0)
    array([[0.125, 0.   ],
           [0.75 , 0.   ],
           [0.   , 0.   ]])
    >>> gbdnn.categories(Y)
    array([0, 1])
    """
    net = as_network(layers, bias=bias, bias_rule=bias_rule, clip=clip, dtype=dtype).loaded()
    if engine not in get_args(Engine):
        raise ArgumentError(f"engine is 'auto', 'sparse' or 'full', not {engine!r}")
    if compress not in (True, False, "auto"):
        raise ArgumentError(f"compress is True, False or 'auto', not {compress!r}")
    if isinstance(memory, bool) or not isinstance(memory, int | np.integer):
        raise ArgumentTypeError(f"memory is a number of bytes, not {memory!r}")
    if not (callback is None or callable(callback)):
        raise ArgumentTypeError(f"callback is callable or None, not {callback!r}")
    with engaged(nthreads):
        if not len(net):
            return as_matrix(features, what="features", dtype=dtype and as_dtype(dtype))
        X = as_features(features, net)
        merges = Merges(len(X.inputs), always=compress is True) if compress else None
        return _Run(net, X, engine, int(memory), merges, callback).answer()


class _Run:
    """One call of `infer`: inputs wait, as sparse rows, at the layer that is their next."""

    def __init__(
        self,
        net: Network,
        X: Features | Piece,
        engine: Engine,
        memory: int,
        merges: Merges | None,
        callback: Callable[[LayerStats], object] | None,
    ) -> None:
        self._merges = merges
        self._net, self._engine, self._memory, self._callback = net, engine, memory, callback
        self._X, self._dtype = X, net[0].dtype
        self._threads = available()
        self._batches = 0
        renumbered = costs.renumbering_pays(len(X.inputs))
        self._stages = stages(net, X.largest, renumbered=renumbered)
        self._neurons = max(max(layer.shape) for layer in net)

    def answer(self) -> gb.Matrix:
        """Return the activations after the last layer, a row per input."""
        inputs = self._X.inputs
        batch = self._batch()
        done: list[Piece] = []
        for start in range(0, len(inputs), batch):
            stop = min(start + batch, len(inputs))
            done += self._through(self._X if batch >= len(inputs) else self._X.rows(start, stop))
        same_as = None if self._merges is None else self._merges.same_as()
        return stack(done, inputs, self._net.shape[1], self._dtype, same_as).matrix()

    def _through(self, batch: Features | Piece) -> list[Piece]:
        """Take a batch of inputs through all layers."""
        last = len(self._stages)
        waiting: defaultdict[int, list[Piece]] = defaultdict(list)
        self._onward(0, batch, waiting)
        while (k := min(waiting, default=last)) < last:
            pieces, stage = waiting.pop(k), self._stages[k]
            inputs = np.sort(np.concatenate([piece.inputs for piece in pieces]))
            piece = stack(pieces, inputs, stage.layer.nrows, self._dtype)
            self._onward(k, piece.without_empty_rows() if stage.mortal else piece, waiting)
        self._batches += 1
        return waiting[last]

    def _onward(
        self, k: int, inputs: Features | Piece, waiting: defaultdict[int, list[Piece]]
    ) -> None:
        """Take inputs on from layer `k`, in the form that is to be; they wait where it ends."""
        stage, count = self._stages[k], len(inputs.inputs)
        form = self._form(stage, count, inputs.nvals)
        _log.debug("layer %d: %s form for %d inputs", k, form, count)
        if form == "sparse":
            waiting[k + 1].append(self._sparse(stage, inputs.rows(0, count)))
        else:
            for at, left in self._full(k, inputs).items():
                waiting[at] += left

    def _form(self, stage: Stage, inputs: int, entries: int) -> str:
        """Return the form in which so many inputs, with so many entries in all, take the layer."""
        if not stage.exact:
            return "sparse"
        if self._engine != "auto":
            return self._engine
        layer = stage.layer
        width = min(self._width(inputs), max(inputs, 1))
        blocks = -(-inputs // width)
        cheap = costs.sparse_layer(inputs, entries, layer.edges, layer.nrows, layer.ncols)
        dear = blocks * costs.full_layer(width, layer.edges, layer.ncols)
        return "sparse" if cheap < dear + costs.CONVERT * entries else "full"

    def _sparse(self, stage: Stage, piece: Piece) -> Piece:
        """Return the inputs after one layer in the sparse form."""
        began = perf_counter()
        k, layer = stage.k, stage.layer
        if self._merges is not None and self._merges.wants(k):
            piece = self._merged(k, piece)
        check = partial(require_finite, k, layer) if stage.watched else None
        Y = sparse.advance(piece.matrix(), layer, layer.prepared(sparse.prepare), check)
        after = piece_of_matrix(Y, piece.inputs)
        if self._callback is not None:
            live = after.inputs[after.indptr[1:] > after.indptr[:-1]]
            self._callback(
                LayerStats(
                    layer=k,
                    block=self._batches,
                    inputs=len(after.inputs),
                    live=len(live) if self._merges is None else self._merges.represented(live),
                    distinct=len(live),
                    entries=after.nvals,
                    form="sparse",
                    seconds=perf_counter() - began,
                )
            )
        return after

    def _merged(self, k: int, piece: Piece) -> Piece:
        """Return the inputs without those that are equal to another one."""
        if self._merges is None:
            return piece
        equal = equal_rows(piece)
        if not self._merges.worth(k, len(equal.stay), len(piece.inputs)):
            return piece
        self._merges.merge(piece.inputs[equal.merged], piece.inputs[equal.into])
        return piece.take(equal.stay)

    def _full(self, k: int, inputs: Features | Piece) -> dict[int, list[Piece]]:
        """Return the inputs after as many layers as the full form is good for, by layer."""
        count = len(inputs.inputs)
        width = self._width(count)
        edges = max(stage.layer.edges for stage in self._stages[k:])
        workers, inner = costs.inner_threads(self._threads, -(-count // width), width, edges)
        workers = max(1, min(workers, self._memory // self._block_bytes(width)))
        _log.debug("blocks of %d inputs, %d side by side, %d threads each", width, workers, inner)
        return Pooling(
            self._stages,
            inputs,
            k,
            width=width,
            workers=workers,
            inner=inner,
            buffers=Buffers(self._dtype, self._memory),
            merges=self._merges,
            may_leave=self._engine == "auto",
            callback=self._callback,
        ).run()

    def _width(self, inputs: int) -> int:
        """Return the inputs per block: what suits the caches and is within the memory."""
        width = costs.block_width(self._neurons, self._dtype.itemsize, inputs)
        while width > 16 and self._block_bytes(width) > self._memory:
            width -= 32
        if self._block_bytes(width) > self._memory:
            raise ArgumentError(
                f"memory={self._memory} is too small: a block of {width} inputs at"
                f" {self._neurons} neurons takes {self._block_bytes(width)} bytes"
            )
        return width

    def _block_bytes(self, width: int) -> int:
        """Return the bytes that a thread works in: a block, the next one, and one to gather by."""
        return 3 * width * self._neurons * self._dtype.itemsize

    def _batch(self) -> int:
        """Return how many inputs go through the network together.

        The full form takes a block at a time from the features: all of them. Where inputs wait
        between sparse layers, there are as many as have room for a few full rows each.
        """
        everywhere = self._engine != "sparse" and all(stage.exact for stage in self._stages)
        count = len(self._X.inputs)
        if everywhere and self._form(self._stages[0], count, self._X.nvals) == "full":
            return max(1, count)
        row = 4 * self._neurons * (8 + self._dtype.itemsize)
        if row > self._memory:
            raise ArgumentError(
                f"memory={self._memory} is too small: an input at {self._neurons} neurons takes up"
                f" to {row} bytes in the sparse form"
            )
        return self._memory // row
