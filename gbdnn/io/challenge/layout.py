"""Folders and names of the Graph Challenge's files.

The data set contains (plain or with ``.gz``)::

    MNIST/sparse-images-1024.tsv
    DNN/neuron1024/n1024-l1.tsv, n1024-l2.tsv, ...
    DNN/neuron1024-l120-categories.tsv

Single archives contain parts of it: ``neuron1024/`` without ``DNN``, or files without a folder.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from gbdnn.arrays.checks import as_path, whole_number
from gbdnn.errors import ArgumentError, MissingFileError
from gbdnn.io.reading import read_errors

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

_LAYER = re.compile(r"n([1-9][0-9]*)-l([1-9][0-9]*)\.tsv(\.gz)?")


def find_features(directory: str | os.PathLike[str], neurons: int) -> Path:
    """Find the input images, ``sparse-images-{neurons}.tsv`` or ``.tsv.gz``.

    `directory` is the data set's root, its ``MNIST`` folder, or any folder with the file. A
    MissingFileError lists the places searched.
    """
    root, n = _folder(directory), whole_number(neurons, "neurons", least=1)
    return _first("input images", root, ["MNIST", "."], f"sparse-images-{n}.tsv")


def find_categories(directory: str | os.PathLike[str], neurons: int, layers: int) -> Path:
    """Find the true categories, ``neuron{neurons}-l{layers}-categories.tsv`` or ``.tsv.gz``.

    `directory` is the data set's root, its ``DNN`` folder, or any folder with the file. A
    MissingFileError lists the places searched.
    """
    root, n = _folder(directory), whole_number(neurons, "neurons", least=1)
    folders = ["DNN", "."]
    if root.resolve().name == f"neuron{n}":
        folders.append("..")
    name = f"neuron{n}-l{whole_number(layers, 'layers', least=1)}-categories.tsv"
    return _first("categories", root, folders, name, "; pass truth=False to run without them")


def find_layers(
    directory: str | os.PathLike[str], neurons: int, layers: int | None = None
) -> list[Path]:
    """Find the files of a network's layers, ``n{neurons}-l1.tsv`` (or ``.tsv.gz``) and so on.

    `directory` is the data set's root, its ``DNN`` folder, or the folder with the layers; `layers`
    is the number of layers to find (default: all). Plain files take precedence. A MissingFileError
    lists the places searched, or names the missing layer.
    """
    root, n = _folder(directory), whole_number(neurons, "neurons", least=1)
    count = None if layers is None else whole_number(layers, "layers", least=1)
    places = [root / "DNN" / f"neuron{n}", root / f"neuron{n}", root]
    for folder in places:
        if by_number := layers_in(folder, n):
            break
    else:
        looked = ", ".join(str(place) for place in places)
        raise MissingFileError(
            f"{root}: no layers of {n} neurons; expected files n{n}-l1.tsv, n{n}-l2.tsv, ..."
            f" (or .tsv.gz) in one of {looked}"
        )
    last = max(by_number) if count is None else count
    return in_order(by_number, range(1, last + 1), f"n{n}-l", ".tsv (or .gz)")


def find_neurons(directory: str | os.PathLike[str]) -> int:
    """Find the number of neurons of the layers in a folder, as for `find_layers`.

    Raise MissingFileError if there are no layers, and ArgumentError if they have several sizes.
    """
    root = _folder(directory)
    with read_errors(root):
        folders = [root, *root.glob("neuron*"), *root.glob("DNN/neuron*")]
    sizes = sorted(
        {int(n) for folder in folders if _is(Path.is_dir, folder) for n in numbered(folder, _LAYER)}
    )
    if not sizes:
        raise MissingFileError(
            f"{root}: no layers; expected files n<neurons>-l1.tsv, n<neurons>-l2.tsv, ... (or"
            " .tsv.gz) in this folder, neuron<neurons> or DNN/neuron<neurons>"
        )
    if len(sizes) > 1:
        listed = ", ".join(map(str, sizes))
        raise ArgumentError(
            f"{root}: contains layers of {listed} neurons; choose one size, such as"
            f" neurons={sizes[0]}, or pass the folder of one network"
        )
    return sizes[0]


def layers_in(folder: Path, n: int) -> dict[int, Path]:
    """Return the layer files in `folder` by number."""
    return numbered(folder, _LAYER).get(str(n), {}) if _is(Path.is_dir, folder) else {}


def _first(what: str, root: Path, folders: list[str], name: str, remedy: str = "") -> Path:
    tried = [root / folder / (name + ending) for folder in folders for ending in ("", ".gz")]
    for path in tried:
        if _is(Path.is_file, path):
            return path
    raise MissingFileError(
        f"{root}: no {what}; looked for {', '.join(str(path) for path in tried)}{remedy}"
    )


def _folder(directory: str | os.PathLike[str]) -> Path:
    root = as_path(directory, "directory")
    if not _is(Path.exists, root):
        raise MissingFileError(f"{root}: no such folder")
    if not _is(Path.is_dir, root):
        raise MissingFileError(f"{root}: not a folder")
    return root


def _is(test: Callable[[Path], bool], path: Path) -> bool:
    with read_errors(path):  # a parent folder may not be accessible
        return test(path)


def numbered(folder: Path, name: re.Pattern[str]) -> dict[str, dict[int, Path]]:
    """Return files by prefix and number, the two groups of the pattern `name`.

    Plain files take precedence over those with an additional ``.gz``.
    """
    with read_errors(folder):
        listing = sorted(folder.iterdir())
    files: dict[str, dict[int, Path]] = {}
    for path in listing:
        if match := name.fullmatch(path.name):
            first = files.setdefault(match[1], {}).setdefault(int(match[2]), path)
            if path.name not in (first.name, first.name + ".gz"):
                raise ArgumentError(f"{folder}: {first.name} and {path.name} have the same number")
    return files


def in_order(files: dict[int, Path], numbers: range, prefix: str, ending: str) -> list[Path]:
    """Return the files of these numbers; prefix and suffix are for the error message."""
    for k in numbers:
        if k not in files:
            last = files[max(files)]
            raise MissingFileError(
                f"{last.parent / f'{prefix}{k}{ending}'} is missing; the folder contains"
                f" {len(files)} layers up to {last.name}"
            )
    return [files[k] for k in numbers]
