"""NumPy files: arrays in .npy and .npz, SciPy's sparse matrices in .npz.

NumPy and SciPy read them without unpickling. In addition, the checks here refuse archives that
unpack to too many bytes, bytes after the last element, wrong checksums and indices of wrong dtypes.
"""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np

from gbdnn.arrays.matrices import checked_scipy
from gbdnn.errors import FormatError
from gbdnn.io.reading import open_checked, require_unpacked
from gbdnn.runtime.optional import require

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_numpy"]

_MAGIC, _ZIP = b"\x93NUMPY", b"PK"
_INDICES = ("indices", "indptr", "row", "col", "coords", "offsets")


def read_numpy(path: Path, limit: int | None = None) -> Any:
    """Return the array of a file, or the sparse matrix that `scipy.sparse.save_npz` wrote.

    The format, .npy or .npz, is detected by the first bytes. `limit` is the maximum number of bytes
    after decompression (default: see `most_unpacked`). Arrays have bool, integers or floats in
    native byte order.
    """
    fault = "not a file of NumPy arrays"
    with open_checked(path, limit, fault) as file:
        start = file.read(len(_MAGIC))
        file.seek(0)
        if start == _MAGIC:
            return _numbers(_array(file), "the array")
        if not start.startswith(_ZIP):
            found = f"begins with {start.hex(' ')}" if start else "is empty"
            raise FormatError(f"{path}: {fault}: it {found}")
        with zipfile.ZipFile(file) as archive:
            arrays = _arrays(archive)
        if {"format", "shape"} <= arrays.keys():
            # Row pointers take 8 bytes per row, even without entries.
            require_unpacked(path, 8 * int(arrays["shape"].max(initial=0)), limit)
            return _sparse(file, arrays)
        if len(arrays) != 1:
            raise FormatError(
                f"{path}: contains {len(arrays)} arrays ({', '.join(arrays) or 'none'}), not one"
            )
        return _numbers(next(iter(arrays.values())), "the array")


def _arrays(archive: zipfile.ZipFile) -> dict[str, np.ndarray]:
    members = archive.infolist()
    names = [each.filename.removesuffix(".npy") for each in members]
    if len(set(names)) < len(names):
        raise ValueError(f"duplicate names of arrays: {', '.join(names)}")
    found = {}
    for name, member in zip(names, members, strict=True):
        with archive.open(member) as stream:
            found[name] = _array(cast("BinaryIO", stream))
    return found


def _array(file: BinaryIO) -> np.ndarray:
    """Return the array in the rest of a file, which must contain nothing else."""
    found: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
    if file.read(1):  # reading to the end of a member compares its checksum
        raise ValueError(f"bytes after the last element: {found.nbytes} bytes of {found.dtype}")
    return found


def _numbers(x: np.ndarray, name: str) -> np.ndarray:
    if x.dtype.kind not in "biuf" or x.itemsize > 8:
        raise ValueError(
            f"{name} must contain real numbers of at most 64 bits, not values of dtype {x.dtype}"
        )
    if x.dtype == bool and x.view(np.uint8).max(initial=0) > 1:
        raise ValueError("a bool must be a byte of 0 or 1")
    return x.astype(x.dtype.newbyteorder("="), copy=False)


def _sparse(file: BinaryIO, arrays: dict[str, np.ndarray]) -> Any:
    """Return the sparse array read by SciPy, with all indices checked."""
    sparse = require("scipy.sparse", "files", "reading a sparse .npz needs SciPy")
    stored = arrays["data"].shape
    most = max(int(arrays["shape"].max(initial=0)), *stored, 0)
    for name in _INDICES:
        # SciPy casts them to 32-bit integers if the shape fits.
        x = arrays.pop(name, np.zeros(0, int))
        if x.dtype.kind not in "iu" or (x.size and max(-int(x.min()), int(x.max())) > most):
            raise ValueError(f"{name} must be integers within the shape, not {x.dtype} {x!r:.80}")
    arrays.clear()
    file.seek(0)
    A = sparse.load_npz(file)
    if A.ndim != 2 or A.data.shape != stored:
        raise ValueError(f"data has shape {stored}, but the matrix has {A.data.shape}")
    _numbers(A.data, "data")
    A = checked_scipy(A)
    return getattr(sparse, f"{A.format}_array")(A)
