"""Merge inputs with equal activations, so that each is computed once.

In deep networks many inputs reach the same activations, bit for bit, and stay equal in all later
layers. One of them is computed; the others are merged into it and get its row at the end. This is
exact for any network and any inputs: fingerprints find candidates, and their bits are compared.

SNICIT introduced (approximate) compression at inference time: S. Jiang, T.-W. Huang, B. Yu,
T.-Y. Ho, "SNICIT: Accelerating Sparse Neural Network Inference via Compression at Inference Time
on GPU", ICPP 2023.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from gbdnn.kernels.fused_run import factors

if TYPE_CHECKING:
    from gbdnn.arrays.sparse_rows import SparseRows

__all__ = ["Merged"]

_WORTH = 0.75  # share of distinct inputs up to which merging pays


class Merged:
    """Record of which input was merged into which; `always` merges even if few inputs are equal.

    Attributes
    ----------
    multiplicity : ndarray of int64, shape (inputs,)
        Number of inputs that each one represents.
    """

    def __init__(self, inputs: int, *, always: bool) -> None:
        self._parent, self._always = np.arange(inputs), always
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
        if not rows.nrows or (_distinct(rows) > _WORTH * rows.nrows and not self._always):
            return rows
        seen: dict[tuple[bytes, bytes], int] = {}
        first = np.empty(rows.nrows, np.int64)
        for i, (a, b) in enumerate(pairwise(rows.indptr.tolist())):
            bits = rows.columns[a:b].tobytes(), rows.values[a:b].tobytes()
            first[i] = seen.setdefault(bits, i)
        gone = np.flatnonzero(first != np.arange(rows.nrows))
        self._merge(rows.ids[gone], rows.ids[first[gone]])
        return rows.take(np.delete(np.arange(rows.nrows), gone))

    def _merge(self, gone: np.ndarray, into: np.ndarray) -> None:
        self._parent[gone] = into
        np.add.at(self.multiplicity, into, self.multiplicity[gone])


def _distinct(rows: SparseRows) -> int:
    """Return an estimate of the number of distinct rows, from a fingerprint of each."""
    bits = np.ascontiguousarray(rows.values).view(f"u{rows.dtype.itemsize}").astype(np.uint64)
    bits ^= bits >> np.uint64(32)  # of 64 bits, the last ones are often 0
    marks = np.zeros(rows.nvals + 1, np.uint64)
    np.cumsum(factors(rows.ncols)[rows.columns.view(np.int64)] * bits, out=marks[1:])
    starts = rows.indptr.view(np.int64)
    return len(np.unique(marks[starts[1:]] - marks[starts[:-1]]))
