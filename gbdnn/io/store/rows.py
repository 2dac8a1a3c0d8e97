"""Ranges of stored features: what is computed as one batch, and read by who computes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gbdnn.arrays.sparse_rows import SparseRows

if TYPE_CHECKING:
    from gbdnn.io.store.features import FeaturesSource, StoredFeatures

__all__ = ["StoredRows"]


class StoredRows:
    """Some rows of stored features, which are read when they are asked for.

    Parameters
    ----------
    features : StoredFeatures
        The features.
    start, stop : int
        The rows, from `start` to before `stop`.

    Attributes
    ----------
    nvals : int
        Number of stored values, taken to be spread evenly over all rows.
    """

    is_checked = True

    def __init__(self, features: StoredFeatures, start: int, stop: int) -> None:
        self.features, self.start, self.stop = features, start, stop
        self.nrows, self.ncols, self.dtype = stop - start, features.ncols, features.dtype
        self.nvals = -(-features.nvals * self.nrows // max(1, features.nrows))
        self.largest = features.largest

    @property
    def source(self) -> FeaturesSource:
        """From where another process can read the features that these rows are of."""
        return self.features.source

    def sparse_rows(self, start: int, stop: int) -> SparseRows:
        """Return rows `start` to before `stop` of these, with these ids."""
        found = self.features.sparse_rows(self.start + start, self.start + stop)
        ids = np.arange(start, stop)
        return SparseRows(found.indptr, found.columns, found.values, self.ncols, ids)
