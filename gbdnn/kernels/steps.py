"""Training steps in compiled code: forward and backward passes and optimizer updates.

A loss or an optimizer without compiled code runs in NumPy between two calls for one minibatch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbdnn.errors import ShapeError
from gbdnn.kernels.blocks import AlignedBlock
from gbdnn.kernels.compiled.loading import required
from gbdnn.kernels.compiled.record import Record, constant
from gbdnn.kernels.together import together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gbdnn.kernels.trainable import TrainableLayer

__all__ = ["GROUP_LINES", "StepResult", "Steps", "UpdateRule"]

_FORWARD, _LOSS_GRADIENT, _BACKWARD, _UPDATE = (
    constant(name) for name in ("FORWARD", "LOSS_GRADIENT", "BACKWARD", "UPDATE")
)

# Cache lines of inputs computed at a time. Gradients read a layer's activations once for each edge,
# so these must stay in the second-level cache.
GROUP_LINES = 4


class UpdateRule(NamedTuple):
    """Update rule and constants of an optimizer, for compiled code."""

    kind: int
    """`SGD`, `NESTEROV` or `ADAM` of ``shared.h``."""

    constants: tuple[float, float, float, float, float]
    """Momentum (Adam: both decay rates), epsilon, weight decay, and maximum norm or 0."""


class StepResult(NamedTuple):
    """Result of consecutive steps."""

    steps: int
    """Steps done; fewer than requested if a loss or gradient of the next one is not finite."""

    losses: np.ndarray
    """Loss of each input, float64."""

    hits: np.ndarray | None
    """Whether the answer to each input was right; None if the loss does not define it."""


class Steps:
    """Buffers and tables for training steps.

    Parameters
    ----------
    layers : sequence of TrainableLayer
        Modified in place. Call `rebuild` after replacing a layer or its moments. The sequence
        itself is kept, so that layers removed from it are freed.
    batch : int
        Inputs per minibatch.
    loss : int or Loss
        `CROSS_ENTROPY` or `SQUARED_ERROR` of ``shared.h``, or an object
        whose methods `losses` and `gradient` compute in NumPy.
    rule : UpdateRule or Optimizer
        Or an object whose method `update` computes in NumPy.
    nthreads : int
        Results are bitwise independent of it.
    """

    def __init__(
        self, layers: Sequence[TrainableLayer], *, batch: int, loss: Any, rule: Any, nthreads: int
    ) -> None:
        self._compiled = required(layers[0].info.dtype).steps
        self.dtype, self.batch, self.nthreads = layers[0].info.dtype, batch, nthreads
        self._loss, self._rule = loss, rule
        self.in_numpy = not (isinstance(loss, int) and isinstance(rule, UpdateRule))
        """Whether `run` computes only one step per call."""
        self.rebuild(layers)

    def rebuild(self, layers: Sequence[TrainableLayer]) -> None:
        """Use these layers from now on."""
        self.layers = layers
        sizes = [self.layers[0].nrows, *(layer.ncols for layer in self.layers)]
        lanes = 64 // self.dtype.itemsize
        self._group = GROUP_LINES * lanes
        groups = -(-self.batch // self._group)
        width = min(self._group, -(-self.batch // lanes) * lanes)
        self._starts = np.cumsum([0, *sizes[:-1]])
        self._Y, self._D, self._Z = (
            AlignedBlock(groups * size, width, self.dtype)
            for size in (self._starts[-1], self._starts[-1], sizes[-1])
        )
        self._records = [
            Record.joined([layer.forward_record() for layer in self.layers]),
            Record.joined([
                layer.backward_record(self.layers[max(k - 1, 0)].limits)
                for k, layer in enumerate(self.layers)
            ]),
        ]  # fmt: skip
        self._edge_records = Record.joined([
            layer.edge_record(layer.cuts(self.nthreads)) for layer in self.layers
        ])  # fmt: skip
        self._limits = self.layers[-1].limits
        self._constants = np.array(getattr(self._rule, "constants", (0,) * 5), self.dtype)
        self._barrier = np.zeros(16, np.int64)
        self._stopped = np.zeros(1, np.int64)
        self._last = 0  # inputs of the last minibatch

    def run(
        self, X: np.ndarray, indices: np.ndarray, targets: np.ndarray, weights: np.ndarray,
        rates: np.ndarray,
    ) -> StepResult:  # fmt: skip
        """Run steps on consecutive minibatches.

        Parameters
        ----------
        X : ndarray of the layers' dtype, shape (inputs, neurons)
        indices : ndarray of int64, shape (n,)
            Rows of X, minibatch after minibatch. Their range is not checked.
        targets : ndarray
            For cross-entropy, labels as int64; for squared errors, values of the layers' dtype,
            shape (inputs, outputs), C-ordered.
        weights : ndarray of the layers' dtype, shape (inputs,)
            Factors of the gradients of the inputs' losses.
        rates : ndarray, shape (steps, 3)
            Learning rate and Adam's two corrections for each step; for an optimizer in NumPy, the
            learning rate and the number of the step.
        """
        count, numbers = len(indices), rates[0]
        losses, hits = np.empty(count), np.empty(count, np.uint8)
        rates = np.ascontiguousarray(rates, self.dtype)
        indices = np.ascontiguousarray(indices, np.int64)
        job = Record(
            "steps", self.dtype, layers=len(self.layers), forward=self._records[0],
            backward=self._records[1], edges=self._edge_records,
            group_lines=self._group * self.dtype.itemsize // 64,
            stride=self._Y.stride, starts=self._starts, Y=self._Y.whole, D=self._D.whole,
            Z=self._Z.whole, limits=self._limits, batch=self.batch, count=count, X=X,
            row_stride=X.strides[0] // X.itemsize, column_stride=X.strides[1] // X.itemsize,
            indices=indices, targets=targets, sample_weights=weights,
            loss=self._loss if isinstance(self._loss, int) else 0, losses=losses, hits=hits,
            optimizer=getattr(self._rule, "kind", 0), rates=rates, constants=self._constants,
            barrier=self._barrier, stopped=self._stopped, threads=self.nthreads,
        )  # fmt: skip
        self._last = (count - 1) % self.batch + 1
        passes = _FORWARD | _LOSS_GRADIENT | _BACKWARD
        right = hits if self._loss == constant("CROSS_ENTROPY") else None
        if not isinstance(self._loss, int):
            self._call(job, _FORWARD)
            passes, right = _BACKWARD, self._differentiate(targets, weights, indices, losses)
            if not np.isfinite(losses).all():
                return StepResult(0, losses, right)
        if isinstance(self._rule, UpdateRule):
            return StepResult(self._call(job, passes | _UPDATE), losses, right)
        self._call(job, passes)
        update, rate, step = self._rule.update, float(numbers[0]), int(numbers[1])
        for layer in self.layers if not self._stopped[0] else ():
            update(layer.weights, layer.gradient, layer.moments, rate, step)
            update(layer.bias, layer.bias_gradient, layer.bias_moments, rate, step)
            layer.refresh()
        return StepResult(1 - int(self._stopped[0]), losses, right)

    def _call(self, job: Record, passes: int) -> int:
        """Call compiled code on all threads and return the number of complete steps."""
        self._barrier[:] = self._stopped[:] = 0
        job.set(passes=passes)
        # Calls cannot be interrupted; the caller keeps them short.
        together(self.nthreads, self._compiled, job, all_needed=True)
        return int(job.first.done)

    def _differentiate(
        self, targets: np.ndarray, weights: np.ndarray, indices: np.ndarray, losses: np.ndarray
    ) -> np.ndarray | None:
        """Replace the outputs by the gradient of a loss in NumPy; return its `hits`."""
        targets, count = targets[indices], len(indices)
        outputs = self._of_groups(self._Y, len(self.layers))
        Y = np.concatenate(outputs, axis=1).T[:count].copy()
        of_inputs, D = self._loss.losses(Y, targets), self._loss.gradient(Y, targets)
        hits = self._loss.hits(Y, targets) if hasattr(self._loss, "hits") else None
        returned = [("losses", of_inputs, (count,)), ("gradient", D, Y.shape)]
        returned += [] if hits is None else [("hits", hits, (count,))]
        for name, array, shape in returned:
            if np.shape(array) != shape:
                raise ShapeError(
                    f"{type(self._loss).__name__}.{name} returned an array of shape"
                    f" {np.shape(array)}, expected {shape}"
                )
        losses[:] = of_inputs
        D = np.asarray(D, self.dtype) * weights[indices, np.newaxis]
        low, high = self._limits
        # Products of smaller numbers would be subnormal, which is ten times slower.
        D[(np.abs(D) <= np.finfo(D.dtype).tiny * 1e8) | (low >= Y) | (high <= Y)] = 0
        for n, block in enumerate(outputs):
            some = D[n * self._group :][: self._group].T
            block[:, : some.shape[1]], block[:, some.shape[1] :] = some, 0
        return hits

    def _of_groups(self, blocks: AlignedBlock, k: int) -> np.ndarray:
        """Return the blocks of all groups before layer k, or after the last one."""
        if k == len(self.layers):
            return self._Z.array.reshape(-1, self.layers[-1].ncols, self._Z.width)
        of_groups = blocks.array.reshape(-1, self._starts[-1], blocks.width)
        return of_groups[:, self._starts[k] : self._starts[k + 1]]

    def gradient(self, k: int) -> np.ndarray:
        """Return the gradient of the last minibatch for all possible weights of layer k.

        Its shape is (ncols, nrows).
        """
        left, layer = self._last, self.layers[k]
        gradient = np.zeros((layer.ncols, layer.nrows), self.dtype)
        of_layer = self._of_groups(self._Y, k), self._of_groups(self._D, k + 1)
        for Y, D in zip(*of_layer, strict=True):
            inputs = min(left, self._group)
            if inputs > 0:
                gradient += D[:, :inputs] @ Y[:, :inputs].T
            left -= inputs
        return gradient

    def first_not_finite(self) -> int:
        """Return the first layer with non-finite activations, or else gradients; or -1."""
        for k in range(len(self.layers) - 1):
            if not np.isfinite(self._of_groups(self._Y, k + 1)).all():
                return k
        for k, layer in enumerate(self.layers):
            if not (np.isfinite(layer.gradient).all() and np.isfinite(layer.bias_gradient).all()):
                return k
        return -1
