"""Merge inputs with equal activations, so that each is computed once.

In deep networks many inputs reach the same activations, bit for bit, and stay equal in all later
layers. One of them is computed; the others are merged into it and get its row at the end. This is
exact for any network and any inputs: fingerprints find candidates, and their bits are compared.

SNICIT introduced (approximate) compression at inference time: S. Jiang, T.-W. Huang, B. Yu,
T.-Y. Ho, "SNICIT: Accelerating Sparse Neural Network Inference via Compression at Inference Time
on GPU", ICPP 2023.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.kernels.blocks import sample

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gbdnn.arrays.sparse_rows import SparseRows

__all__ = ["Merged"]

_WORTH = 0.75  # share of distinct inputs up to which merging pays
_FIRST = 8  # blocks sampled before all of them are fingerprinted
_CHUNK = 4 << 20  # bytes of leaders compared at a time
_COLUMNS = 64  # columns compared at a time
_ODD = np.uint64(0x9E3779B97F4A7C15)


class Merged:
    """Record of which input was merged into which; `always` merges even if few inputs are equal.

    Attributes
    ----------
    weights : ndarray of int64, shape (inputs,)
        Number of inputs that each one represents.
    """

    def __init__(self, inputs: int, *, always: bool) -> None:
        self._parent, self._always = np.arange(inputs), always
        self.weights = np.ones(inputs, np.int64)

    def followed(self) -> np.ndarray | None:
        """Return the representative of each input; None if nothing was merged."""
        root = self._parent
        if (root == np.arange(len(root))).all():
            return None
        while not (root[root] == root).all():
            root = root[root]
        return root

    def columns(
        self,
        blocks: Sequence[Any],
        each: Callable[[Callable[[int], Any], Sequence[int]], list[Any]],
    ) -> list[np.ndarray] | None:
        """Merge equal inputs of blocks at the same layer, and return the columns of each to keep.

        ``each(function, numbers)`` returns ``[function(n) for n in numbers]``, computed by several
        threads. The result is None if all columns are kept, also because merging does not pay.
        """
        marks: list[np.ndarray] = []
        for count in (min(_FIRST, len(blocks)), len(blocks)):  # sample some blocks first
            begun = len(marks)
            marks += each(partial(_column_marks, blocks), range(begun, count))
            first, distinct = _first_of_equal(np.concatenate(marks))
            if distinct > _WORTH * len(first) and not self._always:
                return None
        starts = np.cumsum([0, *map(len, marks)])
        repeats = np.flatnonzero(first != np.arange(len(first)))
        stays = np.ones(len(first), bool)
        step = max(16, _CHUNK // (blocks[0].neurons * blocks[0].array.itemsize))
        leaders = np.unique(first[repeats])
        for at in range(0, len(leaders), step):
            some = leaders[at : at + step]
            theirs = repeats[np.isin(first[repeats], some)]
            parts = each(partial(_leaders, blocks, starts, some), range(len(blocks)))
            bits = np.concatenate(parts, axis=1)
            which = np.searchsorted(some, first)
            each(partial(_compare, blocks, starts, theirs, bits, which, stays), range(len(blocks)))
        gone = np.flatnonzero(~stays)
        if not len(gone):
            return None
        ids = np.concatenate([Y.inputs for Y in blocks])
        self._merge(ids[gone], ids[first[gone]])
        return [np.flatnonzero(stays[a:b]) for a, b in pairwise(starts)]

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
        np.add.at(self.weights, into, self.weights[gone])


def _within(positions: np.ndarray, starts: np.ndarray, b: int) -> Any:
    """Return the columns of block `b` among ascending positions in all blocks."""
    first, last = np.searchsorted(positions, starts[b : b + 2])
    return positions[first:last] - starts[b]


def _bits(Y: Any, columns: np.ndarray) -> Any:
    array = Y.array.view(f"u{Y.array.itemsize}")
    return np.take(array, columns, axis=1, mode="wrap")


def _leaders(blocks: Sequence[Any], starts: np.ndarray, leaders: np.ndarray, b: int) -> Any:
    return _bits(blocks[b], _within(leaders, starts, b))


def _compare(
    blocks: Sequence[Any], starts: np.ndarray, repeats: np.ndarray, bits: np.ndarray,
    which: np.ndarray, stays: np.ndarray, b: int,
) -> None:  # fmt: skip
    """Mark the repeats in block `b` whose bits differ from their leader's (in `bits`)."""
    columns = _within(repeats, starts, b)
    for at in range(0, len(columns), _COLUMNS):
        these = columns[at : at + _COLUMNS]
        theirs = np.take(bits, which[these + starts[b]], axis=1)
        stays[these + starts[b]] = (_bits(blocks[b], these) != theirs).any(axis=0)


def _column_marks(blocks: Sequence[Any], b: int) -> np.ndarray:
    """Return a fingerprint per input of block `b`, computed from a sample of its activations."""
    array = np.ascontiguousarray(sample(blocks[b].filled))
    return _numbers(len(array)) @ array.view(f"u{array.itemsize}").astype(np.uint64)


def _numbers(count: int) -> np.ndarray:
    """Return pseudo-random odd numbers (splitmix64), so that sums of a few differ."""
    with np.errstate(over="ignore"):
        found = np.arange(1, count + 1, dtype=np.uint64) * _ODD
        found = (found ^ np.right_shift(found, 30)) * np.uint64(0xBF58476D1CE4E5B9)
        found = (found ^ np.right_shift(found, 27)) * np.uint64(0x94D049BB133111EB)
    return (found ^ np.right_shift(found, 31)) | np.uint64(1)


def _first_of_equal(marks: np.ndarray) -> tuple[np.ndarray, int]:
    """Return positions of the first equal mark for each mark, and the number of distinct marks."""
    _, first, which = np.unique(marks, return_index=True, return_inverse=True)
    return first[which], len(first)


def _distinct(rows: SparseRows) -> int:
    """Return an estimate of the number of distinct rows, from a fingerprint of each."""
    bits = np.ascontiguousarray(rows.values).view(f"u{rows.dtype.itemsize}").astype(np.uint64)
    bits ^= bits >> np.uint64(32)  # of 64 bits, the last ones are often 0
    marks = np.zeros(rows.nvals + 1, np.uint64)
    np.cumsum(_numbers(rows.ncols)[rows.columns.view(np.int64)] * bits, out=marks[1:])
    starts = rows.indptr.view(np.int64)
    return len(np.unique(marks[starts[1:]] - marks[starts[:-1]]))
