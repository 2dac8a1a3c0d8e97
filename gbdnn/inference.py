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
from functools import partial
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from gbdnn import costs
from gbdnn.blocks import Buffers
from gbdnn.compression import Merges, equal_rows
from gbdnn.errors import ArgumentError, ArgumentTypeError, GbdnnError
from gbdnn.features import as_features
from gbdnn.forms import sparse
from gbdnn.matrices import as_dtype, as_matrix
from gbdnn.metrics import LayerStats
from gbdnn.network import as_network
from gbdnn.overflow import require_finite
from gbdnn.pieces import joined, piece_of_matrix, stack
from gbdnn.plan import stages
from gbdnn.pooling import Pooling
from gbdnn.threads import available, engaged
from gbdnn.waiting import Waiting
from gbdnn.windows import Windows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import graphblas as gb

    from gbdnn.features import Features
    from gbdnn.layer import BiasLike, BiasRule, Layer
    from gbdnn.matrices import MatrixLike
    from gbdnn.network import Network
    from gbdnn.pieces import Piece
    from gbdnn.plan import Loaded, Stage
    from gbdnn.waiting import Queue

__all__ = ["Engine", "infer", "infer_batches"]

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
        Bare matrices (graphblas, SciPy sparse, 2-D NumPy) become Layers with a ReLU and
        the bias, rule and clip given here; a Network has its own.
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
        Bytes to use beyond weights, features and result. A network that is not in memory is read in
        it, some layers at a time: more memory means fewer passes over the weights.
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
    net = as_network(layers, bias=bias, bias_rule=bias_rule, clip=clip, dtype=dtype)
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
        self._net, self._engine, self._callback = net, engine, callback
        self._X, self._dtype = X, net.infos[0].dtype
        self._threads = available()
        self._blocks = count()
        self._neurons = max(max(info.shape) for info in net.infos)
        self._stages = stages(net, X.largest)
        # Weights that are read as the run goes share the memory with blocks and what waits.
        self._memory = memory if net.in_memory else memory // 2
        self._windows = Windows(
            net,
            self._stages,
            renumbered=costs.renumbering_pays(len(X.inputs)),
            memory=memory - self._memory,
            nthreads=self._threads,
        )

    def answer(self) -> gb.Matrix:
        """Return the activations after the last layer, a row per input."""
        waiting = Waiting(len(self._stages), self._memory)
        waiting.begin(self._X)
        with self._windows:
            while (following := waiting.next()) is not None:
                self._onward(*following, waiting)
        same_as = None if self._merges is None else self._merges.same_as()
        inputs, ncols = self._X.inputs, self._net.shape[1]
        return stack(waiting.done, inputs, ncols, self._dtype, same_as).matrix()

    def _onward(self, k: int, queue: Queue, room: float, waiting: Waiting) -> None:
        """Take inputs on from layer `k`, in the form that is to be; they wait where it ends."""
        form = self._form(self._stages[k], queue.inputs, queue.entries)
        _log.debug("layer %d: %s form for %d inputs", k, form, queue.inputs)
        window = self._windows.holding(k)
        if form == "sparse":
            stage = window[k - window[0].k]
            piece = joined([span.rows() for span in queue.take(self._rows_at_once())])
            waiting.add(k + 1, self._sparse(stage, piece))
        else:
            for at, pieces in self._full(window, k, queue, room).items():
                for piece in pieces:
                    waiting.add(at, piece)

    def _form(self, stage: Stage, inputs: int, entries: float) -> str:
        """Return the form in which so many inputs, with so many entries in all, take the layer."""
        if not stage.exact:
            return "sparse"
        if self._engine != "auto":
            return self._engine
        info = stage.info
        width = min(self._width(inputs), max(inputs, 1))
        blocks = -(-inputs // width)
        cheap = costs.sparse_layer(inputs, entries, info.edges, info.nrows, info.ncols)
        dear = blocks * costs.full_layer(width, info.edges, info.ncols)
        return "sparse" if cheap < dear + costs.CONVERT * entries else "full"

    def _sparse(self, stage: Loaded, piece: Piece) -> Piece:
        """Return the inputs after one layer in the sparse form."""
        began = perf_counter()
        k, layer = stage.k, stage.layer
        if stage.mortal:
            piece = piece.without_empty_rows()
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
                    block=next(self._blocks),
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

    def _full(
        self, window: list[Loaded], k: int, queue: Queue, room: float
    ) -> dict[int, list[Piece]]:
        """Return the inputs after as many layers as the full form is good for, by layer."""
        width = self._width(queue.inputs)
        edges = max(stage.info.edges for stage in window if stage.k >= k)
        blocks = -(-queue.inputs // width)
        workers, inner = costs.inner_threads(self._threads, blocks, width, edges)
        workers = max(1, min(workers, self._memory // self._block_bytes(width)))
        _log.debug("blocks of %d inputs, %d side by side, %d threads each", width, workers, inner)
        return Pooling(
            window,
            queue,
            k,
            room=room,
            width=width,
            workers=workers,
            inner=inner,
            buffers=Buffers(self._dtype, self._memory),
            merges=self._merges,
            may_leave=self._engine == "auto",
            numbers=self._blocks,
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

    def _rows_at_once(self) -> int:
        """Return how many inputs a layer in the sparse form takes: a few full rows of each fit."""
        row = 4 * self._neurons * (8 + self._dtype.itemsize)
        if row > self._memory:
            raise ArgumentError(
                f"memory={self._memory} is too small: an input at {self._neurons} neurons takes up"
                f" to {row} bytes in the sparse form"
            )
        return self._memory // row


def infer_batches(
    layers: Network | Iterable[Layer] | Iterable[MatrixLike],
    batches: Iterable[MatrixLike],
    **options: Any,
) -> Iterator[gb.Matrix]:
    """Yield the activations of the last layer for one batch of features after the other.

    For features that do not fit into memory: a batch is asked for when the answer before it has
    been taken.

    Parameters
    ----------
    layers : Network, list of Layer, or list of matrices
        As for `infer`.
    batches : iterable of matrices, each of shape (inputs of the batch, neurons of the first layer)
        Features, in the order in which the answers are wanted.
    options : keyword arguments
        Those of `infer`.

    Yields
    ------
    graphblas.Matrix, shape (inputs of the batch, neurons of the last layer)

    Raises
    ------
    GbdnnError
        As `infer`: what is wrong with `layers` at once, what is wrong with a batch when it is its
        turn; the message names the batch, counted from 0.

    Notes
    -----
    A network that is not in memory is read for every batch anew: there, larger batches are better.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> W = np.array([[0.5, 0.0], [1.0, -1.0]])
    >>> batches = (np.full((2, 2), x) for x in (1.0, 2.0))
    >>> for Y in gbdnn.infer_batches([W], batches, clip=2):
    ...     print(Y.to_dense(fill_value=0).tolist())
    [[1.5, 0.0], [1.5, 0.0]]
    [[2.0, 0.0], [2.0, 0.0]]
    """
    own = {name: options.pop(name) for name in _OF_MATRICES if name in options}
    net = as_network(layers, **own)
    try:
        each = iter(batches)
    except TypeError as err:
        raise ArgumentTypeError(
            f"batches is an iterable of matrices, not {type(batches).__qualname__}"
        ) from err
    return _answers(net, each, options)


_OF_MATRICES = ("bias", "bias_rule", "clip", "dtype")


def _answers(
    net: Network, batches: Iterator[MatrixLike], options: dict[str, Any]
) -> Iterator[gb.Matrix]:
    for number, features in enumerate(batches):
        try:
            Y = infer(net, features, **options)
        except GbdnnError as err:
            raise type(err)(f"batch {number}: {err}") from err
        del features  # makes room for the next
        yield Y
