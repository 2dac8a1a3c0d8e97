"""A call of `train`: epochs, what is looked at after each, and when to stop."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gbdnn.errors import DivergenceError
from gbdnn.training.loop import Diverged, Loop
from gbdnn.training.run import BestEpoch, EpochRecord, TrainingRun, network_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from gbdnn.training.checkpoint import Checkpoint
    from gbdnn.training.data import TrainingData, ValidationData
    from gbdnn.training.loop import EpochResult, Plan

__all__ = ["Session"]


class Session:
    """Training from one run to the next.

    Parameters
    ----------
    before : TrainingRun
        Where to begin.
    data : TrainingData
    tested : ValidationData or None
        What to look at after each epoch.
    plan : Plan
    patience, nthreads, callback, progress
        As in `train`.
    checkpoint : Checkpoint or None
        Where runs are saved after each epoch, and taken from.
    """

    def __init__(
        self,
        before: TrainingRun,
        data: TrainingData,
        tested: ValidationData | None,
        plan: Plan,
        *,
        patience: int | None,
        nthreads: int,
        callback: Callable[[EpochRecord], object] | None,
        progress: Callable[[int, int], object] | None,
        checkpoint: Checkpoint | None,
    ) -> None:
        self._data, self._tested, self._plan, self._patience = data, tested, plan, patience
        self._nthreads, self._callback, self._progress = nthreads, callback, progress
        self._checkpoint, self._begin = checkpoint, len(before.history)
        self._steps_before = before.steps
        self._run = replace(
            before, loss=plan.loss, optimizer=plan.optimizer, batch_size=plan.batch_size,
            seed=plan.seed, best=None,
        )  # fmt: skip
        self._stopped = False
        if checkpoint is not None and (found := checkpoint.load(self._run)) is not None:
            self._run, self._stopped = found

    def run(self) -> TrainingRun:
        """Train, and return the run."""
        loop = Loop(
            self._run.layers, self._data.inputs, self._data.targets, self._data.rows, self._plan,
            steps=self._steps_before, nthreads=self._nthreads, progress=self._progress,
        )  # fmt: skip
        first = len(self._run.history) - self._begin
        for n in range(first, self._plan.epochs):
            if self._stopped:
                break
            self._epoch(loop, n)
        return self._run

    def _epoch(self, loop: Loop, n: int) -> None:
        epoch = self._begin + n
        try:
            result = loop.epoch(epoch, first=n)
        except Diverged as err:
            run = replace(self._run, layers=loop.states(), best=None)
            where = f", layer {err.layer}" if err.layer >= 0 else ""
            raise DivergenceError(
                f"epoch {epoch}{where}: the loss or a gradient is not finite in step"
                f" {err.steps} of this call; a learning rate smaller than {err.learning_rate:.3g}"
                " may help (err.run has the weights of the step before)",
                run,
            ) from None
        record = self._record(loop, epoch, result)
        steps = self._steps_before + (n + 1) * loop.steps_of_an_epoch
        self._run = replace(
            self._run, layers=loop.states(), history=(*self._run.history, record), steps=steps
        )
        self._stopped = self._is_enough(record)
        stop = None if self._callback is None else self._callback(record)
        if isinstance(stop, bool | np.bool_) and stop:
            self._stopped = True
        if self._checkpoint is not None:
            self._checkpoint.save(self._run, stopped=self._stopped)

    def _record(self, loop: Loop, epoch: int, result: EpochResult) -> EpochRecord:
        loss, accuracy = None, None
        if self._tested is not None:
            net = network_of(loop.states())
            loss, accuracy = self._tested.evaluate(net, self._plan.loss, self._nthreads)
        return EpochRecord(
            epoch, result.loss, result.accuracy, loss, accuracy, result.learning_rate, loop.edges,
            result.seconds,
        )  # fmt: skip

    def _is_enough(self, record: EpochRecord) -> bool:
        """Remember the best epoch; return whether it was too long ago."""
        if self._patience is None or record.validation_loss is None:
            return False
        best = self._run.best
        if best is None or record.validation_loss < best.validation_loss:
            found = BestEpoch(record.epoch, record.validation_loss, self._run.layers)
            self._run = replace(self._run, best=found)
            return False
        return record.epoch - best.epoch >= self._patience
