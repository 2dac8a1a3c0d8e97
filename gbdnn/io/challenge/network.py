"""Networks in the challenge's files: one file of weights per layer."""

from __future__ import annotations

from itertools import starmap
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.checks import as_dtype, require_callable, whole_number
from gbdnn.errors import ShapeError
from gbdnn.io.challenge.layout import find_layers, find_neurons
from gbdnn.io.challenge.tsv import read_tsv, write_tsv
from gbdnn.io.formats import Assumed, Format, challenge_bias
from gbdnn.model.layer import Layer
from gbdnn.model.network import Network

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gbdnn.model.layer import BiasRule

__all__ = ["TSV", "iter_layers"]


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
    """Return an iterator of a network's layers, one of which is in memory at a time.

    Options are those of `gbdnn.load`. The files are located immediately, and read during iteration;
    a FormatError then names file and line.
    """
    n = whole_number(neurons, "neurons", least=1)
    require_callable(progress, "progress")
    bias = challenge_bias(n) if bias is None else bias
    options: dict[str, Any] = {"bias_rule": bias_rule, "clip": clip, "dtype": as_dtype(dtype)}
    # Validates the options before the first file is read.
    Layer(np.empty((0, 0)), bias, **options)
    files = [file.absolute() for file in find_layers(directory, n, layers)]

    def layer(k: int, file: Path) -> Layer:
        W = read_tsv(file, nrows=n, ncols=n, dtype=options["dtype"], orientation="by_col")
        if progress is not None:
            progress(k, len(files))
        return Layer(W, bias, copy=False, **options)

    return starmap(layer, enumerate(files, 1))


def _write(net: Network, folder: Path) -> None:
    n = whole_number(net.shape[0], "neurons", least=1)
    for k, layer in enumerate(net.infos):
        if layer.shape != (n, n):
            raise ShapeError(f"layer {k}: weights are {layer.nrows} x {layer.ncols}, not {n} x {n}")
    for k, layer in enumerate(net, 1):
        write_tsv(layer.W, folder / f"n{n}-l{k}.tsv")


def _layers(
    path: Path, given: dict[str, Any], progress: Callable[[int, int], object] | None
) -> tuple[int, Iterator[Layer]]:
    given = given if "neurons" in given else {"neurons": find_neurons(path)} | given
    count = len(find_layers(path, given["neurons"], given.get("layers")))
    return count, iter_layers(path, progress=progress, **given)


TSV = Format(
    name="tsv",
    read=Network,
    layers=_layers,
    write=_write,
    options="neurons bias bias_rule clip",
    mark=r"n[1-9][0-9]*-l[1-9][0-9]*\.tsv(\.gz)?",
    deep=True,
    assumed=Assumed(weights_only=True, bias_rule="entries", clip=32.0),
)
