"""IDX, the format of the MNIST files: an array of any rank, plain or gzip.

Two zero bytes, one byte for the type, one for the rank; then the sizes, each a big-endian
32-bit integer; then the elements, big-endian, in row-major order.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

import numpy as np

from gbdnn.arrays.checks import as_path
from gbdnn.errors import FormatError
from gbdnn.io.reading import as_limit, foreign_errors, read_unzipped

if TYPE_CHECKING:
    import os

_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: str | os.PathLike[str], *, unpacked_limit: int | None = None) -> np.ndarray:
    """Read an array from an IDX file.

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
