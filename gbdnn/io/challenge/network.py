"""The challenge's files as a `Network`, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gbdnn.errors import ArgumentError, ArgumentTypeError, ShapeError
from gbdnn.gallery.radixnet import CHALLENGE
from gbdnn.io.challenge.layers import read_layers, write_layers
from gbdnn.io.challenge.table import dimension
from gbdnn.model.layer import Layer
from gbdnn.model.network import Network

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from gbdnn.model.layer import BiasRule

__all__ = ["iter_layers", "read_network", "write_network"]


def iter_layers(
    directory: str | os.PathLike[str],
    neurons: int,
    layers: int | None = None,
    *,
    bias: float | None = None,
    bias_rule: BiasRule = "entries",
    clip: float | None = 32.0,
    dtype: Any = "FP32",
    progress: Callable[[int, int], object] | None = None,
) -> Iterator[Layer]:
    """Read a network layer by layer, from one tab-separated file each.

    No layer is kept: ``gbdnn.save(iter_layers(...), path)`` converts a network larger than memory.

    Parameters
    ----------
    directory : path-like
        The data set's root, its ``DNN`` folder, or the folder with the layers: files
        ``n{neurons}-l1.tsv`` and so on, plain or gzip.
    neurons : int
        Neurons per layer, 1024, 4096, 16384 or 65536 in the challenge.
    layers : int, optional
        How many layers, from the first; by default all that are there.
    bias : float, optional
        By default the challenge's for this number of neurons: -0.30, -0.35, -0.40 or -0.45. Other
        numbers of neurons need one.
    bias_rule : {"entries", "all"}, default "entries"
        The challenge's; see `Layer`.
    clip : float, optional
        Upper limit of the activations, 32 by default; None for none.
    dtype : {"FP32", "FP64"} or NumPy dtype, default "FP32"
        Of weights, bias and clip.
    progress : callable, optional
        Called as ``progress(k, count)`` when k of all layers have been read.

    Returns
    -------
    iterator of Layer
        The files are looked for at once, and read one by one when asked.

    Raises
    ------
    MissingFileError
        There is no such folder, or a layer is missing; the message tells the layout.
    FormatError
        A file is not what its format promises, when it is reached; the message names file and
        line.
    ArgumentError
        No bias, and the challenge has none for this number of neurons.
    """
    neurons = dimension(neurons, "neurons")
    if bias is None:
        if neurons not in CHALLENGE:
            raise ArgumentError(f"the challenge has no bias for {neurons} neurons: give bias=")
        bias = CHALLENGE[neurons].bias
    weights = read_layers(directory, neurons, layers, dtype=dtype, progress=progress)
    return (
        Layer(W, bias, bias_rule=bias_rule, clip=clip, dtype=dtype, copy=False) for W in weights
    )


def read_network(
    directory: str | os.PathLike[str],
    neurons: int,
    layers: int | None = None,
    *,
    bias: float | None = None,
    bias_rule: BiasRule = "entries",
    clip: float | None = 32.0,
    dtype: Any = "FP32",
    progress: Callable[[int, int], object] | None = None,
) -> Network:
    """Read a network from one tab-separated file per layer.

    All layers are in memory afterwards; `iter_layers` reads them one at a time.

    Parameters
    ----------
    directory : path-like
        The data set's root, its ``DNN`` folder, or the folder with the layers: files
        ``n{neurons}-l1.tsv`` and so on, plain or gzip.
    neurons : int
        Neurons per layer, 1024, 4096, 16384 or 65536 in the challenge.
    layers : int, optional
        How many layers, from the first; by default all that are there.
    bias : float, optional
        By default the challenge's for this number of neurons: -0.30, -0.35, -0.40 or -0.45. Other
        numbers of neurons need one.
    bias_rule : {"entries", "all"}, default "entries"
        The challenge's; see `Layer`.
    clip : float, optional
        Upper limit of the activations, 32 by default; None for none.
    dtype : {"FP32", "FP64"} or NumPy dtype, default "FP32"
        Of weights, bias and clip.
    progress : callable, optional
        Called as ``progress(k, count)`` when k of all layers have been read.

    Returns
    -------
    Network

    Raises
    ------
    MissingFileError, FormatError, ArgumentError
        As `iter_layers`.
    """
    return Network(
        iter_layers(
            directory,
            neurons,
            layers,
            bias=bias,
            bias_rule=bias_rule,
            clip=clip,
            dtype=dtype,
            progress=progress,
        )
    )


def write_network(net: Network, directory: str | os.PathLike[str]) -> None:
    """Write a network's weights as ``n{neurons}-l1.tsv`` and so on.

    Parameters
    ----------
    net : Network
        Square layers of one size. Biases, rules and clips have no place in this format.
    directory : path-like
        Made if need be. Every file appears whole or not at all.

    Raises
    ------
    ShapeError
        A layer is not square (the format carries no shape); nothing is written.
    ArgumentTypeError
        `net` is no Network.
    OutputError
        A file cannot be written, or files of further layers stand there.
    """
    if not isinstance(net, Network):
        raise ArgumentTypeError(f"a Network is needed, not {type(net).__qualname__}")
    n = net.shape[0]
    for k, layer in enumerate(net.infos):
        if layer.shape != (n, n):
            raise ShapeError(f"layer {k}: weights are {layer.nrows} x {layer.ncols}, not {n} x {n}")
    weights = (layer.weights for layer in net)
    write_layers(weights, directory, n, count=len(net))
