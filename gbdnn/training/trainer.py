"""The trainer: epochs of minibatches, with adjustments between steps, and when to stop.

Steps run in compiled code, many in one call, up to the next point at which something else has to
happen: an adjustment, the end of an epoch, or time to look for an interrupt.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from weakref import ref

import numpy as np

from gbdnn.errors import DivergenceError
from gbdnn.kernels.steps import Steps
from gbdnn.training.adjustments import StepContext
from gbdnn.training.checkpoint import resumed, write_run
from gbdnn.training.data import answers
from gbdnn.training.inputs import StoredInputs
from gbdnn.training.optimizers import step_rates
from gbdnn.training.run import (
    BestEpoch,
    CurrentEpoch,
    EpochRecord,
    TrainingRun,
    network_of,
    states_of,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

    from gbdnn.kernels.steps import StepResult
    from gbdnn.training.adjustments import Adjustment
    from gbdnn.training.data import TrainingData, ValidationData
    from gbdnn.training.losses import Loss
    from gbdnn.training.optimizers import Optimizer
    from gbdnn.training.run import LayerState
    from gbdnn.training.schedules import Schedule

__all__ = ["Trainer"]

_LOOKED_AT = 1024  # inputs, whether all answers are equal
_FAR = 4  # times a loss, or a weight
_AT_ONCE = 0.1  # seconds of a call of compiled code, and between two of `progress`


@dataclass(kw_only=True, eq=False)
class Trainer:
    """A call of `train`, its options checked: from one run to the next."""

    before: TrainingRun
    """Where to begin."""

    data: TrainingData
    tested: ValidationData | None
    """What to look at after each epoch."""

    loss: Loss
    optimizer: Optimizer
    schedule: Schedule
    adjustments: tuple[Adjustment, ...]
    batch_size: int
    input_dropout: float
    seed: int
    epochs: int
    patience: int | None
    min_delta: float
    keeps_best: bool
    nthreads: int
    callback: Callable[[CurrentEpoch], object] | None
    progress: Callable[[int, int], object] | None

    def run(self, checkpoint: str | os.PathLike[str] | None = None) -> TrainingRun:
        """Train, starting from the checkpoint if it exists, and return the run."""
        self._run = replace(
            self.before, loss=self.loss, optimizer=self.optimizer, batch_size=self.batch_size,
            seed=self.seed, schedule=self.schedule, best=None, stopped=False,
        )  # fmt: skip
        self._batch = min(self.batch_size, len(self.data.rows))
        self._per_epoch = -(-len(self.data.rows) // self._batch)
        self._all = self.epochs * self._per_epoch  # steps of this call
        if checkpoint is not None:
            moments = self.optimizer.rule.moments
            self._run = resumed(checkpoint, self._run, moments, self._per_epoch)
        self._began = _largest(self.before.layers)
        self.before = replace(self.before, layers=())  # what they hold is freed with `_run`'s
        self._prepare()
        saved = len(self._run.history)
        try:
            while not self._run.stopped:
                n = len(self._run.history) - len(self.before.history)
                if n >= self.epochs:
                    break
                stopped = self._is_enough(self._epoch(n))
                stopped |= self._tell_epoch()
                self._run = replace(self._run, stopped=stopped)
                if checkpoint is not None:
                    write_run(self._run, checkpoint)
                    saved += 1
        except KeyboardInterrupt as err:
            err.run = self._run  # type: ignore[attr-defined]
            if checkpoint is not None and len(self._run.history) > saved:
                write_run(self._run, checkpoint)
            raise
        return self._run

    def _tell_epoch(self) -> bool:
        """Call the callback; return whether it ends training."""
        if self.callback is None:
            return False
        now = CurrentEpoch(*self._run.history[-1])
        now.layers = self._run.layers
        try:
            answer = self.callback(now)
        finally:
            now.layers = None  # who keeps the record does not keep the weights
        return isinstance(answer, bool | np.bool_) and bool(answer)

    def _prepare(self) -> None:
        """Take the layers of the run, and room for a minibatch."""
        rule, first = self.optimizer.rule, self._run.layers[0].info
        self._layers = [layer.trainable(rule.moments) for layer in self._run.layers]
        self._steps = Steps(
            self._layers, batch=self._batch, loss=self.loss.code, rule=rule, nthreads=self.nthreads
        )
        weights = self.data.weights / self.data.weights[self.data.rows].mean()
        self._weights = weights, weights.astype(first.dtype)
        self._staged: np.ndarray | None = None
        if self.data.inputs.array is None or self.input_dropout:
            self._staged = np.empty((self._batch, first.nrows), first.dtype)
        self._most = 1  # steps of a call of compiled code
        self._told = -_AT_ONCE  # when `progress` was called

    def _epoch(self, n: int) -> EpochRecord:
        """Train for the nth epoch of this call."""
        begun, epoch, start = time.perf_counter(), len(self.before.history) + n, n * self._per_epoch
        # The order of its inputs follows from its number, counted over all calls.
        order = self.data.rows[self._random(0, epoch).permutation(len(self.data.rows))]
        if isinstance(self.data.inputs, StoredInputs):
            self.data.inputs.expect(order)
        done, hits, losses = 0, 0.0, np.empty(len(order))
        rates = self._rates(start)
        while done < self._per_epoch:
            count = self._next(start + done) - start - done
            clock = time.perf_counter()
            some = order[done * self._batch : (done + count) * self._batch]
            result = self._advance(some, rates[done : done + count], epoch, done)
            if result.steps < count:
                done += result.steps
                raise self._diverged(epoch, start + done, rates[done, 0])
            weights = self._weights[0][some]
            losses[done * self._batch :][: len(some)] = result.losses * weights
            hits += float(result.hits @ weights)
            seconds = time.perf_counter() - clock
            self._most = max(1, int(_AT_ONCE * count / max(seconds, 1e-6)))
            done += count
            self._adjust(start + done)
            self._tell(start + done)
        accuracy = hits / len(order) if self.data.targets.ndim == 1 else None
        seconds = time.perf_counter() - begun
        tested: tuple[float | None, float | None] = (None, None)
        if self.tested is not None:
            tested = self.tested.evaluate(network_of(self._layers), self.loss, self.nthreads)
        edges = sum(int(np.count_nonzero(layer.weights)) for layer in self._layers)
        # Losses are added up in one order, whatever the steps of a call were.
        record = EpochRecord(
            epoch, float(losses.mean()), accuracy, *tested, float(rates[-1, 0]), edges, seconds
        )
        self._keep(record, self.before.steps + start + self._per_epoch)
        if (dead := self._steps.dead_layer()) >= 0 and self._has_exploded():
            raise DivergenceError(
                f"epoch {epoch}, layer {dead}: fires for no input any more, all answers are equal;"
                f" a learning rate smaller than {rates[0, 0]:.3g} may help (err.run ends here)",
                self._run,
            )
        return record

    def _keep(self, record: EpochRecord, steps: int) -> None:
        """Take the state after an epoch."""
        self._run = replace(
            self._run,
            layers=states_of(self._layers),
            history=(*self._run.history, record),
            steps=steps,
        )

    def _has_exploded(self) -> bool:
        """Whether weights and losses have become far larger, and all answers are equal now."""
        if _largest(self._run.layers) < _FAR * self._began:
            return False
        rows = self.data.rows[:_LOOKED_AT]
        X = np.empty((len(rows), self._layers[0].nrows), self._layers[0].info.dtype)
        self.data.inputs.take(rows, X)
        found = answers(network_of(self._run.layers), X, self.nthreads)
        of_zeros = self.loss.losses(np.zeros_like(found), self.data.targets[rows]).mean()
        largest = max(each.loss for each in self._run.history[len(self.before.history) :])
        return largest > _FAR * of_zeros and bool((found == found[:1]).all())

    def _diverged(self, epoch: int, step: int, rate: float) -> DivergenceError:
        layer = self._steps.first_not_finite()
        where = f", layer {layer}" if layer >= 0 else ""
        return DivergenceError(
            f"epoch {epoch}{where}: the loss or a gradient is not finite in step {step} of this"
            f" call; a learning rate smaller than {rate:.3g} may help (err.run has the weights of"
            " the step before)",
            replace(self._run, layers=states_of(self._layers), best=None),
        )

    def _is_enough(self, record: EpochRecord) -> bool:
        """Remember the best epoch; return whether it was too long ago."""
        if not self.keeps_best or record.validation_loss is None:
            return False
        best = self._run.best
        if best is None or record.validation_loss < best.validation_loss - self.min_delta:
            layers = tuple(
                layer._replace(moments=(), bias_moments=()) for layer in self._run.layers
            )
            found = BestEpoch(record.epoch, record.validation_loss, layers)
            self._run = replace(self._run, best=found)
            return False
        return self.patience is not None and record.epoch - best.epoch >= self.patience

    def _rates(self, first: int) -> np.ndarray:
        """Return the rates of an epoch's steps, which begin with the first-th of this call."""
        factors = self.schedule.factors(np.arange(first, first + self._per_epoch) / self._all)
        return step_rates(self.optimizer, factors, self.before.steps + first)

    def _random(self, purpose: int, *numbers: int) -> np.random.Generator:
        """Return a generator that depends on the seed, what it is for, and when."""
        return np.random.default_rng([self.seed, purpose, *numbers])

    def _every(self, adjustment: Adjustment) -> int:
        return self._per_epoch if adjustment.every is None else adjustment.every

    def _next(self, step: int) -> int:
        """Return the step at which something else has to happen."""
        most = 1 if self._staged is not None else self._most
        every = [self._per_epoch, *map(self._every, self.adjustments)]
        return min(step + most, *((step // each + 1) * each for each in every))

    def _advance(self, rows: np.ndarray, rates: np.ndarray, epoch: int, step: int) -> StepResult:
        array, targets, weights = self.data.inputs.array, self.data.targets, self._weights[1]
        if self._staged is None:
            return self._steps.run(array, rows, targets, weights, rates)  # type: ignore[arg-type]
        # A minibatch becomes an array of its own; its targets are those of its rows.
        X = self._staged[: len(rows)]
        self.data.inputs.take(rows, X)
        if rate := self.input_dropout:
            X *= self._random(1, epoch, step).random(X.shape, np.float32) >= rate
            X /= X.dtype.type(1 - rate)
        targets = np.ascontiguousarray(targets[rows])
        return self._steps.run(X, np.arange(len(rows)), targets, weights[rows], rates)

    def _tell(self, step: int) -> None:
        now = time.perf_counter()
        if self.progress is not None and (step == self._all or now - self._told >= _AT_ONCE):
            self._told = now
            self.progress(step, self._all)

    def _adjust(self, step: int) -> None:
        """Ask all adjustments that are due after so many steps of this call."""
        before = [ref(layer) for layer in self._layers]
        for n, adjustment in enumerate(self.adjustments):
            every = self._every(adjustment)
            if step % every and step < self._all:
                continue
            since = np.arange((step - 1) // every * every, step)
            context = StepContext(
                step,
                self._all,
                self.optimizer.learning_rate * self.schedule.factors(since / self._all),
                self._random(2 + n, self.before.steps + step),
                self._steps.gradient,
            )
            self._layers = adjustment.adjust(self._layers, context)
        if any(a is not b() for a, b in zip(self._layers, before, strict=True)):
            self._steps.rebuild(self._layers)


def _largest(layers: Iterable[LayerState]) -> float:
    """Return the largest magnitude of a weight."""
    return max(float(np.abs(each.weights).max(initial=0)) for each in layers)
