"""Sparse activations of some of the inputs: taken out of a block, put into one, stacked."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import graphblas as gb
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gbdnn.arrays.matrices import Compressed
    from gbdnn.kernels.blocks import Block

__all__ = [
    "SparseRows",
    "any_bit",
    "fill_block",
    "joined",
    "lives",
    "rows_of_arrays",
    "rows_of_block",
    "rows_of_matrix",
    "stack",
]


class SparseRows(NamedTuple):
    """Activations of the inputs `inputs`, in compressed rows (CSR) of `ncols` columns."""

    inputs: np.ndarray
    indptr: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    ncols: int

    @property
    def nvals(self) -> int:
        """Number of activations that are not 0."""
        return len(self.columns)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays; a single value stands for itself alone."""
        values = self.values.itemsize if self.values.strides == (0,) else self.values.nbytes
        return self.indptr.nbytes + self.columns.nbytes + int(values)

    @property
    def largest(self) -> float:
        """The largest absolute value, 0 if there is none."""
        return max(float(self.values.max(initial=0)), -float(self.values.min(initial=0)))

    def matrix(self) -> gb.Matrix:
        """Return the activations as a row-wise matrix; the arrays go into it."""
        return gb.Matrix.ss.import_csr(
            nrows=len(self.inputs),
            ncols=self.ncols,
            indptr=self.indptr,
            col_indices=self.columns,
            values=np.ascontiguousarray(self.values),
            sorted_cols=True,
            take_ownership=True,
        )

    def rows(self, start: int, stop: int) -> SparseRows:
        """Return rows `start` to `stop`; a view, not a copy, but for `indptr`."""
        if stop - start == len(self.inputs):
            return self
        first, last = int(self.indptr[start]), int(self.indptr[stop])
        return SparseRows(
            self.inputs[start:stop],
            self.indptr[start : stop + 1] - self.indptr[start],
            self.columns[first:last],
            self.values[first:last],
            self.ncols,
        )

    def take(self, rows: np.ndarray) -> SparseRows:
        """Return some rows, in the order asked for, each as often as asked for."""
        starts = self.indptr.view(np.int64)
        indptr = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(np.diff(starts)[rows], out=indptr[1:])
        some = rows[starts[rows + 1] > starts[rows]]
        stretches = list(zip(starts[some].tolist(), starts[some + 1].tolist(), strict=True))
        columns = [self.columns[:0], *(self.columns[a:b] for a, b in stretches)]
        values = [self.values[:0], *(self.values[a:b] for a, b in stretches)]
        return SparseRows(
            self.inputs[rows],
            indptr.view(np.uint64),
            np.concatenate(columns),
            np.concatenate(values),
            self.ncols,
        )

    def without_empty_rows(self) -> SparseRows:
        """Return the inputs that have an entry."""
        some = np.flatnonzero(self.indptr[1:] > self.indptr[:-1])
        if len(some) == len(self.inputs):
            return self
        indptr = np.concatenate((self.indptr[some], self.indptr[-1:]))
        return self._replace(inputs=self.inputs[some], indptr=indptr)


def rows_of_arrays(arrays: Compressed, ncols: int) -> SparseRows:
    """Return a whole matrix's rows."""
    values = np.broadcast_to(arrays.values, arrays.indices.shape)
    inputs = np.arange(len(arrays.indptr) - 1)
    return SparseRows(inputs, arrays.indptr, arrays.indices, values, ncols)


def rows_of_matrix(Y: gb.Matrix, inputs: np.ndarray) -> SparseRows:
    """Return the rows of a matrix that is given up for it."""
    found = Y.ss.export("csr", give_ownership=True, sort=True)
    columns = found["col_indices"]
    values = np.broadcast_to(found["values"], columns.shape)  # a single value stays one
    return SparseRows(inputs, found["indptr"], columns, values, found["ncols"])


def lives(block: Block) -> np.ndarray:
    """Return for each input of a block whether any of its bits is set (so -0.0 counts as life)."""
    return any_bit(block.filled)


def any_bit(array: np.ndarray) -> np.ndarray:
    """Return for each column of a C-ordered array whether any of its bits is set."""
    # Twice as fast as any(axis=0), which compares floating-point numbers.
    bits: np.ndarray = np.bitwise_or.reduce(array.view(f"u{array.itemsize}"), axis=0)
    return bits != 0


def joined(pieces: Sequence[SparseRows]) -> SparseRows:
    """Return the rows of some pieces, one or more, one after the other."""
    if len(pieces) == 1:
        return pieces[0]
    starts = np.cumsum([0] + [piece.nvals for piece in pieces])
    indptr = [
        piece.indptr[:-1].view(np.int64) + start
        for piece, start in zip(pieces, starts[:-1], strict=True)
    ]
    return SparseRows(
        np.concatenate([piece.inputs for piece in pieces]),
        np.concatenate([*indptr, starts[-1:]]).view(np.uint64),
        np.concatenate([piece.columns for piece in pieces]),
        np.concatenate([piece.values for piece in pieces]),
        pieces[0].ncols,
    )


def fill_block(block: Block, piece: SparseRows, place: np.ndarray | None) -> None:
    """Scatter a piece into a block, neuron i into row ``place[i]``."""
    block.array.fill(0)
    counts = (piece.indptr[1:] - piece.indptr[:-1]).view(np.int64)
    neurons = piece.columns.view(np.int64)
    if place is not None:
        neurons = place[neurons]
    at = neurons * block.width
    at += np.repeat(np.arange(len(counts)), counts)
    block.array.reshape(-1)[at] = piece.values
    block.inputs = piece.inputs


def rows_of_block(block: Block, place: np.ndarray | None, keep: np.ndarray) -> SparseRows:
    """Return the inputs at the positions `keep` of a block, neuron i from row ``place[i]``."""
    array = block.array if place is None else np.take(block.array, place, axis=0)
    dense = np.ascontiguousarray(np.take(array, keep, axis=1).T)
    present = dense != 0
    columns = np.flatnonzero(present)
    starts = np.arange(len(keep) + 1) * block.neurons
    indptr = np.searchsorted(columns, starts)
    columns -= np.repeat(starts[:-1], np.diff(indptr))
    values = dense[present] if len(columns) < dense.size else dense.reshape(-1)
    inputs = block.inputs[keep]
    return SparseRows(
        inputs, indptr.view(np.uint64), columns.view(np.uint64), values, block.neurons
    )


def stack(
    pieces: Sequence[SparseRows],
    inputs: np.ndarray,
    ncols: int,
    dtype: np.dtype,
    same_as: np.ndarray | None = None,
) -> SparseRows:
    """Return one piece with the rows `inputs` (ascending), from pieces of some of them.

    An input that no piece has gets an empty row; with `same_as`, input i gets that of
    ``same_as[i]``.
    """
    if same_as is not None:
        return _repeat(stack(pieces, np.unique(same_as), ncols, dtype), same_as)
    if len(pieces) == 1 and np.array_equal(pieces[0].inputs, inputs):
        return pieces[0]
    indptr = np.zeros(len(inputs) + 1, np.int64)
    rows = []
    for p, piece in enumerate(pieces):
        starts = piece.indptr.view(np.int64)
        where = np.searchsorted(inputs, piece.inputs)
        indptr[1 + where] = starts[1:] - starts[:-1]
        rows.append(np.stack((where, np.full(len(where), p), starts[:-1], starts[1:])))
    np.cumsum(indptr, out=indptr)
    # Row by row in order: each is copied as one stretch.
    table = np.concatenate(rows, axis=1) if rows else np.empty((4, 0), np.int64)
    order = np.argsort(table[0])
    _, source, starts, stops = table[:, order].tolist()
    stretches = list(zip(source, starts, stops, strict=True))
    columns = np.concatenate(
        [np.empty(0, np.uint64), *(pieces[p].columns[a:b] for p, a, b in stretches)]
    )
    values = np.concatenate([np.empty(0, dtype), *(pieces[p].values[a:b] for p, a, b in stretches)])
    return SparseRows(inputs, indptr.view(np.uint64), columns, values, ncols)


def _repeat(distinct: SparseRows, same_as: np.ndarray) -> SparseRows:
    """Return row i as a copy of the row of input ``same_as[i]``."""
    rows = np.searchsorted(distinct.inputs, same_as)
    return distinct.take(rows)._replace(inputs=np.arange(len(same_as)))
