"""A run as arrays and fields, for a checkpoint; and back, with a look at each of them.

Fields are numbers, texts and lists, as JSON has them. What is read is a run only if the same call
could have come there and would be written the same: no field more or less, of another type, or
out of its range.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbdnn.training.run import BestEpoch, EpochRecord, LayerState, TrainingRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gbdnn.model.layer_info import LayerInfo

__all__ = ["Call", "decoded", "described", "encoded", "named_arrays"]


class Call(NamedTuple):
    """What a call of `train` tells of the runs that it comes through."""

    begun: TrainingRun
    """Where it begins."""

    epochs: int
    steps_of_an_epoch: int
    moments: int
    """Numbers that the optimizer keeps of each weight."""

    has_labels: bool
    has_validation: bool
    keeps_best: bool


def encoded(run: TrainingRun, *, stopped: bool) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return a run, and whether it has ended, as arrays by name and fields."""
    arrays = dict(named_arrays("", run.layers))
    fields: dict[str, Any] = {
        "layers": [described(layer.info) for layer in run.layers],
        "history": [list(record) for record in run.history],
        "steps": run.steps,
        "stopped": stopped,
    }
    if run.best is not None:
        arrays |= dict(named_arrays("best.", run.best.layers))
        fields["best"] = [run.best.epoch, run.best.validation_loss]
        fields["best_layers"] = [described(layer.info) for layer in run.best.layers]
    return arrays, fields


def decoded(
    fields: Mapping[str, Any], arrays: Mapping[str, np.ndarray], call: Call
) -> tuple[TrainingRun, bool]:
    """Return the run of a call, and whether it has ended.

    A ValueError, TypeError or LookupError says that there is none.
    """
    history, stopped = _history(fields["history"], call), fields["stopped"]
    run = replace(
        call.begun,
        layers=_layers("", arrays, call),
        history=history,
        steps=call.begun.steps + (len(history) - len(call.begun.history)) * call.steps_of_an_epoch,
        best=_best(fields, arrays, history, call),
    )
    _require(type(stopped) is bool, "stopped")
    edges = sum(int(np.count_nonzero(layer.weights)) for layer in run.layers)
    _require(not history or history[-1].edges == edges, "the number of edges")
    again, known = encoded(run, stopped=stopped)
    _require(again.keys() == arrays.keys(), "arrays")
    same = json.dumps(known, sort_keys=True) == json.dumps(dict(fields), sort_keys=True)
    _require(same, "fields")
    return run, stopped


def described(info: LayerInfo) -> dict[str, Any]:
    """Return what a checkpoint has of a layer's description."""
    return {
        "shape": list(info.shape),
        "edges": info.edges,
        "gain": info.gain,
        "dtype": info.dtype.name,
        "activation": info.activation,
        "clip": info.clip,
    }


def named_arrays(prefix: str, layers: Iterable[LayerState]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield all that is learned, array by array."""
    for k, layer in enumerate(layers):
        yield f"{prefix}{k}.edges", layer.edges
        yield f"{prefix}{k}.weights", layer.weights
        yield f"{prefix}{k}.bias", layer.bias
        for n, (of_weights, of_biases) in enumerate(
            zip(layer.moments, layer.bias_moments, strict=True)
        ):
            yield f"{prefix}{k}.moment.{n}", of_weights
            yield f"{prefix}{k}.bias_moment.{n}", of_biases


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(f"{what}: not as the same call would write it")


def _history(given: Sequence[Any], call: Call) -> tuple[EpochRecord, ...]:
    found = tuple(_record(k, EpochRecord(*fields), call) for k, fields in enumerate(given))
    before = call.begun.history
    least = len(before) + (call.epochs > 0)  # of no epochs: a run that is kept
    _require(least <= len(found) <= len(before) + call.epochs, "the number of epochs")
    _require(repr(found[: len(before)]) == repr(before), "the epochs before")
    return found


def _record(k: int, record: EpochRecord, call: Call) -> EpochRecord:
    numbers = (record.loss, record.learning_rate, record.seconds)
    _require(all(type(x) is float and math.isfinite(x) for x in numbers), f"epoch {k}")
    _require(type(record.epoch) is int and record.epoch == k, f"the number of epoch {k}")
    most = sum(math.prod(layer.info.shape) for layer in call.begun.layers)
    _require(type(record.edges) is int and 0 <= record.edges <= most, f"the edges of epoch {k}")
    loss, accuracies = record.validation_loss, (record.accuracy, record.validation_accuracy)
    _require(loss is None or type(loss) is float, "validation_loss")
    for x in accuracies:
        _require(x is None or (type(x) is float and 0 <= x <= 1), "accuracy")
    if k < len(call.begun.history):  # of other data, perhaps; compared with what is known
        return record
    there = (call.has_validation, call.has_labels, call.has_labels and call.has_validation)
    _require(tuple(x is not None for x in (loss, *accuracies)) == there, "loss or accuracy")
    return record


def _best(
    fields: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    history: tuple[EpochRecord, ...],
    call: Call,
) -> BestEpoch | None:
    if not (call.keeps_best and call.has_validation):
        return None
    epoch, loss = fields["best"]
    least = len(call.begun.history) if call.epochs else 0
    _require(type(epoch) is int and least <= epoch, "the best epoch")
    _require(repr(history[epoch].validation_loss) == repr(loss), "the best loss")
    return BestEpoch(epoch, loss, _layers("best.", arrays, call))


def _layers(prefix: str, arrays: Mapping[str, np.ndarray], call: Call) -> tuple[LayerState, ...]:
    return tuple(
        _sound(
            LayerState(
                layer.info,
                arrays[f"{prefix}{k}.edges"],
                arrays[f"{prefix}{k}.weights"],
                arrays[f"{prefix}{k}.bias"],
                tuple(arrays[f"{prefix}{k}.moment.{n}"] for n in range(call.moments)),
                tuple(arrays[f"{prefix}{k}.bias_moment.{n}"] for n in range(call.moments)),
            )
        )
        for k, layer in enumerate(call.begun.layers)
    )


def _sound(state: LayerState) -> LayerState:
    """Return a state that compiled code can trust, or raise a ValueError."""
    info, edges = state.info, state.numbers
    _require(edges.dtype == np.int64 and edges.ndim == 1, "numbers of edges")
    _require(bool((np.diff(edges) > 0).all()), "the order of edges")
    inside = not len(edges) or 0 <= edges[0] <= edges[-1] < info.nrows * info.ncols
    _require(bool(inside), "an edge outside the layer")
    for each, shape in (
        *((each, edges.shape) for each in (state.weights, *state.moments)),
        *((each, (info.ncols,)) for each in (state.bias, *state.bias_moments)),
    ):
        _require(each.dtype == info.dtype and each.shape == shape, "numbers of edges or neurons")
    for each in (state.weights, state.bias, *state.moments[:1], *state.bias_moments[:1]):
        _require(bool(np.isfinite(each).all()), "a weight, bias or mean gradient")
    for each in (*state.moments[1:], *state.bias_moments[1:]):  # of squares, which may overflow
        _require(bool((each >= 0).all()), "a mean square")
    return state
