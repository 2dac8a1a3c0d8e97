"""Equal inputs are computed once.

In deep networks many inputs reach the same activations, bit for bit, and stay equal from there on.
One of them is computed; the others are merged into it and get its row at the end. This is exact for
any network and any inputs: fingerprints find candidates, the bits decide.

Compression at inference time is the idea of SNICIT, there approximate: S. Jiang, T.-W. Huang,
B. Yu, T.-Y. Ho, "SNICIT: Accelerating Sparse Neural Network Inference via Compression at Inference
Time on GPU", ICPP 2023.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.kernels.blocks import sample
from gbdnn.runtime.first_use import gb

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Merged"]

_WORTH = 0.75  # share of distinct inputs up to which merging pays
_FIRST = 8  # blocks that are looked at before all of them
_CHUNK = 4 << 20  # bytes of activations that are compared at a time
_ODD = np.uint64(0x9E3779B97F4A7C15)


class Merged:
    """Which inputs were merged into another one.

    Parameters
    ----------
    inputs : int
    always : bool
        Whether to merge even where few inputs are equal.

    Attributes
    ----------
    weights : ndarray of int64, shape (inputs,)
        How many inputs each one stands for.
    """

    def __init__(self, inputs: int, *, always: bool) -> None:
        self._parent, self._always = np.arange(inputs), always
        self.weights = np.ones(inputs, np.int64)

    def followed(self) -> np.ndarray | None:
        """Return for each input the one that was computed for it; None if nothing was merged."""
        root = self._parent
        if (root == np.arange(len(root))).all():
            return None
        while not (root[root] == root).all():
            root = root[root]
        return root

    def columns(
        self, blocks: Sequence[Any], each: Callable[[Callable[[int], Any], int], list[Any]]
    ) -> list[np.ndarray] | None:
        """Merge equal inputs of some blocks.

        Parameters
        ----------
        blocks : sequence of Block
            At the same layer.
        each : callable
            ``each(function, n)`` returns ``[function(0), ..., function(n - 1)]``, computed by
            several threads.

        Returns
        -------
        list of ndarray, optional
            The columns of each block that stay; None if merging does not pay.
        """
        marks: list[np.ndarray] = []
        for count in (min(_FIRST, len(blocks)), len(blocks)):  # a first look at some of them
            begun = len(marks)
            marks += each(partial(_column_marks, blocks[begun:]), count - begun)
            first, distinct = _first_of_equal(np.concatenate(marks))
            must = self._always and count == len(blocks)
            if distinct > _WORTH * len(first) and not must:
                return None
        starts = np.cumsum([0, *map(len, marks)])
        repeats = np.flatnonzero(first != np.arange(len(first)))
        stays = np.ones(len(first), bool)
        step = max(16, _CHUNK // (blocks[0].neurons * blocks[0].array.itemsize))
        leaders = np.unique(first[repeats])
        for at in range(0, len(leaders), step):
            some = leaders[at : at + step]
            columns = [_bits(Y, _within(some, starts, b) - starts[b]) for b, Y in enumerate(blocks)]
            bits = np.concatenate(columns, axis=1)
            theirs = repeats[np.isin(first[repeats], some)]

            def compare(b: int, some: np.ndarray = some, theirs: Any = theirs, bits: Any = bits):  # type: ignore[no-untyped-def]
                here = _within(theirs, starts, b)
                for at in range(0, len(here), 64):
                    these = here[at : at + 64]
                    which = np.searchsorted(some, first[these])
                    same = _bits(blocks[b], these - starts[b]) == np.take(bits, which, axis=1)
                    stays[these] = ~same.all(axis=0)

            each(compare, len(blocks))
        gone = np.flatnonzero(~stays)
        ids = np.concatenate([Y.inputs for Y in blocks])
        self._merge(ids[gone], ids[first[gone]])
        return [np.flatnonzero(stays[a:b]) for a, b in pairwise(starts)]

    def rows(self, Y: gb.Matrix, ids: np.ndarray) -> tuple[gb.Matrix, np.ndarray]:
        """Merge equal rows of a matrix with these ids; return those that stay."""
        if not len(ids) or (_distinct_at_least(Y) > _WORTH * len(ids) and not self._always):
            return Y, ids
        rows = SparseRows.from_matrix(Y, ids)
        first, gone = _equal_rows(rows)
        self._merge(ids[gone], ids[first[gone]])
        stays = np.ones(len(ids), bool)
        stays[gone] = False
        rows = rows.take(np.flatnonzero(stays))
        ids = rows.ids
        return rows.matrix(), ids

    def _merge(self, gone: np.ndarray, into: np.ndarray) -> None:
        self._parent[gone] = into
        np.add.at(self.weights, into, self.weights[gone])


def _within(positions: np.ndarray, starts: np.ndarray, b: int) -> np.ndarray:
    """Return those of some ascending positions that are in block `b`."""
    return positions[slice(*np.searchsorted(positions, starts[b : b + 2]))]


def _bits(Y: Any, columns: np.ndarray) -> np.ndarray:
    array = Y.array.view(f"u{Y.array.itemsize}")
    found: np.ndarray = np.take(array, columns, axis=1, mode="wrap")
    return found


def _column_marks(blocks: Sequence[Any], b: int) -> np.ndarray:
    """Return a fingerprint of each input of block `b`, made of some of its activations."""
    array = np.ascontiguousarray(sample(blocks[b].filled))
    return _numbers(len(array)) @ array.view(f"u{array.itemsize}").astype(np.uint64)


def _numbers(count: int) -> np.ndarray:
    """Return odd numbers without a pattern (splitmix64), so that sums of a few differ."""
    with np.errstate(over="ignore"):
        found = np.arange(1, count + 1, dtype=np.uint64) * _ODD
        found = (found ^ np.right_shift(found, 30)) * np.uint64(0xBF58476D1CE4E5B9)
        found = (found ^ np.right_shift(found, 27)) * np.uint64(0x94D049BB133111EB)
    return (found ^ np.right_shift(found, 31)) | np.uint64(1)


def _first_of_equal(marks: np.ndarray) -> tuple[np.ndarray, int]:
    """Return for each mark the position of the first equal one, and how many are distinct."""
    _, first, which = np.unique(marks, return_index=True, return_inverse=True)
    return first[which], len(first)


def _equal_rows(rows: SparseRows) -> tuple[np.ndarray, np.ndarray]:
    """Return for each row a candidate for the first equal one, and the rows that do equal it."""
    starts, counts = rows.indptr.view(np.int64), rows.degrees
    bits = np.ascontiguousarray(rows.values).view(f"u{rows.values.itemsize}")
    marks = np.zeros(len(counts), np.uint64)
    with np.errstate(over="ignore"):
        entry = (bits.astype(np.uint64) + rows.columns * _ODD + np.uint64(1)) * _ODD
        entry = (entry ^ np.right_shift(entry, 29)) * _ODD
        if len(some := np.flatnonzero(counts)):
            marks[some] = np.add.reduceat(entry, starts[some])
    first, _ = _first_of_equal(marks)
    repeats = np.flatnonzero((first != np.arange(len(first))) & (counts == counts[first]))
    here, there = (_ranges(starts[these], counts[repeats]) for these in (repeats, first[repeats]))
    differs = (rows.columns[here] != rows.columns[there]) | (bits[here] != bits[there])
    owner = np.repeat(np.arange(len(repeats)), counts[repeats])
    return first, np.delete(repeats, owner[differs])


def _ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return ``starts[i], starts[i] + 1, ...``, `counts[i]` of them, for each i."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + counts, counts)


def _distinct_at_least(Y: gb.Matrix) -> int:
    """Return how many rows of a matrix are distinct, some equal ones perhaps counted twice."""
    numbers = (_numbers(Y.ncols) >> np.uint64(40)) + np.uint64(1)
    random = gb.Vector.from_dense(numbers.astype(np.float64))
    marks = gb.semiring.plus_times(Y @ random).new()
    empty = int(marks.nvals < Y.nrows)
    return len(np.unique(marks.to_coo(indices=False)[1])) + empty
