"""Features, labels and categories in files and stores."""

from __future__ import annotations

import math
import os
from io import BytesIO
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from gbdnn.arrays.checks import (
    as_dtype,
    as_flag,
    as_path,
    finite,
    require_callable,
    require_exact,
    require_method,
    require_room,
    whole_number,
)
from gbdnn.arrays.matrices import as_features, as_held, as_matrix, dtype_of, is_matrix, is_vectors
from gbdnn.arrays.sources import is_source
from gbdnn.errors import ArgumentError, ArgumentTypeError, FormatError, ShapeError
from gbdnn.io.array_files import form_of_start, read_idx, read_numpy
from gbdnn.io.challenge.table import MAX_INDEX, Index, read_columns, write_columns
from gbdnn.io.challenge.tsv import read_tsv, write_tsv
from gbdnn.io.formats import CATEGORIES, FEATURES, LABELS, of_suffix, target
from gbdnn.io.frameworks.matrix_market import parse, write_entries
from gbdnn.io.frameworks.scipy import scipy_sparse
from gbdnn.io.reading import first_duplicate, read_unzipped, require_no_table
from gbdnn.io.store.features import open_features, write_batches
from gbdnn.io.writing import whole_file
from gbdnn.runtime.first_use import complete, gb
from gbdnn.runtime.ownership import owned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from numpy.typing import ArrayLike

    from gbdnn.arrays.matrices import MatrixLike

__all__ = [
    "KINDS", "read_categories", "read_features", "read_labels", "write_categories",
    "write_features", "write_labels",
]  # fmt: skip

KINDS = "IDX, .npy, .npz, .mtx, tsv, or a store"

_NUMPY = (".npy", ".npz")
_AT_ONCE = 1 << 16  # rows of a store


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
        their name or an IDX header contain images. Other files contain the challenge's lines
        ``row<TAB>column<TAB>value`` with 1-based indices. Text and IDX may be compressed with gzip.
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
        The file is damaged, truncated or in another format, or has duplicate entries.
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


def write_features(
    features: MatrixLike | Iterable[MatrixLike],
    path: str | os.PathLike[str],
    format: str | None = None,  # noqa: A002
    *,
    dtype: Any = None,
    replace: bool = False,
    progress: Callable[[int, int | None], object] | None = None,
) -> None:
    r"""Write features, or the activations of `infer`, to a store or a file.

    Parameters
    ----------
    features : matrix, or iterable of matrices of shape (inputs of the batch, neurons)
        As for `infer`; stored zeros are not written. Batches are written to a store one by one, in
        their order, so they need not fit into memory together.
    path : path-like
        A new file, or a new or empty folder for a store. A file is compressed with gzip if its name
        ends in ``.gz``.
    format : {"store", "tsv", "npy", "npz", "matrix-market"}, optional
        Default: from the suffix (``.tsv``, ``.tsv.gz``, ``.npy``, ``.npz``, ``.mtx``, ``.mtx.gz``),
        or a store. ``"npz"`` is that of `scipy.sparse.save_npz`. ``"tsv"`` does not contain the
        shape.
    dtype : {"FP32", "FP64"} or NumPy dtype, optional
        Default: that of the (first) matrix; FP32 for bool and for integers of at most 2**24.
    replace : bool, default False
        Whether to replace an existing store or file atomically; otherwise it raises an error.
    progress : callable, optional
        Called as ``progress(k, count)`` after each batch; count is None if it is not known.

    Raises
    ------
    ShapeError
        Batches differ in the number of columns.
    ArgumentError, ArgumentTypeError
        A value is not finite, a batch is not a matrix or differs in dtype from the first, there are
        no batches, or the format is not a store.
    OutputError, MissingPackageError
        As for `gbdnn.save`.

    Notes
    -----
    Text contains enough digits to be read with the same bits.

    Examples
    --------
    >>> import pathlib, tempfile, numpy as np, gbdnn
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> gbdnn.io.write_features(np.eye(2, 3), folder / "X.tsv")
    >>> (folder / "X.tsv").read_text()  # 1-based
    '1\t1\t1.0\n2\t2\t1.0\n'
    >>> batches = (np.eye(2, 3) for _ in range(5))  # made one by one
    >>> gbdnn.io.write_features(batches, folder / "X")
    >>> gbdnn.io.open_features(folder / "X").shape
    (10, 3)
    """
    path = as_path(path)
    form = target(path, format, FEATURES)
    kind = None if dtype is None else as_dtype(dtype)
    complete(features)
    features = features if is_source(features) else as_held(features, "features")
    batches = _batches(features)
    if form == "store":
        name, batches = ("features", [features]) if batches is None else ("batch {}", batches)
        write_batches(batches, path, dtype=kind, replace=replace, progress=progress, name=name)
        return
    require_callable(progress, "progress")
    if hasattr(features, "matrix"):
        features = features.matrix()
    elif batches is not None:
        raise ArgumentTypeError("batches can be written only to a store; pass one matrix")
    X = as_matrix(as_features(features, "features"), what="features", dtype=kind)
    if form == "tsv":
        write_tsv(X, path, replace=replace)
    else:
        with whole_file(path, replace=replace) as file:
            _write(X, form, file)
    if progress is not None:
        progress(1, 1)


def read_labels(path: str | os.PathLike[str]) -> np.ndarray:
    r"""Read labels: a nonnegative integer for each input.

    Parameters
    ----------
    path : path-like
        ``.npy`` or ``.npz`` with one array, IDX (detected by its header), or text with one number
        per line and no header. Text and IDX may be compressed with gzip.

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
        try:
            labels = np.loadtxt(BytesIO(data), np.int64, comments=None, ndmin=1)
        except ValueError as err:
            require_no_table(file)
            raise FormatError(f"{file}: not one integer per line: {err}") from err
    if not isinstance(labels, np.ndarray) or labels.ndim != 1:
        raise ShapeError(f"{file}: labels must have one dimension, not shape {labels.shape}")
    if fault := _fault(labels):
        raise FormatError(f"{file}: {fault}")
    return labels


def write_labels(
    labels: ArrayLike,
    path: str | os.PathLike[str],
    format: str | None = None,  # noqa: A002
    *,
    replace: bool = False,
) -> None:
    r"""Write labels: a nonnegative integer for each input, such as the answer of `argmax`.

    Parameters
    ----------
    labels : array_like of int, shape (inputs,)
    path : path-like
        A new file; compressed with gzip if its name ends in ``.gz``.
    format : {"tsv", "npy"}, optional
        Default: from the suffix (``.tsv``, ``.tsv.gz``, ``.csv``, ``.npy``). ``"tsv"`` is text with
        one label per line.
    replace : bool, default False
        Whether to replace an existing file atomically; otherwise it raises an error.

    Raises
    ------
    ShapeError, ArgumentError
        `labels` is not 1-D, or contains other values than nonnegative integers.
    OutputError, MissingPackageError
        The file cannot be written, or exists; polars (text) is not installed.

    Examples
    --------
    >>> import pathlib, tempfile, gbdnn
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "labels.csv"
    >>> gbdnn.io.write_labels([7, 0], file)
    >>> file.read_text()
    '7\n0\n'
    """
    path = as_path(path)
    form, y = target(path, format, LABELS), np.asarray(labels)
    if y.ndim != 1:
        raise ShapeError(f"labels must have one dimension, not shape {y.shape}")
    if fault := _fault(y):
        raise ArgumentError(fault)
    if form == "tsv":
        write_columns({"label": y}, path, replace=replace)
        return
    with whole_file(path, replace=replace) as file:
        np.save(file, y)


def read_categories(
    path: str | os.PathLike[str], *, inputs: int | None = None, allow_empty: bool = False
) -> np.ndarray:
    """Read categories: the ids of inputs with a nonzero activation.

    Parameters
    ----------
    path : path-like
        Text with one 1-based id per line, in any order, which may be compressed with gzip.
    inputs : int, optional
        Return only categories among the first `inputs` inputs. Default: all.
    allow_empty : bool, default False
        Whether an empty file is valid.

    Returns
    -------
    ndarray of int64
        0-based ids, sorted.

    Raises
    ------
    FormatError
        The file is invalid or contains duplicates; the message names file and line.
    MissingFileError, MissingPackageError
        The file does not exist; polars is not installed.

    Examples
    --------
    >>> import pathlib, tempfile, gbdnn
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "categories.tsv"
    >>> gbdnn.io.write_categories([7, 3], file)
    >>> gbdnn.io.read_categories(file)
    array([3, 7])
    """
    as_flag(allow_empty, "allow_empty")
    if inputs is not None:
        whole_number(inputs, "inputs", least=0)
    (rows,) = read_columns(path, [Index("category")], allow_empty=allow_empty)
    ids = np.sort(rows).astype(np.int64)
    if (ids[1:] == ids[:-1]).any():
        first, second = first_duplicate(rows)
        raise FormatError(
            f"{path}, line {second + 1}: duplicate input number {int(rows[second]) + 1};"
            f" the first is in line {first + 1}"
        )
    return ids if inputs is None else ids[ids < inputs]


def write_categories(
    categories: ArrayLike,
    path: str | os.PathLike[str],
    format: str | None = None,  # noqa: A002
    *,
    replace: bool = False,
) -> None:
    r"""Write categories: the ids of inputs with a nonzero activation.

    Parameters
    ----------
    categories : array_like of int, shape (n,)
        0-based ids without duplicates. An empty list gives an empty file.
    path : path-like
        A new file; compressed with gzip if its name ends in ``.gz``.
    format : {"tsv"}, optional
        Text with one 1-based id per line, sorted. Required if the name does not end in ``.tsv`` or
        ``.tsv.gz``.
    replace : bool, default False
        Whether to replace an existing file atomically; otherwise it raises an error.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        `categories` is not a 1-D list of integers, or an id is negative or a duplicate.
    OutputError, MissingPackageError
        The file cannot be written, or exists; polars is not installed.

    Examples
    --------
    >>> import pathlib, tempfile, gbdnn
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "categories.tsv"
    >>> gbdnn.io.write_categories([7, 3], file)
    >>> file.read_text()  # 1-based
    '4\n8\n'
    """
    path = as_path(path)
    target(path, format, CATEGORIES)
    write_columns({"category": _ids(categories) + 1}, path, replace=replace)


def _ids(categories: ArrayLike) -> np.ndarray:
    """Return categories as sorted int64."""
    complete(categories)
    try:
        ids = np.asarray(categories)
    except ValueError as err:
        raise ArgumentError(f"categories must be a list of ids: {err}") from err
    if ids.ndim != 1:
        raise ArgumentError(f"categories must have one dimension, not shape {ids.shape}")
    if ids.dtype.kind not in "iu" and ids.size:
        raise ArgumentTypeError(f"categories must be integers, not {ids.dtype}")
    ids = np.sort(ids)
    if ids.size and (ids[0] < 0 or ids[-1] >= MAX_INDEX):
        bad = ids[0] if ids[0] < 0 else ids[-1]
        raise ArgumentError(f"categories contain {bad}; ids must be from 0 to {MAX_INDEX - 1}")
    if (twice := ids[1:][ids[1:] == ids[:-1]]).size:
        raise ArgumentError(f"categories contain the duplicate {twice[0]}")
    return ids.astype(np.int64)


def _batches(features: Any) -> Any:
    """Return an iterable of matrices; None for one matrix, a Vector, or lists of numbers."""
    if hasattr(features, "batches"):  # stored features
        return features.batches(_AT_ONCE)
    if is_matrix(features) or is_vectors(features):
        return None
    if isinstance(features, list | tuple) and features:
        is_list = any(is_source(x) or getattr(as_held(x, ""), "ndim", 0) == 2 for x in features)
        return features if is_list else None
    require_method(features, "__iter__", "features must be a matrix, or a list of matrices")
    return features


def _write(X: gb.Matrix, form: str, file: BinaryIO) -> None:
    if form == "matrix-market":
        write_entries(file, gb.io.to_scipy_sparse(X, "coo").astype(np.float64), dtype_of(X))
    elif form == "npz":
        scipy_sparse().save_npz(file, gb.io.to_scipy_sparse(X, "csr"))
    else:
        require_room(X.nrows * X.ncols * dtype_of(X).itemsize, f"shape {X.shape}")
        np.save(file, X.to_dense(fill_value=0, dtype=X.dtype))


def _found(path: Path, dtype: np.dtype) -> Any:
    """Return the features in a file; None for tab-separated text, which contains no shape."""
    if os.path.isdir(path):  # noqa: PTH112 -- Path.is_dir() raises for names too long
        return open_features(path).matrix()
    require_no_table(path)
    form = of_suffix(path, FEATURES) or (
        "idx" if "idx" in path.name.lower() else form_of_start(path)
    )
    if form == "matrix-market":
        return parse(read_unzipped(path), path)
    if form in ("npy", "npz"):
        return read_numpy(path)
    if form != "idx":
        return None
    images = read_idx(path)
    is_bytes = images.dtype == np.uint8
    return np.multiply(images, dtype.type(1 / 255), dtype=dtype) if is_bytes else images


def _matrix(x: Any) -> gb.Matrix:
    """Return a NumPy or SciPy array as a Matrix of the same dtype; FP16 becomes FP32."""
    if x.dtype == np.float16:
        x = x.astype(np.float32)
    if isinstance(x, np.ndarray):
        return owned(gb.Matrix.ss.import_fullr, values=np.ascontiguousarray(x))
    return gb.io.from_scipy_sparse(x.tocoo(), dup_op=gb.binary.plus)


def _fault(labels: np.ndarray) -> str:
    """Return why an array does not contain labels, or an empty string."""
    if labels.dtype.kind not in "iu":
        return f"labels must be integers, not {labels.dtype.name}"
    least = labels.min(initial=0)
    return f"labels must not be negative, as {least}" if least < 0 else ""
