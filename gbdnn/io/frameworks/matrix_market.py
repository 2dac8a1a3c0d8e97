"""Matrix Market files, one a layer, as LAGraph's test data has them.

LAGraph's folder holds ``n1024-l1.mtx``, ``n1024-l2.mtx`` and so on, of coordinates and real values;
a comment below the first line tells the type: ``%%GraphBLAS type float`` (or ``GrB_FP32``).
"""

from __future__ import annotations

import gzip
import io
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.errors import FormatError
from gbdnn.io.atomic import whole_file
from gbdnn.io.challenge.table import read_bytes
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

__all__ = ["read_matrix_market", "write_matrix_market"]

_FP32 = (b"%%GraphBLAS type float", b"%%GraphBLAS GrB_FP32")
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
) -> Network:
    """Read a network from one Matrix Market file per layer.

    Parameters
    ----------
    paths : path-like, or iterable of path-like
        A folder with numbered files (``n1024-l1.mtx``, ``n1024-l2.mtx.gz``, ..., from 0 or 1
        without gaps), or the files in order. They hold coordinates or arrays, of real numbers,
        integers or patterns (whose values are 1), general or symmetric. A layer's bias is beside
        its weights: ``n1024-l1-bias.mtx``, 1 x 1 for one number or a row or column of them.
    prefix : str, optional
        What comes before the numbers (``"n1024-l"``), if the folder holds several such kinds.
    bias : float, optional
        Of layers without a file for it; 0 by default. (LAGraph's networks have -0.3.)
    bias_rule, clip, last_activation
        As for `from_scipy`: these files hold weights and biases alone. LAGraph's networks have
        ``"entries"`` and 32.
    dtype : {"FP32", "FP64"} or NumPy dtype, optional
        By default FP64 for real values unless a comment says ``float``, FP32 for integers and
        patterns.

    Returns
    -------
    Network

    Raises
    ------
    MissingFileError
        There is no such folder or file, or a number is missing.
    FormatError
        A file is not Matrix Market, is cut off, complex, has two entries at one place or a value
        that is not finite; names the file, and the line where it is known.
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
    >>> write_matrix_market(net, folder)
    >>> read_matrix_market(folder, bias_rule="entries", clip=32).isequal(net)
    True
    """
    return read_numbered(
        paths,
        _MTX,
        prefix=prefix,
        bias=bias,
        bias_rule=bias_rule,
        clip=clip,
        last_activation=last_activation,
        dtype=dtype,
    )


def write_matrix_market(net: Network, directory: str | os.PathLike[str]) -> None:
    """Write a network's weights and biases as ``n1024-l1.mtx``, ``n1024-l1-bias.mtx`` and so on.

    Parameters
    ----------
    net : Network
        The number in the names is that of the neurons that its first layer reads. Its rules,
        activations and clips have no place in this format.
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

    Notes
    -----
    Values are written with the digits that give the same bits when read in FP64, so that FP32
    numbers are rounded to nothing on their way through a reader of FP64.
    """
    require_network(net)
    import_scipy()
    files = writable_folder(directory, _MTX, f"n{net.shape[0]}-l", len(net))
    for layer, (weights, bias) in zip(net, files, strict=True):
        _write(weights, as_csc(layer).astype(np.float64), layer.dtype)
        _write(bias, np.atleast_2d(np.asarray(layer.bias, np.float64)), layer.dtype)


def _write(path: Path, A: Any, dtype: np.dtype) -> None:
    import scipy.io

    with whole_file(path) as file:
        scipy.io.mmwrite(
            file, A, comment=f"%GraphBLAS type {_NAMES[dtype]}", field="real", symmetry="general"
        )


def _read(path: Path) -> Any:
    import scipy.io

    # Decompressed before it is parsed: an exception inside a stream that SciPy reads from aborts
    # the process.
    with damaged(path, zlib.error):
        data = read_bytes(path)
        if data.startswith(b"\x1f\x8b"):
            data = gzip.decompress(data)
        A = scipy.io.mmread(io.BytesIO(data), spmatrix=False)
    second = data[:1024].split(b"\n")[1:2]
    if b"".join(second).strip() in _FP32 and A.dtype == np.float64:
        with np.errstate(over="ignore"):  # Layer refuses what becomes infinite
            A = A.astype(np.float32)
    return A


def _read_weights(path: Path) -> Any:
    A = _read(path)
    if not isinstance(A, np.ndarray):
        refuse_duplicates(A, path)
    return A


def _read_bias(path: Path) -> np.ndarray:
    A = _read(path)
    dense: np.ndarray = A if isinstance(A, np.ndarray) else A.toarray()
    if 1 not in dense.shape:
        raise FormatError(f"{path}: {dense.shape[0]} x {dense.shape[1]}; a bias is one row")
    return dense.reshape(-1) if dense.size > 1 else dense.reshape(())


_MTX = Kind(".mtx", "-bias.mtx", True, _read_weights, _read_bias)
