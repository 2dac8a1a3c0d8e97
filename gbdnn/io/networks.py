"""Networks in any format: `load`, `save`, and detection of the format."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gbdnn.arrays.checks import as_flag, as_path, as_word, require_callable, whole_number
from gbdnn.errors import ArgumentError, FormatError, MissingFileError
from gbdnn.io.challenge.network import TSV
from gbdnn.io.formats import (
    FORMATS,
    Format,
    losses,
    of_suffix,
    register,
    require_folder_name,
    target,
)
from gbdnn.io.frameworks.matrix_market import MATRIX_MARKET
from gbdnn.io.frameworks.onnx import ONNX
from gbdnn.io.frameworks.torch import TORCH
from gbdnn.io.reading import open_checked, read_errors, require_no_table
from gbdnn.io.store.folder import Reader, unfinished
from gbdnn.io.store.network import STORE, read_network, write_network
from gbdnn.io.writing import whole_file, whole_folder
from gbdnn.model.network import Network, as_network
from gbdnn.runtime.machine import memory as machine_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.model.layer import Activation, BiasRule, Layer

__all__ = [
    "FORMATS",
    "STORE",
    "chosen",
    "holds_run",
    "load",
    "opened",
    "save",
    "target_format",
    "write",
]

register(STORE, TSV, MATRIX_MARKET, ONNX, TORCH)

_RUN = b'{"__metadata__":{"gbdnn"'
_EAGER = 1 / 8
"""Networks of at most this share of the machine's memory are read at once by `load`."""


def load(
    path: str | os.PathLike[str],
    format: str | None = None,  # noqa: A002
    *,
    layers: int | None = None,
    dtype: Any = None,
    neurons: int | None = None,
    prefix: str | None = None,
    bias: float | None = None,
    bias_rule: BiasRule | None = None,
    clip: float | None = None,
    activation: Activation | None = None,
    last_activation: Activation | None = None,
    logits: bool = False,
    lazy: bool | None = None,
    verify: bool = True,
    progress: Callable[[int, int], object] | None = None,
) -> Network:
    """Load a network from a file or folder of any format.

    Parameters
    ----------
    path : path-like
        A store; a file in ONNX (``.onnx``), PyTorch ``state_dict`` (``.pt``, ``.pth``, safetensors)
        or Matrix Market format (``.mtx``); a folder of Matrix Market or challenge files.
    format : {"store", "tsv", "matrix-market", "onnx", "torch"}, optional
        Default: detected. ``"tsv"`` are the challenge's files. The page "Networks and files"
        describes what each format contains.
    layers : int, optional
        Read only this number of layers. Default: all.
    dtype : {"FP32", "FP64"} or NumPy dtype, optional
        Default: that of the network, FP32 for the challenge's files.
    neurons : int, optional
        Only for tsv: number of neurons, if the folder contains several networks.
    prefix : str, optional
        Only for matrix-market: prefix of the files' names, such as ``"n1024-l"``, if the folder
        contains several networks.
    bias : float, optional
        For tsv, default that of the challenge (0 for sizes that it does not have), and for
        matrix-market, default 0, of layers without a bias file.
    bias_rule : {"all", "entries"}, optional
        For tsv, default ``"entries"``, and matrix-market, default ``"all"``.
    clip : float, optional
        Upper limit of the activations, infinity for none. For tsv, default 32, and for
        matrix-market and torch, default none.
    activation : {"relu", "identity"}
        Required for torch, and only for it: activation of all layers but the last, which a
        ``state_dict`` does not contain.
    last_activation : {"relu", "identity"}, optional
        Activation of the last layer. For matrix-market, default ``"relu"``, and for torch, default
        ``"identity"``.
    logits : bool, default False
        Only for onnx: drop a Softmax, LogSoftmax or Sigmoid after the last layer, and everything
        after it.
    lazy : bool, optional
        Only for stores: whether to read layers on demand, at each call of `infer` again. Default:
        only for networks that need more than an eighth of the machine's memory. Workers of an
        executor read the network from its store in both cases.
    verify : bool, default True
        Only for stores: whether to verify the checksum of each shard when it is first read. Indices
        and values are always checked.
    progress : callable, optional
        Called as ``progress(k, count)`` after each of the challenge's files, and once at the end
        for other formats.

    Returns
    -------
    Network

    Raises
    ------
    MissingFileError
        The path does not exist or contains no known format. When a layer is read: its shard is
        missing.
    FormatError
        The content is damaged or invalid, or is not a network; the message names file and layer.
        The arrays of a stored layer are checked when it is read.
    ArgumentError
        An option does not apply to the format, a folder contains several formats, or an operation
        cannot be converted to layers.
    ShapeError
        Two layers, or a layer and its bias, do not fit each other.
    MissingPackageError
        A package that the format needs is not installed.

    Examples
    --------
    >>> import pathlib, tempfile, gbdnn
    >>> folder = pathlib.Path(tempfile.mkdtemp()) / "net"
    >>> gbdnn.save(gbdnn.gallery.radixnet(1024, 2), folder)
    >>> gbdnn.load(folder)
    Network: 2 layers, 1024 inputs to 1024 outputs, 65536 edges, FP32
      layer  shape        edges
      0-1    1024 x 1024  32768  bias -0.3 (entries), relu, clip 32
    """
    as_flag(verify, "verify")
    if lazy is not None:
        as_flag(lazy, "lazy")
    form, given = chosen(
        path, format, layers=layers, dtype=dtype, neurons=neurons, prefix=prefix, bias=bias,
        bias_rule=bias_rule, clip=clip, activation=activation, last_activation=last_activation,
        logits=as_flag(logits, "logits") or None, lazy=lazy,
        verify=None if verify else verify,
    )  # fmt: skip
    return opened(path, form, given, progress)


def opened(
    path: str | os.PathLike[str],
    form: Format,
    given: dict[str, Any],
    progress: Callable[[int, int], object] | None = None,
) -> Network:
    """Return the network at `path` with options that `chosen` has validated."""
    require_callable(progress, "progress")
    path, given = as_path(path), dict(given)
    if form.layers is not None:
        return Network(form.layers(path, given, progress)[1])
    count = given.pop("layers", None)
    if form is not STORE:
        net = form.read(path, **given)
    else:
        net = read_network(Reader(path, verify=given.get("verify", True)))
        net = net.astype(given["dtype"]) if "dtype" in given else net
    if count is not None and count > len(net):
        raise ArgumentError(f"layers={count}: {path} has only {len(net)} layers")
    net, lazy = net[:count], given.get("lazy")
    if lazy is None:
        needed = sum(info.edges * (8 + info.dtype.itemsize) for info in net.infos)
        there = machine_memory()
        lazy = there is not None and needed > _EAGER * there
    net = net if lazy else net.loaded()
    if progress is not None:
        progress(len(net), len(net))
    return net


def chosen(
    path: str | os.PathLike[str],
    word: str | None,
    **options: Any,
) -> tuple[Format, dict[str, Any]]:
    """Return the format of the network at `path`, and its options that are not None."""
    given = {key: x for key, x in options.items() if x is not None}
    form = format_of(path) if word is None else FORMATS[as_word(word, "format", FORMATS)]
    for key, x in given.items():
        if not form.takes(key) and (key, x) != ("lazy", False):
            raise ArgumentError(f"{key}= does not apply to the format {form.name}")
    if "layers" in given:
        given["layers"] = whole_number(given["layers"], "layers", least=1)
    if form is not STORE:
        given.pop("lazy", None)
    if isinstance(clip := given.get("clip"), float) and clip == float("inf"):
        given["clip"] = None
    return form, given


def format_of(path: str | os.PathLike[str]) -> Format:
    """Return the format of the network at `path`, from its name or the files in it."""
    path = as_path(path)
    with read_errors(path):
        if not path.exists():
            raise MissingFileError(f"{path}: no such file or folder")
        if not path.is_dir():
            if known := of_suffix(path):
                return FORMATS[known]
            start = _start(path)
            if start.startswith(_RUN):
                raise FormatError(
                    f"{path}: the file is a training run; use gbdnn.training.read_run"
                )
            if start.startswith(b"{"):  # safetensors
                return TORCH
            require_no_table(path)
            with open_checked(path):  # which names files that no reader reads
                raise FormatError(f"{path}: cannot infer the file format; pass format=")
        here = list(path.iterdir())
        below = [*path.glob("neuron*/*"), *path.glob("DNN/neuron*/*")]
    marked = [form for form in FORMATS.values() if form.marks(here, below)]
    if not marked:
        if progress := unfinished(path):
            raise MissingFileError(f"{path}: {progress}")
        raise MissingFileError(
            f"{path}: contains neither a finished store nor a network; expected a file index.json,"
            " n<neurons>-l1.tsv or <prefix>1.mtx"
        )
    if len(marked) > 1:
        names = " and ".join(form.name for form in marked)
        raise ArgumentError(f"{path}: contains networks in the formats {names}; pass format=")
    return marked[0]


def holds_run(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is a training run, by the header of the safetensors file."""
    path = as_path(path)
    if not os.path.isfile(path):  # noqa: PTH113 -- no error for a long name
        return False
    return _start(path).startswith(_RUN)


def _start(path: Path) -> bytes:
    """Return the start of the header of a safetensors file."""
    with read_errors(path), path.open("rb") as file:
        return file.read(40)[8:]


def save(
    layers: Network | Iterable[Layer] | Iterable[MatrixLike],
    path: str | os.PathLike[str],
    format: str | None = None,  # noqa: A002
    *,
    lossy: bool = False,
    replace: bool = False,
    progress: Callable[[int, int | None], object] | None = None,
) -> None:
    """Save a network in a store, or in a file or folder of another format.

    Parameters
    ----------
    layers : Network, iterable of Layer, or iterable of matrices
        As for `infer`; matrices become Layers with a ReLU. The items of an
        iterator are written to a store one by one, as are the layers of a lazy network, which
        therefore may be larger than memory.
    path : path-like
        A new file; for the formats store, tsv and matrix-market a new or empty folder, whose name
        does not have the suffix of a file.
    format : {"store", "tsv", "matrix-market", "onnx", "torch"}, optional
        Default: from the suffix (``.onnx``, ``.pt``, ``.pth``), or a store. ``"tsv"`` are the
        challenge's files, ``"torch"`` is the ``state_dict`` of `gbdnn.io.to_torch`.
    lossy : bool, default False
        Whether to drop properties that the format cannot store and `load` does not assume;
        otherwise they raise an error. Only stores contain everything.
    replace : bool, default False
        Whether to replace an existing store or file atomically; otherwise it raises an error.
        Folders of other formats are never replaced.
    progress : callable, optional
        Called as ``progress(k, count)`` after each layer; count is None if unknown.

    Raises
    ------
    OutputError
        The file or folder cannot be written, or contains a store, other files, or parts of an
        unfinished `infer_to_store`.
    ArgumentTypeError, ShapeError
        `layers` has another type, or two layers do not fit each other.
    ArgumentError
        The format cannot store the network, or the suffix is that of another format. Nothing is
        written.
    TooLargeError
        Dense weights, for ONNX and PyTorch, do not fit into memory.
    MissingPackageError
        A package that the format needs is not installed.

    Examples
    --------
    >>> import tempfile, gbdnn
    >>> folder = tempfile.mkdtemp()
    >>> gbdnn.save(gbdnn.gallery.radixnet(1024, 12, lazy=True), folder)
    >>> net = gbdnn.load(folder)
    >>> net[11].edges, net.isequal(gbdnn.gallery.radixnet(1024, 12))
    (32768, True)
    """
    require_callable(progress, "progress")
    path, form = as_path(path), target_format(path, format)
    if isinstance(layers, Iterator) and form is STORE:
        write_network(layers, path, progress, replace=replace)
        return
    write(as_network(layers), path, form, lossy=lossy, progress=progress, replace=replace)


def target_format(
    path: str | os.PathLike[str], word: str | None, argument: str = "format"
) -> Format:
    """Return the format in which to write a network at `path`."""
    path = as_path(path)
    known = {form.name: form.suffixes for form in FORMATS.values()}
    form = FORMATS[target(path, word, known, argument)]
    if form.mark:
        require_folder_name(path)
    return form


def write(
    net: Network,
    path: Path,
    form: Format,
    *,
    lossy: bool = False,
    progress: Callable[[int, int | None], object] | None = None,
    replace: bool,
) -> list[str]:
    """Write a network in a format, a lazy one layer by layer, except to ONNX and PyTorch.

    Return the properties that the format cannot store.
    """
    as_flag(lossy, "lossy")
    as_flag(replace, "replace")
    if form is STORE:
        write_network(net, path, progress, replace=replace)
        return []
    if not len(net):
        raise ArgumentError(f"{path}: a network without layers can only be written to a store")
    lost = losses(net, form, path, lossy=lossy)
    if progress is not None:
        net = _reporting(net, progress)
    if form.mark:
        with whole_folder(path) as folder:
            form.write(net, folder)
    else:
        with whole_file(path, replace=replace) as file:
            form.write(net.loaded(), file)
    return lost


def _reporting(net: Network, progress: Callable[[int, int], object]) -> Network:
    """Return a lazy network that reports each layer that is read."""

    def layer(k: int, /) -> Layer:
        progress(k + 1, len(net))
        return net[k]

    return Network.lazy(net.infos, layer)
