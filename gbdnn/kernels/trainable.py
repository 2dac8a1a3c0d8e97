"""A layer in training: its edges, their weights, gradients and moments.

A `Layer` is immutable and stores no zeros. Here weights change in place. An edge of weight 0
remains an edge, since new edges start at 0 and a regulariser may set weights to 0.

Edges are numbered ``column * nrows + row``. Columns are stored in the order of computation, by
degree; values of edges and neurons are stored in the same order.

The activations of a wide layer exceed the caches. If neurons have enough edges, its rows are
divided into panels, and edges are stored by panel, then by column, so that a panel's activations
are read from the first-level cache.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.errors import ArgumentError, TooLargeError
from gbdnn.kernels import costs
from gbdnn.kernels.compiled.record import Record
from gbdnn.model.layer import Layer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gbdnn.model.layer_info import LayerInfo

__all__ = ["Pattern", "TrainableLayer", "edges_of", "layer_of"]

_PART = 1 << 18  # edges for which 64-bit numbers are created at a time


class Pattern:
    """Edges of a layer whose weights belong to others.

    Parameters
    ----------
    info : LayerInfo
        Shape, dtype, activation and clip.
    edges : ndarray of integers, shape (nedges,)
        Edge numbers, ascending.
    in_panels : bool, default True
        Whether wide layers are divided into panels.
    by_degree : bool, default False
        Whether columns without panels are stored by degree. Otherwise their edges are stored in the
        order of numbers.

    Attributes
    ----------
    compact_numbers : ndarray, shape (nedges,)
        Edge numbers, ascending, as uint32 if they fit, otherwise int64.
    indptr, rows : ndarray of int64, of uint32
        Start of each stored column's edges in each panel, and the source neuron of each edge.
    places : ndarray of uint32, shape (ncols,)
        Neuron of each stored column.
    limits : ndarray, shape (2,)
        Limits of ReLU and clip; activations between them have a gradient.
    """

    # A record without an array has a null pointer.
    weights: Any = None
    gradient: Any = None
    bias: Any = None
    bias_gradient: Any = None
    moments: Sequence[np.ndarray] = ()
    bias_moments: Sequence[np.ndarray] = ()
    _transposed: Any = None

    def __init__(
        self, info: LayerInfo, edges: np.ndarray, *, by_degree: bool = False, in_panels: bool = True
    ) -> None:
        nrows, ncols = info.shape
        if len(edges) >= 2**32:
            raise TooLargeError(
                f"a layer of {len(edges)} edges is too large for training; the maximum is 2^32 - 1"
            )
        self.info, self.nrows, self.ncols = info, nrows, ncols
        numbers = edges.astype(_number_type(info), copy=False)
        self.compact_numbers = numbers
        self.is_dense, self._in_panels = len(edges) == nrows * ncols, in_panels
        size, self._panels = self._divided(nrows, ncols, len(edges))
        starts = _starts(info, numbers, size, self._panels)
        degrees = np.diff(starts).reshape(ncols, self._panels)
        order = np.argsort(degrees[:, 0], kind="stable")
        if self.is_dense or self._panels > 1 or not by_degree:
            order = np.arange(ncols)
        # Compiled tiles of several columns rely on ascending degrees, except among pairs.
        self._paired = bool((np.diff(degrees[order, 0]) < 0).any())
        self.places = order.astype(np.uint32)
        self.indptr = np.zeros(self._panels * ncols + 1, np.int64)
        np.cumsum(degrees[order].T, out=self.indptr[1:])
        self._starts = starts[:-1].reshape(ncols, self._panels)[order].T.ravel()
        self.rows = np.empty(len(edges), np.uint32)
        for part, place in self._parts():
            self.rows[part] = numbers[place] % nrows
        self._transpose()

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute once: compiled code holds the addresses of the arrays."""
        if value is not self.__dict__.get(name, value):
            raise AttributeError(
                f"{name} of a layer in training cannot be assigned; change the array in place, as"
                f" in layer.{name}[:] = ..."
            )
        super().__setattr__(name, value)

    @property
    def numbers(self) -> np.ndarray:
        """Edge numbers, int64, ascending."""
        return self.compact_numbers.astype(np.int64, copy=False)

    @property
    def nedges(self) -> int:
        """Number of edges, including those of weight 0."""
        return len(self.rows)

    @property
    def columns(self) -> np.ndarray:
        """Target neuron of each edge, int64, in the order of `rows`."""
        return np.repeat(np.tile(self.places.astype(np.int64), self._panels), np.diff(self.indptr))

    @property
    def edges(self) -> np.ndarray:
        """Edge numbers in the order of `rows`."""
        return self.columns * self.nrows + self.rows

    def numbered(self, values: np.ndarray) -> np.ndarray:
        """Return values of edges in the order of edge numbers."""
        ordered = np.empty_like(values)
        for part, place in self._parts():
            ordered[place] = values[part]
        return ordered

    def by_neuron(self, values: np.ndarray) -> np.ndarray:
        """Return values of columns in the order of neurons."""
        ordered = np.empty_like(values)
        ordered[self.places] = values
        return ordered

    def cuts(self, nthreads: int) -> np.ndarray:
        """Return the first column of each thread, with about the same number of edges each."""
        degrees = np.diff(self.indptr).reshape(self._panels, self.ncols).sum(axis=0)
        ends = np.append(0, np.cumsum(degrees + 1))
        cuts = np.searchsorted(ends, np.linspace(0, ends[-1], nthreads + 1))
        cuts[0], cuts[-1] = 0, self.ncols
        return cuts.astype(np.int64)

    def forward_record(self) -> Record:
        """Return the compiled code's record of ``Y W + b``."""
        return self._record(
            nrows=self.nrows, ncols=self.ncols, indptr=self.indptr, rows=self.rows,
            weights=self.weights, bias=self.bias, bias_step=1, places=self.places,
            pairs=self._no_pairs, limits=self.limits, panels=self._panels, paired=self._paired,
        )  # fmt: skip

    def backward_record(self, limits: np.ndarray) -> Record:
        """Return the compiled code's record of ``D W^T``, within activation limits."""
        return self._record(
            nrows=self.ncols, ncols=self.nrows, indptr=self._transposed_indptr,
            rows=self._transposed_rows, weights=self._transposed, bias=self._no_bias, bias_step=0,
            places=self._transposed_places, pairs=self._no_pairs, limits=limits,
            panels=self._transposed_panels, masked=1,
        )  # fmt: skip

    def edge_record(self, cuts: np.ndarray) -> Record:
        """Return the compiled code's record of gradient and update."""
        moments, bias_moments = ([*pair, None, None] for pair in (self.moments, self.bias_moments))
        return Record(
            "edges", self.info.dtype, nrows=self.nrows, ncols=self.ncols, edges=self.nedges,
            indptr=self.indptr, rows=self.rows, places=self.places, weights=self.weights,
            gradient=self.gradient, first=moments[0], second=moments[1], bias=self.bias,
            bias_gradient=self.bias_gradient, bias_first=bias_moments[0],
            bias_second=bias_moments[1], transposed=self._transposed,
            transposed_edges=self._transposed_edges, dense=self.is_dense, cuts=cuts,
            squares=self._squares, panels=self._panels,
        )  # fmt: skip

    def _divided(self, nrows: int, ncols: int, nedges: int) -> tuple[int, int]:
        """Return the number of rows of a panel, and the number of panels."""
        is_whole = self.is_dense or not self._in_panels
        size = nrows if is_whole else costs.training_panel_rows(nedges, nrows, ncols)
        return size, max(1, -(-nrows // max(1, size)))

    def _transpose(self) -> None:
        """Create the arrays of the transposed matrix, whose columns are the rows of this one."""
        size, panels = self._divided(self.ncols, self.nrows, self.nedges)
        columns = np.repeat(np.tile(self.places, self._panels), np.diff(self.indptr))
        degrees = np.zeros(panels * self.nrows, np.int64)
        step = max(_PART, len(degrees))
        for first in range(0, self.nedges, step):
            part = slice(first, first + step)
            groups = columns[part] // np.uint32(size) * self.nrows if panels > 1 else 0
            degrees += np.bincount(groups + self.rows[part], minlength=len(degrees))
        order = np.argsort(degrees[: self.nrows], kind="stable")
        if self.is_dense or panels > 1:
            order = np.arange(self.nrows)
        rank = np.empty(self.nrows, np.int64)
        rank[order] = np.arange(self.nrows)
        # 16-bit numbers are sorted in one pass per byte.
        small = np.uint16 if self.nrows <= 1 << 16 else np.uint32
        ranks = _take(rank.astype(small), self.rows, np.empty(self.nedges, small))
        edges = np.argsort(ranks, kind="stable").astype(np.uint32)
        if panels > 1:
            small = np.uint16 if panels <= 1 << 16 else np.uint32
            of_edges = (columns // np.uint32(size)).astype(small)[edges]
            edges = edges[np.argsort(of_edges, kind="stable")]
        self._transposed_edges, self._transposed_panels = edges, panels
        self._transposed_rows = _take(columns, self._transposed_edges, np.empty_like(columns))
        self._transposed_places = order.astype(np.uint32)
        self._transposed_indptr = np.zeros(len(degrees) + 1, np.int64)
        np.cumsum(degrees.reshape(panels, -1)[:, order], out=self._transposed_indptr[1:])
        self._no_bias = np.zeros(1, self.info.dtype)
        self._squares = np.zeros(self.ncols)
        self._no_pairs = np.zeros(max(self.nrows, self.ncols) + 1, np.uint8)
        low = 0 if self.info.activation == "relu" else -np.inf
        high = np.inf if self.info.clip is None else self.info.clip
        self.limits = np.array([low, high], self.info.dtype)

    def _record(self, **known: int | np.ndarray) -> Record:
        return Record(
            "layer", self.info.dtype, **known, edges=self.nedges, weight_step=1, dense=self.is_dense
        )

    def order(self) -> np.ndarray | None:
        """Return the position of each stored edge in the order of numbers; None if it is that."""
        if self._panels == 1 and (self.places == np.arange(self.ncols)).all():
            return None
        return np.concatenate([np.empty(0, np.int64), *(place for _, place in self._parts())])

    def _parts(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield ranges of edges, and their positions in the order of edge numbers."""
        cuts = np.searchsorted(self.indptr, np.arange(0, self.nedges + _PART, _PART))
        for first, end in pairwise(np.minimum(cuts, len(self._starts)).tolist()):
            starts = self.indptr[first : end + 1]
            moved = self._starts[first:end] - starts[:-1]
            place = np.repeat(moved, np.diff(starts))
            place += np.arange(starts[0], starts[-1])
            yield slice(starts[0], starts[-1]), place


class TrainableLayer(Pattern):
    """A layer during training, as adjustments get it: edges, weights, gradient and moments.

    Parameters
    ----------
    info : LayerInfo
        Shape, dtype, activation and clip.
    edges : ndarray of integers, shape (nedges,)
        Edge numbers, ascending.
    weights : ndarray, shape (nedges,)
    bias : ndarray, shape (ncols,)
    moments : sequence of ndarray, shape (nedges,)
        Up to two moments of the weights (default: zeros).
    bias_moments : sequence of ndarray, shape (ncols,)
        Moments of the biases.

    Attributes
    ----------
    weights, gradient : ndarray, shape (nedges,)
        In the order of `rows`.
    bias, bias_gradient : ndarray, shape (ncols,)
        In the order of `places`.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> class Halve:
    ...     every = None  # called after every epoch
    ...     def adjust(self, layers, context):
    ...         kept = [layer.numbers[::2] for layer in layers]
    ...         return [layer.with_edges(each) for layer, each in zip(layers, kept)]
    >>> net = gbdnn.training.erdos_renyi([8, 16, 2], density=0.5)
    >>> run = gbdnn.train(net, np.eye(8), np.arange(8) % 2, epochs=1, adjustments=Halve())
    >>> run.network.edges < net.edges
    True
    """

    def __init__(
        self, info: LayerInfo, edges: np.ndarray, weights: np.ndarray, bias: np.ndarray,
        moments: Sequence[np.ndarray] = (), bias_moments: Sequence[np.ndarray] = (),
    ) -> None:  # fmt: skip
        super().__init__(info, edges, by_degree=True)
        dtype, order = info.dtype, self.places
        self.weights = self._ordered(weights)
        self._transposed = np.empty_like(self.weights)
        self.refresh()
        self.gradient = np.zeros(len(edges), dtype)
        self.bias = np.ascontiguousarray(bias, dtype)[order]
        self.bias_gradient = np.zeros(self.ncols, dtype)
        self.moments = [self._ordered(moment) for moment in moments]
        self.bias_moments = [np.ascontiguousarray(moment, dtype)[order] for moment in bias_moments]

    def with_edges(self, numbers: np.ndarray) -> TrainableLayer:
        """Return a layer with other edges; common edges keep weights and moments, others get 0.

        Parameters
        ----------
        numbers : ndarray of int64
            ``column * nrows + row`` of each edge, ascending.

        Raises
        ------
        ArgumentError
            The numbers do not ascend, repeat, or are not those of places of the layer.
        """
        numbers, most = np.asarray(numbers), self.nrows * self.ncols
        is_whole = numbers.ndim == 1 and numbers.dtype.kind in "iu"
        if (
            not is_whole
            or (numbers[1:] <= numbers[:-1]).any()
            or not (not len(numbers) or 0 <= int(numbers[0]) <= int(numbers[-1]) < most)
        ):
            raise ArgumentError(
                f"edges must be integers from 0 to {most - 1} that ascend without repetition"
            )
        numbers = numbers.astype(_number_type(self.info), copy=False)
        before = [self.numbered(values) for values in (self.weights, *self.moments)]
        after = [np.zeros(len(numbers), self.info.dtype) for _ in before]
        for first in range(0, len(numbers) if self.nedges else 0, _PART):
            wanted = numbers[first : first + _PART]
            place = np.searchsorted(self.compact_numbers, wanted).clip(max=self.nedges - 1)
            kept = np.flatnonzero(self.compact_numbers[place] == wanted)
            for new, old in zip(after, before, strict=True):
                new[first + kept] = old[place[kept]]
        del before
        biases = [self.by_neuron(values) for values in (self.bias, *self.bias_moments)]
        return TrainableLayer(self.info, numbers, after[0], biases[0], after[1:], biases[1:])

    def refresh(self) -> None:
        """Update the transposed weights after weights were modified from outside."""
        _take(self.weights, self._transposed_edges, self._transposed)

    def _ordered(self, values: np.ndarray) -> np.ndarray:
        """Return values of edges, given in the order of numbers, in the order of `rows`."""
        ordered = np.empty(self.nedges, self.info.dtype)
        for part, place in self._parts():
            ordered[part] = values[place]
        return ordered


def edges_of(layer: Layer) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return edge numbers, weights and bias of a layer as new arrays."""
    indptr, rows, values = (
        layer.W.ss.export("csc", sort=True)[name] for name in ("indptr", "row_indices", "values")
    )
    starts = np.arange(layer.ncols, dtype=_number_type(layer)) * layer.nrows
    numbers = np.repeat(starts, np.diff(indptr.view(np.int64)))
    np.add(numbers, rows.view(np.int64), out=numbers, casting="unsafe")
    weights = np.full(len(rows), values[0]) if len(values) == 1 else values
    return numbers, weights, np.full(layer.ncols, layer.bias, layer.dtype)


def layer_of(info: LayerInfo, numbers: np.ndarray, weights: np.ndarray, bias: np.ndarray) -> Layer:
    """Return a layer from edge numbers; it takes ownership of weights and bias."""
    rows = np.empty(len(numbers), np.uint64)
    np.remainder(numbers, info.nrows, out=rows, casting="unsafe")
    columns = SparseRows(_starts(info, numbers).view(np.uint64), rows, weights, info.nrows)
    matrix = columns.matrix(transposed=True)
    return Layer(matrix, bias, activation=info.activation, clip=info.clip, copy=False)


def _number_type(info: LayerInfo) -> type[np.uint32 | np.int64]:
    """Return the integer type for the edge numbers of a layer and the number after the last."""
    return np.uint32 if info.nrows * info.ncols < 2**32 else np.int64


def _starts(info: LayerInfo, numbers: np.ndarray, size: int = 0, panels: int = 1) -> np.ndarray:
    """Return the index of each column's first edge in each panel, and the number of edges."""
    columns = np.arange(info.ncols + 1, dtype=numbers.dtype) * info.nrows
    if panels == 1:
        return np.searchsorted(numbers, columns)
    firsts = columns[:-1, np.newaxis] + np.arange(panels, dtype=numbers.dtype) * size
    return np.searchsorted(numbers, np.append(firsts.ravel(), columns[-1]))


def _take(values: np.ndarray, places: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Copy values at valid positions to an array and return it."""
    for first in range(0, len(places), _PART):
        part = slice(first, first + _PART)
        np.take(values, places[part], out=out[part], mode="clip")
    return out
