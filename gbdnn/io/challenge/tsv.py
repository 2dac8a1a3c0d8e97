"""The Graph Challenge's files: matrices and categories as tab-separated text.

Matrices have one line ``row<TAB>column<TAB>value`` per entry, in any order, without a shape.
Categories have one row number per line. Indices are 1-based in files, 0-based in Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gbdnn.arrays.checks import as_dtype, as_flag, as_word, finite, whole_number
from gbdnn.errors import ArgumentError, ArgumentTypeError, FormatError, require_kind
from gbdnn.io.challenge.table import MAX_INDEX, Index, read_columns, write_columns
from gbdnn.io.reading import first_duplicate
from gbdnn.runtime.first_use import complete, gb

if TYPE_CHECKING:
    import os

    from numpy.typing import ArrayLike


_FORMATS = {"rowwise": "by_row", "columnwise": "by_col"}


def read_tsv(
    path: str | os.PathLike[str],
    *,
    nrows: int | None = None,
    ncols: int | None = None,
    dtype: Any = "FP32",
    orientation: Literal["rowwise", "columnwise"] = "rowwise",
) -> gb.Matrix:
    r"""Read a matrix from the challenge's tab-separated format.

    Parameters
    ----------
    path : path-like
        Lines ``row<TAB>column<TAB>value`` with 1-based indices, all ending in LF or CR LF. Plain or
        compressed with gzip.
    nrows, ncols : int, optional
        Shape of the result. Default: the largest indices.
    dtype : {"FP32", "FP64"}, default "FP32"
        Of the result.
    orientation : {"rowwise", "columnwise"}, default "rowwise"
        Rowwise (CSR) for features, columnwise (CSC) for weights.

    Returns
    -------
    Matrix, shape (nrows, ncols)
        Without the zeros in the file, which count for the shape; iso if all values are equal.

    Raises
    ------
    FormatError
        The file is empty, truncated, has invalid lines, indices, values or duplicate entries, or
        unpacks to more than 64 MiB and to more than 100 times its size. The message names file and
        line.
    MissingFileError, MissingPackageError
        The file does not exist; polars is not installed.

    Examples
    --------
    >>> import tempfile, pathlib, gbdnn
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "weights.tsv"
    >>> _ = file.write_text("1\t2\t0.0625\n3\t1\t0.0625\n")
    >>> W = gbdnn.io.read_tsv(file, ncols=4)
    >>> W.shape, W.nvals
    ((3, 4), 2)
    """
    as_word(orientation, "orientation", _FORMATS)
    row, column = _index("row", nrows, "nrows"), _index("column", ncols, "ncols")
    rows, cols, values = read_columns(path, [row, column], as_dtype(dtype))
    shape = (
        int(rows.max()) + 1 if nrows is None else row.largest,
        int(cols.max()) + 1 if ncols is None else column.largest,
    )
    A = _build(rows, cols, values, shape, orientation)
    if A.nvals < rows.size:
        first, second = first_duplicate(rows, cols)
        raise FormatError(
            f"{path}, line {second + 1}: duplicate entry in row {int(rows[second]) + 1},"
            f" column {int(cols[second]) + 1}; the first is in line {first + 1}"
        )
    stored = values != 0
    if not stored.all():
        A = _build(rows[stored], cols[stored], values[stored], shape, orientation)
    return A


def write_tsv(matrix: gb.Matrix, path: str | os.PathLike[str], *, replace: bool = False) -> None:
    r"""Write a matrix in the challenge's tab-separated format, sorted by row, then column.

    Parameters
    ----------
    matrix : Matrix
        With real, finite values. Stored zeros are not written; without other entries, the file is
        the line ``nrows<TAB>ncols<TAB>0``.
    path : path-like
        Written atomically; compressed with gzip if the name ends in ``.gz``.
    replace : bool, default False
        Whether to replace an existing file; otherwise it raises an error.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        A value is not real or not finite, or the matrix has no rows or no columns.
    OutputError, MissingPackageError
        The file cannot be written, or exists; polars is not installed.

    Notes
    -----
    Values are written with enough digits to be read with the same bits.

    Examples
    --------
    >>> import pathlib, tempfile, graphblas as gb, gbdnn
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "weights.tsv"
    >>> gbdnn.io.write_tsv(gb.Matrix.from_coo([0, 2], [1, 0], 0.0625), file)
    >>> file.read_text()  # 1-based
    '1\t2\t0.0625\n3\t1\t0.0625\n'
    """
    require_kind(matrix, gb.Matrix, "matrix must be a graphblas.Matrix")
    complete(matrix)
    if matrix.dtype.np_type.kind not in "biuf":
        raise ArgumentTypeError(
            f"matrix must contain real numbers, not values of dtype {matrix.dtype}"
        )
    if 0 in matrix.shape:
        raise ArgumentError(
            f"matrix must have at least one row and one column, not shape {matrix.shape}"
        )
    A = gb.select.valuene(matrix, matrix.dtype.np_type.type(0)).new()
    A.ss.config["format"] = "by_row"
    rows, cols, values = A.to_coo()
    if values.dtype.kind == "f":
        finite(values, None, "matrix", copy=False, place=lambda k: (rows[k], cols[k]))
    if values.dtype == bool:
        values = values.astype(np.uint8)
    if values.size == 0:
        last = [np.array([n - 1], np.uint64) for n in matrix.shape]
        rows, cols, values = last[0], last[1], np.zeros(1, np.uint8)
    one = np.uint64(1)
    write_columns({"row": rows + one, "column": cols + one, "value": values}, path, replace=replace)


def read_categories(
    path: str | os.PathLike[str], *, ninputs: int | None = None, allow_empty: bool = False
) -> np.ndarray:
    """Read categories: one 1-based id of an input per line.

    Parameters
    ----------
    path : path-like
        Plain or compressed with gzip, in any order.
    ninputs : int, optional
        Return only categories among the first `ninputs` inputs. Default: all.
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
    if ninputs is not None:
        whole_number(ninputs, "ninputs", least=0)
    (rows,) = read_columns(path, [Index("category")], allow_empty=allow_empty)
    order = np.argsort(rows, kind="stable")
    ids = rows[order].astype(np.int64)
    if (ids[1:] == ids[:-1]).any():
        first, second = first_duplicate(rows)
        raise FormatError(
            f"{path}, line {second + 1}: duplicate input number {int(rows[second]) + 1};"
            f" the first is in line {first + 1}"
        )
    return ids if ninputs is None else ids[ids < ninputs]


def write_categories(
    rows: ArrayLike, path: str | os.PathLike[str], *, replace: bool = False
) -> None:
    r"""Write categories, one 1-based id per line, sorted.

    Parameters
    ----------
    rows : array_like of int, shape (n,)
        0-based ids without duplicates. An empty list gives an empty file.
    path : path-like
        Written atomically; compressed with gzip if the name ends in ``.gz``.
    replace : bool, default False
        Whether to replace an existing file; otherwise it raises an error.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        `rows` is not a 1-D list of integers, or an id is negative or a duplicate.
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
    complete(rows)
    try:
        ids = np.asarray(rows)
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
    write_columns({"category": ids.astype(np.int64) + 1}, path, replace=replace)


def _index(name: str, count: int | None, what: str) -> Index:
    if count is None:
        return Index(name)
    largest = whole_number(count, what, least=1, most=MAX_INDEX)
    return Index(name, largest, f"the number of {name}s")


def _build(
    rows: np.ndarray,
    cols: np.ndarray,
    values: np.ndarray,
    shape: tuple[int, int],
    orientation: Literal["rowwise", "columnwise"],
) -> gb.Matrix:
    """Return the matrix, with the first of duplicate entries."""
    A = gb.Matrix(values.dtype, *shape)
    A.ss.config["format"] = _FORMATS[orientation]
    A.build(rows, cols, values, dup_op=gb.binary.first)
    return A
