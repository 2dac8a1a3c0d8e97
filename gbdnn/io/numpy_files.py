"""NumPy's files: an array in .npy, arrays by name in .npz; SciPy's sparse matrices in .npz.

.npy: the magic bytes, a version, the length of a header; the header, a Python literal with dtype,
order and shape; the elements. .npz: a zip archive of these. What follows a header has the size
that it tells, or the file is refused; no object is ever unpickled.

NEP 1, "A simple file format for NumPy arrays"; `numpy.lib.format`.
"""

from __future__ import annotations

import ast
import math
import os
import re
import zipfile
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np

from gbdnn.arrays.scipy_arrays import checked_scipy
from gbdnn.errors import FormatError
from gbdnn.io.reading import foreign_errors, most_unpacked, open_regular
from gbdnn.optional import require

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_numpy"]

_MAGIC, _ZIP = b"\x93NUMPY", b"PK"
_DTYPE = re.compile(r"([<>|=]?)([biufS])([0-9]{1,9})")
_LONGEST = 10_000  # bytes of a header, as in NumPy
_SPARSE = {
    "csr": ("data", "indices", "indptr"),
    "csc": ("data", "indices", "indptr"),
    "bsr": ("data", "indices", "indptr"),
    "coo": ("data", "row", "col"),
    "dia": ("data", "offsets"),
}


def read_numpy(path: Path, limit: int | None = None) -> Any:
    """Return the array of a file, or the sparse matrix that `scipy.sparse.save_npz` wrote.

    Parameters
    ----------
    path : Path
        Told to be .npy or .npz by its first bytes, not its name.
    limit : int, optional
        The most bytes that an archive may unpack to; default: see `most_unpacked`.

    Returns
    -------
    ndarray of bool, whole or real numbers, in native byte order; or a SciPy sparse array

    Raises
    ------
    FormatError, TooLargeError, MissingFileError, MissingPackageError
        The file is damaged, or holds something else; SciPy is not installed.
    """
    fault = "not a file of NumPy arrays"
    with open_regular(path) as file, foreign_errors(path, fault):
        start = file.peek(len(_MAGIC))[: len(_MAGIC)]  # type: ignore[attr-defined]
        if start == _MAGIC:
            return _numbers(_from_file(file), "the array")
        if not start.startswith(_ZIP):
            found = start.hex(" ") or "nothing: the file is empty"
            raise FormatError(f"{path}: {fault}: it begins with {found}")
        with zipfile.ZipFile(file) as archive:
            arrays = _from_archive(archive, os.fstat(file.fileno()).st_size, limit, path)
        if {"format", "shape"} <= arrays.keys():
            return _sparse(arrays)
        if len(arrays) != 1:
            raise FormatError(
                f"{path}: holds {len(arrays)} arrays ({', '.join(arrays) or 'none'}), not one"
            )
        return _numbers(next(iter(arrays.values())), "the array")


def _from_file(file: BinaryIO) -> np.ndarray:
    dtype, order, shape = _header(file)
    expected = math.prod(shape) * dtype.itemsize
    found = os.fstat(file.fileno()).st_size - file.tell()
    _require_bytes(shape, dtype, expected, found)
    return _shaped(np.fromfile(file, dtype, math.prod(shape)), order, shape)


def _from_archive(
    archive: zipfile.ZipFile, size: int, limit: int | None, path: Path
) -> dict[str, np.ndarray]:
    members = archive.infolist()
    names = [each.filename.removesuffix(".npy") for each in members]
    if len(set(names)) < len(names):
        raise ValueError(f"two arrays of one name: {', '.join(names)}")
    most, needed = most_unpacked(size, limit), sum(each.file_size for each in members)
    if needed > most:
        raise FormatError(
            f"{path}: {size} bytes of zip unpack to {needed}, more than {most}; if the file is what"
            " it should be, raise unpacked_limit=, or save it with numpy.savez"
        )
    found = {}
    for name, member in zip(names, members, strict=True):
        with archive.open(member) as stream:
            file = cast("BinaryIO", stream)
            dtype, order, shape = _header(file)
            expected = math.prod(shape) * dtype.itemsize
            data = file.read(min(expected, member.file_size))
            more = len(file.read())  # to the end: the checksum is compared there
            _require_bytes(shape, dtype, expected, len(data) + more)
            # A copy, which may be written to.
            found[name] = _shaped(np.frombuffer(data, dtype).copy(), order, shape)
    return found


def _header(file: BinaryIO) -> tuple[np.dtype, str, tuple[int, ...]]:
    """Return dtype, order and shape; the elements come next in the file."""
    start = file.read(8)
    if len(start) < 8 or start[:6] != _MAGIC or start[6:] not in (b"\1\0", b"\2\0", b"\3\0"):
        raise ValueError(f"the magic bytes and the version are {start.hex(' ') or 'missing'}")
    width = 2 if start[6] == 1 else 4
    length = file.read(width)
    size = int.from_bytes(length, "little")
    if len(length) < width or size > _LONGEST:
        raise ValueError(f"a header of {size} bytes")
    text = file.read(size)
    if len(text) < size or not text.endswith(b"\n"):
        raise ValueError("the header is cut off")
    known = ast.literal_eval(text.decode("utf-8" if start[6] == 3 else "latin-1").strip())
    if not isinstance(known, dict) or set(known) != {"descr", "fortran_order", "shape"}:
        raise ValueError(f"the header is not descr, fortran_order and shape: {known!r:.80}")
    descr, fortran, shape = (known[name] for name in ("descr", "fortran_order", "shape"))
    if not isinstance(descr, str) or not _DTYPE.fullmatch(descr):
        raise ValueError(f"real numbers are needed, not values of dtype {descr!r:.80}")
    if not isinstance(fortran, bool):
        raise ValueError(f"fortran_order is {fortran!r:.80}")
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"shape is {shape!r:.80}")
    return np.dtype(descr), "F" if fortran else "C", shape


def _require_bytes(shape: tuple[int, ...], dtype: np.dtype, expected: int, found: int) -> None:
    if found != expected:
        sizes = " x ".join(map(str, shape)) or "1"
        fault = "cut off" if found < expected else "bytes after the last element"
        raise ValueError(
            f"{fault}: {sizes} elements of {dtype} take {expected} bytes, found {found}"
        )


def _shaped(values: np.ndarray, order: Any, shape: tuple[int, ...]) -> np.ndarray:
    if values.dtype == bool and values.view(np.uint8).max(initial=0) > 1:
        raise ValueError("a bool is a byte of 0 or 1")
    found: np.ndarray = values.reshape(shape, order=order)
    return found.astype(found.dtype.newbyteorder("="), copy=False)


def _numbers(x: np.ndarray, name: str) -> np.ndarray:
    if x.dtype.kind not in "biuf" or x.itemsize > 8:
        raise ValueError(
            f"{name}: real numbers of at most 64 bits are needed, not values of dtype {x.dtype}"
        )
    return x


def _sparse(arrays: dict[str, np.ndarray]) -> Any:
    """Return the sparse array that arrays by name describe, every index of it checked."""
    kind = arrays["format"].item()
    kind = kind.decode("ascii") if isinstance(kind, bytes) else kind
    fields = _SPARSE.get(kind) if isinstance(kind, str) else None
    if fields is None:
        raise ValueError(f"a sparse matrix of format {kind!r}; {', '.join(_SPARSE)} are read")
    if missing := [name for name in fields if name not in arrays]:
        raise ValueError(f"a sparse matrix of format {kind} without {', '.join(missing)}")
    shape = arrays["shape"]
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or (shape < 0).any():
        raise ValueError(f"the shape of a sparse matrix is {shape.tolist()!r:.80}")
    n, m = (int(size) for size in shape)
    data, *indices = (arrays[name] for name in fields)
    for name, each in zip(fields[1:], indices, strict=True):
        _require_places(each, name)
    return _assembled(kind, _numbers(data, "data"), indices, (n, m))


def _require_places(x: np.ndarray, name: str) -> None:
    if x.dtype.kind not in "iu" or x.ndim != 1:
        raise ValueError(f"{name} is a 1-D array of integers, not {x.ndim}-D of {x.dtype}")


def _assembled(
    kind: str, data: np.ndarray, indices: list[np.ndarray], shape: tuple[int, int]
) -> Any:
    sparse = require("scipy.sparse", "files", ".npz of sparse matrices needs SciPy")
    make = getattr(sparse, f"{kind}_array")
    if kind == "coo":
        return checked_scipy(make((data, tuple(indices)), shape=shape))
    if kind == "dia":
        (offsets,) = indices
        # Offsets are cast to 32 bits by SciPy.
        if len(offsets) and not -shape[0] < offsets.min() <= offsets.max() < shape[1]:
            raise ValueError(f"offsets {offsets.tolist()!r:.80} of {shape[0]} x {shape[1]}")
        return checked_scipy(make((data, offsets), shape=shape))
    places, pointers = indices
    # SciPy's constructor drops what is behind the last pointer.
    if not len(pointers) or pointers[-1] != len(places) or len(data) != len(places):
        raise ValueError(
            f"indptr ends at {pointers[-1:].tolist()}, with {len(places)} indices and data of shape"
            f" {data.shape}"
        )
    return checked_scipy(make((data, places, pointers), shape=shape))
