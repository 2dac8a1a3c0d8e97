"""Networks in the challenge's files: one file of weights per layer."""

from __future__ import annotations

from functools import partial, wraps
from itertools import starmap
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.checks import as_dtype, as_flag, require_callable, whole_number
from gbdnn.errors import ArgumentError, OutputError, ShapeError, require_kind
from gbdnn.gallery.networks import CHALLENGE
from gbdnn.io.challenge.layout import find_layers, find_neurons, layers_in
from gbdnn.io.challenge.tsv import read_tsv, write_tsv
from gbdnn.io.files import existing, made_folder, whole_files
from gbdnn.io.format import Assumed, Format
from gbdnn.io.losses import challenge_bias, losses
from gbdnn.model.layer import Layer
from gbdnn.model.network import Network

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gbdnn.model.layer import BiasRule


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
    """Read a network layer by layer from one tab-separated file per layer.

    Only one layer is in memory: ``gbdnn.save(iter_layers(...), path)`` converts a network that is
    larger than memory.

    Parameters
    ----------
    directory : path-like
        The data set's root, its ``DNN`` folder, or the folder with the layers, files
        ``n{neurons}-l1.tsv`` and so on, plain or gzip.
    neurons : int
        Neurons per layer, 1024, 4096, 16384 or 65536 in the challenge.
    layers : int, optional
        Number of layers to read. Default: all.
    bias : float, optional
        Default: that of the challenge for this number of neurons, -0.30, -0.35, -0.40 or -0.45.
        Required for other numbers of neurons.
    bias_rule : {"entries", "all"}, default "entries"
        See `Layer`. ``"entries"`` is the rule of the challenge.
    clip : float or None, default 32
        Upper limit of the activations; None for no limit.
    dtype : {"FP32", "FP64"} or NumPy dtype, default "FP32"
        Of weights, bias and clip.
    progress : callable, optional
        Called as ``progress(k, count)`` after each layer: k of count layers have been read.

    Returns
    -------
    iterator of Layer
        The files are located immediately, and read during iteration.

    Raises
    ------
    MissingFileError, FormatError
        A file is missing or, raised when its layer is read, invalid; the message names file and
        line.
    ArgumentError
        `bias` is missing for a number of neurons that the challenge does not have.

    Examples
    --------
    >>> import pathlib, tempfile, gbdnn
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> gbdnn.io.write_network(gbdnn.gallery.radixnet(1024, 2), folder)
    >>> for layer in gbdnn.io.iter_layers(folder, 1024):
    ...     print(layer.shape, layer.edges)
    (1024, 1024) 32768
    (1024, 1024) 32768
    """
    n = whole_number(neurons, "neurons", least=1)
    require_callable(progress, "progress")
    # Validates the options before the first file is read.
    Layer(
        np.empty((0, 0)), 0.0 if bias is None else bias, bias_rule=bias_rule, clip=clip, dtype=dtype
    )
    if bias is None:
        if n not in CHALLENGE:
            raise ArgumentError(
                f"the Graph Challenge defines no bias for {n} neurons; pass the bias of all layers,"
                " such as bias=-0.3"
            )
        bias = CHALLENGE[n].bias
    files = [file.absolute() for file in find_layers(directory, n, layers)]
    dtype = as_dtype(dtype)

    def layer(k: int, file: Path) -> Layer:
        W = read_tsv(file, nrows=n, ncols=n, dtype=dtype, orientation="columnwise")
        if progress is not None:
            progress(k, len(files))
        return Layer(W, bias, bias_rule=bias_rule, clip=clip, dtype=dtype, copy=False)

    return starmap(layer, enumerate(files, 1))


def write_network(
    net: Network,
    directory: str | os.PathLike[str],
    *,
    lossy: bool = False,
    replace: bool = False,
) -> None:
    """Write a network's weights as ``n{neurons}-l1.tsv`` and so on.

    Parameters
    ----------
    net : Network
        Square layers of one size. Biases, bias rules and clips are not stored.
    directory : path-like
        Created if it does not exist. After an error, all its files are as before.
    lossy : bool, default False
        Whether to drop properties that the format does not store and `gbdnn.load` does not assume;
        otherwise they raise an error.
    replace : bool, default False
        Whether to replace existing files of layers; otherwise they raise an error.

    Raises
    ------
    ShapeError, ArgumentError
        A layer is not square, or the format does not store a property. Nothing is written.
    OutputError
        A file cannot be written or exists, or the folder contains more layers.

    Examples
    --------
    >>> import pathlib, tempfile, gbdnn
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> gbdnn.io.write_network(gbdnn.gallery.radixnet(1024, 2), folder)
    >>> sorted(file.name for file in folder.iterdir())
    ['n1024-l1.tsv', 'n1024-l2.tsv']
    """
    require_kind(net, Network, "net must be a Network")
    n = whole_number(net.shape[0], "neurons", least=1)
    for k, layer in enumerate(net.infos):
        if layer.shape != (n, n):
            raise ShapeError(f"layer {k}: weights are {layer.nrows} x {layer.ncols}, not {n} x {n}")
    losses(net, TSV, directory, lossy=lossy)
    folder = made_folder(directory)
    old = layers_in(folder, n)
    if further := [k for k in old if k > len(net)]:
        raise OutputError(
            f"{folder}: contains layers {min(further)} to {max(further)} of another network of {n}"
            f" neurons, but this one has {len(net)} layers; choose another folder or remove them"
        )
    if old and not as_flag(replace, "replace"):
        raise existing(old[min(old)])
    with whole_files(folder) as made:
        for k, layer in enumerate(net, 1):
            write_tsv(layer.W, made / f"n{n}-l{k}.tsv", replace=False)


def _layers(
    path: Path, given: dict[str, Any], progress: Callable[[int, int], object] | None
) -> Iterator[Layer]:
    n = given.get("neurons") or find_neurons(path)
    rest = {key: x for key, x in given.items() if key not in ("neurons", "layers")}
    options = {"bias": challenge_bias(n)} | rest
    return iter_layers(path, n, given.get("layers"), progress=progress, **options)


def _files(path: Path, given: dict[str, Any]) -> list[Path]:
    return find_layers(path, given.get("neurons") or find_neurons(path), given.get("layers"))


TSV = Format(
    name="tsv",
    read=Network,
    layers=_layers,
    write=wraps(write_network)(partial(write_network, lossy=True, replace=True)),
    options="neurons bias bias_rule clip",
    mark=r"n[1-9][0-9]*-l[1-9][0-9]*\.tsv(\.gz)?",
    files=_files,
    deep=True,
    assumed=Assumed(weights_only=True, bias_rule="entries", clip=32.0),
)
