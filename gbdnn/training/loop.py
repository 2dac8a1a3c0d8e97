"""The loop: epochs of minibatches, with adjustments between steps.

Steps run in compiled code, many in one call, up to the next point at which something else has to
happen: an adjustment, the end of an epoch, or time to look for an interrupt.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gbdnn.kernels.steps import Steps
from gbdnn.training.adjustments import StepContext
from gbdnn.training.optimizers import step_rates
from gbdnn.training.run import LayerState, states_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gbdnn.kernels.steps import StepResult
    from gbdnn.training.adjustments import Adjustment
    from gbdnn.training.inputs import Inputs
    from gbdnn.training.losses import Loss
    from gbdnn.training.optimizers import Optimizer
    from gbdnn.training.schedules import Schedule

__all__ = ["Diverged", "EpochResult", "Loop", "Plan"]

_AT_ONCE = 0.1  # seconds of a call of compiled code, and between two of `progress`


@dataclass(frozen=True)
class Plan:
    """What a call of `train` was asked for."""

    loss: Loss
    optimizer: Optimizer
    schedule: Schedule
    adjustments: tuple[Adjustment, ...]
    batch_size: int
    input_dropout: float
    seed: int
    epochs: int


class EpochResult(NamedTuple):
    """What an epoch has brought."""

    loss: float
    accuracy: float | None
    learning_rate: float
    seconds: float


class Diverged(Exception):  # noqa: N818 -- inside this room alone
    """A loss or a gradient was not finite; the weights are those of the step before."""

    def __init__(self, layer: int, steps: int, learning_rate: float) -> None:
        super().__init__(layer, steps, learning_rate)
        self.layer, self.steps, self.learning_rate = layer, steps, learning_rate


class Loop:
    """Layers on their way through epochs.

    Parameters
    ----------
    layers : sequence of LayerState
        As training begins.
    inputs, targets : Inputs, ndarray
    rows : ndarray of int64
        The inputs to train with.
    plan : Plan
    steps : int
        That were done before this call of `train`.
    nthreads : int
    progress : callable, optional
        ``progress(done, all)``, in steps of this call.
    """

    def __init__(
        self,
        layers: Sequence[LayerState],
        inputs: Inputs,
        targets: np.ndarray,
        rows: np.ndarray,
        plan: Plan,
        *,
        steps: int,
        nthreads: int,
        progress: Callable[[int, int], object] | None,
    ) -> None:
        self._plan, self._inputs, self._targets, self._rows = plan, inputs, targets, rows
        rule = plan.optimizer.rule
        self._layers = [layer.trainable(rule.moments) for layer in layers]
        self._batch = min(plan.batch_size, len(rows))
        self._per_epoch = -(-len(rows) // self._batch)
        self._before, self._progress = steps, progress
        self._steps = Steps(
            self._layers, batch=self._batch, loss=plan.loss.code, rule=rule, nthreads=nthreads
        )
        self._staged: np.ndarray | None = None
        if inputs.array is None or plan.input_dropout:
            self._staged = np.empty((self._batch, layers[0].info.nrows), layers[0].info.dtype)
        self._most = 1  # steps of a call
        self._told = -_AT_ONCE  # when `progress` was called

    @property
    def steps_of_an_epoch(self) -> int:
        """Number of minibatches."""
        return self._per_epoch

    def states(self) -> tuple[LayerState, ...]:
        """Return a copy of the layers as they are."""
        return states_of(self._layers)

    @property
    def edges(self) -> int:
        """Number of weights that are not 0."""
        return sum(int(np.count_nonzero(layer.weights)) for layer in self._layers)

    def epoch(self, epoch: int, *, first: int) -> EpochResult:
        """Train for one epoch.

        Parameters
        ----------
        epoch : int
            Its number, from which its order of inputs follows.
        first : int
            The same, counted from the beginning of this call of `train`.

        Raises
        ------
        Diverged
        """
        begun = time.perf_counter()
        order = self._rows[self._random(0, epoch).permutation(len(self._rows))]
        done, hits = 0, 0
        losses = np.empty(len(self._rows))  # added up at the end, in one order
        rates = self._rates(first)
        while done < self._per_epoch:
            step = first * self._per_epoch + done
            count = self._next(step) - step
            clock = time.perf_counter()
            some = order[done * self._batch : (done + count) * self._batch]
            result = self._run(some, rates[done : done + count], epoch, done)
            if result.steps < count:
                layer, rate = self._steps.first_not_finite(), rates[done + result.steps, 0]
                raise Diverged(layer, step + result.steps, float(rate))
            losses[done * self._batch :][: len(some)] = result.losses
            hits += int(result.hits.sum())
            self._most = self._allowed(count, time.perf_counter() - clock)
            done += count
            self._adjust(step + count)
            self._tell(step + count)
        count = len(self._rows)
        accuracy = hits / count if self._targets.ndim == 1 else None
        seconds = time.perf_counter() - begun
        return EpochResult(float(losses.mean()), accuracy, float(rates[-1, 0]), seconds)

    def _rates(self, epoch: int) -> np.ndarray:
        first = epoch * self._per_epoch
        steps = np.arange(first, first + self._per_epoch)
        factors = self._plan.schedule.factors(steps / (self._plan.epochs * self._per_epoch))
        return step_rates(self._plan.optimizer, factors, self._before + first)

    def _random(self, purpose: int, *numbers: int) -> np.random.Generator:
        """Return a generator that depends on the seed, what it is for, and when."""
        return np.random.default_rng([self._plan.seed, purpose, *numbers])

    def _every(self, adjustment: Adjustment) -> int:
        return self._per_epoch if adjustment.every is None else adjustment.every

    def _next(self, step: int) -> int:
        """Return the step at which something else has to happen."""
        ends = [step + self._most, (step // self._per_epoch + 1) * self._per_epoch]
        for adjustment in self._plan.adjustments:
            every = self._every(adjustment)
            ends.append((step // every + 1) * every)
        return min(ends)

    def _allowed(self, steps: int, seconds: float) -> int:
        if self._staged is not None:
            return 1
        return max(1, int(_AT_ONCE * steps / max(seconds, 1e-6)))

    def _run(self, rows: np.ndarray, rates: np.ndarray, epoch: int, step: int) -> StepResult:
        array = self._inputs.array
        if self._staged is None:
            return self._steps.run(array, rows, self._targets, rates)  # type: ignore[arg-type]
        # A minibatch becomes an array of its own; its targets are those of its rows.
        X = self._staged[: len(rows)]
        self._inputs.take(rows, X)
        if rate := self._plan.input_dropout:
            kept = self._random(1, epoch, step).random(X.shape, np.float32) >= rate
            X *= kept
            X /= X.dtype.type(1 - rate)
        targets = np.ascontiguousarray(self._targets[rows])
        return self._steps.run(X, np.arange(len(rows)), targets, rates)

    def _tell(self, step: int) -> None:
        steps, now = self._plan.epochs * self._per_epoch, time.perf_counter()
        if self._progress is not None and (step == steps or now - self._told >= _AT_ONCE):
            self._told = now
            self._progress(step, steps)

    def _adjust(self, step: int) -> None:
        """Ask all adjustments that are due after so many steps of this call."""
        changed, steps = False, self._plan.epochs * self._per_epoch
        for n, adjustment in enumerate(self._plan.adjustments):
            every = self._every(adjustment)
            if step % every and step < steps:
                continue
            since = np.arange((step - 1) // every * every, step)
            context = StepContext(
                step,
                steps,
                self._plan.optimizer.learning_rate * self._plan.schedule.factors(since / steps),
                self._random(2 + n, self._before + step),
                self._steps.gradient,
            )
            layers = adjustment.adjust(list(self._layers), context)
            changed |= any(a is not b for a, b in zip(layers, self._layers, strict=True))
            self._layers = layers
        if changed:
            self._steps.rebuild(self._layers)
