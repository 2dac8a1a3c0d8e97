"""Sparse rows of others, checked before GraphBLAS and compiled code believe what they are told."""

from __future__ import annotations

from typing import Any

import numpy as np

from gbdnn.arrays.checks import finite
from gbdnn.arrays.sparse_rows import SparseRows, release
from gbdnn.errors import ArgumentError, ArgumentTypeError, ShapeError, require_kind
from gbdnn.runtime.first_use import gb

__all__ = ["checked_rows", "fault_of", "without_zeros"]


def checked_rows(rows: Any, ids: np.ndarray, ncols: int, dtype: np.dtype, what: str) -> SparseRows:
    """Return rows as `SparseRows` describes them, cast to a dtype, with these ids.

    Raises
    ------
    ArgumentTypeError
        They are not `SparseRows`, or pointers or columns are not integers.
    ArgumentError, ShapeError
        They are others than the `ids` are many, point elsewhere, or hold what is not finite.
    """
    require_kind(rows, SparseRows, f"{what}: SparseRows are needed")
    indptr, columns, values = rows.indptr, rows.columns, rows.values
    for name, array, kinds in (("indptr", indptr, "iu"), ("columns", columns, "iu"),
                               ("values", values, "biuf")):  # fmt: skip
        if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in kinds:
            raise ArgumentTypeError(f"{what}: {name} is not a 1-D array of such numbers")
    if len(indptr) != len(ids) + 1 or rows.ncols != ncols or len(values) != len(columns):
        raise ShapeError(
            f"{what}: {len(indptr) - 1} x {rows.ncols} with {len(columns)} columns and"
            f" {len(values)} values, in place of {len(ids)} x {ncols}"
        )
    if fault := fault_of(indptr, columns, ncols):
        raise ArgumentError(f"{what}: {fault}")
    values = finite(values[:1] if rows.is_iso else values, dtype, what)
    pointers = np.ascontiguousarray(indptr, np.uint64)
    found = SparseRows(pointers, np.ascontiguousarray(columns, np.uint64), values, ncols)
    found = found if found.values.all() else without_zeros(found)
    return SparseRows(found.indptr, found.columns, found.values, ncols, ids)


def fault_of(pointers: np.ndarray, indices: np.ndarray, across: int) -> str | None:
    """Return what is wrong with the pointers and indices of compressed rows, None if nothing is."""
    n = len(indices)
    if pointers[0] != 0 or pointers[-1] != n or (pointers[1:] < pointers[:-1]).any():
        return f"the pointers do not ascend from 0 to {n}"
    if not n:
        return None
    if indices.max() >= across or indices.min() < 0:
        return f"an index of {indices.max() if indices.min() >= 0 else indices.min()}, of {across}"
    ascending = indices[1:] > indices[:-1]
    starts = pointers[(pointers > 0) & (pointers < n)]
    ascending[starts - starts.dtype.type(1)] = True  # from one row or column to the next
    return None if ascending.all() else "indices do not ascend, or come twice"


def without_zeros(rows: SparseRows) -> SparseRows:
    """Return rows without their stored zeros, numbered from 0; they are given up."""
    zero = rows.dtype.type(0)
    A = rows.matrix()
    found = gb.select.valuene(A, zero).new()
    release(A)
    return SparseRows.from_matrix(found)
