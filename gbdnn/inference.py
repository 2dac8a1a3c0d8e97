"""Inference: the activations of every input after every layer.

    Z   = Y W                      plus_times
    Z  += b                        on every neuron, or on the entries of Z: the bias rule
    Y'  = min(max(Z, 0), clip)     ReLU with an upper limit

Rows of Y are inputs, columns are neurons. A layer is computed by the sparse kernel
(`gbdnn.kernels.sparse`, many inputs as one sparse matrix) or a block kernel
(`gbdnn.kernels.full` or `gbdnn.kernels.fused`, in blocks of inputs, several layers in a row),
whichever the cost model finds cheaper. `gbdnn.engine.run` takes inputs through windows of layers
and regroups them in between.

J. Kepner, S. Alford, V. Gadepally et al., "Sparse Deep Neural Network Graph Challenge", HPEC 2019,
equations 1 to 4; T. Davis, M. Aznaveh, S. Kolodziej, "Write Quick, Run Fast: Sparse Deep Neural
Network in 20 Minutes of Development Time via SuiteSparse:GraphBLAS", HPEC 2019.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

from gbdnn.arrays.checks import (
    as_dtype,
    as_flag,
    as_path,
    require_callable,
    whole_number,
)
from gbdnn.arrays.matrices import as_features, as_matrix
from gbdnn.engine.choice import MEMORY, Engine
from gbdnn.engine.run import checked_options, infer_network
from gbdnn.engine.stats import LayerStats, per_layer
from gbdnn.errors import ArgumentError, ArgumentTypeError, naming
from gbdnn.model.network import Network, as_network
from gbdnn.runtime.first_use import complete
from gbdnn.runtime.threads import engaged

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Unpack

    import graphblas as gb

    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.distributed.executors.workers import Workers
    from gbdnn.io.store.features import StoredFeatures
    from gbdnn.model.layer import Activation, BiasLike, BiasRule, Layer

    class Options(TypedDict, total=False):
        """Options of `infer` that the other calls take, too; there they are described."""

        bias: BiasLike | Sequence[BiasLike] | None
        bias_rule: BiasRule | None
        clip: float | None
        last_activation: Activation | None
        dtype: Any
        engine: Engine
        deduplicate: bool | Literal["auto"]
        memory: int | str
        nthreads: int | None
        callback: Callable[[LayerStats], object] | None


__all__ = ["LayerStats", "per_layer"]  # infer and the other functions are names of gbdnn

_OF_LAYERS = (
    "bias",
    "bias_rule",
    "clip",
    "last_activation",
    "dtype",
)  # options that make layers of matrices


def infer(
    layers: Network | Iterable[Layer] | Iterable[MatrixLike],
    features: MatrixLike,
    *,
    bias: BiasLike | Sequence[BiasLike] | None = None,
    bias_rule: BiasRule | None = None,
    clip: float | None = None,
    last_activation: Activation | None = None,
    dtype: Any = None,
    engine: Engine = "auto",
    deduplicate: bool | Literal["auto"] = "auto",
    memory: int | str = MEMORY,
    nthreads: int | None = None,
    callback: Callable[[LayerStats], object] | None = None,
    executor: Any = None,
) -> gb.Matrix:
    """Return the activations of a sparse network's last layer.

    Parameters
    ----------
    layers : Network, list of Layer, or list of matrices of shape (neurons before, neurons)
        Bare matrices (graphblas, SciPy sparse, 2-D NumPy) become Layers with a ReLU and
        the bias, rule and clip given here; a Network has its own.
    features : Matrix, SciPy sparse or 2-D ndarray, shape (inputs, neurons of the first layer)
        One row per input. An expression of GraphBLAS is computed, a Vector is one input, and of
        data frames and tensors the array is taken. A NumPy array (any order, any real dtype), a
        row-wise Matrix and SciPy's CSR with sorted indices are read where they are. A full Matrix,
        or a bitmap one with many entries, is copied to an array. Other matrices are converted to
        sparse rows. Stored features, ``gbdnn.io.open_features(path)``, are accepted too: only the
        rows of a block are read, when the block is computed.
    bias : float, or a sequence with one item per layer, optional
        Only with bare matrices (default: 0). An item is a number, a vector or LAGraph's diagonal
        Matrix, as for `Layer`.
    bias_rule : {"all", "entries"}, optional
        Only with bare matrices (default: ``"all"``). See `Layer`.
    clip : float, optional
        Only with bare matrices: upper limit of the activations (default: none).
    last_activation : {"relu", "identity"}, optional
        Only with bare matrices: ``"identity"`` leaves the last layer without ReLU and clip, as in a
        trained classifier (default: ``"relu"``, as in the challenge).
    dtype : {"FP32", "FP64"} or NumPy dtype, optional
        What to compute in (default: the weights decide; FP32 and FP64 stay, bool and integers
        become FP32). Features are cast to it.
    engine : {"auto", "graphblas", "fused", "sparse", "full"}, default "auto"
        What computes the layers. ``"auto"`` picks the fastest available kernel. ``"graphblas"``
        needs no numba: each layer runs in GraphBLAS's sparse or full kernel, whichever a cost model
        expects to be faster for the inputs and the activations that reach the layer. A layer that
        blocks of inputs cannot compute exactly (a positive bias under the rule ``"entries"``)
        always runs in the sparse kernel. ``"fused"`` forces the kernel compiled by numba,
        ``"sparse"`` and ``"full"`` one kernel of GraphBLAS.
    deduplicate : {"auto", True, False}, default "auto"
        Whether inputs whose activations have become equal, bit for bit, are deduplicated: one of
        them is computed, each gets its row of the answer. ``"auto"`` merges them where many are
        equal, and not at all for dense features in a shallow network.
    memory : int or str, default "512MiB"
        Budget in bytes, or with a unit, beyond weights, features (and their copy, if they are
        converted) and result. It is not a strict limit; the aim is a peak of at most 1.5 times as
        much.
        A network that is not in memory is read within it, some layers at a time: more memory means
        fewer passes over the weights. Compiling the fused kernel, once per machine, takes up to
        64 MiB more.
    nthreads : int, optional
        Threads for this call, -1 for all cores (default: those of the engaged GraphBLAS Context, or
        of the configuration).
    callback : callable, optional
        Called with a `LayerStats` for each layer of each block, in the caller's thread, when all
        blocks have gone through a window of layers. What it raises ends the inference and is raised
        by `infer`. With a callback, dense features take longer through a shallow network, because
        inputs are regrouped.
    executor : Executor, dask.distributed.Client or distributed.Workers, optional
        Its workers compute the inputs in batches (default: this process computes them). For
        workers on other machines, the network must have been loaded from a folder that they can
        read. `nthreads` and `memory` are then per worker; the default of `nthreads` is this
        machine's cores divided by the workers, or 1 if they may be on other machines.
        `distributed.Workers` sets further options, such as the size of batches, and reports what
        each worker did.

    Returns
    -------
    graphblas.Matrix, shape (inputs, neurons of the last layer)
        A new matrix, rows in the order of the inputs; it stores no zero. The answer to dense
        features is in full format, in bitmap format if some activations are 0 (its array of values
        is 0 there), or in sparse format if fewer than one in sixteen is not. Without layers, the
        features.

    Raises
    ------
    ShapeError
        Layers do not fit each other, or the features do not fit the first layer.
    ArgumentError, ArgumentTypeError
        A value or an option has no meaning: NaN or infinity, ``nthreads=0``, layers of different
        dtypes, ``bias=`` with a Network, a `memory` that is too small for one block of inputs.
    NonFiniteError
        ``Y W + b`` overflowed or became NaN; the message names the layer.
    ForkError
        The process was forked after GraphBLAS was initialised with more than one thread: start it
        with ``spawn`` or ``forkserver``.
    WorkerError
        A worker died, and the executor does not replace it, or the executor failed.

    See Also
    --------
    compile : A network that is called with arrays, and answers with arrays: the least latency.

    Notes
    -----
    Every layer computes ``Y = min(max(Y W + b, 0), clip)`` [1]_. Nothing that is passed in is
    changed, and GraphBLAS's settings are restored. The logger ``gbdnn.inference`` reports the
    engine and the kernels that ran at info level, each choice at debug level.

    With pandas 3, ``print(Y)`` raises an error in python-graphblas 2025.2, which draws matrices as
    tables of pandas; print ``Y.to_dense(fill_value=0)`` or ``Y.to_coo()`` instead.

    Rounding: kernels, and neurons in another order, add in different orders. Answers agree to the
    last bit where all sums are exact, elsewhere within rounding. Within a block kernel (``"full"``,
    ``"fused"``) the bits of an input's answer depend neither on `nthreads`, nor on its block, nor
    on the other inputs in it; where dense features go through all layers at once, and in calls of a
    `CompiledNetwork`, they do not depend on the number of inputs either. Within the sparse kernel
    they are reproducible with ``nthreads=1``, or where all sums are exact; elsewhere GraphBLAS may
    split one input's sums over threads, and add the parts in any order. Which kernel is chosen, and
    whether neurons are reordered, may depend on the number of inputs and on `memory`; under
    ``"auto"`` also on whether the fused kernel has been compiled, and where several parts of the
    inputs wait between windows (a lazy network, little `memory`) on the order in which threads
    finish.

    With `executor`, the message of an error begins with the number of the batch, counted from 0.
    The other batches are cancelled, and the executor can be used again. In a block kernel, answers
    have the same bits as without executor if batches have at least 2,048 inputs.

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
    given = {
        "engine": engine,
        "deduplicate": deduplicate,
        "memory": memory,
        "nthreads": nthreads,
        "callback": callback,
    }
    options = checked_options(given, "infer")
    workers = None if executor is None else _workers(executor, options)
    net = _network(
        layers, options["nthreads"],
        bias=bias, bias_rule=bias_rule, clip=clip, last_activation=last_activation, dtype=dtype,
    )  # fmt: skip
    if workers is None or not len(net):
        return _here(net, features, dtype, options)
    from gbdnn.distributed.executors.batches import infer_over

    return infer_over(net, features, workers, options)


def infer_batches(
    layers: Network | Iterable[Layer] | Iterable[MatrixLike],
    batches: Iterable[MatrixLike],
    *,
    executor: Any = None,
    **options: Unpack[Options],
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
    executor
        As for `infer`; answers come in the order of the batches. At most 2 batches per worker are
        in flight, or `ahead` of `distributed.Workers`.
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

    With `executor`, workers keep the network in memory if it takes at most 8 times ``memory=``, and
    read batches from ``StoredFeatures.batches(inputs)`` themselves.

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
    net, run, dtype = _with_options(layers, options, "infer_batches")
    workers = None if executor is None else _workers(executor, run, is_dealt=False)
    complete(batches)
    try:
        each = iter(batches)
    except TypeError as err:
        raise ArgumentTypeError(
            f"batches is an iterable of matrices, not {type(batches).__qualname__}"
        ) from err
    if workers is None or not len(net):
        return _answers(net, each, dtype, run)
    from gbdnn.distributed.executors.batches import infer_batches_over
    from gbdnn.distributed.executors.tasks import require_readable

    require_readable(net, workers)
    return infer_batches_over(net, each, workers, run)


def infer_to_store(
    layers: Network | Iterable[Layer] | Iterable[MatrixLike],
    features: MatrixLike,
    path: str | os.PathLike[str],
    *,
    executor: Any = None,
    batch: int | None = None,
    restart: bool = False,
    progress: Callable[[int, int], object] | None = None,
    **options: Unpack[Options],
) -> StoredFeatures:
    """Write the activations of the last layer into a store, part by part.

    Neither the features nor the answer need to fit into memory. If a call is interrupted, the same
    call computes the parts that are missing.

    Parameters
    ----------
    layers, features, executor
        As for `infer`. With an executor whose workers are not threads of this process, the workers
        write to `path`, which must be in a file system that they share.
    path : path-like
        A new or empty folder, or the folder of an earlier call.
    batch : int, optional
        Least number of inputs of a part. Smaller parts lose less when a run is killed, but each
        part needs another pass over all weights. Default: the parts of the earlier call; else
        16,384, or 65,536 for networks that have more than 120 layers or are streamed from the disk;
        with `executor` a 64th of the inputs, but from 2,048 to 16,384.
    restart : bool, default False
        Whether to discard an unfinished run in the folder, or to replace a finished store there
        when the answer is complete.
    progress : callable, optional
        Called as ``progress(done, inputs)`` with the number of inputs in finished parts: first with
        those of earlier calls, then after each part.
    options : keyword arguments
        Those of `infer`; ``callback`` only without `executor`.

    Returns
    -------
    StoredFeatures
        The activations.

    Raises
    ------
    OutputError
        The folder contains another store or a different run: another network or features, another
        ``engine``, ``deduplicate`` or version of gbdnn, or with `batch` parts of another size. The
        message names the difference. Or the folder cannot be written.
    GbdnnError
        As `infer` and `save`. Finished parts are kept.

    Notes
    -----
    Network and features are compared by their content: stores may have been moved or saved again.
    Memory, threads and workers may change between calls. Finished parts are compared with their
    checksums; a damaged part is computed again. If all parts are finished, nothing is computed.

    The answer has the same bits as that of an uninterrupted run if two calls of `infer` have the
    same bits.

    Examples
    --------
    >>> import pathlib, tempfile, numpy as np, gbdnn
    >>> folder = pathlib.Path(tempfile.mkdtemp()) / "Y"
    >>> Y = gbdnn.infer_to_store([np.eye(3)], np.eye(3)[:2], folder, bias=0.5)
    >>> Y.matrix().to_dense().tolist()
    [[1.5, 0.5, 0.5], [0.5, 1.5, 0.5]]
    """
    require_callable(progress, "progress")
    as_flag(restart, "restart")
    as_path(path)
    if batch is not None:
        whole_number(batch, "batch", least=1)
    net, run, _ = _with_options(layers, options, "infer_to_store")
    if not len(net):
        raise ArgumentTypeError("layers: there is none; gbdnn.save writes features")
    from gbdnn.distributed.executors.parts import infer_to_store_over
    from gbdnn.distributed.executors.workers import here

    workers = _workers(here() if executor is None else executor, run, is_dealt=False)
    with engaged(run["nthreads"] if workers.is_caller else None):
        return infer_to_store_over(
            net, features, path, workers, batch=batch, restart=restart, progress=progress,
            options=run,
        )  # fmt: skip


def _network(layers: Any, nthreads: int | None, **of_layers: Any) -> Network:
    made = isinstance(layers, Network) and of_layers.get("dtype") is None
    with engaged(None if made else nthreads):
        return as_network(layers, **of_layers)


def _with_options(layers: Any, options: Any, call: str) -> tuple[Network, dict[str, Any], Any]:
    """Return the network, all options of a run, checked, and the dtype that was given."""
    own = {name: options.pop(name) for name in _OF_LAYERS if name in options}
    run = checked_options(options, call)
    return _network(layers, run["nthreads"], **own), run, own.get("dtype")


def _workers(executor: Any, options: dict[str, Any], *, is_dealt: bool = True) -> Workers:
    """Return the workers of an executor; the options get their threads."""
    from gbdnn.distributed.executors.workers import workers_of

    workers = workers_of(executor)
    if not workers.is_caller and options["callback"] is not None:
        raise ArgumentTypeError(
            "callback= cannot be combined with executor=; use"
            " executor=gbdnn.distributed.Workers(executor, stats=...) for a record per batch"
        )
    if workers.is_hashed and not is_dealt:
        raise ArgumentError("order='hashed' is supported by infer only")
    options["nthreads"] = options["nthreads"] or workers.nthreads
    return workers


def _here(net: Network, features: MatrixLike, dtype: Any, options: dict[str, Any]) -> gb.Matrix:
    """Return what `infer` returns, computed by this process."""
    if len(net):
        return infer_network(net, features, **options)
    with engaged(options["nthreads"]):
        features = as_features(features, "features")
        return as_matrix(features, what="features", dtype=dtype and as_dtype(dtype))


def _answers(
    net: Network, batches: Iterator[MatrixLike], dtype: Any, options: dict[str, Any]
) -> Iterator[gb.Matrix]:
    for number, features in enumerate(batches):
        with naming(f"batch {number}"):
            Y = _here(net, features, dtype, options)
        del features  # makes room for the next
        yield Y


def __dir__() -> list[str]:
    """List the public names only."""
    return list(__all__)
