"""Networks' formats by name: which one stands at a path, and how it is read and written."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, get_args

import gbdnn
from gbdnn import io
from gbdnn.errors import ArgumentError, FormatError, MissingFileError
from gbdnn.gallery.radixnet import CHALLENGE
from gbdnn.model.network import Network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gbdnn.model.layer import Layer

    Progress = Callable[[int, int | None], object] | None

__all__ = ["FormatName", "Given", "files", "guess", "guess_target", "layers_of", "read", "write"]

FormatName = Literal["store", "tsv", "npz", "matrix-market", "onnx", "torch"]

_OF_ENDINGS: dict[str, FormatName] = {
    ".onnx": "onnx",
    ".pt": "torch",
    ".pth": "torch",
    ".npz": "npz",
    ".mtx": "matrix-market",
    ".mtx.gz": "matrix-market",
}
_IN_FOLDERS: dict[FormatName, str] = {
    "store": r"index\.json",
    "tsv": r"n[1-9][0-9]*-l[1-9][0-9]*\.tsv(\.gz)?",
    "npz": r".*[0-9]\.npz",
    "matrix-market": r".*[0-9]\.mtx(\.gz)?",
}
_TAKES: dict[FormatName, str] = {
    "store": "layers dtype",
    "tsv": "layers dtype neurons bias bias_rule clip",
    "npz": "layers dtype prefix bias bias_rule clip last_activation",
    "matrix-market": "layers dtype prefix bias bias_rule clip last_activation",
    "onnx": "layers dtype",
    "torch": "layers dtype clip last_activation",
}


@dataclass(frozen=True, kw_only=True)
class Given:
    """What was said of a network that is read; None where nothing was."""

    neurons: int | None = None
    layers: int | None = None
    prefix: str | None = None
    bias: float | None = None
    bias_rule: str | None = None
    clip: float | Literal["none"] | None = None
    last_activation: str | None = None
    dtype: str | None = None

    def for_reader(self, *names: str) -> dict[str, Any]:
        """Return those of some names that were given, as a reader's keywords."""
        found = {name: getattr(self, name) for name in names}
        return {
            name: None if value == "none" else value
            for name, value in found.items()
            if value is not None
        }

    def require_place(self, name: FormatName) -> None:
        """Raise ArgumentError if an option was given that this format does not take."""
        for field in fields(self):
            if getattr(self, field.name) is not None and field.name not in _TAKES[name].split():
                option = "--" + field.name.replace("_", "-")
                raise ArgumentError(f"{option} has no meaning for the format {name}")


def guess(path: Path) -> FormatName:
    """Return the format of the network at `path`, by what is there.

    Raises
    ------
    MissingFileError
        Nothing is there, or a folder without a network.
    ArgumentError
        Networks of several formats are there.
    FormatError
        A file of an unknown ending.
    """
    try:
        is_folder, there = path.is_dir(), path.exists()
    except OSError as err:
        raise MissingFileError(f"{path}: cannot be read: {err.strerror}") from err
    if not is_folder:
        ending = _ending(path)
        if ending is not None:
            return ending
        if not there:
            raise MissingFileError(f"{path}: the folder does not exist")
        raise FormatError(
            f"{path}: of which format? --from says it, or one of the endings"
            f" {', '.join(_OF_ENDINGS)}"
        )
    found = _in_folder(path)
    if not found:
        raise MissingFileError(
            f"{path}: no network; expected a store's index.json, files n<neurons>-l1.tsv,"
            " <prefix>1.npz or <prefix>1.mtx, ..."
        )
    if len(found) > 1:
        raise ArgumentError(f"{path}: holds {' and '.join(found)}; --from says which is meant")
    return found[0]


def guess_target(path: Path) -> FormatName:
    """Return the format to write at `path`: of its ending, or a store."""
    return _ending(path) or "store"


def read(path: Path, name: FormatName, given: Given, progress: Progress = None) -> Network:
    """Return the network at `path`; a store's layers are read when they are asked for."""
    given.require_place(name)
    net: Network
    if name == "tsv":
        return Network(_tsv_layers(path, given, progress))
    if name == "store":
        found = io.load(path)
        if not isinstance(found, Network):
            raise FormatError(f"{path}: the store holds no network")
        net = found if given.dtype is None else found.astype(given.dtype)
    elif name == "onnx":
        net = io.read_onnx(path, **given.for_reader("dtype"))
    elif name == "torch":
        net = io.read_torch(path, **given.for_reader("clip", "last_activation", "dtype"))
    else:
        reader = io.read_npz if name == "npz" else io.read_matrix_market
        keywords = given.for_reader(
            "prefix", "bias", "bias_rule", "clip", "last_activation", "dtype"
        )
        net = reader(path if path.is_dir() else [path], **keywords)
    if given.layers is not None and given.layers > len(net):
        raise ArgumentError(f"--layers {given.layers}: {path} has {len(net)}")
    return net[: given.layers]


def layers_of(
    path: Path, name: FormatName, given: Given, progress: Progress = None
) -> Iterator[Layer]:
    """Yield the network's layers; one at a time is in memory where the format allows it."""
    given.require_place(name)
    if name == "tsv":
        return _tsv_layers(path, given, progress)
    return iter(read(path, name, given))


def write(net: Network, path: Path, name: FormatName, progress: Progress = None) -> None:
    """Write a network, whole or not at all; a lazy one layer by layer, except ONNX and PyTorch.

    Raises
    ------
    OutputError
        It cannot be written: in place of a store or a file, or into a new or empty folder.
    """
    if not len(net) and name != "store":
        raise ArgumentError(f"{path}: a network without layers has a place in a store alone")
    watched = _watched(net, progress)
    if name == "store":
        gbdnn.save(watched, path)
    elif name in ("onnx", "torch"):
        io.require_writable(path)
        writer = io.write_onnx if name == "onnx" else io.write_torch
        writer(watched.loaded(), path)
    else:
        into = {
            "tsv": io.write_network,
            "npz": io.write_npz,
            "matrix-market": io.write_matrix_market,
        }[name]
        with io.whole_folder(path) as folder:
            into(watched, folder)


def files(path: Path, name: FormatName, given: Given) -> list[Path]:
    """Return the files that a network is in."""
    if name == "tsv":
        return io.find_layers(path, given.neurons or io.find_neurons(path), given.layers)
    if not path.is_dir():
        return [path]
    endings = {"store": r".*\.safetensors|index\.json", "npz": r".*\.np[yz]"}
    wanted = re.compile(endings.get(name, r".*\.mtx(\.gz)?"))
    return [file for file in path.iterdir() if wanted.fullmatch(file.name)]


def _tsv_layers(path: Path, given: Given, progress: Progress) -> Iterator[Layer]:
    n = given.neurons or io.find_neurons(path)
    default = CHALLENGE[n].bias if n in CHALLENGE else 0.0
    return io.iter_layers(
        path,
        n,
        given.layers,
        bias=default if given.bias is None else given.bias,
        progress=progress,
        **given.for_reader("bias_rule", "clip", "dtype"),
    )


def _watched(net: Network, progress: Progress) -> Network:
    """Return the network, telling of every layer that is read from it."""
    if progress is None:
        return net

    def layer(k: int, /) -> Layer:
        progress(k + 1, len(net))
        return net[k]

    return Network.lazy(net.infos, layer)


def _ending(path: Path) -> FormatName | None:
    name = path.name.lower()
    return next((found for end, found in _OF_ENDINGS.items() if name.endswith(end)), None)


def _in_folder(folder: Path) -> list[FormatName]:
    """Return the formats of which a folder holds files; the challenge's may lie deeper."""
    below = itertools.chain(folder.glob("neuron*/*"), folder.glob("DNN/neuron*/*"))
    try:
        here, deeper = list(folder.iterdir()), list(below)
    except OSError as err:
        raise MissingFileError(f"{folder}: cannot be listed: {err.strerror}") from err
    found: list[FormatName] = []
    for name in get_args(FormatName):
        if pattern := _IN_FOLDERS.get(name):
            within = [*here, *deeper] if name == "tsv" else here
            if any(re.fullmatch(pattern, path.name) for path in within):
                found.append(name)
    return found
