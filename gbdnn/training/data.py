"""Features, targets and sample weights of a training, validated once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbdnn.arrays.checks import as_array, finite
from gbdnn.arrays.matrices import as_features, to_array
from gbdnn.arrays.sources import DenseRows, as_source, is_source
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.engine.run import infer_network
from gbdnn.errors import ArgumentError, ShapeError, naming
from gbdnn.io.store.features import PART
from gbdnn.runtime.machine import memory as machine_memory
from gbdnn.training.losses import hits_of, targets_of
from gbdnn.training.patterns import generator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gbdnn.arrays.sources import RowSource
    from gbdnn.model.network import Network
    from gbdnn.training.losses import Loss

__all__ = ["MEMORY", "Inputs", "StoredInputs", "TrainingData", "answers", "as_weights"]

MEMORY = min(4 << 30, (machine_memory() or 8 << 30) // 4)
"""Default budget in bytes for rows of stored features."""

_COPIES = 3  # of the rows, while they are read
_BLOCK = 1024  # inputs evaluated together


class ArrayInputs:
    """Rows of a finite array, shape (inputs, neurons), which is not copied."""

    def __init__(self, rows: DenseRows) -> None:
        self._array = rows.array
        self.nrows, self.dtype = rows.nrows, rows.array.dtype
        self.array = rows.array if rows.is_as_is else None
        """The array, if compiled code can read it directly; otherwise None."""
        self.content = rows.array
        """All that identifies the inputs."""

    def take(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Copy rows to an array of shape (rows, neurons)."""
        out[:] = self._array[rows]


class SparseInputs:
    """Sparse rows; each minibatch is converted to an array.

    Parameters
    ----------
    rows : SparseRows
    content : object, optional
        All that identifies them; default: their arrays.
    """

    array = None

    def __init__(self, rows: SparseRows, content: Any = None) -> None:
        self.content = content or (rows.indptr, rows.columns, rows.values)
        self.nrows, self.dtype = rows.nrows, rows.values.dtype
        self._starts, self._degrees = rows.indptr.view(np.int64)[:-1], rows.degrees
        self._columns, self._values = rows.columns.view(np.int64), rows.values

    def take(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Copy rows to an array of shape (rows, neurons)."""
        degrees = self._degrees[rows]
        ends = np.cumsum(degrees)
        at = np.repeat(self._starts[rows] - ends + degrees, degrees) + np.arange(degrees.sum())
        out[:] = 0
        out[np.repeat(np.arange(len(rows)), degrees), self._columns[at]] = self._values[at]


class StoredInputs:
    """Rows of a store that exceeds `memory` bytes, the budget for rows held at a time.

    The store is read in order, as many minibatches at a time as fit.
    """

    array = None

    def __init__(self, rows: RowSource, memory: int, content: Any) -> None:
        self.nrows, self.dtype, self._source = rows.nrows, rows.dtype, rows
        self.content = content
        self._room = max(1, memory * rows.nrows // max(1, _COPIES * _nbytes(rows)))
        # Rows read at a time: as many entries as a part of a store has.
        self._step = max(1, min(1 << 14, PART * rows.nrows // max(1, int(rows.nvals))))
        self._ids = self._following = np.arange(0)

    def expect(self, rows: np.ndarray) -> None:
        """Set the order in which rows will be taken by the following minibatches."""
        self._following = rows

    def take(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Copy rows to an array of shape (rows, neurons)."""
        if not np.isin(rows, self._ids).all():
            self._held = SparseInputs(self._source.sparse_rows(0, 0))  # free the previous rows
            room = max(1, self._room // len(rows)) * len(rows)  # whole minibatches
            expected = np.array_equal(self._following[: len(rows)], rows)
            some, self._following = np.split(self._following if expected else rows, [room])
            self._ids = np.sort(some)
            self._held = SparseInputs(_taken(self._source, self._ids, self._step))
        self._held.take(np.searchsorted(self._ids, rows), out)


Inputs = ArrayInputs | SparseInputs | StoredInputs


def as_inputs(X: Any, net: Network) -> Inputs:
    """Return features as a source of minibatches; raise if they are invalid.

    Sparse features stay sparse. Stored features are read at once if they fit into `MEMORY`.
    """
    X, dtype = as_features(X, "features"), net.infos[0].dtype
    source = as_source(X, dtype, net.infos[0].shape)
    if isinstance(source, DenseRows):
        source.largest  # noqa: B018 -- raises if a value is not finite
        return ArrayInputs(source)
    store = getattr(X, "source", None)
    content = store and (store.content(), getattr(X, "start", 0), X.nrows)
    if is_source(X) and _COPIES * _nbytes(source) > MEMORY:
        return StoredInputs(source, MEMORY, content)
    return SparseInputs(source.sparse_rows(0, source.nrows), content)


def _nbytes(rows: RowSource) -> int:
    return 8 * rows.nrows + (8 + rows.dtype.itemsize) * int(rows.nvals)


class TrainingData(NamedTuple):
    """Inputs with targets and weights, and the indices of the rows in use."""

    inputs: Inputs
    targets: np.ndarray
    rows: np.ndarray
    weights: np.ndarray
    """Nonnegative weight of each input, float64."""

    @classmethod
    def of(
        cls, X: Any, y: Any, net: Network, loss: Loss, sample_weight: Any = None
    ) -> TrainingData:
        """Return validated data for a network; rows go by position, whatever their labels."""
        with naming("X"):
            inputs = as_inputs(X, net)
        if not inputs.nrows:
            raise ArgumentError("X has no rows; training needs at least one input")
        targets = targets_of(loss, y, inputs.nrows, net.shape[1], net.infos[0].dtype)
        weights = as_weights(sample_weight, inputs.nrows)
        return cls(inputs, targets, np.arange(inputs.nrows), weights)

    def split(
        self, part: float, seed: int, *, stratified: bool = False
    ) -> tuple[TrainingData, TrainingData]:
        """Split the data for training and validation; `part` is the validation fraction."""
        count = round(part * len(self.rows))
        if not 0 < count < len(self.rows):
            raise ArgumentError(
                f"validation={part} splits {len(self.rows)} inputs into"
                f" {len(self.rows) - count} for training and {count} for validation;"
                " neither may be empty"
            )
        order = generator(seed, "validation").permutation(self.rows)
        tested_at = np.arange(count)
        if stratified:
            if self.targets.ndim != 1:
                raise ArgumentError('validation="stratified" requires labels as targets')
            order = order[np.argsort(self.targets[order], kind="stable")]
            tested_at = ((tested_at + 0.5) * (len(order) / count)).astype(np.int64)
        kept, tested = np.sort(np.delete(order, tested_at)), np.sort(order[tested_at])
        if not (self.weights[kept].any() and self.weights[tested].any()):
            raise ArgumentError(
                f"validation={part}: all sample weights of the training or validation part are 0"
            )
        return self._replace(rows=kept), self._replace(rows=tested)

    def _blocks(self, net: Network, first: int = _BLOCK) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the inputs in use, some at a time, and their rows."""
        for start in (0, *range(first, len(self.rows), _BLOCK)):
            rows = self.rows[start : start + (_BLOCK if start else first)]
            X = np.empty((len(rows), net.shape[0]), net.infos[0].dtype)
            self.inputs.take(rows, X)
            yield X, rows

    def is_constant(self, net: Network, nthreads: int) -> bool:
        """Return whether a network has the same answer to different inputs, of all that it has."""
        firsts: list[np.ndarray] = []
        is_varied = False
        for X, _ in self._blocks(net, first=16):
            Y = answers(net, X, nthreads)
            firsts = firsts or [X[:1].copy(), Y[:1]]
            if (firsts[1] != Y).any():
                return False
            is_varied |= bool((firsts[0] != X).any())
        return is_varied

    def evaluate(self, net: Network, loss: Loss, nthreads: int) -> tuple[float, float | None]:
        """Return mean loss and accuracy of a network (None if the loss does not define hits)."""
        total, hits, are_hits = 0.0, 0.0, None
        for X, rows in self._blocks(net):
            answer, weights = answers(net, X, nthreads), self.weights[rows]
            total += float((loss.losses(answer, self.targets[rows]) * weights).sum())
            are_hits = hits_of(loss, answer, self.targets[rows])
            hits += 0.0 if are_hits is None else float(are_hits @ weights)
        count = float(self.weights[self.rows].sum())
        return total / count, None if are_hits is None else hits / count


def as_weights(sample_weight: Any, inputs: int) -> np.ndarray:
    """Return sample weights as float64; the default is 1."""
    if sample_weight is None:
        return np.ones(inputs)
    weights = finite(as_array(sample_weight, "sample_weight"), np.dtype(float), "sample_weight")
    if weights.shape != (inputs,):
        raise ShapeError(f"sample_weight has shape {weights.shape}, expected ({inputs},)")
    if (weights < 0).any() or not weights.any():
        raise ArgumentError("sample_weight must not be negative, and not all zero")
    return weights


def answers(net: Network, X: np.ndarray, nthreads: int) -> np.ndarray:
    """Return a network's answer to an array as an array."""
    source = as_source(X, net.infos[0].dtype, net.infos[0].shape)
    Y = infer_network(net, source, deduplicate=False, nthreads=nthreads)
    return to_array(Y)


def _taken(features: RowSource, ids: np.ndarray, step: int) -> SparseRows:
    """Return rows of `features` with ascending ids, reading `step` rows at a time."""
    parts = []
    for start in range(int(ids[0]), int(ids[-1]) + 1, step):
        stop = min(start + step, features.nrows)
        some = ids[np.searchsorted(ids, start) : np.searchsorted(ids, stop)]
        if len(some):
            parts.append(features.sparse_rows(start, stop).take(some - start))
    return SparseRows.joined(parts)
