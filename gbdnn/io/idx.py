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
from gbdnn.io.reading import UnzippedFile

if TYPE_CHECKING:
    import os

_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: str | os.PathLike[str]) -> np.ndarray:
    """Read one array from an IDX file.

    Parameters
    ----------
    path : path-like
        Plain or gzip (told by its first bytes, not its name).

    Returns
    -------
    ndarray
        In native byte order; uint8, int8, int16, int32, float32 or float64.

    Raises
    ------
    MissingFileError
        There is no such file.
    ReadError
        The system does not let it be read.
    FormatError
        The file is a folder, is empty, is not IDX, is cut off, or has bytes after its last element.

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
    with UnzippedFile(file) as stream:
        start = stream.read(4)
        if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in _TYPES:
            known = ", ".join(f"{code:02x}" for code in _TYPES)
            raise FormatError(
                f"{file}: not an IDX file: expected the bytes 00 00, a type ({known}) and a rank, "
                f"found {start.hex(' ') or 'nothing: the file is empty'}"
            )
        dtype, rank = np.dtype(_TYPES[start[2]]), start[3]
        header = stream.read(4 * rank)
        if len(header) < 4 * rank:
            raise FormatError(
                f"{file}: cut off: a header of rank {rank} takes {4 + 4 * rank} bytes, found"
                f" {4 + len(header)}"
            )
        shape = struct.unpack(f">{rank}I", header)
        expected = math.prod(shape) * dtype.itemsize
        data = stream.read(expected)  # no more, whatever a gzip stream unpacks to
        more = stream.read(1)
    if more or len(data) != expected:
        fault = "bytes after the last element" if more else "cut off"
        sizes = " x ".join(map(str, shape)) or "1"
        found = "more" if stream.is_compressed else stream.size - 4 - 4 * rank
        raise FormatError(
            f"{file}: {fault}: {sizes} elements of {dtype.name} take {expected} bytes, "
            f"found {found if more else len(data)}"
        )
    try:
        array = np.frombuffer(data, dtype).reshape(shape)
    except ValueError as err:
        raise FormatError(f"{file}: NumPy has no array of shape {shape}: {err}") from err
    return array.astype(dtype.newbyteorder("="))
