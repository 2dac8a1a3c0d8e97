"""SciPy's sparse arrays, checked before its compiled code, which trusts their indices, reads them.

``check_format(full_check=True)`` is not enough: it tidies up while it checks, and does not see
pointers that fall at the end.
"""

from __future__ import annotations

import sys
from itertools import chain
from typing import Any

import numpy as np

__all__ = ["checked_scipy", "is_scipy"]


def is_scipy(x: object) -> bool:
    """Whether `x` is a SciPy sparse array or matrix."""
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and sparse.issparse(x)


def checked_scipy(A: Any) -> Any:
    """Return a copy in CSR, CSC, BSR or COO form, of which every index is in its range.

    A ValueError, TypeError, LookupError, AttributeError or OverflowError says what is not as it
    should be; it names the array (``indptr``).
    """
    if A.format in ("csr", "csc", "bsr"):
        _require_compressed(A)
        return A.copy()
    if A.format == "lil":
        A = _from_lists(A)
    elif A.format == "dia":
        _require_diagonals(A)
    elif A.format == "dok" and set(map(len, A.keys())) - {2}:
        raise ValueError("the keys of a dictionary of entries are pairs")
    A = A.tocoo(copy=True)
    nvals = len(_integers(A.row, "row"))
    if len(_integers(A.col, "col")) != nvals or A.data.shape != (nvals,):
        raise ValueError(f"{nvals} rows, {len(A.col)} columns and data of shape {A.data.shape}")
    for name, indices, n in (("row", A.row, A.shape[0]), ("col", A.col, A.shape[1])):
        _require_range(indices, n, name)
    return A


def _require_compressed(A: Any) -> None:
    along, across = A.shape if A.format != "csc" else A.shape[::-1]
    block = A.data.shape[1:] if A.format == "bsr" else (1, 1)
    if len(block) != 2 or 0 in block or along % block[0] or across % block[1]:
        raise ValueError(f"blocks of shape {block} in a matrix of shape {A.shape}")
    along, across = along // block[0], across // block[1]
    indptr, indices = _integers(A.indptr, "indptr"), _integers(A.indices, "indices")
    nvals = len(indices)
    if len(A.data) != nvals or (A.format != "bsr" and A.data.ndim != 1):
        raise ValueError(f"{nvals} indices, and data of shape {A.data.shape}")
    if len(indptr) != along + 1:
        raise ValueError(f"indptr has {len(indptr)} items, not {along + 1}")
    if indptr[0] != 0:
        raise ValueError(f"indptr starts at {indptr[0]}, not 0")
    if (falls := indptr[1:] < indptr[:-1]).any():
        k = int(falls.argmax())
        raise ValueError(f"indptr falls from {indptr[k]} to {indptr[k + 1]} at item {k + 1}")
    if indptr[-1] != nvals:
        raise ValueError(f"indptr ends at {indptr[-1]}, not at the number of entries, {nvals}")
    _require_range(indices, across, "indices")


def _require_diagonals(A: Any) -> None:
    offsets = _integers(A.offsets, "offsets")
    if A.data.ndim != 2 or len(A.data) != len(offsets):
        raise ValueError(f"{len(offsets)} offsets, and data of shape {A.data.shape}")


def _from_lists(A: Any) -> Any:
    """Return a LIL array as COO."""
    rows, data = list(A.rows), list(A.data)
    counts = [len(row) for row in rows]
    if len(rows) != A.shape[0] or counts != [len(values) for values in data]:
        raise ValueError("rows and data are lists of other lengths")
    coordinates = (
        np.repeat(np.arange(len(rows)), counts),
        np.fromiter(chain.from_iterable(rows), np.int64, sum(counts)),
    )
    values = np.fromiter(chain.from_iterable(data), A.dtype, sum(counts))
    return sys.modules["scipy.sparse"].coo_array((values, coordinates), shape=A.shape)


def _integers(x: Any, name: str) -> np.ndarray:
    if not isinstance(x, np.ndarray) or x.ndim != 1 or x.dtype.kind not in "iu":
        found = f"{x.ndim}-D of {x.dtype}" if isinstance(x, np.ndarray) else type(x).__qualname__
        raise TypeError(f"{name} is a 1-D array of integers, not {found}")
    return x


def _require_range(indices: np.ndarray, n: int, name: str) -> None:
    if len(indices) and not 0 <= indices.min() <= indices.max() < n:
        bad = indices.min() if indices.min() < 0 else indices.max()
        raise ValueError(f"{name} has {bad}; indices are from 0 to below {n}")
