"""A layer whose weights are learned: its edges, and what training keeps of each.

A `Layer` never changes and stores no zeros. Here weights change in place, and an edge stays an edge
when its weight is 0: new edges begin there, and a regulariser may stop there.

Edges are numbered ``column * nrows + row``. Columns are held in the order in which they are
computed, by their degree, and what belongs to an edge or a neuron is in that order too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.errors import TooLargeError
from gbdnn.kernels.addresses import address
from gbdnn.kernels.compiled import step_record as at
from gbdnn.kernels.compiled.record import FIELDS
from gbdnn.model.layer import Layer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gbdnn.model.layer_info import LayerInfo

__all__ = ["TrainableLayer"]


class TrainableLayer:
    """A layer's edges, weights, gradient and moments.

    Parameters
    ----------
    info : LayerInfo
        Shape, dtype, activation and clip.
    edges : ndarray of int64, shape (nedges,)
        Numbers of the edges, ascending.
    weights : ndarray, shape (nedges,)
    bias : ndarray, shape (ncols,)
    moments : sequence of ndarray, shape (nedges,)
        What the optimizer keeps of each weight: up to two numbers. Default: zeros.
    bias_moments : sequence of ndarray, shape (ncols,)
        The same of each bias.

    Attributes
    ----------
    numbers : ndarray of int64, shape (nedges,)
        Those of the edges, ascending, as given.
    indptr, rows : ndarray of int64, of uint32
        Edges of column c, in the order of columns, and the neuron that each comes from.
    places : ndarray of uint32, shape (ncols,)
        The neuron that each column is.
    weights, gradient : ndarray, shape (nedges,)
        In the order of `rows`.
    bias, bias_gradient : ndarray, shape (ncols,)
        In the order of `places`.
    """

    def __init__(
        self,
        info: LayerInfo,
        edges: np.ndarray,
        weights: np.ndarray,
        bias: np.ndarray,
        moments: Sequence[np.ndarray] = (),
        bias_moments: Sequence[np.ndarray] = (),
    ) -> None:
        nrows, ncols = info.shape
        if len(edges) >= 2**32:
            raise TooLargeError(f"training: {len(edges)} edges in one layer; at most 2^32 - 1")
        self.info, self.nrows, self.ncols = info, nrows, ncols
        self.numbers = edges
        self.is_dense = len(edges) == nrows * ncols
        degrees = np.diff(np.searchsorted(edges, np.arange(ncols + 1) * nrows))
        order = np.argsort(degrees, kind="stable")
        if self.is_dense:
            order = np.arange(ncols)
        self.places = order.astype(np.uint32)
        self.indptr = np.zeros(ncols + 1, np.int64)
        np.cumsum(degrees[order], out=self.indptr[1:])
        starts = np.cumsum(degrees) - degrees
        # Of each edge in the order of columns, its place in the order of numbers.
        # Numbers of 32 bits: a difference below 0 comes back from the other end.
        moved = (starts[order] - self.indptr[:-1]).astype(np.uint32)
        self._number = np.repeat(moved, degrees[order])
        self._number += np.arange(len(edges), dtype=np.uint32)
        self.rows = (edges % nrows).astype(np.uint32)[self._number]
        dtype = info.dtype
        self.weights = np.ascontiguousarray(weights, dtype)[self._number]
        self.gradient = np.zeros(len(edges), dtype)
        self.bias = np.ascontiguousarray(bias, dtype)[order]
        self.bias_gradient = np.zeros(ncols, dtype)
        self.moments = [np.ascontiguousarray(each, dtype)[self._number] for each in moments]
        self.bias_moments = [np.ascontiguousarray(each, dtype)[order] for each in bias_moments]
        self._transpose()

    @classmethod
    def of(cls, layer: Layer) -> TrainableLayer:
        """Return a layer with the edges and weights of another, to be trained."""
        indptr, rows, values = (
            layer.W.ss.export("csc", sort=True)[name]
            for name in ("indptr", "row_indices", "values")
        )
        degrees = np.diff(indptr.view(np.int64))
        edges = np.repeat(np.arange(layer.ncols) * layer.nrows, degrees) + rows.view(np.int64)
        weights = np.broadcast_to(values, edges.shape) if len(values) == 1 else values
        bias = np.broadcast_to(np.asarray(layer.bias, layer.dtype), (layer.ncols,))
        return cls(layer.info, edges, weights, bias)

    @property
    def nedges(self) -> int:
        """Number of edges, those of weight 0 too."""
        return len(self.rows)

    @property
    def columns(self) -> np.ndarray:
        """The neuron that each edge goes to, int64, in the order of `rows`."""
        return np.repeat(self.places.astype(np.int64), np.diff(self.indptr))

    @property
    def edges(self) -> np.ndarray:
        """Numbers of the edges, in the order of `rows`."""
        return self.columns * self.nrows + self.rows

    def numbered(self, values: np.ndarray) -> np.ndarray:
        """Return what belongs to edges, in the order of their numbers."""
        found = np.empty_like(values)
        found[self._number] = values
        return found

    def by_neuron(self, values: np.ndarray) -> np.ndarray:
        """Return what belongs to columns, in the order of neurons."""
        found = np.empty_like(values)
        found[self.places] = values
        return found

    def with_edges(self, numbers: np.ndarray) -> TrainableLayer:
        """Return a layer with other edges: those it has keep weights and moments, others get 0.

        Parameters
        ----------
        numbers : ndarray of int64
            ``column * nrows + row`` of each edge, ascending.
        """
        at = np.searchsorted(self.numbers, numbers).clip(max=max(0, self.nedges - 1))
        kept = self.numbers[at] == numbers if self.nedges else np.zeros(len(numbers), bool)

        def moved(values: np.ndarray) -> np.ndarray:
            found = np.zeros(len(numbers), values.dtype)
            found[kept] = self.numbered(values)[at[kept]]
            return found

        moments, biases = map(moved, self.moments), map(self.by_neuron, self.bias_moments)
        weights, bias = moved(self.weights), self.by_neuron(self.bias)
        return TrainableLayer(self.info, numbers, weights, bias, list(moments), list(biases))

    def layer(self) -> Layer:
        """Return the layer as it is now; edges of weight 0 are no longer there."""
        degrees = np.zeros(self.ncols + 1, np.int64)
        degrees[1 + self.places.astype(np.int64)] = np.diff(self.indptr)
        indptr = np.cumsum(degrees).view(np.uint64)
        rows = self.numbered(self.rows).astype(np.uint64)
        columns = SparseRows(indptr, rows, self.numbered(self.weights), self.nrows)
        return Layer(
            columns.matrix(transposed=True),
            self.by_neuron(self.bias),
            activation=self.info.activation,
            clip=self.info.clip,
            copy=False,
        )

    def refresh(self) -> None:
        """Bring the transposed weights up to date, after weights were changed from outside."""
        np.take(self.weights, self._transposed_edges, out=self._transposed)

    def cuts(self, nthreads: int) -> np.ndarray:
        """Return columns at which threads begin, with equally many edges each."""
        wanted = np.linspace(0, self.nedges + self.ncols, nthreads + 1)
        found = np.searchsorted(self.indptr + np.arange(self.ncols + 1), wanted)
        found[0], found[-1] = 0, self.ncols
        return found.astype(np.int64)

    def forward_record(self) -> np.ndarray:
        """Return what compiled code knows of ``Y W + b``."""
        return self._record(
            NROWS=self.nrows, NCOLS=self.ncols, INDPTR=self.indptr, ROWS=self.rows,
            WEIGHTS=self.weights, BIAS=self.bias, BIAS_STEP=1, PLACES=self.places,
            PAIRS=self._no_pairs, LIMITS=self.limits,
        )  # fmt: skip

    def backward_record(self, limits: np.ndarray) -> np.ndarray:
        """Return what compiled code knows of ``D W^T``, kept within limits of activations."""
        return self._record(
            NROWS=self.ncols, NCOLS=self.nrows, INDPTR=self._transposed_indptr,
            ROWS=self._transposed_rows, WEIGHTS=self._transposed, BIAS=self._no_bias, BIAS_STEP=0,
            PLACES=self._transposed_places, PAIRS=self._no_pairs, LIMITS=limits,
        )  # fmt: skip

    def edge_record(self, cuts: np.ndarray) -> np.ndarray:
        """Return what compiled code knows of gradient and update."""
        moments, bias_moments = ([*each, None, None] for each in (self.moments, self.bias_moments))
        known: dict[str, int | np.ndarray | None] = {
            "NROWS": self.nrows, "NCOLS": self.ncols, "EDGES": self.nedges, "INDPTR": self.indptr,
            "ROWS": self.rows, "PLACES": self.places, "WEIGHTS": self.weights,
            "GRADIENT": self.gradient, "FIRST": moments[0], "SECOND": moments[1],
            "BIAS": self.bias, "BIAS_GRADIENT": self.bias_gradient, "BIAS_FIRST": bias_moments[0],
            "BIAS_SECOND": bias_moments[1], "TRANSPOSED": self._transposed,
            "TRANSPOSED_EDGES": self._transposed_edges, "DENSE": self.is_dense, "CUTS": cuts,
            "SQUARES": self._squares,
        }  # fmt: skip
        return np.array([address(known[name]) for name in at.EDGE_FIELDS], np.int64)

    @property
    def limits(self) -> np.ndarray:
        """Between which activations their gradient is not 0: those of ReLU and clip."""
        return self._limits

    def _transpose(self) -> None:
        """Make the arrays of the transposed matrix: its columns are the rows of this one."""
        columns = np.repeat(self.places, np.diff(self.indptr))
        degrees = np.bincount(self.rows, minlength=self.nrows)
        order = np.argsort(degrees, kind="stable")
        if self.is_dense:
            order = np.arange(self.nrows)
        rank = np.empty(self.nrows, np.int64)
        rank[order] = np.arange(self.nrows)
        # Numbers of 16 bits are sorted in one pass for each byte.
        small = np.uint16 if self.nrows <= 1 << 16 else np.uint32
        found = np.argsort(rank.astype(small)[self.rows], kind="stable")
        self._transposed_edges = found.astype(np.uint32)
        self._transposed_rows = columns[found]
        self._transposed_places = order.astype(np.uint32)
        self._transposed_indptr = np.zeros(self.nrows + 1, np.int64)
        np.cumsum(degrees[order], out=self._transposed_indptr[1:])
        self._transposed = self.weights[found]
        self._no_bias = np.zeros(1, self.info.dtype)
        self._squares = np.zeros(self.ncols)
        self._no_pairs = np.zeros(max(self.nrows, self.ncols) + 1, np.uint8)
        low = 0 if self.info.activation == "relu" else -np.inf
        high = np.inf if self.info.clip is None else self.info.clip
        self._limits = np.array([low, high], self.info.dtype)

    def _record(self, **known: int | np.ndarray) -> np.ndarray:
        known |= {"EDGES": self.nedges, "WEIGHT_STEP": 1, "PANELS": 1, "DENSE": int(self.is_dense)}
        return np.array([address(known.get(name, 0)) for name in FIELDS], np.int64)
