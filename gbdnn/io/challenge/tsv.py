"""The Graph Challenge's files: matrices as tab-separated text.

Matrices have one line ``row<TAB>column<TAB>value`` per entry, in any order, without a shape.
Indices are 1-based in files, 0-based in Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gbdnn.arrays.checks import whole_number
from gbdnn.errors import ArgumentError, FormatError
from gbdnn.io.challenge.table import MAX_INDEX, Index, read_columns, write_columns
from gbdnn.io.reading import first_duplicate
from gbdnn.runtime.first_use import gb

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_tsv", "write_tsv"]


def read_tsv(
    path: Path,
    *,
    nrows: int | None = None,
    ncols: int | None = None,
    dtype: np.dtype,
    orientation: str = "by_row",
) -> gb.Matrix:
    """Return the matrix in a file; by default, its shape are the largest indices.

    The result is without the zeros in the file, which count for the shape, and iso if all values
    are equal.
    """
    row, column = _index("row", nrows, "nrows"), _index("column", ncols, "ncols")
    rows, cols, values = read_columns(path, [row, column], dtype)
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


def write_tsv(A: gb.Matrix, path: Path, *, replace: bool = False) -> None:
    """Write a matrix of finite floats, sorted by row, then column.

    Values are written with enough digits to be read with the same bits. A matrix without entries is
    the line ``nrows<TAB>ncols<TAB>0``.
    """
    if 0 in A.shape:
        raise ArgumentError(
            f"{path}: the matrix must have at least one row and one column, not shape {A.shape}"
        )
    A = gb.select.valuene(A, A.dtype.np_type.type(0)).new()
    A.ss.config["format"] = "by_row"
    rows, cols, values = A.to_coo()
    if values.size == 0:
        last = [np.array([n - 1], np.uint64) for n in A.shape]
        rows, cols, values = last[0], last[1], np.zeros(1, np.uint8)
    one = np.uint64(1)
    write_columns({"row": rows + one, "column": cols + one, "value": values}, path, replace=replace)


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
    orientation: str,
) -> gb.Matrix:
    """Return the matrix, with the first of duplicate entries."""
    A = gb.Matrix(values.dtype, *shape)
    A.ss.config["format"] = orientation
    A.build(rows, cols, values, dup_op=gb.binary.first)
    return A
