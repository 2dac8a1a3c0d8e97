"""A run in a file: arrays and a description, written whole after each epoch.

The format is safetensors, with a checksum of all bytes. A fingerprint of all that the result
follows from, data and options and where training began, tells whether a file belongs to a call.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.arguments import as_path
from gbdnn.errors import FormatError, MissingFileError
from gbdnn.io.atomic import output_errors, require_writable, whole_file
from gbdnn.io.reading import read_bytes
from gbdnn.model.layer_info import LayerInfo
from gbdnn.optional import require
from gbdnn.training.run import BestEpoch, EpochRecord, LayerState, TrainingRun

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from gbdnn.training.data import TrainingData, ValidationData
    from gbdnn.training.inputs import Inputs
    from gbdnn.training.loop import Plan

__all__ = ["Checkpoint"]

_FORMAT, _VERSION = "gbdnn.training", 2
_UNSIGNED = "0" * 16  # where the checksum is, as long as it is computed
_WHY = "a checkpoint is a safetensors file"
_AT_ONCE = 1024  # inputs


class Checkpoint:
    """A file for a call of `train`.

    Parameters
    ----------
    path : path-like
        Of the file. That it can be written is tested now, before anything is computed.
    before : TrainingRun
    plan : Plan
    data : TrainingData
    tested : ValidationData or None
    patience : int or None
        What the fingerprint is made of.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        before: TrainingRun,
        plan: Plan,
        data: TrainingData,
        tested: ValidationData | None,
        patience: int | None,
    ) -> None:
        self._safetensors = require("safetensors.numpy", "store", _WHY)
        self.path = as_path(path, "checkpoint")
        require_writable(path)
        self._fingerprint = _fingerprint(before, plan, data, tested, patience)

    def load(self, begun: TrainingRun) -> tuple[TrainingRun, bool] | None:
        """Return the saved run and whether it had ended; None if there is no file."""
        try:
            content = read_bytes(self.path)
        except MissingFileError:
            return None
        try:
            arrays, text = self._read(content)
            known = json.loads(text)
            if known["format"] != _FORMAT or known["version"] != _VERSION:
                raise ValueError("no checkpoint of this version")
            same = known["fingerprint"] == self._fingerprint
            found = _decoded(known, arrays, begun) if same else None
        except (ValueError, KeyError, TypeError, IndexError, RecursionError, self._error) as err:
            raise FormatError(f"{self.path}: no checkpoint of gbdnn, or a damaged one") from err
        if found is None:
            raise FormatError(
                f"{self.path}: the checkpoint of another training: network, data or options are not"
                " the same; remove it, or choose another file"
            )
        return found

    def save(self, run: TrainingRun, *, stopped: bool) -> None:
        """Write a run, in place of the one before."""
        arrays, known = _encoded(run, stopped)
        known |= {"format": _FORMAT, "version": _VERSION, "fingerprint": self._fingerprint}
        texts = {"gbdnn": json.dumps(known), "checksum": _UNSIGNED}
        content = self._safetensors.save(arrays, texts)
        content = _with_checksum(content, _UNSIGNED, _checksum(content))
        with output_errors(self.path), whole_file(self.path) as file:
            file.write(content)

    @property
    def _error(self) -> type[Exception]:
        found: type[Exception] = require("safetensors", "store", _WHY).SafetensorError
        return found

    def _read(self, content: bytes) -> tuple[dict[str, np.ndarray], str]:
        size = int.from_bytes(content[:8], "little")
        texts = json.loads(content[8 : 8 + size])["__metadata__"]
        found = str(texts["checksum"])
        if found != _checksum(_with_checksum(content, found, _UNSIGNED)):
            raise ValueError("the checksum is another one")
        return self._safetensors.load(content), texts["gbdnn"]


def _checksum(content: bytes) -> str:
    found: str = require("xxhash", "store", _WHY).xxh3_64_hexdigest(content)
    return found


def _with_checksum(content: bytes, old: str, new: str) -> bytes:
    """Return a file with another checksum in its header."""
    return content.replace(b'"checksum":"%b"' % old.encode(), b'"checksum":"%b"' % new.encode(), 1)


def _encoded(run: TrainingRun, stopped: bool) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    arrays = dict(_arrays("", run.layers))
    known: dict[str, Any] = {
        "layers": [_described(layer.info) for layer in run.layers],
        "history": [list(record) for record in run.history],
        "steps": run.steps,
        "stopped": stopped,
    }
    if run.best is not None:
        arrays |= dict(_arrays("best.", run.best.layers))
        known["best"] = [run.best.epoch, run.best.validation_loss]
        known["best_layers"] = [_described(layer.info) for layer in run.best.layers]
    return arrays, known


def _decoded(
    known: dict[str, Any], arrays: dict[str, np.ndarray], begun: TrainingRun
) -> tuple[TrainingRun, bool]:
    best = None
    if "best" in known:
        epoch, loss = known["best"]
        best = BestEpoch(epoch, loss, _layers("best.", known["best_layers"], arrays))
    run = TrainingRun(
        _layers("", known["layers"], arrays),
        tuple(EpochRecord(*record) for record in known["history"]),
        *(begun.loss, begun.optimiser, begun.batch_size, begun.seed, known["steps"], best),
    )
    return run, known["stopped"]


def _arrays(prefix: str, layers: Iterable[LayerState]) -> Iterator[tuple[str, np.ndarray]]:
    for k, layer in enumerate(layers):
        yield f"{prefix}{k}.edges", layer.edges
        yield f"{prefix}{k}.weights", layer.weights
        yield f"{prefix}{k}.bias", layer.bias
        for n, (of_weights, of_biases) in enumerate(
            zip(layer.moments, layer.bias_moments, strict=True)
        ):
            yield f"{prefix}{k}.moment.{n}", of_weights
            yield f"{prefix}{k}.bias_moment.{n}", of_biases


def _layers(
    prefix: str, infos: list[dict[str, Any]], arrays: dict[str, np.ndarray]
) -> tuple[LayerState, ...]:
    found = []
    for k, info in enumerate(infos):
        name = f"{prefix}{k}."
        moments = sum(each.startswith(f"{name}moment.") for each in arrays)
        found.append(
            _sound(
                LayerState(
                    LayerInfo(tuple(info.pop("shape")), **info),
                    arrays[f"{name}edges"],
                    arrays[f"{name}weights"],
                    arrays[f"{name}bias"],
                    tuple(arrays[f"{name}moment.{n}"] for n in range(moments)),
                    tuple(arrays[f"{name}bias_moment.{n}"] for n in range(moments)),
                )
            )
        )
    return tuple(found)


def _sound(state: LayerState) -> LayerState:
    """Return a state that compiled code can trust, or raise a ValueError."""
    info, edges = state.info, state.edges
    if edges.dtype != np.int64 or edges.ndim != 1 or (np.diff(edges) <= 0).any():
        raise ValueError("numbers of edges are ascending")
    if len(edges) and not 0 <= edges[0] <= edges[-1] < info.nrows * info.ncols:
        raise ValueError("an edge outside the layer")
    for each in (state.weights, *state.moments):
        if each.dtype != info.dtype or each.shape != edges.shape:
            raise ValueError("a number for each edge")
    for each in (state.bias, *state.bias_moments):
        if each.dtype != info.dtype or each.shape != (info.ncols,):
            raise ValueError("a number for each neuron")
    return state


def _described(info: LayerInfo) -> dict[str, Any]:
    return {
        "shape": list(info.shape),
        "edges": info.edges,
        "gain": info.gain,
        "dtype": info.dtype.name,
        "activation": info.activation,
        "clip": info.clip,
    }


def _fingerprint(
    before: TrainingRun,
    plan: Plan,
    data: TrainingData,
    tested: ValidationData | None,
    patience: int | None,
) -> str:
    """Return a checksum of all that a call's result follows from."""
    digest = require("xxhash", "store", _WHY).xxh3_64()
    for _, array in _arrays("", before.layers):
        digest.update(np.ascontiguousarray(array))
    descriptions = [_described(layer.info) for layer in before.layers]
    digest.update(repr((descriptions, plan, before.steps, patience)).encode())
    for each in (data, tested):
        if each is not None:
            digest.update(each.rows)
            digest.update(np.ascontiguousarray(each.targets))
            for rows in _contents(each.inputs, before.layers[0].info):
                digest.update(rows)
    found: str = digest.hexdigest()
    return found


def _contents(inputs: Inputs, info: LayerInfo) -> Iterator[np.ndarray]:
    for start in range(0, inputs.nrows, _AT_ONCE):
        rows = np.arange(start, min(start + _AT_ONCE, inputs.nrows))
        out = np.empty((len(rows), info.nrows), info.dtype)
        inputs.take(rows, out)
        yield out
