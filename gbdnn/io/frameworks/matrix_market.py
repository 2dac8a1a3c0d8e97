"""Matrix Market files: a folder with one file of weights per layer, as in LAGraph's test data.

The names of a network's files are a prefix, a number and an ending: ``n1024-l1.mtx``,
``n1024-l2.mtx.gz``; a layer's bias is in ``n1024-l1-bias.mtx``. A comment in the second line tells
the type of the values: ``%%GraphBLAS type float`` (or ``GrB_FP32``).
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.checks import as_dtype, as_path, require_iterable, require_room
from gbdnn.errors import (
    ArgumentError,
    ArgumentTypeError,
    FormatError,
    MissingFileError,
    OutputError,
    naming,
    require_kind,
)
from gbdnn.io.files import made_folder, whole_file
from gbdnn.io.frameworks.matrix_market_text import parse, parse_distinct
from gbdnn.io.frameworks.scipy import as_csc, require_activation, scipy_sparse
from gbdnn.io.numbered import in_order, numbered
from gbdnn.io.reading import as_limit, read_unzipped
from gbdnn.model.layer import Layer
from gbdnn.model.network import Network
from gbdnn.runtime.first_use import shown

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from gbdnn.model.layer import Activation, BiasRule

_LAYER = re.compile(r"(.*?)([0-9]+)\.mtx(\.gz)?", re.DOTALL)
_NAMES = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}


def read_matrix_market(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    prefix: str | None = None,
    bias: float | None = None,
    bias_rule: BiasRule = "all",
    clip: float | None = None,
    last_activation: Activation = "relu",
    dtype: Any = None,
    unpacked_limit: int | None = None,
) -> Network:
    """Read a network from one Matrix Market file per layer.

    Parameters
    ----------
    paths : path-like, or iterable of path-like
        A folder with numbered files (``n1024-l1.mtx``, ``n1024-l2.mtx.gz``, ..., from 0 or 1
        without gaps), or the files in order: coordinates or arrays, of real numbers, integers or
        patterns (values of 1), general or symmetric. A layer's bias is in ``n1024-l1-bias.mtx``:
        one number (1 x 1), or a row or column of them.
    prefix : str, optional
        Of the files' names (``"n1024-l"``), if the folder holds several.
    bias : float, optional
        Of layers without a file for it; default: 0. (LAGraph's networks have -0.3.)
    bias_rule, clip, last_activation
        As for `from_scipy`; the files do not hold them. (LAGraph's: ``"entries"``, 32, relu.)
    dtype : {"FP32", "FP64"} or NumPy dtype, optional
        Default: FP64 for real values unless a comment says ``float``, FP32 for patterns and for
        integers that it holds exactly.
    unpacked_limit : int, optional
        The most bytes that a file of gzip may unpack to; default: 64 MiB, or 100 times its size if
        that is more.

    Returns
    -------
    Network

    Raises
    ------
    MissingFileError, MissingPackageError
        There is no such folder or file, or a number is missing; SciPy is not installed.
    FormatError
        A file is not Matrix Market, is cut off, complex, has two entries at one place or a value
        that is not finite; names the file, and the line if it is known.
    ArgumentError
        Files of several prefixes, `bias` beside a file of biases, an invalid option.
    ShapeError
        Two layers, or a layer and its bias, do not fit.

    Examples
    --------
    >>> import tempfile, gbdnn
    >>> folder, net = tempfile.mkdtemp(), gbdnn.radixnet(1024, 2)
    >>> gbdnn.io.write_matrix_market(net, folder)
    >>> gbdnn.io.read_matrix_market(folder, bias_rule="entries", clip=32).isequal(net)
    True
    """
    require_activation(last_activation)
    limit = as_limit(unpacked_limit)
    if prefix is not None and not isinstance(prefix, str):
        raise ArgumentTypeError(f"prefix is a str, not {shown(prefix)}")
    options: dict[str, Any] = {
        "bias_rule": bias_rule,
        "dtype": None if dtype is None else as_dtype(dtype),
    }
    # Raises for an invalid option, which is not a fault of the first file.
    Layer(np.empty((0, 0)), 0.0 if bias is None else bias, clip=clip, **options)
    scipy_sparse()
    if isinstance(paths, str | os.PathLike):
        files = _files(as_path(paths, "paths"), prefix)
    else:
        require_iterable(paths, "paths is a folder, or a list of files")
        files = [as_path(path, f"paths: item {k}") for k, path in enumerate(paths)]
        if prefix is not None:
            raise ArgumentTypeError("prefix= beside a list of files; it goes with a folder")
    layers = []
    for k, file in enumerate(files):
        identity = last_activation == "identity" and k == len(files) - 1
        W, b = parse_distinct(read_unzipped(file, limit), file), _read_bias(file, limit)
        if b is not None and bias is not None:
            raise ArgumentError(f"bias= beside {_bias_file(file)}: the layer has its own")
        with naming(file):
            try:
                layer = Layer(
                    W,
                    (0.0 if bias is None else bias) if b is None else b,
                    activation="identity" if identity else "relu",
                    clip=None if identity else clip,
                    **options,
                )
            except (ArgumentError, ArgumentTypeError) as err:
                raise FormatError(str(err)) from err
        layers.append(layer)
    return Network(layers)


def write_matrix_market(net: Network, directory: str | os.PathLike[str]) -> None:
    """Write a network's weights and biases as ``n1024-l1.mtx``, ``n1024-l1-bias.mtx`` and so on.

    Parameters
    ----------
    net : Network
        The number in the names is that of its inputs. The format holds no bias rules, activations
        and clips.
    directory : path-like
        Created if it does not exist. Each file is written atomically.

    Raises
    ------
    ArgumentTypeError
        `net` is not a Network.
    OutputError, MissingPackageError
        A file cannot be written, or the folder has files of further layers; SciPy is not installed.

    Notes
    -----
    A value has the digits that give the same bits when it is read in FP64; FP32 values, too.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np, gbdnn
    >>> folder = Path(tempfile.mkdtemp())
    >>> gbdnn.io.write_matrix_market(gbdnn.Network([gbdnn.Layer(np.eye(3), bias=0.5)]), folder)
    >>> sorted(file.name for file in folder.iterdir())
    ['n3-l1-bias.mtx', 'n3-l1.mtx']
    """
    require_kind(net, Network, "net: a Network is needed")
    scipy_sparse()
    folder, prefix = made_folder(directory), f"n{net.shape[0]}-l"
    old = numbered(folder, _LAYER).get(prefix, {})
    if further := [path.name for k, path in sorted(old.items()) if not 1 <= k <= len(net)]:
        raise OutputError(
            f"{folder}: holds {further[0]} of another network, this one has {len(net)} layers;"
            " choose another folder or remove it"
        )
    for k, layer in enumerate(net, 1):
        file = folder / f"{prefix}{k}.mtx"
        _write(file, as_csc(layer).astype(np.float64), layer.dtype)
        _write(_bias_file(file), np.atleast_2d(np.asarray(layer.bias, np.float64)), layer.dtype)


def _files(folder: Path, prefix: str | None) -> list[Path]:
    """Return the files of the one network in `folder`, in the order of their numbers."""
    found = numbered(folder, _LAYER)
    if prefix is not None:
        found = {prefix: found[prefix]} if prefix in found else {}
    if not found:
        expected = f"{'<prefix>' if prefix is None else prefix}<number>.mtx"
        raise MissingFileError(f"{folder}: no layers; expected files {expected}")
    if len(found) > 1:
        raise ArgumentError(
            f"{folder}: numbered files of {len(found)} kinds; prefix= says which: "
            + ", ".join(repr(name) for name in sorted(found))
        )
    [(name, files)] = found.items()
    return in_order(files, range(0 if 0 in files else 1, max(files) + 1), name, ".mtx")


def _write(path: Path, A: Any, dtype: np.dtype) -> None:
    import scipy.io

    with whole_file(path) as file:
        scipy.io.mmwrite(
            file, A, comment=f"%GraphBLAS type {_NAMES[dtype]}", field="real", symmetry="general"
        )


def _read_bias(weights: Path, limit: int | None) -> np.ndarray | None:
    """Return the bias of a layer, or None if there is no file of it."""
    plain = _bias_file(weights)
    for path in (plain, plain.with_name(plain.name + ".gz")):
        try:
            data = read_unzipped(path, limit)
        except MissingFileError:
            continue
        A = parse(data, path)
        if 1 not in A.shape:
            raise FormatError(f"{path}: {A.shape[0]} x {A.shape[1]}; a bias is one row")
        require_room(8 * max(A.shape), f"{path}: {A.shape[0]} x {A.shape[1]}: values")
        dense: np.ndarray = A if isinstance(A, np.ndarray) else A.toarray()
        return dense.reshape(-1) if dense.size > 1 else dense.reshape(())
    return None


def _bias_file(weights: Path) -> Path:
    """Return the path of a layer's bias: ``l1-bias.mtx`` for ``l1.mtx.gz``."""
    return weights.with_name(weights.name.removesuffix(".gz").removesuffix(".mtx") + "-bias.mtx")
