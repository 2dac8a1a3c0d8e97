"""Features and labels in common formats of data sets."""

from __future__ import annotations

import math
import os
import re
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.checks import (
    as_dtype,
    as_path,
    finite,
    require_exact,
    require_room,
    whole_number,
)
from gbdnn.arrays.matrices import as_matrix, dtype_of
from gbdnn.errors import FormatError, GbdnnError, ShapeError
from gbdnn.io.challenge.table import write_columns
from gbdnn.io.challenge.tsv import read_tsv, write_tsv
from gbdnn.io.files import whole_file
from gbdnn.io.frameworks.matrix_market import parse, write_entries
from gbdnn.io.frameworks.scipy import scipy_sparse
from gbdnn.io.numpy_files import read_numpy
from gbdnn.io.reading import foreign_errors, open_checked, read_unzipped, require_no_table
from gbdnn.io.store import open_features
from gbdnn.runtime.first_use import gb
from gbdnn.runtime.ownership import owned

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "FEATURES",
    "KINDS",
    "LABELS",
    "TSV",
    "read_features",
    "read_idx",
    "read_labels",
    "write_labels",
    "write_matrix",
]

KINDS = "IDX, .npy, .npz, .mtx, tsv, or a store"

_MTX = (".mtx", ".mtx.gz")
TSV = (".tsv", ".tsv.gz")
_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}  # of IDX
_NUMPY = (".npy", ".npz")
FEATURES = (*TSV, *_NUMPY, *_MTX)
LABELS = (*TSV, ".csv", ".npy")
"""Suffixes of the files that `write_matrix` and `write_labels` write."""
_LABEL = re.compile(rb"[ \t]*\+?[0-9]{1,18}[ \t]*\r?")


def read_features(
    path: str | os.PathLike[str],
    *,
    nrows: int | None = None,
    ncols: int | None = None,
    dtype: Any = None,
) -> gb.Matrix:
    """Read features from a file or a store.

    Parameters
    ----------
    path : path-like
        A folder is a store. Files: ``.npy``, an array with one input per row; ``.npz``, one such
        array or a file of `scipy.sparse.save_npz`; ``.mtx``, Matrix Market. Files with ``idx`` in
        their name or an IDX header contain images. Other files contain the challenge's
        tab-separated lines. Text and IDX may be compressed with gzip.
    nrows, ncols : int, optional
        Shape, compared with that of the file. Tab-separated files do not contain it (default: the
        largest index).
    dtype : {"FP32", "FP64"} or NumPy dtype, optional
        Default: FP32 for tab-separated values and images of bytes; other values keep their dtype.

    Returns
    -------
    graphblas.Matrix, shape (inputs, neurons)
        Full for arrays and images, otherwise sparse. Images are flattened, bytes divided by 255.
        For stores larger than memory, use `open_features`.

    Raises
    ------
    MissingFileError, MissingPackageError
        The file does not exist; polars (text), SciPy (sparse matrices) or safetensors (stores) is
        not installed.
    FormatError
        The file is damaged, truncated or in another format, or it unpacks to more than 64 MiB and
        to more than 100 times its size.
    ShapeError
        The array has fewer than two dimensions, or its shape differs from `nrows` and `ncols`.
    ArgumentError
        A value is not finite, or does not fit into `dtype`.

    Examples
    --------
    >>> import pathlib, tempfile, numpy as np, gbdnn
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "X.npy"
    >>> np.save(file, np.ones((2, 28, 28)))
    >>> gbdnn.io.read_features(file, ncols=784).shape
    (2, 784)
    """
    file = as_path(path)
    kind = as_dtype("FP32" if dtype is None else dtype)
    wanted = [
        None if n is None else whole_number(n, what, least=0)
        for n, what in ((nrows, "nrows"), (ncols, "ncols"))
    ]
    features = _found(file, kind)
    if features is None:
        return read_tsv(file, nrows=nrows, ncols=ncols, dtype=kind)
    if isinstance(features, np.ndarray):
        if features.ndim < 2:
            raise ShapeError(
                f"{file}: features must have two dimensions, not shape {features.shape}"
            )
        features = features.reshape(len(features), math.prod(features.shape[1:]))
    for n, want, name in zip(features.shape, wanted, ("rows", "columns"), strict=True):
        if want not in (None, n):
            raise ShapeError(
                f"{file}: the shape is {features.shape[0]} x {features.shape[1]}, not {want} {name}"
            )
    if dtype is not None and dtype_of(features) != kind:
        if not isinstance(features, np.ndarray):
            return as_matrix(features, what=str(file), dtype=kind)
        require_exact(features, kind, str(file))
        features = finite(features, kind, str(file))
    return features if isinstance(features, gb.Matrix) else _matrix(features)


def read_labels(path: str | os.PathLike[str]) -> np.ndarray:
    r"""Read labels: a nonnegative integer for each input.

    Parameters
    ----------
    path : path-like
        ``.npy`` or ``.npz`` with one array, IDX (detected by its header), or text with one number
        per line and no header, every line ending in LF or CR LF. Text and IDX may be compressed
        with gzip.

    Returns
    -------
    ndarray of int or uint, shape (inputs,)

    Raises
    ------
    MissingFileError, FormatError, ShapeError
        The file is missing or damaged, or a value is not a nonnegative integer; the array is not
        1-D.

    Examples
    --------
    >>> import pathlib, tempfile, gbdnn
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "labels.txt"
    >>> _ = file.write_text("7\n0\n")
    >>> gbdnn.io.read_labels(file).tolist()
    [7, 0]
    """
    file = as_path(path)
    if file.name.lower().endswith(_NUMPY):
        labels = read_numpy(file)
    elif (data := read_unzipped(file)).startswith(b"\0\0"):
        labels = read_idx(file)
    else:
        if not _LABEL.fullmatch(data.partition(b"\n")[0]):
            require_no_table(file)
        labels = _lines(file, data)
    if not isinstance(labels, np.ndarray) or labels.ndim != 1:
        raise ShapeError(f"{file}: labels must have one dimension, not shape {labels.shape}")
    if labels.dtype.kind not in "iu":
        raise FormatError(f"{file}: labels must be integers, not {labels.dtype.name}")
    if len(labels) and labels.min() < 0:
        raise FormatError(f"{file}: label {labels.min()} is negative")
    return labels


def read_idx(path: str | os.PathLike[str]) -> np.ndarray:
    """Read an array from an IDX file, the format of the MNIST files.

    Parameters
    ----------
    path : path-like
        Plain or compressed with gzip, detected by its first bytes.

    Returns
    -------
    ndarray
        In native byte order; uint8, int8, int16, int32, float32 or float64.

    Raises
    ------
    MissingFileError, ReadError
        The file does not exist or cannot be read.
    FormatError
        The file is not IDX, is truncated, has bytes after the last element, or unpacks to more than
        64 MiB and to more than 100 times its size.

    Examples
    --------
    >>> import pathlib, tempfile, gbdnn
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "labels-idx1-ubyte"
    >>> _ = file.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 5, 0, 4]))  # three of uint8
    >>> gbdnn.io.read_idx(file)
    array([5, 0, 4], dtype=uint8)
    """
    # Two zero bytes, one for the type, one for the rank; the sizes; the elements, all big-endian.
    file = as_path(path)
    data = read_unzipped(file)
    if data[:2] != b"\0\0" or len(data) < 4 or data[2] not in _TYPES:
        raise FormatError(f"{file}: not an IDX file: it begins with {data[:4].hex(' ')}")
    dtype, rank = np.dtype(_TYPES[data[2]]), data[3]
    start = 4 + 4 * rank
    if len(data) < start:
        raise FormatError(f"{file}: the file is truncated in its header")
    shape = struct.unpack(f">{rank}I", data[4:start])
    expected, nbytes = math.prod(shape) * dtype.itemsize, len(data) - start
    if nbytes != expected:
        fault = "is truncated" if nbytes < expected else "has bytes after the last element"
        raise FormatError(
            f"{file}: the file {fault}; shape {shape} of {dtype.name} takes {expected} bytes,"
            f" found {nbytes}"
        )
    with foreign_errors(file, f"cannot make an array of shape {shape}"):
        array = np.frombuffer(data, dtype, offset=start).reshape(shape)
    return array.astype(dtype.newbyteorder("="))


def write_matrix(X: gb.Matrix, path: Path, *, replace: bool) -> None:
    """Write features in the format that the file's name says, or as tab-separated text."""
    name = path.name.lower()
    if name.endswith(_MTX):
        entries = gb.io.to_scipy_sparse(X, "coo").astype(np.float64)
        write_entries(path, entries, X.dtype.np_type, replace)
    elif name.endswith(".npz"):
        with whole_file(path, replace=replace) as file:
            scipy_sparse().save_npz(file, gb.io.to_scipy_sparse(X, "csr"))
    elif name.endswith(".npy"):
        require_room(X.nrows * X.ncols * X.dtype.np_type.itemsize, f"{path}: shape {X.shape}")
        with whole_file(path, replace=replace) as file:
            np.save(file, X.to_dense(fill_value=0, dtype=X.dtype))
    else:
        write_tsv(X, path, replace=replace)


def write_labels(labels: np.ndarray, path: Path, *, replace: bool) -> None:
    """Write labels as .npy, or as text with one label per line."""
    if not path.name.lower().endswith(".npy"):
        write_columns({"label": labels}, path, replace=replace)
        return
    with whole_file(path, replace=replace) as file:
        np.save(file, labels)


def _found(path: Path, dtype: np.dtype) -> Any:
    """Return the features in a file; None for tab-separated text, which contains no shape."""
    name = path.name.lower()
    if os.path.isdir(path):  # noqa: PTH112 -- Path.is_dir() raises for names too long
        return open_features(path).matrix()
    require_no_table(path)
    if name.endswith(_MTX):
        return parse(read_unzipped(path), path)
    if name.endswith(_NUMPY):
        return read_numpy(path)
    if name.endswith(TSV) or not ("idx" in name or _begins_as_idx(path)):
        return None
    images = read_idx(path)
    is_bytes = images.dtype == np.uint8
    return np.multiply(images, dtype.type(1 / 255), dtype=dtype) if is_bytes else images


def _begins_as_idx(path: Path) -> bool:
    try:
        with open_checked(path) as file:
            return file.read(2) == b"\0\0"
    except GbdnnError:  # its reader raises the error
        return False


def _matrix(x: Any) -> gb.Matrix:
    """Return a NumPy or SciPy array as a Matrix of the same dtype; FP16 becomes FP32."""
    if x.dtype == np.float16:
        x = x.astype(np.float32)
    if isinstance(x, np.ndarray):
        return owned(gb.Matrix.ss.import_fullr, values=np.ascontiguousarray(x))
    return gb.io.from_scipy_sparse(x.tocoo(), dup_op=gb.binary.plus)


def _lines(path: Path, data: bytes) -> np.ndarray:
    *lines, rest = data.split(b"\n")
    if rest:
        raise FormatError(f"{path}: the file ends inside a line (no newline at its end)")
    for number, line in enumerate(lines, 1):
        if not _LABEL.fullmatch(line):
            text = line.decode(errors="replace")[:40]
            raise FormatError(f"{path}, line {number}: {text!r} is not a nonnegative integer")
    return np.array([int(line) for line in lines])
