"""Blocks of rows as CSR arrays: cut, and joined."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gbdnn.arrays.matrices import Compressed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["cut", "join", "pieces"]


def cut(block: Compressed, start: int, stop: int) -> Compressed:
    """Return some of a block's rows; indices and values are views."""
    first, last = int(block.indptr[start]), int(block.indptr[stop])
    return Compressed(
        block.indptr[start : stop + 1] - block.indptr[start],
        block.indices[first:last],
        block.values if block.is_iso else block.values[first:last],
        block.is_iso,
    )


def pieces(block: Compressed, most: int) -> Iterator[Compressed]:
    """Yield a block in pieces of at most so many entries and rows, but at least one row."""
    start, nrows = 0, len(block.indptr) - 1
    while start < nrows:
        fits = np.searchsorted(block.indptr, block.indptr[start] + np.uint64(most), side="right")
        stop = max(start + 1, min(int(fits) - 1, start + most))
        yield cut(block, start, stop)
        start = stop


def join(
    blocks: Iterable[Compressed], nrows: int, nvals: int, dtype: np.dtype | None = None
) -> Compressed:
    """Return blocks, of so many rows and entries together, one below the other.

    Blocks are taken one by one; the result is iso as long as all have one and the same value.
    """
    indptr = np.zeros(nrows + 1, np.uint64)
    indices = np.empty(nvals, np.uint64)
    iso: np.ndarray | None = None
    values: np.ndarray | None = None
    row = entry = 0
    for block in blocks:
        rows, n = len(block.indptr) - 1, len(block.indices)
        indptr[row + 1 : row + rows + 1] = block.indptr[1:] + np.uint64(entry)
        indices[entry : entry + n] = block.indices
        dtype = block.values.dtype if dtype is None else dtype
        if n and values is None:
            if block.is_iso and (iso is None or iso == block.values[0]):
                iso = block.values[:1].copy()
            else:
                values = np.empty(nvals, dtype)
                values[:entry] = 0 if iso is None else iso
        if values is not None:
            values[entry : entry + n] = block.values[:1] if block.is_iso and n else block.values[:n]
        row, entry = row + rows, entry + n
    if values is None and iso is not None:
        return Compressed(indptr, indices, iso, True)
    return Compressed(indptr, indices, np.empty(0, dtype) if values is None else values, False)
