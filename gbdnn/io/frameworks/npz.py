"""SciPy's ``.npz`` files, one a layer, with biases in NumPy's ``.npy`` beside them."""

from __future__ import annotations

import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.io.atomic import whole_file
from gbdnn.io.frameworks.numbered import (
    Kind,
    damaged,
    read_numbered,
    refuse_duplicates,
    writable_folder,
)
from gbdnn.io.frameworks.scipy import as_csc, import_scipy, require_network

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from pathlib import Path

    from gbdnn.model.layer import Activation, BiasRule
    from gbdnn.model.network import Network

__all__ = ["read_npz", "write_npz"]

_PREFIX = "layer"


def read_npz(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    prefix: str | None = None,
    bias: float | None = None,
    bias_rule: BiasRule = "all",
    clip: float | None = None,
    last_activation: Activation = "relu",
    dtype: Any = None,
) -> Network:
    """Read a network from one file of `scipy.sparse.save_npz` per layer.

    Parameters
    ----------
    paths : path-like, or iterable of path-like
        A folder with numbered files (``layer1.npz``, ``layer2.npz``, ..., from 0 or 1 without
        gaps), or the files in order. A layer's bias is beside its weights: ``layer1-bias.npy``, a
        number (0-D) or a vector of `numpy.save`.
    prefix : str, optional
        What comes before the numbers, if the folder holds several such kinds of files.
    bias : float, optional
        Of layers without a file for it; 0 by default.
    bias_rule, clip, last_activation, dtype
        As for `from_scipy`: these files hold weights and biases alone.

    Returns
    -------
    Network

    Raises
    ------
    MissingFileError
        There is no such folder or file, or a number is missing.
    FormatError
        A file is no such array, is damaged, has two entries at one place or a value that is not
        finite; names the file. Pickled objects are refused.
    ArgumentError
        Files of several kinds, `bias` beside a file of biases, an option without meaning.
    ShapeError
        Two layers, or a layer and its bias, do not fit.
    MissingPackageError
        SciPy is not installed.

    Examples
    --------
    >>> import tempfile, gbdnn
    >>> folder, net = tempfile.mkdtemp(), gbdnn.radixnet(1024, 2)
    >>> write_npz(net, folder)
    >>> read_npz(folder, bias_rule="entries", clip=32).isequal(net)
    True
    """
    return read_numbered(
        paths,
        _NPZ,
        prefix=prefix,
        bias=bias,
        bias_rule=bias_rule,
        clip=clip,
        last_activation=last_activation,
        dtype=dtype,
    )


def write_npz(net: Network, directory: str | os.PathLike[str]) -> None:
    """Write a network's weights and biases as ``layer1.npz``, ``layer1-bias.npy`` and so on.

    Parameters
    ----------
    net : Network
        Its rules, activations and clips have no place in this format.
    directory : path-like
        Made if need be. Every file appears whole or not at all.

    Raises
    ------
    ArgumentTypeError
        `net` is no Network.
    OutputError
        A file cannot be written, or files of further layers stand there.
    MissingPackageError
        SciPy is not installed.
    """
    require_network(net)
    sparse = import_scipy()
    files = writable_folder(directory, _NPZ, _PREFIX, len(net))
    for layer, (weights, bias) in zip(net, files, strict=True):
        with whole_file(weights) as file:
            sparse.save_npz(file, as_csc(layer))
        with whole_file(bias) as file:
            np.save(file, np.asarray(layer.bias, layer.dtype), allow_pickle=False)


def _read_weights(path: Path) -> Any:
    # A zip of .npy files: what each of these readers raises when it meets something else.
    faults = (zipfile.BadZipFile, zlib.error, KeyError, NotImplementedError, AttributeError)
    with damaged(path, *faults, TypeError, IndexError):
        A = import_scipy().load_npz(path)
    refuse_duplicates(A, path)
    return A


def _read_bias(path: Path) -> np.ndarray:
    with damaged(path), path.open("rb") as file:
        b: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
        if file.read(1):
            raise ValueError("bytes after the last element")
    return b


_NPZ = Kind(".npz", "-bias.npy", False, _read_weights, _read_bias)
