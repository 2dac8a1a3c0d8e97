"""Formats of files: a format of networks as one object, and the one rule of names.

To add a format of networks, write a module with a reader and a writer, and append its `Format` to
the list in `gbdnn.io.networks`. `load`, `save`, `convert` and the commands read that list.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gbdnn.arrays.checks import as_flag, as_word
from gbdnn.errors import ArgumentError
from gbdnn.gallery.networks import CHALLENGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from gbdnn.model.layer import Layer
    from gbdnn.model.layer_info import LayerInfo
    from gbdnn.model.network import Network

__all__ = [
    "CATEGORIES", "FEATURES", "FORMATS", "LABELS", "Assumed", "Format", "challenge_bias", "losses",
    "of_suffix", "register", "require_folder_name", "target",
]  # fmt: skip

_TSV = (".tsv", ".tsv.gz")
FEATURES = {
    "store": (), "tsv": _TSV, "npy": (".npy",), "npz": (".npz",),
    "matrix-market": (".mtx", ".mtx.gz"),
}  # fmt: skip
LABELS = {"tsv": (*_TSV, ".csv"), "npy": (".npy",)}
CATEGORIES = {"tsv": _TSV}
"""The formats in which data are written, with the suffixes of their files."""


@dataclass(frozen=True, kw_only=True)
class Assumed:
    """What a reader assumes for properties that a format does not store."""

    weights_only: bool = False  # bias and dtype are not stored
    bias: float | None = None  # the challenge's
    dtype: str = "float32"
    bias_rule: str = "all"
    clip: float | None = None
    activation: str = "relu"
    last_activation: str = "relu"


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format of networks.

    Parameters
    ----------
    name : str
    read : callable
        ``read(path, **options)`` returns a Network.
    write : callable
        ``write(net, file)`` writes a network in memory to a binary file; for formats with a `mark`,
        ``write(net, folder)`` writes a lazy one to a new folder.
    options : str
        The options of `gbdnn.load` that apply to the format, separated by spaces, except ``layers``
        and ``dtype``.
    suffixes : tuple of str
        Of files that contain a network.
    mark : str
        Regular expression of the names of files by which a folder is recognised; empty if a network
        is one file.
    deep : bool
        Whether files may be in subfolders of the challenge's layout.
    assumed : Assumed, optional
        Default: the format stores all properties.
    layers : callable, optional
        ``layers(path, options, progress)`` returns the number of layers and an iterator, which
        reads them one by one; used instead of `read`.
    """

    name: str
    read: Callable[..., Network]
    write: Callable[[Network, Any], object]
    options: str = ""
    suffixes: tuple[str, ...] = ()
    mark: str = ""
    deep: bool = False
    assumed: Assumed | None = None
    layers: Callable[..., tuple[int, Iterator[Layer]]] | None = None

    def takes(self, option: str) -> bool:
        """Whether an option of `gbdnn.load` applies to the format."""
        return option in ("layers", "dtype", *self.options.split())

    def marks(self, folder: list[Path], below: list[Path]) -> bool:
        """Whether files in a folder, or below it, are a network in this format."""
        there = [*folder, *below] if self.deep else folder
        return bool(self.mark) and any(re.fullmatch(self.mark, file.name) for file in there)


FORMATS: dict[str, Format] = {}
"""All formats of networks by name."""


def register(*formats: Format) -> None:
    """Add formats to the list."""
    FORMATS.update({form.name: form for form in formats})


def of_suffix(path: Path, known: Mapping[str, tuple[str, ...]] | None = None) -> str | None:
    """Return the format that the suffix of a file belongs to, by default of networks, or None."""
    known = {form.name: form.suffixes for form in FORMATS.values()} if known is None else known
    name = path.name.lower()
    return next((form for form, suffixes in known.items() if name.endswith(suffixes or "\0")), None)


def target(
    path: Path, form: str | None, known: Mapping[str, tuple[str, ...]], argument: str = "format"
) -> str:
    """Return the format to write at `path`, of the `known` ones with their suffixes.

    Without `form`, the option `argument` of the caller, it is that of the suffix, a store for names
    without a suffix, and text for an existing file without a suffix.
    """
    suffixed = of_suffix(path, known)
    if form is not None:
        as_word(form, argument, known)
        if suffixed not in (None, form):
            raise ArgumentError(
                f"{path}: {argument}={form} does not match the suffix, which is that of {suffixed}"
            )
        return form
    if suffixed is not None:
        return suffixed
    if os.path.isdir(path) or not re.fullmatch(r"\.[A-Za-z]\w*", path.suffix):  # noqa: PTH112
        if known.get("tsv") and os.path.exists(path) and not os.path.isdir(path):  # noqa: PTH110, PTH112
            return "tsv"  # such as standard output
        if "store" in known:
            return "store"
    suffixes = ", ".join(suffix for each in known.values() for suffix in each)
    fault = f"{path}: cannot infer the file format; pass {argument}=, or use one of {suffixes}"
    raise ArgumentError(fault + "; the name of a store has no suffix" * ("store" in known))


def require_folder_name(path: Path) -> None:
    """Raise ArgumentError if the name of a new folder has the suffix of a file."""
    files = {form.name: form.suffixes for form in FORMATS.values()} | FEATURES
    if not os.path.isdir(path) and of_suffix(path, {**files, "safetensors": (".safetensors",)}):  # noqa: PTH112
        raise ArgumentError(
            f"{path}: the output is a folder, not a file; choose a name without this suffix"
        )


def challenge_bias(neurons: int) -> float:
    """Return the challenge's bias for a number of neurons, 0 for other sizes."""
    return CHALLENGE[neurons].bias if neurons in CHALLENGE else 0.0


def losses(net: Network, form: Format, path: object, *, lossy: bool) -> list[str]:
    """Return the properties that a format cannot store, such as ``"clip 32 (layer 0)"``.

    Raise ArgumentError if there are any, unless `lossy`.
    """
    lost = _losses(net, form.assumed)
    if lost and not as_flag(lossy, "lossy"):
        raise ArgumentError(
            f"{path}: the format {form.name} cannot store {', '.join(lost.values())}; a store can."
            f" Pass lossy=True to drop it."
        )
    return list(lost.values())


def _losses(net: Network, assumed: Assumed | None) -> dict[str, str]:
    lost: dict[str, str] = {}
    if assumed is not None:
        for k, info in enumerate(net.infos):
            for kind, what in _lost(info, assumed, last=k == len(net) - 1):
                lost.setdefault(kind, f"{what} (layer {k})")
    return lost


def _lost(info: LayerInfo, assumed: Assumed, *, last: bool) -> Iterator[tuple[str, str]]:
    """Yield kind and description of each property that differs from what a reader assumes."""
    low, high = info.lowest_bias, info.highest_bias
    if assumed.weights_only:
        bias = challenge_bias(info.ncols) if assumed.bias is None else assumed.bias
        if not low == high == info.dtype.type(bias):
            several = "" if low == high else f" to {high:g}"
            yield "bias", f"a bias of {low:g}{several}"
        if info.dtype != assumed.dtype:
            yield "dtype", "FP64"
    # With a ReLU and biases of at most 0, both rules give the same result.
    same = info.activation == "relu" and high <= 0
    if not same and (low or high) and info.bias_rule != assumed.bias_rule:
        yield "bias_rule", f"the bias rule {info.bias_rule}"
    activation = assumed.last_activation if last else assumed.activation
    if info.clip != (assumed.clip if activation == "relu" else None):
        yield "clip", "unbounded activations" if info.clip is None else f"clip {info.clip:g}"
    if info.activation != activation:
        yield "last_activation" if last else "activation", f"the activation {info.activation}"
