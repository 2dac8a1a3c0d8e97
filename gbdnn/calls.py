"""The calls: inference on one machine, or by the workers of an executor.

Without ``executor=`` they are those of `gbdnn.inference`. Signature and docstring are that module's
too, and have here what an executor adds.
"""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

from gbdnn import inference
from gbdnn.arrays.arguments import as_flag, as_path, as_word, require_callable
from gbdnn.arrays.first_use import complete
from gbdnn.arrays.threads import available, engaged
from gbdnn.arrays.values import whole_number
from gbdnn.engine.run import checked, checked_options
from gbdnn.errors import ArgumentTypeError
from gbdnn.model.network import as_network

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Unpack

    import graphblas as gb

    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.distributed.executors import Workers
    from gbdnn.distributed.stats import BatchStats
    from gbdnn.engine.stats import LayerStats
    from gbdnn.inference import Engine
    from gbdnn.io.store.features import StoredFeatures
    from gbdnn.model.layer import BiasLike, BiasRule, Layer
    from gbdnn.model.network import Network

    class Options(TypedDict, total=False):
        """What `inference.infer` takes; there it is described."""

        bias: BiasLike | Sequence[BiasLike] | None
        bias_rule: BiasRule | None
        clip: float | None
        dtype: Any
        engine: Engine
        compress: bool | Literal["auto"]
        memory: int
        nthreads: int | None
        callback: Callable[[LayerStats], object] | None

    Stats = Callable[[BatchStats], object]

F = TypeVar("F", bound="Callable[..., Any]")

__all__ = ["infer", "infer_batches", "infer_to_store"]

_PARAGRAPH = {"Notes": "\n"}


def _extends(below: Callable[..., Any]) -> Callable[[F], F]:
    """Return a decorator: the signature and docstring of a call, and what another adds to them."""

    def decorate(function: F) -> F:
        base = inspect.signature(below)
        added = [
            each
            for name, each in inspect.signature(function).parameters.items()
            if name not in base.parameters and each.kind is not each.VAR_KEYWORD
        ]
        every = sorted([*base.parameters.values(), *added], key=lambda each: each.kind)
        function.__signature__ = base.replace(parameters=every)  # type: ignore[attr-defined]
        if below.__doc__ and function.__doc__:  # not under python -OO
            more = {head: body for head, _, body in _sections(function.__doc__)}
            function.__doc__ = "\n\n".join(
                f"{head}{line}{body}{_PARAGRAPH.get(head, '')}{more[head]}"
                if head and head in more
                else f"{head}{line}{body}"
                for head, line, body in _sections(below.__doc__)
            )
        return function

    return decorate


def _sections(doc: str) -> list[tuple[str, str, str]]:
    """Return heading, underline and body of each section; the first one has the body alone."""
    first, *rest = re.split(r"^(\w+)(\n-+)$", inspect.cleandoc(doc), flags=re.MULTILINE)
    bodies = ["\n" + body.strip("\n") for body in rest[2::3]]
    return [("", "", first.strip()), *zip(rest[::3], rest[1::3], bodies, strict=True)]


@_extends(inference.infer)
def infer(
    layers: Network | Iterable[Layer] | Iterable[MatrixLike],
    features: MatrixLike,
    *,
    executor: Any = None,
    workers: int | None = None,
    ahead: int | None = None,
    batch: int | None = None,
    order: Literal["given", "hashed"] | None = None,
    stats: Stats | None = None,
    **options: Unpack[Options],
) -> gb.Matrix:
    """Return the activations of a sparse network's last layer.

    Parameters
    ----------
    executor : concurrent.futures.Executor or dask.distributed.Client, optional
        Whose workers compute, batch by batch (default: this process does). The network has to be
        one that `load` returned, from a folder that all workers can read, unless they are threads
        of this process. ``nthreads=`` is then threads per worker (default: this machine's cores
        over the workers; 1 where they may be on other machines), ``memory=`` is per worker, too.
    workers : int, optional
        With `executor`: how many workers it has, where it does not tell.
    ahead : int, optional
        With `executor`: the most batches that are in flight at a time (default: 2 a worker).
    batch : int, optional
        With `executor`: inputs of a batch, at least (default: up to four batches a worker, of at
        least 2,048 inputs).
    order : {"given", "hashed"}, optional
        With `executor`: whether a batch has inputs that follow each other, or inputs dealt by a
        hash of their numbers, which spreads neighbours that live long (default: ``"given"``). The
        answer has the given order in either case. With ``"hashed"`` all of a store of features is
        read for every batch, which warns if it has more than 4 million values: deal the inputs of
        such a store once, as it is written.
    stats : callable, optional
        With `executor`: called with a `distributed.BatchStats` for each batch that is done.

    Raises
    ------
    WorkerError
        A worker died, and its executor does not replace it.

    Notes
    -----
    With `executor`, an error in a batch is of the class that it has without, and its message begins
    with the batch, counted from 0; the other batches are cancelled, and the executor can be used
    again. In one block form, answers have the bits that they have without executor if batches have
    at least 2,048 inputs.
    """
    require_callable(stats, "stats")
    own = {"workers": workers, "ahead": ahead, "batch": batch, "order": order, "stats": stats}
    if executor is None:
        _require_executor(own)
        return inference.infer(layers, features, **options)
    net, rest = _network(layers, options, "infer")
    found, over = _over(executor, workers, rest)
    ahead, batch = _positive(ahead, "ahead"), _positive(batch, "batch")
    hashed = order is not None and as_word(order, "order", ("given", "hashed")) == "hashed"
    if not len(net):
        return inference.infer(net, features, dtype=options.get("dtype"), **rest)
    from gbdnn.distributed.whole import infer_over

    return infer_over(
        net, features, found, ahead=ahead, batch=batch, hashed=hashed, stats=stats, options=over
    )


@_extends(inference.infer_batches)
def infer_batches(
    layers: Network | Iterable[Layer] | Iterable[MatrixLike],
    batches: Iterable[MatrixLike],
    *,
    executor: Any = None,
    workers: int | None = None,
    ahead: int | None = None,
    stats: Stats | None = None,
    **options: Unpack[Options],
) -> Iterator[gb.Matrix]:
    """Yield the activations of the last layer for one batch of features after the other.

    Parameters
    ----------
    executor, workers, stats
        As for `infer`: workers compute the batches, answers come in the order of the batches.
    ahead : int, optional
        With `executor`: the most batches that have been requested and not yet answered (default: 2
        a worker).

    Notes
    -----
    With `executor`, workers keep the network in memory if it takes at most 8 times ``memory=``.
    ``StoredFeatures.batches(inputs)`` are batches of a store that workers read.
    """
    require_callable(stats, "stats")
    if executor is None:
        _require_executor({"workers": workers, "ahead": ahead, "stats": stats})
        return inference.infer_batches(layers, batches, **options)
    net, rest = _network(layers, options, "infer_batches")
    found, over = _over(executor, workers, rest)
    ahead = _positive(ahead, "ahead")
    complete(batches)
    try:
        each = iter(batches)
    except TypeError as err:
        raise ArgumentTypeError(
            f"batches is an iterable of matrices, not {type(batches).__qualname__}"
        ) from err
    if not len(net):
        return inference.infer_batches(net, each, dtype=options.get("dtype"), **rest)
    from gbdnn.distributed.sent import network_to_send
    from gbdnn.distributed.whole import infer_batches_over

    network_to_send(net, found)
    return infer_batches_over(net, each, found, ahead=ahead, stats=stats, options=over)


def infer_to_store(
    layers: Network | Iterable[Layer] | Iterable[MatrixLike],
    features: MatrixLike,
    path: str | os.PathLike[str],
    *,
    executor: Any = None,
    workers: int | None = None,
    ahead: int | None = None,
    batch: int | None = None,
    restart: bool = False,
    stats: Stats | None = None,
    progress: Callable[[int, int], object] | None = None,
    **options: Unpack[Options],
) -> StoredFeatures:
    """Write the activations of the last layer into a store, part by part, and go on after a kill.

    Neither features nor answer need to fit into memory. Whoever computes a part writes it; when
    all are there, they become one store. Parts that an earlier call has completed are checked, and
    not computed again.

    Parameters
    ----------
    layers, features, executor, workers, ahead
        As for `infer`. With an executor whose workers are no threads of this process, `path` is
        written by them: it has to be in a file system that they share.
    path : path-like
        A folder: a new one, an empty one, or a store, which is replaced when all parts are there.
    batch : int, optional
        Inputs of a part, at least. Default: those of an earlier call; with `executor` a 64th of the
        inputs, from 2,048 to 16,384; without, and where workers stream the network, 65,536. All
        weights are passed over once for each part: with fewer inputs a kill costs less, and the run
        takes longer.
    restart : bool, default False
        Whether to begin anew, and to discard what this or another run has left.
    stats : callable, optional
        Called with a `distributed.BatchStats` for each part that has been computed.
    progress : callable, optional
        Called as ``progress(done, inputs)`` when so many of all inputs are in complete parts: at
        first with those of an earlier call, then after each part.
    options : keyword arguments
        Those of `infer`; ``callback`` without `executor` alone.

    Returns
    -------
    StoredFeatures
        The activations, opened.

    Raises
    ------
    OutputError
        The folder holds parts of another run: of another network, other features, another
        ``engine``, ``compress`` or ``memory``, another version of gbdnn; the message names what
        differs. Or it cannot be written.
    GbdnnError
        As `infer` and `save`. What is complete is kept.

    Notes
    -----
    A run is known by fingerprints of its network and features, the checksums of their content: a
    store may have been moved, or saved anew with the same content. Threads, workers and batches may
    be others in the second call. A second call after the last part was written computes nothing.

    The answer has the bits of an uninterrupted run as far as two calls of `infer` have the same
    ones: in one block form, and where sums are exact, always.

    A network that is not in memory, and does not fit into its share of ``memory=``, is streamed
    window by window; the state of a part between two windows is written down, so that a network
    of very many layers does not begin anew. That takes 2 % of the time at most.

    Until the end what is complete is in ``path/.gbdnn-<16 digits>.tmp``; `io.find_unfinished` and
    ``gbdnn info path`` tell what it holds. The next store completed in the folder removes it.

    Examples
    --------
    >>> import pathlib, tempfile, numpy as np, gbdnn
    >>> folder = pathlib.Path(tempfile.mkdtemp()) / "Y"
    >>> Y = gbdnn.infer_to_store([np.eye(3)], np.eye(3)[:2], folder, bias=0.5)
    >>> Y.matrix().to_dense().tolist()
    [[1.5, 0.5, 0.5], [0.5, 1.5, 0.5]]
    """
    require_callable(stats, "stats")
    require_callable(progress, "progress")
    as_flag(restart, "restart")
    as_path(path)
    callback = options.pop("callback", None) if executor is None else None
    net, rest = _network(layers, options, "infer_to_store")
    if not len(net):
        raise ArgumentTypeError("layers: there is none; gbdnn.save writes features")
    from gbdnn.distributed.executors import here
    from gbdnn.distributed.parts import infer_to_store_over

    if executor is None:
        _require_executor({"workers": workers, "ahead": ahead})
        checked(callback=callback)
        found, ahead = here(rest.get("nthreads") or available()), 1
        rest = {**rest, "nthreads": found.nthreads, "callback": callback}
    else:
        found, rest = _over(executor, workers, rest)
    with engaged(found.nthreads if found.is_caller else None):
        return infer_to_store_over(
            net, features, path, found, ahead=_positive(ahead, "ahead"),
            batch=_positive(batch, "batch"), restart=restart, stats=stats, progress=progress,
            options=rest,
        )  # fmt: skip


def _network(layers: Any, options: Any, call: str) -> tuple[Network, dict[str, Any]]:
    """Return the network, and the options that it has not taken, checked."""
    own = {name: options[name] for name in inference.OF_LAYERS if name in options}
    rest = {name: value for name, value in options.items() if name not in own}
    if rest.pop("callback", None) is not None:
        raise ArgumentTypeError("callback= is for one machine; stats= gets a record per batch")
    checked_options(rest, call)
    with engaged(rest.get("nthreads")):
        return as_network(layers, **own), rest


def _over(
    executor: Any, workers: int | None, options: dict[str, Any]
) -> tuple[Workers, dict[str, Any]]:
    """Return the workers of an executor, and the options with their number of threads."""
    from gbdnn.distributed.executors import workers_of

    found = workers_of(executor, workers)
    return found, {**options, "nthreads": options.get("nthreads") or found.nthreads}


def _positive(x: int | None, what: str) -> int | None:
    return None if x is None else whole_number(x, what, least=1)


def _require_executor(given: dict[str, Any]) -> None:
    for name, value in given.items():
        if value is not None:
            raise ArgumentTypeError(f"{name}= goes with executor=")
