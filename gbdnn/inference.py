"""Inference: the activations of every input after every layer.

    Z   = Y W                      plus_times
    Z  += b                        on every neuron, or on the entries of Z: the bias rule
    Y'  = min(max(Z, 0), clip)     ReLU with an upper limit

Rows of Y are inputs, columns are neurons. A layer is computed in the sparse form
(`gbdnn.kernels.sparse`, all queued inputs at once) or in a block form (`gbdnn.kernels.full` or
`gbdnn.kernels.fused`, in blocks of inputs, several layers in a row). Dense features of a few layers
take blocks of inputs through all of them at once (`gbdnn.engine.direct`); all other inputs are
queued by layer, and each queue runs in the form that the cost model finds cheaper.

J. Kepner, S. Alford, V. Gadepally et al., "Sparse Deep Neural Network Graph Challenge", HPEC 2019,
equations 1 to 4; T. Davis, M. Aznaveh, S. Kolodziej, "Write Quick, Run Fast: Sparse Deep Neural
Network in 20 Minutes of Development Time via SuiteSparse:GraphBLAS", HPEC 2019.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from gbdnn.arrays.first_use import complete
from gbdnn.arrays.matrices import as_matrix
from gbdnn.arrays.threads import engaged
from gbdnn.arrays.values import as_dtype
from gbdnn.engine.choice import Engine
from gbdnn.engine.memory import MEMORY
from gbdnn.engine.run import checked, checked_options, infer_network
from gbdnn.errors import ArgumentTypeError, naming
from gbdnn.model.network import Network, as_network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import graphblas as gb

    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.engine.stats import LayerStats
    from gbdnn.model.layer import BiasLike, BiasRule, Layer

OF_LAYERS = ("bias", "bias_rule", "clip", "dtype")
"""The options of `infer` that make layers of matrices; the others are those of a run."""

__all__ = ["OF_LAYERS", "Engine", "infer", "infer_batches"]


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
        One row per input. A NumPy array (any order, any real dtype), a full Matrix, or a bitmap one
        with many entries is read as an array: nothing is made sparse. Rows that are at hand, of a
        row-wise Matrix or SciPy's CSR with sorted indices, of any real dtype, are read where they
        are; other matrices are converted, which `memory` has to have room for. Stored features,
        ``gbdnn.io.open_features(path)``, are accepted too: only the rows of a block are read, when
        the block is computed.
    bias : float, or a sequence with one item (a number or a vector) per layer, optional
        Only with bare matrices (default: 0).
    bias_rule : {"all", "entries"}, optional
        Only with bare matrices (default: ``"all"``). See `Layer`.
    clip : float, optional
        Only with bare matrices: upper limit of the activations (default: none).
    dtype : {"FP32", "FP64"} or NumPy dtype, optional
        What to compute in (default: the weights decide; FP32 and FP64 stay, bool and integers
        become FP32). Features are cast to it.
    engine : {"auto", "sparse", "full", "fused"}, default "auto"
        The form of the layers: the cheaper one by a cost model, or this one. ``"full"`` and
        ``"fused"`` are block forms; ``"fused"`` is compiled by numba, and computes layers with 40 %
        of their edges or more as dense ones. A layer whose answer block
        forms cannot give (a positive bias under the rule ``"entries"``) is always computed in the
        sparse form.
    compress : {"auto", True, False}, default "auto"
        Whether inputs whose activations have become equal, bit for bit, are deduplicated: one of
        them is computed, each gets its row of the answer. ``"auto"`` checks less often where
        activations were found distinct, and not at all for dense features in a network of a few
        layers.
    memory : int, default 512 MiB
        Bytes to use beyond weights, features and result. A network that is not in memory is read in
        it, some layers at a time: more memory means fewer passes over the weights. Compiling the
        fused form, once a machine, takes up to 64 MiB more.
    nthreads : int, optional
        Threads for this call (default: those of the engaged GraphBLAS Context, or of the
        configuration).
    callback : callable, optional
        Called with a `LayerStats` for each layer of each block, in the caller's thread. What it
        raises ends the inference and is raised by `infer`. In the fused form it is called when a
        block has gone through several layers. With a callback inputs are queued by layer, which
        takes longer for dense features in a network of a few layers.

    Returns
    -------
    graphblas.Matrix, shape (inputs, neurons of the last layer)
        A new matrix, rows in the order of the inputs; it stores no zero. Dense features have an
        answer in full form, in bitmap form where some activations are 0 (its array of values holds
        0 there), or in sparse form where fewer than one in sixteen is not. Without layers, the
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
    ForkError
        The process was forked after GraphBLAS was initialised with more than one thread: start it
        with ``spawn`` or ``forkserver``.

    See Also
    --------
    compile : A network that is called with arrays, and answers with arrays: the least latency.

    Notes
    -----
    Every layer computes ``Y = min(max(Y W + b, 0), clip)`` [1]_. Nothing that is passed in is
    changed, and GraphBLAS's settings are restored. The choices of form and block are logged by
    ``gbdnn.inference`` at debug level.

    Rounding: forms, and neurons in another order, add in different orders. Answers agree to the
    last bit where all sums are exact, elsewhere within rounding. Within one block form (``"full"``,
    ``"fused"``) the bits of an input's answer depend neither on `nthreads`, nor on its block, nor
    on the other inputs in it; where dense features go through all layers at once, and in calls of a
    `CompiledNetwork`, they do not depend on the number of inputs either. Within the sparse form
    they are reproducible with ``nthreads=1``, or where all sums are exact; elsewhere GraphBLAS may
    split one input's sums over threads, and add the parts in any order. Which form is chosen, and
    whether neurons are reordered, may depend on the number of inputs and on `memory`; under
    ``"auto"`` also on whether the fused form has been compiled, and where rows are queued between
    layers (a lazy network, little `memory`) on the order in which threads finish.

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
    made = isinstance(layers, Network) and dtype is None
    with engaged(None if made else nthreads):
        net = as_network(layers, bias=bias, bias_rule=bias_rule, clip=clip, dtype=dtype)
    if not len(net):
        _, nthreads = checked(engine, compress, memory, nthreads, callback)
        with engaged(nthreads):
            return as_matrix(features, what="features", dtype=dtype and as_dtype(dtype))
    return infer_network(
        net, features, engine=engine, compress=compress, memory=memory, nthreads=nthreads,
        callback=callback,
    )  # fmt: skip


def infer_batches(
    layers: Network | Iterable[Layer] | Iterable[MatrixLike],
    batches: Iterable[MatrixLike],
    **options: Any,
) -> Iterator[gb.Matrix]:
    """Yield the activations of the last layer for one batch of features after the other.

    For features and answers that do not fit into memory: a batch is requested when the answer
    before it has been taken.

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
        As `infer`: for `layers` and options at once, for a batch when it is computed; the message
        names the batch, counted from 0.

    Notes
    -----
    A network that is not in memory is read again for every batch: there, larger batches are better.

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
    own = {name: options.pop(name) for name in OF_LAYERS if name in options}
    checked_options(options, "infer_batches")
    with engaged(options.get("nthreads")):
        net = as_network(layers, **own)
    complete(batches)
    try:
        each = iter(batches)
    except TypeError as err:
        raise ArgumentTypeError(
            f"batches is an iterable of matrices, not {type(batches).__qualname__}"
        ) from err
    if not len(net):
        options["dtype"] = own.get("dtype")
    return _answers(net, each, options)


def _answers(
    net: Network, batches: Iterator[MatrixLike], options: dict[str, Any]
) -> Iterator[gb.Matrix]:
    for number, features in enumerate(batches):
        with naming(f"batch {number}"):
            Y = infer(net, features, **options)
        del features  # makes room for the next
        yield Y
