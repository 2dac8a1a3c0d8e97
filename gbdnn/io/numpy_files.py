"""NumPy files: arrays in .npy and .npz, SciPy's sparse matrices in .npz; never unpickled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.matrices import checked_scipy
from gbdnn.errors import FormatError
from gbdnn.io.challenge.table import MAX_INDEX
from gbdnn.io.reading import foreign_errors, open_checked
from gbdnn.runtime.optional import require

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_numpy"]


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
