"""The training loop: epochs, minibatches, adjustments between steps, and early stopping.

One call of compiled code runs all steps up to the next adjustment or the end of the epoch, but not
for longer than about 0.1 s, so that Ctrl-C works.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from gbdnn.arrays.checks import as_array, as_records, finite
from gbdnn.errors import DivergenceError, NonFiniteError, ShapeError
from gbdnn.kernels.steps import Steps
from gbdnn.kernels.trainable import TrainableLayer
from gbdnn.training.adjustments import StepContext, end_of
from gbdnn.training.checkpoint import identity, resumed, write_checkpoint
from gbdnn.training.data import StoredInputs
from gbdnn.training.losses import compiled_loss
from gbdnn.training.optimizers import compiled_rule, step_rates
from gbdnn.training.patterns import generator
from gbdnn.training.run import (
    BestEpoch,
    CurrentEpoch,
    EpochRecord,
    TrainingRun,
    network_of,
    states_of,
    without_moments,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from gbdnn.kernels.steps import StepResult
    from gbdnn.training.adjustments import Adjustment
    from gbdnn.training.data import TrainingData
    from gbdnn.training.losses import Loss
    from gbdnn.training.optimizers import AnyOptimizer, Schedule

__all__ = ["Trainer"]

_LARGE = 1e6  # loss of untrained weights that is due to the scale of the data
_INTERVAL = 0.1  # target duration of a call of compiled code in seconds


@dataclass(kw_only=True, eq=False)
class Trainer:
    """A call of `train` with validated options."""

    before: TrainingRun
    """State from which the call starts."""

    data: TrainingData
    tested: TrainingData | None
    """Validation data."""

    loss: Loss
    optimizer: AnyOptimizer
    schedule: Schedule
    adjustments: tuple[Adjustment, ...]
    batch_size: int
    input_dropout: float
    seed: int
    epochs: int
    patience: float | None
    nthreads: int
    callback: Callable[[CurrentEpoch], object] | None

    def run(self, checkpoint: str | os.PathLike[str] | None = None) -> TrainingRun:
        """Train, resuming from the checkpoint if it exists, and return the run."""
        kind = f"{type(self.optimizer).__module__}.{type(self.optimizer).__qualname__}"
        counts = {len(layer.moments) for layer in self.before.layers}
        if self.before.moments_of != kind or counts != {self.optimizer.moments}:
            layers = without_moments(self.before.layers)
            self.before = replace(self.before, layers=layers, moments_of=kind, moment_steps=0)
        self._batch = min(self.batch_size, len(self.data.rows))
        self._per_epoch = -(-len(self.data.rows) // self._batch)
        self._all = self.epochs * self._per_epoch  # steps of this call
        # Step after which no adjustment removes edges or neurons.
        every = ((adjustment, self._every(adjustment)) for adjustment in self.adjustments)
        ends = [math.ceil(end_of(adjustment) * self._all / n) * n for adjustment, n in every]
        self._settled = min(self._all, max(ends, default=0))
        self._run = replace(
            self.before, loss=self.loss, optimizer=self.optimizer, batch_size=self.batch_size,
            seed=self.seed, schedule=self.schedule, best=self._best_before(), stopped=False,
        )  # fmt: skip
        if checkpoint is not None:
            self._call = self._described()
            self._run = resumed(checkpoint, self._run, self._call)
        self.before = replace(
            self.before, layers=(), best=None
        )  # frees their memory after the first epoch
        self._was_constant = self._all > 0 and self._is_constant(self._run)
        self._prepare()
        end = len(self.before.history) + self.epochs
        try:
            while len(self._run.history) < end and not self._run.stopped:
                self._epoch(len(self._run.history))
                stopped = self._update_best()
                self._run = replace(self._run, stopped=stopped)
                if checkpoint is not None:
                    write_checkpoint(self._run, checkpoint, self._call)
                if self._call_back():  # not stored: the same call goes on from the checkpoint
                    self._run = replace(self._run, stopped=True)
        except KeyboardInterrupt as err:
            err.run = self._run  # type: ignore[attr-defined]
            raise
        return self._run

    def _best_before(self) -> BestEpoch | None:
        """Return the best epoch of the run that goes on, with its loss on this call's data."""
        best = self.before.best
        if best is None or self.patience is None or self.tested is None or self._settled:
            return None
        loss, _ = self.tested.evaluate(network_of(best.layers), self.loss, self.nthreads)
        return best._replace(validation_loss=loss)

    def _described(self) -> dict[str, str]:
        """Return a description of everything that determines the results of the call."""
        ignored = ("before", "data", "tested", "nthreads", "callback")
        known = {x.name: getattr(self, x.name) for x in fields(self) if x.name not in ignored}
        infos, *arrays = zip(*self.before.layers, strict=True)
        known |= {
            "layers": [(x.shape, x.dtype.name, x.activation, x.clip) for x in infos],
            "epochs done": len(self.before.history),
            "steps done": self.before.steps,
            "moments": (self.before.moments_of, self.before.moment_steps),
            "weights": arrays,
            "best": self._run.best,
        }
        for name, data in (("data", self.data), ("validation", self.tested)):
            known[name] = data and {
                "X": (data.inputs.nrows, data.inputs.dtype.name, data.inputs.content),
                "y": data.targets,
                "rows": data.rows,
                "weights": data.weights,
            }
        return {name: identity(value) for name, value in known.items()}

    def _prepare(self) -> None:
        """Create the layers and the buffers of a minibatch."""
        first = self._run.layers[0].info
        self._layers = [layer.trainable(self.optimizer.moments) for layer in self._run.layers]
        code, rule = compiled_loss(self.loss), compiled_rule(self.optimizer)
        self._steps = Steps(
            self._layers, batch=self._batch, loss=self.loss if code is None else code,
            rule=self.optimizer if rule is None else rule, nthreads=self.nthreads,
        )  # fmt: skip
        weights = self.data.weights / self.data.weights[self.data.rows].mean()
        self._weights = weights, weights.astype(first.dtype)
        self._staged: np.ndarray | None = None
        if self.data.inputs.array is None or self.input_dropout:
            self._staged = np.empty((self._batch, first.nrows), first.dtype)
        self._first_loss = np.nan  # of a minibatch
        self._most = 1  # steps per call of compiled code

    def _epoch(self, epoch: int) -> None:
        """Train for one epoch, numbered over all calls, and add it to the run."""
        begun, start = time.perf_counter(), (epoch - len(self.before.history)) * self._per_epoch
        order = generator(self.seed, "order", epoch).permutation(self.data.rows)
        if isinstance(self.data.inputs, StoredInputs):
            self.data.inputs.expect(order)
        progress = np.arange(start, start + self._per_epoch) / self._all
        rates = step_rates(
            self.optimizer, self._factors(progress), self.before.moment_steps + start
        )
        # One mean over all inputs does not depend on how steps are divided into calls.
        done, hits, losses = 0, np.empty(len(order)), np.empty(len(order))
        while done < self._per_epoch:
            count = self._next(start + done) - start - done
            clock = time.perf_counter()
            some = order[done * self._batch : (done + count) * self._batch]
            result = self._advance(some, rates[done : done + count], epoch, done)
            if np.isnan(self._first_loss):
                self._first_loss = float(result.losses[: self._batch].mean())
            if result.steps < count:
                done += result.steps
                raise self._diverged(epoch, start + done, rates[done, 0])
            weights = self._weights[0][some]
            part = slice(done * self._batch, done * self._batch + len(some))
            losses[part] = result.losses * weights
            hits[part] = 0 if result.hits is None else result.hits * weights
            seconds = time.perf_counter() - clock
            self._most = max(1, int(_INTERVAL * count / max(seconds, 1e-6)))
            done += count
            self._adjust(start + done)
        accuracy = None if result.hits is None else float(hits.mean())
        seconds = time.perf_counter() - begun
        now = self._now(start + self._per_epoch)
        tested: tuple[float | None, float | None] = (None, None)
        try:
            is_last = start + done == self._all
            if is_last or not all(layer.gradient.any() for layer in self._layers):
                self._require_alive(now, epoch, rates[0, 0])
            if self.tested is not None:
                tested = self.tested.evaluate(network_of(now.layers), self.loss, self.nthreads)
        except NonFiniteError as err:
            raise self._diverged(epoch, start + done, rates[0, 0]) from err
        edges = sum(int(np.count_nonzero(layer.weights)) for layer in self._layers)
        record = EpochRecord(
            epoch, float(losses.mean()), accuracy, *tested, float(rates[-1, 0]), edges, seconds
        )
        self._run = replace(now, history=(*self._run.history, record))

    def _now(self, step: int, **changes: Any) -> TrainingRun:
        """Return the run with the state after a step of the call."""
        return replace(
            self._run, layers=states_of(self._layers), steps=self.before.steps + step,
            moment_steps=self.before.moment_steps + step, **changes,
        )  # fmt: skip

    def _is_constant(self, run: TrainingRun) -> bool:
        return self.data.is_constant(network_of(run.layers), self.nthreads)

    def _require_alive(self, now: TrainingRun, epoch: int, rate: float) -> None:
        """Raise DivergenceError if all outputs became equal: a hidden layer is 0 for all inputs."""
        if not self._was_constant and self._is_constant(now):
            remedy = " or weaker adjustments" if self.adjustments else ""
            raise DivergenceError(
                f"epoch {epoch}: all outputs have become equal; try a learning rate below"
                f" {rate:.3g}{remedy} (err.run has the weights after this epoch)",
                replace(now, best=None),
            )

    def _diverged(self, epoch: int, step: int, rate: float) -> DivergenceError:
        layer = self._steps.first_not_finite()
        where = f", layer {layer}" if layer >= 0 else ""
        remedy = f"try a learning rate below {rate:.3g}"
        if not self._first_loss < _LARGE:
            remedy = "the features, targets or initial weights are too large; scale them"
        return DivergenceError(
            f"epoch {epoch}{where}: the loss or a gradient is not finite in step {step} of this"
            f" call; {remedy} (err.run has the weights before this step)",
            self._now(step, best=None),
        )

    def _update_best(self) -> bool:
        """Update the best epoch; return whether `patience` ends training."""
        record, best = self._run.history[-1], self._run.best
        if self.patience is None or record.validation_loss is None:
            return False
        done = (record.epoch + 1 - len(self.before.history)) * self._per_epoch
        if done < self._settled:
            return False
        if best is None or record.validation_loss < best.validation_loss:
            layers = without_moments(self._run.layers)
            best = BestEpoch(record.epoch, record.validation_loss, layers)
            self._run = replace(self._run, best=best)
            return False
        return record.epoch - max(best.epoch, len(self.before.history) - 1) >= self.patience

    def _call_back(self) -> bool:
        """Call the callback; return whether it ends training."""
        if self.callback is None:
            return False
        now = CurrentEpoch(*self._run.history[-1])
        now.layers = self._run.layers
        try:
            self.callback(now)
        except StopIteration:
            return True
        finally:
            now.layers = None  # a record kept by the caller must not hold the weights
        return False

    def _factors(self, progress: np.ndarray) -> np.ndarray:
        """Return the factors of the schedule."""
        what = f"{type(self.schedule).__name__}.factors"
        factors = finite(as_array(self.schedule.factors(progress), what), np.dtype(float), what)
        if factors.shape != progress.shape:
            raise ShapeError(
                f"{what} returned an array of shape {factors.shape}, expected {progress.shape}"
            )
        return factors

    def _every(self, adjustment: Adjustment) -> int:
        return self._per_epoch if adjustment.every is None else adjustment.every

    def _next(self, step: int) -> int:
        """Return the step at which the next call of compiled code ends."""
        most = 1 if self._staged is not None or self._steps.in_numpy else self._most
        every = [self._per_epoch, *map(self._every, self.adjustments)]
        return min(step + most, *((step // interval + 1) * interval for interval in every))

    def _advance(self, rows: np.ndarray, rates: np.ndarray, epoch: int, step: int) -> StepResult:
        """Run the steps for the given inputs."""
        array, targets, weights = self.data.inputs.array, self.data.targets, self._weights[1]
        if self._staged is None:
            return self._steps.run(array, rows, targets, weights, rates)  # type: ignore[arg-type]
        X = self._staged[: len(rows)]
        self.data.inputs.take(rows, X)
        if rate := self.input_dropout:
            X *= generator(self.seed, "dropout", epoch, step).random(X.shape, np.float32) >= rate
            X /= X.dtype.type(1 - rate)
        targets = np.ascontiguousarray(targets[rows])
        return self._steps.run(X, np.arange(len(rows)), targets, weights[rows], rates)

    def _adjust(self, step: int) -> None:
        """Call the adjustments that are due after this step of the call."""
        before = [ref(layer) for layer in self._layers]  # weak, so that replaced layers are freed
        for n, adjustment in enumerate(self.adjustments):
            every = self._every(adjustment)
            if step % every and step < self._all:
                continue
            since = np.arange((step - 1) // every * every, step)
            context = StepContext(
                step,
                self._all,
                self.optimizer.learning_rate * self._factors(since / self._all),
                generator(self.seed, "adjustments", n, self.before.steps + step),
                self._steps.gradient,
            )
            adjusted = adjustment.adjust(self._layers, context)
            what = f"the result of {type(adjustment).__name__}.adjust"
            shapes = [layer.info.shape for layer in as_records(adjusted, TrainableLayer, what)]
            if shapes != [layer.info.shape for layer in self._layers]:
                raise ShapeError(f"{what} must be all layers, not layers of the shapes {shapes}")
            self._layers = list(adjusted)
        if any(a is not b() for a, b in zip(self._layers, before, strict=True)):
            self._steps.rebuild(self._layers)
