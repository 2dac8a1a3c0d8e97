"""The formats of networks: the list, detection, options, and reading from any of them."""

from __future__ import annotations

import importlib
import os
import re
from typing import TYPE_CHECKING, Any, TypedDict

from gbdnn.arrays.checks import as_flag, as_path, as_word, require_callable, whole_number
from gbdnn.errors import ArgumentError, FormatError, MissingFileError
from gbdnn.io import store
from gbdnn.io.challenge.network import TSV
from gbdnn.io.format import FORMATS, Format, of_suffix, register
from gbdnn.io.frameworks.matrix_market import MATRIX_MARKET
from gbdnn.io.frameworks.onnx import ONNX
from gbdnn.io.frameworks.torch import TORCH
from gbdnn.io.reading import open_checked, read_errors, require_no_table
from gbdnn.io.store.network import STORE
from gbdnn.io.store.parts import unfinished
from gbdnn.model.network import Network

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Unpack

    from gbdnn.model.layer import Activation, BiasRule

    class ReadOptions(TypedDict, total=False):
        """Options of reading. None means the default, except for `clip`."""

        format: str | None
        layers: int | None
        dtype: Any
        neurons: int | None
        prefix: str | None
        bias: float | None
        bias_rule: BiasRule | None
        activation: Activation | None
        clip: float | None
        last_activation: Activation | None
        logits: bool | None


__all__ = [
    "FORMATS",
    "STORE",
    "chosen",
    "format_of",
    "holds_run",
    "load",
    "read_network",
    "require_no_ending",
    "target_format",
]

_SMALL = 1 << 26
"""Networks of at most this number of bytes are read at once by `load`."""


def load(
    path: str | os.PathLike[str],
    *,
    verify: bool = True,
    lazy: bool | None = None,
    progress: Callable[[int, int], object] | None = None,
    **options: Unpack[ReadOptions],
) -> Any:
    """Load a store, a training run, or a network in any other format.

    Parameters
    ----------
    path : path-like
        A store; a file in ONNX (``.onnx``), PyTorch ``state_dict`` (``.pt``, ``.pth``) or Matrix
        Market format (``.mtx``); a folder of Matrix Market or challenge files; a training run
        written by `save` or ``train(checkpoint=...)``.
    verify : bool, default True
        Whether to verify the checksum of each shard of a store when it is first read. Indices and
        values are always checked.
    lazy : bool, optional
        Whether to read layers of a store on demand. Default: only for networks of more than 64 MiB.
        Workers of an executor read the network from its store in both cases.
    progress : callable, optional
        Only for the challenge's files: called as ``progress(k, count)`` after each of them.
    **options
        ``format``: "store", "tsv" (the challenge's files), "matrix-market", "onnx" or "torch"
        (default: detected). ``layers``: read only this number of layers. ``dtype``: default that of
        the network, FP32 for the challenge's files. Properties that the format does not store:
        ``neurons``, ``bias``, ``bias_rule`` and ``clip`` as for `iter_layers` (the bias is 0 for
        sizes that the challenge does not have), ``prefix`` and ``last_activation`` as for
        `read_matrix_market`, ``activation``, required for a ``state_dict``, as for `read_torch`,
        ``logits`` as for `read_onnx`.

    Returns
    -------
    Network, graphblas.Matrix, ndarray of int64 or TrainingRun
        Use `gbdnn.io.open_features` for features larger than memory.

    Raises
    ------
    MissingFileError
        The path does not exist or contains no known format. When a layer is read: its shard is
        missing.
    FormatError
        The content is damaged or invalid, or has a newer version; the message names file and layer.
        The arrays of a stored layer are checked when it is read.
    ArgumentError
        An option does not apply to the format, such as ``lazy=True`` to another than a store, or a
        folder contains several formats.
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
    require_callable(progress, "progress")
    if not options and holds_run(path):
        _require_store("training run", lazy=lazy, verify=verify)
        _require_files("training run", progress)
        return importlib.import_module(store.RUNS).read_run(path)
    form, given = chosen(path, options)
    if form is not STORE:
        _require_store(f"format {form.name}", lazy=lazy, verify=verify)
    if form.layers is not None:
        return Network(form.layers(as_path(path), given, progress))
    _require_files(f"format {form.name}", progress)
    count = given.pop("layers", None)
    if form is not STORE:
        net = form.read(as_path(path), **given)
    else:
        content = store.load(path, verify=verify)
        if not isinstance(content, Network):
            if count is not None or given:
                raise FormatError(f"{path}: the store does not contain a network")
            return content
        net = content.astype(given["dtype"]) if given else content
    if count is not None and count > len(net):
        raise ArgumentError(f"layers={count}: {path} has only {len(net)} layers")
    net = net[:count]
    if lazy is None:
        lazy = sum(info.edges * (8 + info.dtype.itemsize) for info in net.infos) > _SMALL
    return net if lazy else net.loaded()


def _require_store(what: str, *, lazy: bool | None, verify: bool) -> None:
    if lazy or not verify:
        raise ArgumentError(f"lazy=True and verify=False apply only to stores, not to a {what}")


def _require_files(what: str, progress: object) -> None:
    if progress is not None:
        raise ArgumentError(f"progress= applies only to the challenge's files, not to a {what}")


def read_network(
    path: str | os.PathLike[str],
    *,
    progress: Callable[[int, int], object] | None = None,
    **options: Unpack[ReadOptions],
) -> Network:
    """Return a network, lazily from a store; raise FormatError if it contains something else.

    Only reading of the challenge's files has progress.
    """
    form = chosen(path, options)[0]
    progress = None if form.layers is None else progress
    net = load(path, lazy=form is STORE or None, progress=progress, **options)
    if not isinstance(net, Network):
        raise FormatError(f"{path}: the store does not contain a network")
    return net


def chosen(path: str | os.PathLike[str], options: ReadOptions) -> tuple[Format, dict[str, Any]]:
    """Return the format of the network at `path`, and its options after validation."""
    given: dict[str, Any] = {key: x for key, x in options.items() if x is not None or key == "clip"}
    word = given.pop("format", None)
    form = format_of(path) if word is None else FORMATS[as_word(word, "format", FORMATS)]
    for key in given:
        if not form.takes(key):
            raise ArgumentError(f"{key}= does not apply to the format {form.name}")
    if "layers" in given:
        given["layers"] = whole_number(given["layers"], "layers", least=1)
    return form, given


def format_of(path: str | os.PathLike[str]) -> Format:
    """Return the format of the network at `path`, from its name or the files in it."""
    path = as_path(path)
    with read_errors(path):
        if not path.exists():
            raise MissingFileError(f"{path}: no such file or folder")
        if not path.is_dir():
            if known := of_suffix(path) or (TORCH if _start(path)[8:9] == b"{" else None):
                return known
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
    if not os.path.isfile(path) or of_suffix(path):  # noqa: PTH113 -- no error for a long name
        return False
    return _start(path)[8:].startswith(b'{"__metadata__":{"gbdnn"')


def _start(path: Path) -> bytes:
    with read_errors(path), path.open("rb") as file:
        return file.read(40)


def target_format(path: Path) -> Format:
    """Return the format to write at `path`: from its suffix, or a store if it has none."""
    if found := of_suffix(path):
        return found
    suffixes = ", ".join(suffix for form in FORMATS.values() for suffix in form.suffixes)
    require_no_ending(path, f"one of {suffixes}")
    return STORE


def require_no_ending(path: Path, known: str) -> None:
    """Raise ArgumentError if the name of a new store has the suffix of a file."""
    if re.fullmatch(r"\.[A-Za-z]\w*", path.suffix) and not path.is_dir():
        raise ArgumentError(
            f"{path}: cannot infer the file format; pass to=, or use {known};"
            " the name of a store has no suffix"
        )


register(STORE, TSV, MATRIX_MARKET, ONNX, TORCH)
