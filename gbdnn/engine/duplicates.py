"""Equal inputs once: inputs whose activations become equal are computed once.

Deep networks converge: after some layers many inputs have the same activations, bit for bit, and
from there on the same course. One of them, the representative, is computed; the others are merged
into it, and at the end they get its row. That is exact for any network and any inputs.

A fingerprint, an integer made of the bits of some or all activations, finds candidates; the bits
themselves decide. Where activations have been found distinct at a layer, only one block in some is
looked at there again.

Compression at inference time is SNICIT's idea, there approximate, by clusters and residues:
S. Jiang, T.-W. Huang, B. Yu, T.-Y. Ho, "SNICIT: Accelerating Sparse Neural Network Inference via
Compression at Inference Time on GPU", ICPP 2023.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gbdnn.runtime.first_use import gb

if TYPE_CHECKING:
    from gbdnn.arrays.sparse_rows import SparseRows

__all__ = [
    "Duplicates",
    "Equal",
    "distinct_at_least",
    "equal_columns",
    "equal_rows",
    "fingerprints",
    "is_meeting",
    "is_probe",
]

_SKIPS = 8  # blocks that are not looked at, at a layer where one was distinct
_CHUNK = 32  # columns that are compared at a time
_WORTH = 0.75  # of the inputs distinct, or fewer: worth moving them
_ODD = np.uint64(0x9E3779B97F4A7C15)


class Equal(NamedTuple):
    """Positions that stay, positions that are merged, and where each of those goes."""

    stay: np.ndarray
    merged: np.ndarray
    into: np.ndarray


class Duplicates:
    """Which inputs follow another one's course, and where to look for more.

    Parameters
    ----------
    inputs : int
        Number of inputs.
    always : bool
        Look at every layer that is looked at at all, in every block, whatever was found before, and
        wherever inputs are moved.
    """

    def __init__(self, inputs: int, *, always: bool) -> None:
        self._parent = np.arange(inputs)
        self._weight = np.ones(inputs, np.int64)
        self.always = always
        self._skip: dict[int, int] = {}
        self._lock = threading.Lock()

    def should_check(self, k: int) -> bool:
        """Whether to look for equal activations before layer `k` in this block."""
        if not is_probe(k):
            return False
        with self._lock:
            skip = self._skip.get(k, 0)
            if skip and not self.always:
                self._skip[k] = skip - 1
                return False
        return True

    def record(self, k: int, distinct: int, inputs: int) -> bool:
        """Take note of how many of a block's inputs looked distinct; tell whether to merge them."""
        found = distinct <= _WORTH * inputs
        with self._lock:
            self._skip[k] = 0 if found else _SKIPS
        return found

    def merge(self, merged: np.ndarray, into: np.ndarray) -> None:
        """Let the inputs `merged` follow the inputs `into` from now on."""
        with self._lock:
            self._parent[merged] = into
            np.add.at(self._weight, into, self._weight[merged])

    @property
    def weights(self) -> np.ndarray:
        """How many inputs each one stands for, of int64; it goes on to change."""
        return self._weight

    def followed(self) -> np.ndarray | None:
        """Return for each input the one whose course it followed; None if each had its own."""
        root = self._parent
        if (root == np.arange(len(root))).all():
            return None
        while True:
            further = root[root]
            if (further == root).all():
                return root
            root = further


def fingerprints(array: np.ndarray) -> np.ndarray:
    """Return an integer for each column of an array; equal columns have equal ones."""
    bits = array.view(f"u{array.itemsize}").astype(np.uint64)
    with np.errstate(over="ignore"):
        # Numbers without a pattern (splitmix64), odd: those of an arithmetic sequence have equal
        # sums of different members.
        factor = np.arange(1, len(bits) + 1, dtype=np.uint64) * _ODD
        factor = (factor ^ (factor >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        factor = (factor ^ (factor >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        factor = (factor ^ (factor >> np.uint64(31))) | np.uint64(1)
        mixed: np.ndarray = factor @ bits
    return mixed


def equal_columns(array: np.ndarray, marks: np.ndarray, columns: np.ndarray) -> Equal:
    """Return which of some columns repeat an earlier one, bit for bit, among those of equal marks.

    ``columns[i]`` has the fingerprint ``marks[i]``; the answer has positions i.
    """
    first = _first_of_equal(marks)
    candidates = np.flatnonzero(first != np.arange(len(first)))
    bits = array.view(f"u{array.itemsize}")
    same = np.empty(len(candidates), bool)
    for at in range(0, len(candidates), _CHUNK):
        some = candidates[at : at + _CHUNK]
        these, those = (np.take(bits, columns[c], axis=1) for c in (some, first[some]))
        same[at : at + _CHUNK] = (these == those).all(axis=0)
    return _split(first, candidates[same])


def equal_rows(rows: SparseRows) -> Equal:
    """Return which rows of sparse activations repeat an earlier one, bit for bit."""
    starts = rows.indptr.view(np.int64)
    counts = rows.degrees
    bits = np.ascontiguousarray(rows.values).view(f"u{rows.values.itemsize}")
    with np.errstate(over="ignore"):
        entry: np.ndarray = (bits.astype(np.uint64) + rows.columns * _ODD + np.uint64(1)) * _ODD
        entry = np.bitwise_xor(entry, np.right_shift(entry, 29))
        marks = np.zeros(len(counts), np.uint64)
        some = np.flatnonzero(counts)
        if len(some):
            marks[some] = np.add.reduceat(entry * _ODD, starts[some])
    first = _first_of_equal(marks)
    candidates = np.flatnonzero(first != np.arange(len(first)))
    candidates = candidates[counts[candidates] == counts[first[candidates]]]
    full = candidates[counts[candidates] > 0]
    here, there = (_ranges(starts[some], counts[full]) for some in (full, first[full]))
    differs = (rows.columns[here] != rows.columns[there]) | (bits[here] != bits[there])
    differing = np.zeros(len(counts), bool)
    differing[np.repeat(full, counts[full])[differs]] = True
    return _split(first, candidates[~differing[candidates]])


def distinct_at_least(Y: gb.Matrix) -> int:
    """Return how many rows of a matrix are distinct, some equal ones perhaps counted twice."""
    numbers = fingerprints(np.arange(Y.ncols, dtype=np.uint32)[np.newaxis]) >> np.uint64(40)
    random = gb.Vector.from_dense((numbers + np.uint64(1)).astype(np.float64))
    marks = gb.semiring.plus_times(Y @ random).new()
    empty = int(marks.nvals < Y.nrows)
    return len(np.unique(marks.to_coo(indices=False)[1])) + empty


def _first_of_equal(marks: np.ndarray) -> np.ndarray:
    """Return for each mark the position of the first one equal to it."""
    _, first, which = np.unique(marks, return_index=True, return_inverse=True)
    found: np.ndarray = first[which]
    return found


def _split(first: np.ndarray, merged: np.ndarray) -> Equal:
    stays = np.ones(len(first), bool)
    stays[merged] = False
    return Equal(np.flatnonzero(stays), merged, first[merged])


def _ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return ``starts[i], starts[i] + 1, ...``, `counts[i]` of them, for each i."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + counts, counts)


def is_probe(k: int) -> bool:
    """Whether layer `k` is one to look at: 1 to 8, then a quarter further each time."""
    return k in _probes(k)


def is_meeting(k: int) -> bool:
    """Whether layer `k` is every other one of those from 4 on: 4, 6, 8, 12, 18, 27, ..."""
    return k in _probes(k)[3::2]


@cache
def _probes(last: int) -> tuple[int, ...]:
    found = [1]
    while found[-1] < last:
        found.append(max(found[-1] + 1, found[-1] * 5 // 4))
    return tuple(found)
