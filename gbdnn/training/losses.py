"""Loss functions. The loss of a minibatch is the mean over its inputs.

With sample weights, each input's loss is multiplied by its weight divided by the mean weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from gbdnn.arrays.checks import as_array, finite, require_method
from gbdnn.errors import ArgumentError, ArgumentTypeError, ShapeError
from gbdnn.runtime.first_use import is_object

if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "CrossEntropy",
    "Loss",
    "SquaredError",
    "default_loss",
    "labels_of",
    "numbered",
    "require_loss",
]


class Loss(Protocol):
    """Interface of a loss function."""

    code: ClassVar[int]
    """Number of the loss in compiled code."""

    def targets(self, y: Any, inputs: int, outputs: int, dtype: np.dtype) -> np.ndarray:
        """Return validated targets in the dtype and shape used by compiled code."""
        ...

    def losses(self, answer: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the loss of each input, float64."""
        ...

    def gradient(self, answer: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the gradient of the mean loss with respect to the answer."""
        ...

    def hits(self, answer: np.ndarray, targets: np.ndarray) -> np.ndarray | None:
        """Return whether each input's largest output is its label; None without labels."""
        ...


@dataclass(frozen=True)
class CrossEntropy:
    """Softmax and cross-entropy: ``log(sum_c exp(Y(i, c))) - Y(i, label of i)``.

    Targets are integer labels from 0 to ``outputs - 1``, shape (inputs,).

    Examples
    --------
    >>> import numpy as np
    >>> from gbdnn.training import CrossEntropy
    >>> CrossEntropy().losses(np.array([[0.0, 0.0]]), np.array([1])).round(4)
    array([0.6931])
    """

    code: ClassVar[int] = 0

    def targets(self, y: Any, inputs: int, outputs: int, dtype: np.dtype) -> np.ndarray:
        """Return labels as int64; see `Loss`."""
        labels = as_array(y, "y")
        _require_length(labels, inputs)
        if labels.ndim != 1:
            raise ShapeError(f"y: labels must have one dimension, not shape {labels.shape}")
        if labels.dtype.kind == "f" and not (labels == np.floor(labels)).all():
            raise ArgumentError(
                "y: labels must be whole numbers; use SquaredError for other targets"
            )
        if len(labels) and (labels.min() < 0 or labels.max() >= outputs):
            bad = np.flatnonzero((labels < 0) | (labels >= outputs))[0]
            raise ArgumentError(
                f"y: label {labels[bad]} of input {bad} is out of range; the network has {outputs}"
                f" outputs, so labels are 0 to {outputs - 1}"
            )
        return labels.astype(np.int64)

    def losses(self, answer: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the loss of each input; see `Loss`."""
        z = answer.astype(np.float64)
        z -= z.max(axis=1, keepdims=True)
        found: np.ndarray = np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(z)), targets]
        return found

    def gradient(self, answer: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the gradient, ``(softmax(Y) - onehot) / inputs``; see `Loss`."""
        z = np.exp(answer - answer.max(axis=1, keepdims=True))
        z /= z.sum(axis=1, keepdims=True)
        z[np.arange(len(z)), targets] -= 1
        found: np.ndarray = z / answer.dtype.type(max(1, len(z)))
        return found

    def hits(self, answer: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return whether each input's largest output is its label; see `Loss`."""
        found: np.ndarray = answer.argmax(axis=1) == targets
        return found


@dataclass(frozen=True)
class SquaredError:
    """Mean squared error over the outputs: ``sum_c (Y(i, c) - y(i, c))^2 / outputs``.

    Targets are real numbers, shape (inputs, outputs), or (inputs,) if there is one output.

    Examples
    --------
    >>> import numpy as np
    >>> from gbdnn.training import SquaredError
    >>> SquaredError().losses(np.array([[1.0, 3.0]]), np.array([[0.0, 0.0]]))
    array([5.])
    """

    code: ClassVar[int] = 1

    def targets(self, y: Any, inputs: int, outputs: int, dtype: np.dtype) -> np.ndarray:
        """Return values in the given dtype, shape (inputs, outputs); see `Loss`."""
        values = as_array(y, "y")
        _require_length(values, inputs)
        if values.ndim == 1 and outputs == 1:
            values = values.reshape(-1, 1)
        if values.shape != (inputs, outputs):
            text = f"y has shape {values.shape}, expected ({inputs}, {outputs}): the network has"
            labels = "; class numbers must have an integer dtype" if values.ndim == 1 else ""
            raise ShapeError(f"{text} {outputs} outputs{labels}")
        return np.ascontiguousarray(finite(values, dtype, "y"))

    def losses(self, answer: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the loss of each input; see `Loss`."""
        found: np.ndarray = np.mean((answer.astype(np.float64) - targets) ** 2, axis=1)
        return found

    def gradient(self, answer: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the gradient, ``2 (Y - y) / outputs / inputs``; see `Loss`."""
        found: np.ndarray = (answer - targets) * answer.dtype.type(2 / max(1, answer.size))
        return found

    def hits(self, answer: np.ndarray, targets: np.ndarray) -> None:
        """Return None; see `Loss`."""


def require_loss(x: Any) -> None:
    """Raise ArgumentTypeError unless `x` is a loss or None."""
    if x is not None:
        require_method(
            x,
            "losses",
            "loss must be CrossEntropy, SquaredError or an object with their methods",
        )


def default_loss(y: Any) -> Loss:
    """Return CrossEntropy for labels, SquaredError for other targets."""
    values = as_array(y, "y")
    return CrossEntropy() if values.ndim == 1 and values.dtype.kind in "iub" else SquaredError()


def labels_of(y: Any) -> np.ndarray | None:
    """Return the sorted labels if all of `y` are strings, else None."""
    kind = getattr(getattr(y, "dtype", None), "kind", "O")  # cheap; no need to look at numbers
    if is_object(y) or isinstance(y, str | bytes) or kind in "biufc":
        return None
    try:
        values = np.asarray(y, object)
    except Exception:  # any exception of another library; `as_array` reports it
        return None
    words = values.ndim == 1 and len(values) and all(isinstance(each, str) for each in values)
    return np.unique(values.astype(str)) if words else None


def numbered(y: Any, labels: np.ndarray | None, outputs: int) -> Any:
    """Return string labels as indices into `labels`; `y` itself if `labels` is None."""
    if labels is None:
        return y
    if len(labels) != outputs:
        raise ArgumentError(
            f"y has {len(labels)} different labels, but the network has {outputs} outputs"
        )
    words = np.asarray(y).astype(str)
    found = np.searchsorted(labels, words).clip(max=len(labels) - 1)
    if (wrong := labels[found] != words).any():
        raise ArgumentError(
            f"y: label {str(words[wrong][0])!r} does not occur in the training labels"
        )
    return found


def _require_length(y: np.ndarray, inputs: int) -> None:
    if y.ndim == 0:
        raise ArgumentTypeError("y is a single number; pass one target per input")
    if len(y) != inputs:
        raise ShapeError(f"y has {len(y)} targets, but X has {inputs} inputs")
