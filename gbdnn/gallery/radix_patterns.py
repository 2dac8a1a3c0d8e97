"""The patterns of a RadiX-Net's layers; see `gbdnn.gallery.radixnet`."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gbdnn.arrays.sparse_rows import SparseRows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import graphblas as gb

__all__ = ["Pattern", "patterns"]


class Pattern(NamedTuple):
    """A layer's pattern: ``rows[j]`` are the rows of the entries in column j, ascending."""

    nrows: int
    rows: np.ndarray

    def permuted(self, order: np.ndarray) -> Pattern:
        """Return the pattern with row i moved to ``order[i]``."""
        return Pattern(self.nrows, np.sort(order[self.rows], axis=1))

    def matrix(self, value: np.floating) -> gb.Matrix:
        """Return a column-wise matrix of the pattern, iso-valued."""
        ncols, degree = self.rows.shape
        indptr = np.arange(0, ncols * degree + 1, degree, dtype=np.uint64)
        columns = SparseRows(
            indptr, self.rows.astype(np.uint64).reshape(-1), np.array([value]), self.nrows
        )
        return columns.matrix(transposed=True)


def patterns(systems: Sequence[Sequence[int]], widths: Sequence[int]) -> Iterator[Pattern]:
    """Yield the patterns of the systems' layers, widened."""
    N = prod(systems[0])
    j = np.arange(N)
    level = 0
    for system in systems:
        place = 1
        for radix in system:
            # i has edges to i - n place, so j has edges from j + n place
            sources = np.sort((j[:, None] + place * np.arange(radix)) % N, axis=1)
            place *= radix
            above, below = widths[level : level + 2]
            copies = sources[:, None, :] + N * np.arange(above)[:, None]
            yield Pattern(N * above, np.tile(copies.reshape(N, -1), (below, 1)))
            level += 1
