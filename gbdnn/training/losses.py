"""Loss functions. The loss of a minibatch is the mean over its inputs.

With sample weights, each input's loss is multiplied by its weight divided by the mean weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from gbdnn.arrays.checks import as_array, as_word, finite, require_method
from gbdnn.errors import ArgumentError, ArgumentTypeError, ShapeError
from gbdnn.kernels.compiled.record import constant
from gbdnn.runtime.first_use import is_object
from gbdnn.runtime.signals import from_handler

if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "BinaryCrossEntropy",
    "CrossEntropy",
    "Loss",
    "SquaredError",
    "compiled_loss",
    "default_loss",
    "hits_of",
    "labels_of",
    "loss_named",
    "numbered",
    "targets_of",
]


class Loss(Protocol):
    """Interface of a loss function.

    ``"cross_entropy"`` and ``"squared_error"`` are compiled. Objects compute in NumPy between the
    forward and the backward pass. They may also have the methods
    ``targets(y, inputs, outputs, dtype)``, which returns validated targets, by default numbers of
    shape (inputs, outputs), and ``hits(answer, targets)``, which returns whether the answer to each
    input is right, for accuracies.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> class AbsoluteError:
    ...     def losses(self, answer, targets):
    ...         return abs(answer - targets).mean(axis=1)
    ...     def gradient(self, answer, targets):
    ...         return np.sign(answer - targets) / answer.size
    >>> X = np.random.default_rng(0).random((200, 8))
    >>> net = gbdnn.training.erdos_renyi([8, 16, 1], density=0.5)
    >>> run = gbdnn.train(net, X, X.mean(axis=1), loss=AbsoluteError())
    >>> run.history[-1].loss < 0.3 * run.history[0].loss
    True
    """

    def losses(self, answer: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the loss of each input, shape (inputs,).

        `answer` has shape (inputs, outputs).
        """

    def gradient(self, answer: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the gradient of the mean of `losses` by the answer, shape (inputs, outputs)."""


@dataclass(frozen=True)
class CrossEntropy:
    """Softmax and cross-entropy: ``log(sum_c exp(Y(i, c))) - Y(i, label of i)``.

    Targets are integer labels from 0 to ``outputs - 1``, shape (inputs,).

    """

    def targets(self, y: Any, inputs: int, outputs: int, dtype: np.dtype) -> np.ndarray:
        """Return labels as int64; see `Loss`."""
        labels = as_array(y, "y")
        _require_length(labels, inputs)
        if labels.ndim != 1:
            raise ShapeError(f"y: labels must have one dimension, not shape {labels.shape}")
        if labels.dtype.kind == "f" and not (labels == np.floor(labels)).all():
            raise ArgumentError(
                'y: labels must be whole numbers; pass loss="squared_error" for others'
            )
        if len(labels) and (labels.min() < 0 or labels.max() >= outputs):
            bad = np.flatnonzero((labels < 0) | (labels >= outputs))[0]
            raise ArgumentError(
                f"y: label {labels[bad]} of input {bad} is out of range; the network has {outputs}"
                f" outputs, so labels are 0 to {outputs - 1} (for numbers, pass"
                ' loss="squared_error")'
            )
        return labels.astype(np.int64)

    def losses(self, answer: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the loss of each input; see `Loss`."""
        z = answer.astype(np.float64)
        z -= z.max(axis=1, keepdims=True)
        return np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(z)), targets]

    def gradient(self, answer: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the gradient, ``(softmax(Y) - onehot) / inputs``; see `Loss`."""
        z = np.exp(answer - answer.max(axis=1, keepdims=True))
        z /= z.sum(axis=1, keepdims=True)
        z[np.arange(len(z)), targets] -= 1
        return z / answer.dtype.type(max(1, len(z)))

    def hits(self, answer: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return whether each input's largest output is its label; see `Loss`."""
        return answer.argmax(axis=1) == targets


@dataclass(frozen=True)
class SquaredError:
    """Mean squared error over the outputs: ``sum_c (Y(i, c) - y(i, c))^2 / outputs``.

    Targets are real numbers, shape (inputs, outputs), or (inputs,) if there is one output.

    """

    def targets(self, y: Any, inputs: int, outputs: int, dtype: np.dtype) -> np.ndarray:
        """Return values in the given dtype, shape (inputs, outputs); see `Loss`."""
        return _values(y, inputs, outputs, dtype)

    def losses(self, answer: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the loss of each input; see `Loss`."""
        return np.mean((answer.astype(np.float64) - targets) ** 2, axis=1)

    def gradient(self, answer: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the gradient, ``2 (Y - y) / outputs / inputs``; see `Loss`."""
        return (answer - targets) * answer.dtype.type(2 / max(1, answer.size))


@dataclass(frozen=True)
class BinaryCrossEntropy:
    """Logistic loss, summed over the outputs: ``sum_c log(1 + exp(Y(i, c))) - y(i, c) Y(i, c)``.

    Targets are 0 or 1, shape (inputs, outputs): an input may have several labels. An answer is
    right if all of its outputs are.

    """

    def targets(self, y: Any, inputs: int, outputs: int, dtype: np.dtype) -> np.ndarray:
        """Return values in the given dtype, shape (inputs, outputs)."""
        values = _values(y, inputs, outputs, dtype)
        if not np.isin(values, (0, 1)).all():
            raise ArgumentError('y: targets of "binary_cross_entropy" must be 0 or 1')
        return values

    def losses(self, answer: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the loss of each input; see `Loss`."""
        z = answer.astype(np.float64)
        return (np.logaddexp(0, z) - targets * z).sum(axis=1)

    def gradient(self, answer: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the gradient, ``(1 / (1 + exp(-Y)) - y) / inputs``; see `Loss`."""
        probabilities = np.exp(-np.logaddexp(0, -answer))
        return (probabilities - targets) / answer.dtype.type(max(1, len(answer)))

    def hits(self, answer: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return whether the signs of an input's outputs are its labels; see `Loss`."""
        return ((answer > 0) == (targets > 0)).all(axis=1)


_NAMED: dict[str, type[CrossEntropy | BinaryCrossEntropy | SquaredError]] = {
    "cross_entropy": CrossEntropy, "binary_cross_entropy": BinaryCrossEntropy,
    "squared_error": SquaredError,
}  # fmt: skip


def loss_named(loss: Any) -> Loss | None:
    """Return the loss with this name; raise ArgumentTypeError unless it is a loss or None."""
    if isinstance(loss, str):
        as_word(loss, "loss", list(_NAMED))
        return _NAMED[loss]()
    for method in ("losses", "gradient") if loss is not None else ():
        names = ", ".join(f'"{each}"' for each in _NAMED)
        what = f"loss must be {names} or an object with the methods losses and gradient"
        require_method(loss, method, what)
    return loss


def compiled_loss(loss: Loss) -> int | None:
    """Return the number of a loss in compiled code; None if it computes in NumPy."""
    # Subclasses may have other methods.
    codes = {
        CrossEntropy: constant("CROSS_ENTROPY"),
        SquaredError: constant("SQUARED_ERROR"),
    }
    return codes.get(type(loss))


def targets_of(loss: Loss, y: Any, inputs: int, outputs: int, dtype: np.dtype) -> np.ndarray:
    """Return validated targets for a loss."""
    return getattr(loss, "targets", _values)(y, inputs, outputs, dtype)


def hits_of(loss: Loss, answer: np.ndarray, targets: np.ndarray) -> np.ndarray | None:
    """Return whether each answer is right; None if the loss does not define it."""
    hits = getattr(loss, "hits", None)
    return None if hits is None else hits(answer, targets)


def default_loss(y: Any) -> Loss:
    """Return the loss for labels, a matrix of 0 and 1 in whole numbers, or other targets."""
    values = as_array(y, "y")
    if values.dtype.kind not in "iub":
        return SquaredError()
    if values.ndim == 1:
        return CrossEntropy()
    if ((values == 0) | (values == 1)).all():
        return BinaryCrossEntropy()
    raise ArgumentError(
        "y is a matrix of whole numbers other than 0 and 1; pass labels of shape (inputs,), or"
        ' loss="squared_error" for numbers'
    )


def labels_of(y: Any) -> np.ndarray | None:
    """Return the sorted labels if all of `y` are strings, else None."""
    kind = getattr(getattr(y, "dtype", None), "kind", "O")  # cheap; no need to look at numbers
    if is_object(y) or isinstance(y, str | bytes) or kind in "biufc":
        return None
    try:
        values = np.asarray(y, object)
    except Exception as err:  # any exception of another library; `as_array` reports it
        if from_handler(err):
            raise
        return None
    words = values.ndim == 1 and len(values) and all(isinstance(value, str) for value in values)
    return np.unique(values.astype(str)) if words else None


def numbered(y: Any, labels: np.ndarray | None, outputs: int) -> Any:
    """Return string labels as indices into `labels`; `y` itself if `labels` is None."""
    if labels is None:
        return y
    if len(labels) != outputs:
        raise ArgumentError(
            f"y has {len(labels)} different labels, but the network has {outputs} outputs"
        )
    words = np.asarray(y, object).astype(str)  # NumPy does not cast StringDType to str
    places = np.searchsorted(labels, words).clip(max=len(labels) - 1)
    if (wrong := labels[places] != words).any():
        raise ArgumentError(
            f"y: label {str(words[wrong][0])!r} does not occur in the training labels"
        )
    return places


def _values(y: Any, inputs: int, outputs: int, dtype: np.dtype) -> np.ndarray:
    """Return finite targets, shape (inputs, outputs)."""
    values = as_array(y, "y")
    _require_length(values, inputs)
    if values.ndim == 1 and outputs == 1:
        values = values.reshape(-1, 1)
    if values.shape != (inputs, outputs):
        finite(values, dtype, "y")  # a missing value makes labels floats
        text = f"y has shape {values.shape}, expected ({inputs}, {outputs}): the network has"
        remedy = ""
        if values.ndim == 1 and values.dtype.kind == "f":
            remedy = "; class numbers must have an integer dtype"
        elif values.ndim == 1:
            remedy = (
                "; for labels, pass loss='cross_entropy' or a custom loss with a method targets"
            )
        raise ShapeError(f"{text} {outputs} outputs{remedy}")
    return np.ascontiguousarray(finite(values, dtype, "y"))


def _require_length(y: np.ndarray, inputs: int) -> None:
    if y.ndim == 0:
        raise ArgumentTypeError("y is a single number; pass one target per input")
    if len(y) != inputs:
        raise ShapeError(f"y has {len(y)} targets, but X has {inputs} inputs")
