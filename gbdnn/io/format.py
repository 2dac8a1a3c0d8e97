"""A format of networks as one object, and the list of all formats.

To add a format, write a module with a reader and a writer, and append its `Format` to the list in
`gbdnn.io.formats`. `load`, `save`, `convert` and the commands read that list.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gbdnn.model.network import Network

__all__ = ["FORMATS", "Assumed", "Format", "of_suffix", "register"]


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
        ``write(net, path)`` writes a network in memory to a file, or a lazy one to a new folder.
    options : str
        The `gbdnn.io.formats.ReadOptions` of the reader, separated by spaces, except ``layers``
        and ``dtype``.
    suffixes : tuple of str
        Of files that contain a network; none if the format is a folder.
    mark : str
        Regular expression of the names of files by which a folder is recognised.
    files : str or callable
        The same of all files of a network in a folder, or ``files(path, options)``, which returns
        their paths.
    deep : bool
        Whether files may be in subfolders of the challenge's layout.
    assumed : Assumed, optional
        Default: the format stores all properties.
    layers : callable, optional
        ``layers(path, options, progress)`` yields the layers one by one; used instead of `read`.
    """

    name: str
    read: Callable[..., Network]
    write: Callable[[Network, Path], object]
    options: str = ""
    suffixes: tuple[str, ...] = ()
    mark: str = ""
    files: str | Callable[[Path, dict[str, Any]], list[Path]] = ""
    deep: bool = False
    assumed: Assumed | None = None
    layers: Callable[..., Any] | None = None

    def takes(self, option: str) -> bool:
        """Whether an option of `gbdnn.load` applies to the format."""
        return option in ("layers", "dtype", *self.options.split())

    def marks(self, folder: list[Path], below: list[Path]) -> bool:
        """Whether files in a folder, or below it, are a network in this format."""
        there = [*folder, *below] if self.deep else folder
        return bool(self.mark) and any(re.fullmatch(self.mark, file.name) for file in there)

    def paths(self, path: Path, options: dict[str, Any]) -> list[Path]:
        """Return the files of the network at `path`."""
        if callable(self.files):
            return self.files(path, options)
        if not path.is_dir():
            return [path]
        return [file for file in path.iterdir() if re.fullmatch(self.files, file.name)]


FORMATS: dict[str, Format] = {}
"""All formats by name."""


def register(*formats: Format) -> None:
    """Add formats to the list."""
    FORMATS.update({form.name: form for form in formats})


def of_suffix(path: Path) -> Format | None:
    """Return the format of networks that the suffix of a file belongs to, or None."""
    name = path.name.lower()
    return next((form for form in FORMATS.values() if name.endswith(form.suffixes or "\0")), None)
