"""Whole networks in the Graph Challenge's files: one file of weights a layer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gbdnn.arrays.matrices import shape_of
from gbdnn.arrays.values import as_dtype
from gbdnn.errors import OutputError, ShapeError
from gbdnn.io.challenge.layout import find_layers, layers_in
from gbdnn.io.challenge.table import dimension
from gbdnn.io.challenge.tsv import read_tsv, write_tsv

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator

    import graphblas as gb

__all__ = ["read_layers", "write_layers"]


def read_layers(
    directory: str | os.PathLike[str],
    neurons: int,
    layers: int | None = None,
    *,
    dtype: Any = "FP32",
    progress: Callable[[int, int], object] | None = None,
) -> Iterator[gb.Matrix]:
    """Read a network's weights, layer by layer.

    Parameters
    ----------
    directory, neurons, layers
        As for `find_layers`; the files are looked for at once, and read one by one when asked.
    dtype : {"FP32", "FP64"}
        Type of the weights.
    progress : callable, optional
        Called as ``progress(k, count)`` when k of all layers have been read.

    Returns
    -------
    iterator of Matrix, shape (neurons, neurons)
        Held columnwise; W(i, j) is the edge from neuron i to neuron j.

    Raises
    ------
    MissingFileError
        As `find_layers`.
    FormatError
        As `read_tsv`, when the layer is reached.
    """
    files = find_layers(directory, neurons, layers)
    return _read_each(files, dimension(neurons, "neurons"), as_dtype(dtype), progress)


def write_layers(
    matrices: Iterable[gb.Matrix],
    directory: str | os.PathLike[str],
    neurons: int,
    *,
    count: int | None = None,
) -> list[Path]:
    """Write a network's weights, one file a layer.

    Parameters
    ----------
    matrices : iterable of Matrix, shape (neurons, neurons)
        The weights in order. They may be made as they are written.
    directory : path-like
        Made if it is not there. Gets ``n{neurons}-l1.tsv`` and so on, each whole or not at all.
    neurons : int
        Neurons a layer.
    count : int, optional
        How many matrices there are: with it, what else is in the folder is looked at before the
        first file is written, and not only after the last.

    Returns
    -------
    list of Path
        The files written.

    Raises
    ------
    ShapeError
        A matrix has another shape; the layers before it have been written.
    OutputError
        A file cannot be written, or the folder holds further layers of as many neurons, which a
        reader would take for part of this network.
    """
    n, folder = dimension(neurons, "neurons"), Path(directory)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise OutputError(f"{folder}: cannot be made: {err.strerror}") from err
    if count is not None:
        _refuse_further(folder, n, count)
    written: list[Path] = []
    for k, W in enumerate(matrices, 1):
        nrows, ncols = shape_of(W, f"layer {k}")
        if (nrows, ncols) != (n, n):
            raise ShapeError(f"layer {k}: weights are {nrows} x {ncols}, not {n} x {n}")
        path = folder / f"n{n}-l{k}.tsv"
        write_tsv(W, path)
        written.append(path)
    _refuse_further(folder, n, len(written))
    return written


def _read_each(
    files: list[Path], n: int, dtype: Any, progress: Callable[[int, int], object] | None
) -> Iterator[gb.Matrix]:
    for k, file in enumerate(files, 1):
        W = read_tsv(file, nrows=n, ncols=n, dtype=dtype, orientation="columnwise")
        if progress is not None:
            progress(k, len(files))
        yield W


def _refuse_further(folder: Path, n: int, count: int) -> None:
    further = [k for k in layers_in(folder, n) if k > count]
    if further:
        raise OutputError(
            f"{folder}: holds layers {min(further)} to {max(further)} of another network of {n}"
            f" neurons, this one has {count} layers; choose another folder or remove them"
        )
