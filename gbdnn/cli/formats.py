"""File formats of networks: how each is recognised, read and written; what it does not store."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

import gbdnn
from gbdnn import io
from gbdnn.arrays.arguments import as_path
from gbdnn.cli import outputs
from gbdnn.errors import ArgumentError, FormatError, MissingFileError
from gbdnn.gallery.radixnet import CHALLENGE
from gbdnn.io.reading import read_errors
from gbdnn.model.network import Network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gbdnn.cli.options import FormatName, Given
    from gbdnn.model.layer import Layer
    from gbdnn.model.layer_info import LayerInfo

    Progress = Callable[[int, int | None], object] | None


@dataclass(frozen=True, kw_only=True)
class _Assumed:
    """What a reader assumes of layers, without options, where the format does not store it."""

    weights_only: bool = False
    """Bias and dtype are not stored: the challenge's bias, FP32."""
    bias_rule: str = "all"
    clip: float | None = None
    last_activation: str = "relu"


@dataclass(frozen=True, kw_only=True)
class _Format:
    """A file format of networks."""

    options: str
    """The fields of `Given` that apply."""
    read: Callable[[Path, Given, Progress], Network]
    write: Callable[[Network, Path], object]
    endings: tuple[str, ...] = ()
    """Endings of the name of a file that holds a network."""
    mark: str | None = None
    """Pattern of the files that identify a folder; None if a network is one file."""
    files: str = ""
    """Pattern of all files of a network in a folder."""
    assumed: _Assumed | None = None
    """What is not stored; None if everything is."""


def guess(path: Path, *, option: str | None = "--from") -> FormatName:
    """Return the format of the network at `path`, from its name or the files in it.

    `option` is the command's that names the format, if it has one.
    """
    path = as_path(path)
    with read_errors(path):
        is_folder, exists = path.is_dir(), path.exists()
        here = list(path.iterdir()) if is_folder else []
        below = [*path.glob("neuron*/*"), *path.glob("DNN/neuron*/*")]
    if not is_folder:
        if ending := of_ending(path):
            return ending
        if not exists:
            raise MissingFileError(f"{path}: the folder does not exist")
        says = "" if option is None else f"{option} says it, or "
        raise FormatError(f"{path}: of which format? {says}one of the endings {_endings()}")
    found = [
        name
        for name, each in _FORMATS.items()
        for there in ([*here, *below] if name == "tsv" else here,)
        if each.mark is not None and any(re.fullmatch(each.mark, file.name) for file in there)
    ]
    if not found:
        raise MissingFileError(
            f"{path}: no network; expected a store's index.json, files n<neurons>-l1.tsv,"
            " <prefix>1.mtx, ..."
        )
    if len(found) > 1:
        says = (
            "only one of them can be there" if option is None else f"{option} says which is meant"
        )
        raise ArgumentError(f"{path}: holds {' and '.join(found)}; {says}")
    return found[0]


def guess_target(path: Path) -> FormatName:
    """Return the format to write at `path`: from its ending, or a store if it has none."""
    if found := of_ending(path):
        return found
    require_no_ending(path, f"one of {_endings()}")
    return "store"


def require_no_ending(path: Path, known: str) -> None:
    """Raise ArgumentError if the name of a store that is not there yet ends like a file's."""
    if re.fullmatch(r"\.[A-Za-z]\w*", path.suffix) and not path.is_dir():
        raise ArgumentError(
            f"{path}: of which format? --to says it, or {known}; the name of a store has no ending"
        )


def options_of(name: FormatName) -> str:
    """Return the fields of `Given` that apply to a format."""
    return _FORMATS[name].options


def read(path: Path, name: FormatName, given: Given, progress: Progress = None) -> Network:
    """Return the network at `path`; the layers of a store are read lazily."""
    given.require_only(_FORMATS[name].options, name)
    net = _FORMATS[name].read(path, given, progress)
    if given.layers is not None and given.layers > len(net):
        raise ArgumentError(f"--layers {given.layers}: {path} has {len(net)}")
    return net[: given.layers]


def read_tsv_layers(
    path: Path, given: Given, progress: Progress = None, start: int = 0
) -> Iterator[Layer]:
    """Yield the layers of the challenge's files from `start` on, one at a time in memory."""
    given.require_only(_FORMATS["tsv"].options, "tsv")
    n = given.neurons or io.find_neurons(path)
    options = {"bias": _challenge_bias(n)} | given.keywords()
    return io.iter_layers(path, n, given.layers, start=start, progress=progress, **options)


def write(net: Network, path: Path, name: FormatName, progress: Progress = None) -> None:
    """Write a network, atomically; a lazy one layer by layer, except ONNX and PyTorch.

    A store or a file is replaced, another folder is a new or an empty one.
    """
    if not len(net) and name != "store":
        raise ArgumentError(f"{path}: a network without layers has a place in a store alone")
    if progress is not None:
        net = _reporting(net, progress)
    to = _FORMATS[name]
    if name == "store":
        to.write(net, path)
    elif to.mark is not None:
        with io.whole_folder(path) as folder:
            to.write(net, folder)
    else:
        io.require_writable(path)
        to.write(net.loaded(), path)


def require_free(path: Path, name: FormatName, *, force: bool) -> None:
    """Raise OutputError if a network cannot be written there, or would replace a file.

    Whether it would replace a store is seen when it is known which network is in it.
    """
    if name == "store":
        outputs.require_free(path, stored=True, force=True, resumes=True)
    elif _FORMATS[name].mark is None:
        outputs.require_free(path, stored=False, force=force)


def losses(net: Network, name: FormatName) -> list[str]:
    """Return what would be lost, as ``"clip 32 (layer 0)"``, each with the first layer of it."""
    found: dict[str, str] = {}
    if assumed := _FORMATS[name].assumed:
        for k, info in enumerate(net.infos):
            for kind, what in _lost(info, assumed, last=k == len(net) - 1):
                found.setdefault(kind, f"{what} (layer {k})")
    return list(found.values())


def require_place(net: Network, path: Path, name: FormatName, *, lossy: bool = False) -> None:
    """Raise the ArgumentError that says what would be lost, and how to write all the same.

    `lossy` tells whether the command has the option of that name.
    """
    if lost := losses(net, name):
        but = (
            ", and --lossy leaves it out: it has to be said when the network is read"
            if lossy
            else ", and gbdnn convert can leave it out"
        )
        raise ArgumentError(
            f"{path}: the format {name} has no place for {', '.join(lost)}; a store has{but}"
        )


def files(path: Path, name: FormatName, given: Given) -> list[Path]:
    """Return the files of the network at `path`."""
    if name == "tsv":
        return io.find_layers(path, given.neurons or io.find_neurons(path), given.layers)
    if not path.is_dir():
        return [path]
    return [file for file in path.iterdir() if re.fullmatch(_FORMATS[name].files, file.name)]


def _challenge_bias(neurons: int) -> float:
    """Return the challenge's bias for a number of neurons, 0 for other sizes."""
    return CHALLENGE[neurons].bias if neurons in CHALLENGE else 0.0


def _lost(info: LayerInfo, assumed: _Assumed, *, last: bool) -> Iterator[tuple[str, str]]:
    """Yield kind and description of each property that differs from what a reader assumes."""
    low, high = info.lowest_bias, info.highest_bias
    if assumed.weights_only:
        if not low == high == info.dtype.type(_challenge_bias(info.ncols)):
            several = "" if low == high else f" to {high:g}"
            yield "bias", f"a bias of {low:g}{several}"
        if info.dtype != np.float32:
            yield "dtype", "FP64"
    # With a ReLU and a bias <= 0 both rules are the same.
    same = info.activation == "relu" and high <= 0
    if not same and (low or high) and info.bias_rule != assumed.bias_rule:
        yield "rule", f"the bias rule {info.bias_rule}"
    if info.clip != assumed.clip:
        yield "clip", "having no upper limit" if info.clip is None else f"clip {info.clip:g}"
    if info.activation != (assumed.last_activation if last else "relu"):
        yield "activation", f"the activation {info.activation}"


def _endings() -> str:
    return ", ".join(end for each in _FORMATS.values() for end in each.endings)


def of_ending(path: Path) -> FormatName | None:
    """Return the format that a file's name tells."""
    name = path.name.lower()
    return next((each for each, of in _FORMATS.items() if name.endswith(of.endings)), None)


def _reporting(net: Network, progress: Callable[[int, int | None], object]) -> Network:
    """Return the network as a lazy one that reports each layer that is read."""

    def layer(k: int, /) -> Layer:
        progress(k + 1, len(net))
        return net[k]

    return Network.lazy(net.infos, layer)


def _read_store(path: Path, given: Given, _: Progress) -> Network:
    net = io.load(path)
    if not isinstance(net, Network):
        raise FormatError(f"{path}: the store holds no network")
    return net if given.dtype is None else net.astype(given.dtype)


def _one(path: Path) -> Path | list[Path]:
    return path if path.is_dir() else [path]


_FORMATS: dict[FormatName, _Format] = {
    "store": _Format(
        options="layers dtype",
        read=_read_store,
        write=gbdnn.save,
        mark=r"index\.json",
        files=r".*\.safetensors|index\.json",
    ),
    "tsv": _Format(
        options="layers dtype neurons bias bias_rule clip no_clip",
        read=lambda path, given, progress: Network(read_tsv_layers(path, given, progress)),
        write=io.write_network,
        mark=r"n[1-9][0-9]*-l[1-9][0-9]*\.tsv(\.gz)?",
        assumed=_Assumed(weights_only=True, bias_rule="entries", clip=32.0),
    ),
    "matrix-market": _Format(
        options="layers dtype prefix bias bias_rule clip no_clip last_activation",
        read=lambda path, given, _: io.read_matrix_market(_one(path), **given.keywords()),
        write=io.write_matrix_market,
        endings=(".mtx", ".mtx.gz"),
        mark=r".*[0-9]\.mtx(\.gz)?",
        files=r".*\.mtx(\.gz)?",
        assumed=_Assumed(),
    ),
    "onnx": _Format(
        options="layers dtype",
        read=lambda path, given, _: io.read_onnx(path, **given.keywords()),
        write=io.write_onnx,
        endings=(".onnx",),
    ),
    "torch": _Format(
        options="layers dtype clip no_clip last_activation",
        read=lambda path, given, _: io.read_torch(path, **given.keywords()),
        write=io.write_torch,
        endings=(".pt", ".pth"),
        assumed=_Assumed(last_activation="identity"),
    ),
}
