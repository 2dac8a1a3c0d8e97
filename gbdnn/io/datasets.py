"""Features and labels, in the formats that data sets come in."""

from __future__ import annotations

import math
import os
import re
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.checks import as_dtype, as_path, whole_number
from gbdnn.errors import FormatError, ShapeError
from gbdnn.io.challenge.tsv import read_tsv
from gbdnn.io.frameworks.matrix_market import parse
from gbdnn.io.numpy_files import read_numpy
from gbdnn.io.reading import WRONG, as_limit, foreign_errors, open_checked, read_unzipped
from gbdnn.io.store import StoredFeatures, open_features
from gbdnn.runtime.first_use import gb

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["KINDS", "TSV", "read_features", "read_idx", "read_labels", "tells_shape"]

KINDS = "IDX, .npy, .npz, .mtx, tsv, or a store"

_MTX = (".mtx", ".mtx.gz")
TSV = (".tsv", ".tsv.gz")
_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}  # of IDX
_NUMPY = (".npy", ".npz")
_LABEL = re.compile(rb"[ \t]*\+?[0-9]{1,18}[ \t]*\r?")


def read_features(
    path: str | os.PathLike[str],
    *,
    nrows: int | None = None,
    ncols: int | None = None,
    dtype: Any = None,
    unpacked_limit: int | None = None,
) -> gb.Matrix:
    """Read features from a file or a store, of any format that data sets come in.

    Parameters
    ----------
    path : path-like
        Told by its name: ``.npy``, an array whose first dimension is that of the inputs; ``.npz``,
        one such array, or what `scipy.sparse.save_npz` wrote; ``.mtx``, Matrix Market. A folder is
        a store. Files that begin like IDX, or have ``idx`` in their name, are images, an input
        each; all others the challenge's tab-separated lines. Text and IDX may be gzip.
    nrows, ncols : int, optional
        The shape. Tab-separated files do not tell it (default: the largest index); of others it is
        compared with what they tell.
    dtype : {"FP32", "FP64"} or NumPy dtype, default "FP32"
        What tab-separated values, and the bytes of images, become; others stay what they are.
    unpacked_limit : int, optional
        Largest number of bytes that a compressed file may unpack to, the row pointers of a sparse
        ``.npz`` included. Default: 64 MiB, or 100 times the size of the file if that is more.

    Returns
    -------
    graphblas.Matrix, shape (inputs, neurons)
        Arrays and images are full, all others sparse. Images' bytes are divided by 255, and
        dimensions behind the first become one. `open_features` opens a store that is larger than
        memory.

    Raises
    ------
    MissingFileError, MissingPackageError
        There is no such file; polars (text), SciPy (sparse matrices) or safetensors (stores) is not
        installed.
    FormatError
        A file is damaged, cut off, or does not hold what its name promises; or it unpacks to more
        than `unpacked_limit`.
    ShapeError
        An array of fewer than two dimensions, or of another shape than `nrows` and `ncols`.
    TooLargeError
        There is no memory for what the file tells.

    Examples
    --------
    >>> import pathlib, tempfile, numpy as np, gbdnn
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "X.npy"
    >>> np.save(file, np.ones((2, 28, 28)))
    >>> gbdnn.io.read_features(file, ncols=784).shape
    (2, 784)
    """
    file, limit = as_path(path), as_limit(unpacked_limit)
    kind = as_dtype("FP32" if dtype is None else dtype)
    wanted = [
        None if n is None else whole_number(n, what, least=0)
        for n, what in ((nrows, "nrows"), (ncols, "ncols"))
    ]
    if not tells_shape(file):
        return read_tsv(file, nrows=nrows, ncols=ncols, dtype=kind, unpacked_limit=limit)
    found = _found(file, kind, limit)
    if isinstance(found, StoredFeatures):
        found = found.matrix()
    for n, want, name in zip(found.shape, wanted, ("rows", "columns"), strict=True):
        if want not in (None, n):
            raise ShapeError(f"{file}: {found.shape[0]} x {found.shape[1]}, not {want} {name}")
    return found if isinstance(found, gb.Matrix) else _matrix(found)


def read_labels(path: str | os.PathLike[str], *, unpacked_limit: int | None = None) -> np.ndarray:
    r"""Read labels: a whole number from 0 for each input.

    Parameters
    ----------
    path : path-like
        ``.npy`` or ``.npz`` with one array, told by the name; IDX, told by its first bytes; else
        text with a number in each line, the last one too ending in LF or CR LF. Text and IDX may be
        gzip.
    unpacked_limit : int, optional
        As for `read_features`.

    Returns
    -------
    ndarray of int or uint, shape (inputs,)

    Raises
    ------
    MissingFileError
        There is no such file.
    FormatError
        The file is damaged, or its values are not whole numbers from 0; of text, with the line.
    ShapeError
        Not one dimension.

    Examples
    --------
    >>> import pathlib, tempfile, gbdnn
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "labels.txt"
    >>> _ = file.write_text("7\n0\n")
    >>> gbdnn.io.read_labels(file).tolist()
    [7, 0]
    """
    file, limit = as_path(path), as_limit(unpacked_limit)
    if file.name.lower().endswith(_NUMPY):
        found = read_numpy(file, limit)
    elif (data := read_unzipped(file, limit)).startswith(b"\0\0"):
        found = read_idx(file, unpacked_limit=limit)
    else:
        found = _lines(file, data)
    if not isinstance(found, np.ndarray) or found.ndim != 1:
        raise ShapeError(f"{file}: labels have shape {found.shape}; one dimension is needed")
    if found.dtype.kind not in "iu":
        raise FormatError(f"{file}: labels have dtype {found.dtype.name}; integers are needed")
    if len(found) and found.min() < 0:
        raise FormatError(f"{file}: label {found.min()} is negative")
    return found


def read_idx(path: str | os.PathLike[str], *, unpacked_limit: int | None = None) -> np.ndarray:
    """Read an array from an IDX file, the format of the MNIST files.

    Parameters
    ----------
    path : path-like
        Plain or gzip, detected by its first bytes.
    unpacked_limit : int, optional
        Largest number of bytes that gzip may unpack to; default: 64 MiB, or 100 times the size of
        the file if that is more.

    Returns
    -------
    ndarray
        In native byte order; uint8, int8, int16, int32, float32 or float64.

    Raises
    ------
    MissingFileError, ReadError
        There is no such file, or it cannot be read.
    FormatError
        The file is not IDX, is truncated, has bytes after the last element, or unpacks to more than
        `unpacked_limit`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import gbdnn
    >>> file = Path(tempfile.mkdtemp()) / "labels-idx1-ubyte"
    >>> _ = file.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 5, 0, 4]))  # three of uint8
    >>> gbdnn.io.read_idx(file)
    array([5, 0, 4], dtype=uint8)
    """
    # Two zero bytes, one for the type, one for the rank; the sizes; the elements, all big-endian.
    file = as_path(path)
    data = read_unzipped(file, as_limit(unpacked_limit))
    if data[:2] != b"\0\0" or len(data) < 4 or data[2] not in _TYPES:
        begin = f"begins with {data[:4].hex(' ')}" if data else "is empty"
        raise FormatError(f"{file}: not an IDX file; the file {begin}")
    dtype, rank = np.dtype(_TYPES[data[2]]), data[3]
    start = 4 + 4 * rank
    if len(data) < start:
        raise FormatError(f"{file}: the file is truncated in its header")
    shape = struct.unpack(f">{rank}I", data[4:start])
    expected, found = math.prod(shape) * dtype.itemsize, len(data) - start
    if found != expected:
        fault = "is truncated" if found < expected else "has bytes after the last element"
        raise FormatError(
            f"{file}: the file {fault}; shape {shape} of {dtype.name} takes {expected} bytes,"
            f" found {found}"
        )
    with foreign_errors(file, f"cannot make an array of shape {shape}"):
        array = np.frombuffer(data, dtype, offset=start).reshape(shape)
    return array.astype(dtype.newbyteorder("="))


def tells_shape(path: Path) -> bool:
    """Whether features are in a format that has their shape: whether they are not tab-separated."""
    name = path.name.lower()
    if _is_store(path):
        return True
    if name.endswith(TSV):
        return False
    if name.endswith((*_MTX, *_NUMPY)) or "idx" in name:
        return True
    try:
        with open_checked(path) as file:
            return file.read(2) == b"\0\0"
    except WRONG:  # its reader tells
        return False


def _found(path: Path, dtype: np.dtype, limit: int | None) -> Any:
    name = path.name.lower()
    if _is_store(path):
        return open_features(path)
    if name.endswith(_MTX):
        return parse(read_unzipped(path, limit), path)
    if name.endswith(_NUMPY):
        found = read_numpy(path, limit)
        return _rows(path, found) if isinstance(found, np.ndarray) else found
    found = read_idx(path, unpacked_limit=limit)
    if found.dtype == np.uint8:
        found = np.multiply(found, dtype.type(1 / 255), dtype=dtype)
    return _rows(path, found)


def _matrix(found: Any) -> gb.Matrix:
    """Return an array, or a SciPy array, as a Matrix of the same dtype, half precision as FP32."""
    dtype = found.dtype.newbyteorder("=") if found.dtype != np.float16 else np.dtype("float32")
    found = found.astype(dtype, copy=False)
    if isinstance(found, np.ndarray):
        return gb.Matrix.ss.import_fullr(np.ascontiguousarray(found), take_ownership=True)
    if found.format == "coo":  # there may be far more rows than entries
        return gb.Matrix.from_coo(
            *found.coords,
            found.data,
            nrows=found.shape[0],
            ncols=found.shape[1],
            dup_op=gb.binary.plus,
        )
    found = found.tocsr()
    found.sum_duplicates()
    return gb.io.from_scipy_sparse(found)


def _is_store(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 -- Path.is_dir() raises for names too long


def _rows(path: Path, found: np.ndarray) -> np.ndarray:
    if found.ndim < 2:
        raise ShapeError(f"{path}: features have shape {found.shape}; two dimensions are needed")
    return found.reshape(len(found), math.prod(found.shape[1:]))


def _lines(path: Path, data: bytes) -> np.ndarray:
    *lines, rest = data.split(b"\n")
    if rest or not lines:
        fault = "ends inside a line (no newline at its end)" if rest else "is empty"
        raise FormatError(f"{path}: the file {fault}")
    for number, line in enumerate(lines, 1):
        if not _LABEL.fullmatch(line):
            text = line.decode(errors="replace")[:40]
            raise FormatError(f"{path}, line {number}: {text!r} is not a whole number")
    return np.array([int(line) for line in lines])
