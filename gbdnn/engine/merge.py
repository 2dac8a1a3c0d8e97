"""Merge inputs with equal activations, so that each is computed once.

In deep networks many inputs reach the same activations, bit for bit, and stay equal in all later
layers. One of them is computed; the others are merged into it and get its row at the end. This is
exact for any network and any inputs: hashes find candidates, and their bits are compared.

SNICIT introduced (approximate) compression at inference time: S. Jiang, T.-W. Huang, B. Yu,
T.-Y. Ho, "SNICIT: Accelerating Sparse Neural Network Inference via Compression at Inference Time
on GPU", ICPP 2023.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gbdnn.kernels.compiled.graphblas import with_graphblas

if TYPE_CHECKING:
    from gbdnn.arrays.sparse_rows import SparseRows

__all__ = ["Merged"]

_WORTH = 0.75  # fraction of distinct inputs up to which merging pays


class Merged:
    """Record of which input was merged into which; `always` merges even if few inputs are equal.

    Attributes
    ----------
    multiplicity : ndarray of int64, shape (inputs,)
        Number of inputs that each one represents.
    """

    def __init__(self, inputs: int, *, always: bool) -> None:
        self._parent, self._most = np.arange(inputs), 1.0 if always else _WORTH
        self.multiplicity = np.ones(inputs, np.int64)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that compiled code changes when it merges inputs."""
        return {"parents": self._parent, "multiplicity": self.multiplicity}

    def followed(self) -> np.ndarray | None:
        """Return the representative of each input; None if nothing was merged."""
        root = self._parent
        if (root == np.arange(len(root))).all():
            return None
        while not (root[root] == root).all():
            root = root[root]
        return root

    def rows(self, rows: SparseRows) -> SparseRows:
        """Merge equal rows; return the remaining ones."""
        first = np.empty(rows.nrows, np.int64)
        table = np.full(1 << (2 * rows.nrows).bit_length(), -1)
        values = np.ascontiguousarray(rows.values)
        arrays = rows.indptr, rows.columns, values, rows.nrows, table, len(table), first
        if with_graphblas(rows.dtype).first_equal(*arrays) > self._most * rows.nrows:
            return rows
        is_first = first == np.arange(rows.nrows)
        gone = np.flatnonzero(~is_first)
        into = rows.ids[first[gone]]
        self._parent[rows.ids[gone]] = into
        np.add.at(self.multiplicity, into, self.multiplicity[rows.ids[gone]])
        return rows.take(np.flatnonzero(is_first))
