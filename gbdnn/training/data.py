"""Inputs with their targets, checked once: to train with, and to look at after each epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbdnn.arrays.checks import as_array, finite
from gbdnn.engine.run import infer_network
from gbdnn.engine.sources import as_array as array_of
from gbdnn.errors import ArgumentError, ShapeError, naming
from gbdnn.training.inputs import MEMORY, as_inputs
from gbdnn.training.losses import require_all_labels

if TYPE_CHECKING:
    from gbdnn.model.network import Network
    from gbdnn.training.inputs import Inputs
    from gbdnn.training.losses import Loss

__all__ = ["TrainingData", "ValidationData", "answers", "as_weights"]

_AT_ONCE = 1024  # inputs of one call of `infer_network`


class TrainingData(NamedTuple):
    """Inputs, all targets and weights, and the rows of those that are meant."""

    inputs: Inputs
    targets: np.ndarray
    rows: np.ndarray
    weights: np.ndarray
    """Of inputs, float64, not negative."""

    @classmethod
    def of(
        cls,
        X: Any,
        y: Any,
        net: Network,
        loss: Loss,
        sample_weight: Any = None,
        memory: int = MEMORY,
    ) -> TrainingData:
        """Return inputs and targets that fit a network, or raise what is wrong with them."""
        with naming("X"):
            inputs = as_inputs(X, net, memory)
        if not inputs.nrows:
            raise ArgumentError("X has no inputs")
        targets = loss.targets(y, inputs.nrows, net.shape[1], net.infos[0].dtype)
        weights = as_weights(sample_weight, inputs.nrows)
        return cls(inputs, targets, np.arange(inputs.nrows), weights)

    def split(
        self, part: float, seed: int, *, stratified: bool = False
    ) -> tuple[TrainingData, ValidationData]:
        """Return these data without, and with, a part of the inputs, of labels in proportion."""
        count = round(part * len(self.rows))
        if not 0 < count < len(self.rows):
            raise ArgumentError(
                f"validation: {part} of {len(self.rows)} inputs leaves {len(self.rows) - count} to"
                f" train with and {count} to look at"
            )
        order = np.random.default_rng([seed, 99]).permutation(self.rows)
        taken = np.arange(count)
        if stratified:
            if self.targets.ndim != 1:
                raise ArgumentError('validation: "stratified" is for labels')
            order = order[np.argsort(self.targets[order], kind="stable")]
            taken = ((taken + 0.5) * (len(order) / count)).astype(np.int64)
        kept, tested = np.sort(np.delete(order, taken)), np.sort(order[taken])
        if not (self.weights[kept].any() and self.weights[tested].any()):
            raise ArgumentError(f"validation: {part} leaves a part whose weights are all 0")
        return self._replace(rows=kept), ValidationData(*self._replace(rows=tested))

    def require_all_labels(self, outputs: int) -> None:
        """Raise an error if some label has no input."""
        require_all_labels(self.targets[self.rows], outputs, self.weights[self.rows])


class ValidationData(TrainingData):
    """Inputs that are only looked at."""

    @classmethod
    def of(cls, *given: Any) -> ValidationData:
        """As `TrainingData.of`."""
        with naming("validation"):
            return cls(*TrainingData.of(*given))

    def evaluate(self, net: Network, loss: Loss, nthreads: int) -> tuple[float, float | None]:
        """Return mean loss and accuracy of a network's answers; no accuracy without labels."""
        total, hits = 0.0, 0.0
        dtype = net.infos[0].dtype
        for start in range(0, len(self.rows), _AT_ONCE):
            rows = self.rows[start : start + _AT_ONCE]
            X = np.empty((len(rows), net.shape[0]), dtype)
            self.inputs.take(rows, X)
            answer, weights = answers(net, X, nthreads), self.weights[rows]
            total += float((loss.losses(answer, self.targets[rows]) * weights).sum())
            found = loss.hits(answer, self.targets[rows])
            hits += 0.0 if found is None else float(found @ weights)
        count = float(self.weights[self.rows].sum())
        return total / count, hits / count if self.targets.ndim == 1 else None


def as_weights(sample_weight: Any, inputs: int) -> np.ndarray:
    """Return weights of inputs, float64: 1 each if none are given."""
    if sample_weight is None:
        return np.ones(inputs)
    weights = finite(as_array(sample_weight, "sample_weight"), np.dtype(float), "sample_weight")
    if weights.shape != (inputs,):
        raise ShapeError(
            f"sample_weight: shape {weights.shape}, not ({inputs},), one of each input"
        )
    if (weights < 0).any() or not weights.any():
        raise ArgumentError("sample_weight: weights are at least 0, and not all of them zero")
    return weights


def answers(net: Network, X: np.ndarray, nthreads: int) -> np.ndarray:
    """Return a network's answer to an array, as an array."""
    Y = infer_network(net, X, compress=False, nthreads=nthreads)
    if Y.ss.format.startswith(("full", "bitmap")):
        return array_of(Y)
    found: np.ndarray = Y.to_dense(fill_value=0)
    return found
