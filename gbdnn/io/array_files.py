"""Arrays in NumPy's files, never unpickled, in SciPy's .npz, and in IDX files."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.matrices import checked_scipy
from gbdnn.errors import FormatError, GbdnnError
from gbdnn.io.challenge.table import MAX_INDEX
from gbdnn.io.reading import foreign_errors, open_checked, read_unzipped
from gbdnn.runtime.optional import require

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["form_of_start", "read_idx", "read_numpy"]

_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}  # of IDX


def read_numpy(path: Path) -> Any:
    """Return the array of a file, or the sparse matrix that `scipy.sparse.save_npz` wrote.

    The format, .npy or .npz, is detected by the first bytes. Values are bool, integers or floats in
    native byte order.
    """
    fault = "not a file of NumPy arrays"
    with open_checked(path) as file:
        if not file.read(6).startswith((b"\x93NUMPY", b"PK")):  # NumPy would advise unpickling
            raise FormatError(f"{path}: {fault}")
        file.seek(0)
        with foreign_errors(path, fault):
            content = np.load(file, allow_pickle=False)
            arrays = {"array": content} if isinstance(content, np.ndarray) else dict(content)
        if isinstance(content, np.ndarray) and file.read(1):
            raise FormatError(f"{path}: the file has bytes after the array, such as another array")
        if {"format", "shape"} <= arrays.keys():
            sparse = require("scipy.sparse", "files", "reading a sparse .npz needs SciPy")
            file.seek(0)
            with foreign_errors(path, fault):
                A = checked_scipy(sparse.load_npz(file))
            if max(A.shape) > MAX_INDEX:
                raise FormatError(f"{path}: shape {A.shape} exceeds the maximum of {MAX_INDEX}")
            return _numbers(A, path)
        if len(arrays) != 1:
            raise FormatError(
                f"{path}: contains {len(arrays)} arrays ({', '.join(arrays) or 'none'}), not one"
            )
        (x,) = arrays.values()
        return _numbers(np.asarray(x), path)


def _numbers(x: Any, path: Path) -> Any:
    if x.dtype.kind not in "biuf" or x.dtype.itemsize > 8:
        raise FormatError(
            f"{path}: must contain real numbers of at most 64 bits, not values of dtype {x.dtype}"
        )
    return x.astype(x.dtype.newbyteorder("="), copy=False)


def read_idx(path: Path) -> np.ndarray:
    """Return the array of an IDX file, the format of the MNIST files, in native byte order."""
    # Two zero bytes, one for the type, one for the rank; the sizes; the elements, all big-endian.
    data = read_unzipped(path)
    if data[:2] != b"\0\0" or len(data) < 4 or data[2] not in _TYPES:
        raise FormatError(f"{path}: not an IDX file: it begins with {data[:4].hex(' ')}")
    dtype, rank = np.dtype(_TYPES[data[2]]), data[3]
    start = 4 + 4 * rank
    if len(data) < start:
        raise FormatError(f"{path}: the file is truncated in its header")
    shape = struct.unpack(f">{rank}I", data[4:start])
    expected, nbytes = math.prod(shape) * dtype.itemsize, len(data) - start
    if nbytes != expected:
        fault = "is truncated" if nbytes < expected else "has bytes after the last element"
        raise FormatError(
            f"{path}: the file {fault}; shape {shape} of {dtype.name} takes {expected} bytes,"
            f" found {nbytes}"
        )
    with foreign_errors(path, f"cannot make an array of shape {shape}"):
        array = np.frombuffer(data, dtype, offset=start).reshape(shape)
    return array.astype(dtype.newbyteorder("="))


def form_of_start(path: Path) -> str:
    """Return the format of a file, "idx", "npy" or "npz", by its first bytes; "" for others."""
    try:
        with open_checked(path) as file:
            start = file.read(6)
    except GbdnnError:  # its reader raises the error
        return ""
    known = {b"\0\0": "idx", b"\x93NUMPY": "npy", b"PK": "npz"}
    return next((form for mark, form in known.items() if start.startswith(mark)), "")
