"""Features and labels for a command, in the formats that data sets come in."""

from __future__ import annotations

import gzip
import io
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.errors import ArgumentError, FormatError, ShapeError
from gbdnn.io import open_features, read_idx, read_tsv
from gbdnn.io.frameworks.matrix_market_text import parse
from gbdnn.io.reading import foreign_errors, read_bytes, read_unzipped
from gbdnn.optional import require

if TYPE_CHECKING:
    from pathlib import Path

KINDS = "IDX, .npy, .npz, .mtx, tsv, or a store"

_MTX = (".mtx", ".mtx.gz")
_TSV = (".tsv", ".tsv.gz")
_NUMPY = (".npy", ".npz")


def read_features(
    path: Path, *, inputs: int | None = None, neurons: int | None = None, dtype: Any = None
) -> Any:
    """Return the features at `path`.

    Parameters
    ----------
    path : Path
        IDX images, whose bytes become 0 to 1, an input each; .npy, an array whose first dimension
        is that of the inputs; .npz, one such array or what `scipy.sparse.save_npz` wrote; .mtx,
        Matrix Market; .tsv, the challenge's; a folder, a store. All but a store may be gzip.
    inputs, neurons : int, optional
        tsv: its shape, which it does not store.
    dtype : {"FP32", "FP64"}, optional
        Of images and tsv (default: FP32).

    Returns
    -------
    ndarray, SciPy sparse matrix, graphblas Matrix or StoredFeatures
    """
    name, dtype = path.name.lower(), dtype or "FP32"
    if os.path.isdir(path):  # noqa: PTH112 -- Path.is_dir() raises for names too long
        return open_features(path)
    if name.endswith(_TSV):
        return read_tsv(path, nrows=inputs, ncols=neurons, dtype=dtype)
    if name.endswith(_MTX):
        return parse(read_unzipped(path), path)
    if name.endswith(_NUMPY):
        found = _numpy(path)
        return _rows(path, found) if isinstance(found, np.ndarray) else found
    found = read_idx(path)
    if found.dtype == np.uint8:
        kind = np.float64 if dtype == "FP64" else np.float32
        found = np.multiply(found, kind(1 / 255), dtype=kind)
    return _rows(path, found)


def read_labels(path: Path) -> np.ndarray:
    """Return whole numbers from IDX, .npy, .npz, or text with one in each line."""
    name = path.name.lower()
    if name.endswith(_NUMPY):
        found = _numpy(path)
    elif (data := read_unzipped(path)).startswith(b"\0\0"):
        found = read_idx(path)
    else:
        found = _lines(path, data)
    if not isinstance(found, np.ndarray) or found.ndim != 1:
        raise ShapeError(f"{path}: labels have one dimension, not shape {found.shape}")
    if found.dtype.kind not in "iu":
        raise FormatError(f"{path}: labels are whole numbers from 0, not {found.dtype.name}")
    return found


def knows(path: Path) -> bool:
    """Whether a file is known not to be tsv: by its name, or by IDX's first bytes."""
    if path.name.lower().endswith((*_MTX, *_NUMPY)):
        return True
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as file:
            return file.read(2) == b"\0\0"
    except (OSError, EOFError, ValueError):
        return False


def _rows(path: Path, found: np.ndarray) -> np.ndarray:
    if found.ndim < 2:
        raise ShapeError(f"{path}: features have two dimensions or more, not shape {found.shape}")
    return found.reshape(len(found), -1)


def _numpy(path: Path) -> Any:
    """Return an array, or a sparse matrix as it is in the file: its indices are not checked yet."""
    data = read_bytes(path)
    with foreign_errors(path, "not a file of NumPy arrays"):
        found = np.load(io.BytesIO(data), allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found
        with found:
            names = found.files
            if "format" in names and "shape" in names:
                why = ".npz of sparse matrices needs SciPy"
                return require("scipy.sparse", "files", why).load_npz(io.BytesIO(data))
            if len(names) == 1:
                return found[names[0]]
    raise ArgumentError(f"{path}: holds {len(names)} arrays ({', '.join(names)}), not one")


def _lines(path: Path, data: bytes) -> np.ndarray:
    found = []
    for number, line in enumerate(data.splitlines(), 1):
        try:
            found.append(int(line))
        except ValueError as err:
            text = line.decode(errors="replace")[:40]
            raise FormatError(
                f"{path}, line {number}: a label is a whole number from 0, not {text!r}"
            ) from err
    if not found:
        raise FormatError(f"{path}: the file is empty")
    return np.array(found)
