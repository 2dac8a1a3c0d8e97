"""Inference: the activations of every input after every layer.

    Z   = Y W                      plus_times
    Z  += b                        on every neuron, or on the entries of Z: the bias rule
    Y'  = min(max(Z, 0), clip)     ReLU with an upper limit

Rows of Y are inputs, columns are neurons. A layer is computed by the sparse kernel
(`gbdnn.kernels.sparse`, many inputs as one sparse matrix) or a block kernel
(`gbdnn.kernels.full` or `gbdnn.kernels.fused`, blocks of inputs, several consecutive layers),
whichever the cost model expects to be faster. `gbdnn.engine.run` takes inputs through the layers.

J. Kepner et al., "Sparse Deep Neural Network Graph Challenge", HPEC 2019, equations 1 to 4.
"""

from __future__ import annotations

from functools import partial
from inspect import signature
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np

from gbdnn.arrays.checks import (
    as_dtype,
    as_flag,
    as_nthreads,
    as_path,
    require_callable,
    whole_number,
)
from gbdnn.arrays.matrices import as_features, as_matrix, is_matrix, is_vector
from gbdnn.arrays.sources import HyperRows, as_source, is_source, require_columns
from gbdnn.engine.plan import MEMORY, Engine, Plan, plan_of
from gbdnn.engine.run import checked_options, infer_network
from gbdnn.errors import ArgumentError, ArgumentTypeError, naming
from gbdnn.model.network import Network, as_items, as_network, dtypes_for
from gbdnn.runtime.first_use import complete
from gbdnn.runtime.threads import engaged, restored

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Unpack

    import graphblas as gb

    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.distributed.executors.workers import Workers
    from gbdnn.engine.stats import LayerStats
    from gbdnn.io.store.features import StoredFeatures
    from gbdnn.model.layer import Activation, BiasLike, BiasRule, Layer

    class Options(TypedDict, total=False):
        """Options shared by the inference functions, described in `infer`."""

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


_OF_LAYERS = ("bias", "bias_rule", "clip", "last_activation", "dtype")  # make layers of matrices
_OF_RUNS = ("engine", "deduplicate", "memory", "nthreads", "callback")


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
) -> Any:
    """Return the activations of a sparse network's last layer.

    Every layer computes ``Y = min(max(Y W + b, 0), clip)`` [1]_. The page "How inference works"
    describes kernels, rounding and memory. Inputs are not modified.

    Parameters
    ----------
    layers : Network, list of Layer, or list of matrices of shape (neurons before, neurons)
        Matrices (graphblas, SciPy sparse, 2-D NumPy) become Layers with a ReLU. Rows of a labelled
        object are aligned to the columns of the features or of the weights before it; labels must
        be unique, and the numbers 0 to n - 1 are none, in any order. For repeated calls, pass a
        Network: with few inputs, checking the matrices takes most of a call.
    features : Matrix, SciPy sparse or array_like, shape (inputs, neurons of the first layer)
        One row per input. A Vector or 1-D array is one input. Also accepts GraphBLAS expressions,
        data frames, tensors and stored features (``gbdnn.io.open_features``).
    bias, bias_rule, clip, last_activation : optional
        Properties of layers given as matrices, as for `Network`; not allowed with a Network.
    dtype : {"FP32", "FP64"} or NumPy dtype, optional
        Dtype of the computation. Default: that of the weights. Weights of bool and integers take
        that of features in FP32 or FP64, else FP32. Integers above 2**24 raise an error in FP32.
    engine : {"auto", "graphblas", "fused", "full", "sparse", "lagraph"}, default "auto"
        A cost model chooses a kernel for each layer: of all with ``"auto"``, and of GraphBLAS's
        sparse and full kernels with ``"graphblas"``. ``"fused"`` (gbdnn's own), ``"sparse"`` and
        ``"full"`` force one kernel. A positive bias under the rule ``"entries"`` always needs the
        sparse kernel. ``"lagraph"`` makes LAGraph's GraphBLAS calls on all inputs at once; it takes
        neither `memory` nor ``deduplicate=True``.
    deduplicate : {"auto", True, False}, default "auto"
        Whether to compute inputs with bitwise equal activations only once.
    memory : int or str, default "512MiB"
        Budget in bytes, or with a unit, on top of weights, features and result. Networks on disk
        are streamed within it. The peak may exceed it by half.
    nthreads : int, optional
        Number of threads, -1 for all cores. Default: GraphBLAS's current setting.
    callback : callable, optional
        Called with a `LayerStats` for each layer of each block, in the caller's thread.
    executor : Executor, dask.distributed.Client or distributed.Workers, optional
        Computes batches on its workers; `memory` and `nthreads` are then per worker.

    Returns
    -------
    graphblas.Matrix, shape (inputs, neurons of the last layer)
        A new Matrix without stored zeros: full, bitmap or sparse, depending on its density; a
        Vector if `features` is one.

    Raises
    ------
    ShapeError
        Two layers do not fit each other, or the features do not fit the first layer.
    ArgumentError, ArgumentTypeError
        A value is not finite, or an option is invalid.
    NonFiniteError
        ``Y W + b`` overflowed or became NaN; the message names the layer.
    ForkError, WorkerError
        The process was forked after GraphBLAS had started threads; a worker failed.

    References
    ----------
    .. [1] J. Kepner et al., "Sparse Deep Neural Network Graph Challenge", arXiv:1909.05631.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> W, X = np.array([[0.5, 0.0], [1.0, -1.0]]), np.array([[2.0, 0.0], [0.0, 3.0]])
    >>> gbdnn.infer([W, W], X, bias=-0.25, clip=2).to_dense(fill_value=0).tolist()
    [[0.125, 0.0], [0.75, 0.0]]
    """
    options = checked_options(
        "infer",
        engine=engine,
        deduplicate=deduplicate,
        memory=memory,
        nthreads=nthreads,
        callback=callback,
    )
    workers = None if executor is None else _workers(executor, options)
    net = _network(
        layers, options["nthreads"], features=features,
        bias=bias, bias_rule=bias_rule, clip=clip, last_activation=last_activation, dtype=dtype,
    )  # fmt: skip
    Y = _answer(net, features, dtype, options, workers)
    return Y[0, :].new() if is_vector(features) else Y


def _with_options_of_infer(call: Any) -> Any:
    """Show the options of `infer` in the signature of a function with ``**options``."""
    own, of_infer = signature(call), signature(infer).parameters
    parameters = [each for each in own.parameters.values() if each.name != "options"]
    parameters += [of_infer[name] for name in _OF_LAYERS + _OF_RUNS]
    call.__signature__ = own.replace(parameters=parameters)
    return call


@_with_options_of_infer
def infer_batches(
    layers: Network | Iterable[Layer] | Iterable[MatrixLike],
    batches: Iterable[MatrixLike],
    *,
    executor: Any = None,
    **options: Unpack[Options],
) -> Iterator[gb.Matrix]:
    """Yield the activations of the last layer for each batch of features.

    Use it if features or results do not fit into memory. The next batch is requested only when the
    caller asks for the next result.

    Parameters
    ----------
    layers : Network, list of Layer, or list of matrices
        As for `infer`.
    batches : iterable of matrices, each of shape (inputs of the batch, neurons of the first layer)
        Features; results are yielded in the same order.
    executor
        As for `infer`. At most 2 batches per worker are in flight, or as many as
        `distributed.Workers` allows with `ahead`.
    bias, bias_rule, clip, last_activation, dtype, engine, deduplicate, memory, nthreads, callback
        As for `infer`.

    Yields
    ------
    graphblas.Matrix, shape (inputs of the batch, neurons of the last layer)

    Raises
    ------
    GbdnnError
        As for `infer`: immediately for `layers` and options, during iteration for a batch. The
        message contains the 0-based number of the batch.

    Notes
    -----
    A network on disk is read once per batch, so prefer large batches. With `executor`, workers
    keep the network in memory if it takes at most 8 times `memory`, and read the batches of
    ``StoredFeatures.batches(inputs)`` themselves.

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
    if not isinstance(layers, Network):
        with restored(), engaged(as_nthreads(options.get("nthreads"))):
            layers = as_items(layers)
    own = {name: options[name] for name in _OF_LAYERS if name in options}  # type: ignore[literal-required]
    # Integers that FP32 rounds are refused when the first batch has decided the dtype.
    widest = np.empty((0, 0), np.float64)
    net, run, dtype = _with_options(layers, options, "infer_batches", widest)
    workers = None if executor is None else _workers(executor, run, is_dealt=False)
    complete(batches)
    if is_matrix(batches) and getattr(batches, "ndim", 2) == 2:
        raise ArgumentTypeError("batches must be a list of matrices, not one matrix; pass [X]")
    if is_source(batches):
        raise ArgumentTypeError("batches must be a list of matrices; pass X.batches(inputs)")
    try:
        each = iter(batches)
    except TypeError as err:
        raise ArgumentTypeError(
            f"batches must be an iterable of matrices, not {type(batches).__qualname__}"
        ) from err
    if workers is None or not len(net):
        compute: Any = partial(_answers, dtype=dtype, options=run)
    else:
        from gbdnn.distributed.executors.batches import infer_batches_over
        from gbdnn.distributed.executors.tasks import require_readable

        require_readable(net, workers)
        compute = partial(infer_batches_over, workers=workers, options=run)
    if isinstance(layers, Network) or not len(net):
        return compute(net, each)
    make = partial(_network, layers, run["nthreads"], **own)
    return _by_first(layers, net, dtype, each, compute, make)


@_with_options_of_infer
def plan(
    layers: Network | Iterable[Layer] | Iterable[MatrixLike],
    features: MatrixLike,
    **options: Unpack[Options],
) -> Plan:
    """Return what `infer` would do with these arguments, without computing anything.

    Nothing is prepared, and no later call is affected. `infer` follows this plan;
    rules for the inputs that survive are part of it. `gbdnn.graph.infer` has no plan: it chooses
    the order of each layer's products as it reaches the layer.

    Parameters
    ----------
    layers, features
        As for `infer`.
    bias, bias_rule, clip, last_activation, dtype, engine, deduplicate, memory, nthreads, callback
        As for `infer`.

    Returns
    -------
    Plan
        Kernels and estimated times of groups of layers, blocks, threads, merging and memory, shown
        as a table.

    Raises
    ------
    GbdnnError
        As for `infer`; values of dense features are not checked.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> W, X = np.eye(64), np.eye(64)[:5]
    >>> gbdnn.plan([W, W], X, engine="full", deduplicate=False, nthreads=1).kernel
    'full'
    """
    net, run, _ = _with_options(layers, dict(options), "plan", features)
    if not len(net):
        raise ArgumentTypeError("the network has no layers, so there is nothing to plan")
    first = net.infos[0]
    with restored(), engaged(run["nthreads"]):
        held, _ = _rows_to_compute(net, as_features(features, "features"))
        X = as_source(held, first.dtype, first.shape)
    return plan_of(net, X, **run)


@_with_options_of_infer
def infer_to_store(
    layers: Network | Iterable[Layer] | Iterable[MatrixLike],
    features: MatrixLike,
    path: str | os.PathLike[str],
    *,
    executor: Any = None,
    batch_size: int | None = None,
    replace: bool = False,
    progress: Callable[[int, int], object] | None = None,
    **options: Unpack[Options],
) -> StoredFeatures:
    """Write the activations of the last layer into a store, part by part.

    Neither the features nor the result need to fit into memory. After an interruption, the same
    call computes only the missing parts.

    Parameters
    ----------
    layers, features, executor
        As for `infer`. Workers in other processes write to `path` themselves, so it must be on a
        file system that they share.
    path : path-like
        A new or empty folder, or the folder of an earlier call.
    batch_size : int, optional
        Minimum number of inputs per part. With smaller parts, less is lost in an interruption, but
        the weights are read once per part. Default: that of the earlier call; else 16,384, or
        65,536 for networks on disk and those of more than 120 layers; with `executor` 1/64 of the
        inputs, between 2,048 and 16,384.
    replace : bool, default False
        Discard a different, unfinished run in the folder, or replace a finished store when the new
        result is complete. Parts of the same run are kept: the same call continues it.
    progress : callable, optional
        Called as ``progress(done, inputs)`` with the number of inputs in finished parts: once at
        the start, then after each part.
    bias, bias_rule, clip, last_activation, dtype, engine, deduplicate, memory, nthreads, callback
        As for `infer`; `callback` cannot be combined with `executor`.

    Returns
    -------
    StoredFeatures
        The activations, as `gbdnn.io.open_features` opens them.

    Raises
    ------
    OutputError
        The folder cannot be written, or contains another store or a different run (network,
        features, ``engine``, ``deduplicate``, ``batch_size`` or version of gbdnn); the message
        names the difference.
    GbdnnError
        As for `infer` and `save`. Finished parts are kept.

    Notes
    -----
    Networks and features are compared by content, so their stores may have been moved or saved
    again. `memory`, `nthreads` and `executor` may change between calls. Parts with a wrong checksum
    are computed again. The result has the same bits as that of an uninterrupted run, provided that
    `infer` is reproducible with these options.

    Examples
    --------
    >>> import pathlib, tempfile, numpy as np, gbdnn
    >>> folder = pathlib.Path(tempfile.mkdtemp()) / "Y"
    >>> Y = gbdnn.infer_to_store([np.eye(3)], np.eye(3)[:2], folder, bias=0.5)
    >>> Y.matrix().to_dense().tolist()
    [[1.5, 0.5, 0.5], [0.5, 1.5, 0.5]]
    """
    require_callable(progress, "progress")
    as_flag(replace, "replace")
    as_path(path)
    if batch_size is not None:
        whole_number(batch_size, "batch_size", least=1)
    net, run, _ = _with_options(layers, options, "infer_to_store", features)
    if not len(net):
        raise ArgumentTypeError(
            "the network has no layers; use gbdnn.io.write_features to store the features unchanged"
        )
    from gbdnn.distributed.executors.parts import infer_to_store_over
    from gbdnn.distributed.executors.workers import here

    workers = _workers(here() if executor is None else executor, run, is_dealt=False)
    with restored(), engaged(run["nthreads"] if workers.is_caller else None):
        return infer_to_store_over(
            net, features, path, workers, batch_size=batch_size, replace=replace, progress=progress,
            options=run,
        )  # fmt: skip


def _network(layers: Any, nthreads: int | None, **of_layers: Any) -> Network:
    if isinstance(layers, Network) and of_layers.get("dtype") is None:
        return as_network(layers, **of_layers)
    with restored(), engaged(nthreads):
        return as_network(layers, **of_layers)


def _with_options(
    layers: Any, options: Any, call: str, features: Any = None
) -> tuple[Network, dict[str, Any], Any]:
    """Return the network, the validated options of the run, and the given dtype."""
    own = {name: options.pop(name) for name in _OF_LAYERS if name in options}
    run = checked_options(call, **options)
    return _network(layers, run["nthreads"], features=features, **own), run, own.get("dtype")


def _workers(executor: Any, options: dict[str, Any], *, is_dealt: bool = True) -> Workers:
    """Return the workers of an executor, and set ``options["nthreads"]`` to theirs."""
    from gbdnn.distributed.executors.workers import workers_of

    workers = workers_of(executor)
    if not workers.is_caller and options["callback"] is not None:
        raise ArgumentTypeError(
            "callback= cannot be combined with executor=; use"
            " executor=gbdnn.distributed.Workers(executor, callback=...) for a record per batch"
        )
    if workers.is_hashed and not is_dealt:
        raise ArgumentError("Workers(order='hashed') is supported only by infer")
    options["nthreads"] = options["nthreads"] or workers.nthreads
    return workers


def _answer(
    net: Network, features: Any, dtype: Any, options: dict[str, Any], workers: Workers | None = None
) -> gb.Matrix:
    """Compute `infer`."""
    if isinstance(features, np.ndarray):
        # GraphBLAS does not convert an array, and a Context takes longer than one input.
        X, hyper = _converted(net, features, dtype, is_here=workers is None)
    else:
        with restored(), engaged(options["nthreads"]):
            X, hyper = _converted(net, features, dtype, is_here=workers is None)
    if not len(net):
        Y = X
    elif workers is None:
        Y = infer_network(net, X, **options)
    else:
        from gbdnn.distributed.executors.batches import infer_over

        Y = infer_over(net, X, workers, options)
    return Y if hyper is None else hyper.expanded(Y)


def _converted(
    net: Network, features: Any, dtype: Any, *, is_here: bool
) -> tuple[Any, HyperRows | None]:
    """Return features as a source if this process computes them, and which rows they are."""
    features, hyper = _rows_to_compute(net, as_features(features, "features"))
    if not len(net):
        return as_matrix(features, what="features", dtype=dtype and as_dtype(dtype)), None
    first = net.infos[0]
    return as_source(features, first.dtype, first.shape) if is_here else features, hyper


def _rows_to_compute(net: Network, features: Any) -> tuple[Any, HyperRows | None]:
    """Return features, of a hypersparse matrix only the rows with entries if that is enough."""
    hyper = HyperRows.of(features, net.dtype)
    if hyper is None or not len(net) or any(info.revives for info in net.infos):
        return features, None
    require_columns(hyper.nrows, hyper.rows.ncols, net.infos[0].shape)
    return hyper.rows, hyper


def _by_first(
    layers: Any, net: Network, dtype: Any, batches: Iterator[MatrixLike], compute: Any, make: Any
) -> Iterator[gb.Matrix]:
    """Compute batches in the dtype that the first one decides, if the layers do not."""
    for first in batches:
        with naming("batch 0"):
            kind = dtypes_for(layers, first, dtype)[0]
            if kind is not None:
                net = make(features=first)
        held = [first]
        del first  # the list gives it away
        yield from compute(net, chain((held.pop() for _ in range(1)), batches))


def _answers(
    net: Network, batches: Iterator[MatrixLike], dtype: Any, options: dict[str, Any]
) -> Iterator[gb.Matrix]:
    for number, features in enumerate(batches):
        with naming(f"batch {number}"):
            Y = _answer(net, features, dtype, options)
        del features  # makes room for the next
        yield Y
