"""A run in a file: arrays and a description, written whole after each epoch.

The format is safetensors, with a checksum of all bytes. Fingerprints of all that the result
follows from, data and options and where training began, tell whether a file belongs to a call.
A file is taken if it is what `Checkpoint.save` writes of the run in it, and training can have come
there.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.checks import as_path
from gbdnn.errors import FormatError, MissingFileError
from gbdnn.io.files import output_errors, require_writable, whole_file
from gbdnn.io.reading import read_bytes
from gbdnn.io.store.fingerprints import checksum, checksum_of, identity
from gbdnn.runtime.optional import require
from gbdnn.training.run import LayerState
from gbdnn.training.saved_run import decoded, described, encoded, named_arrays

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from gbdnn.model.layer_info import LayerInfo
    from gbdnn.training.data import TrainingData, ValidationData
    from gbdnn.training.inputs import Inputs
    from gbdnn.training.run import TrainingRun
    from gbdnn.training.saved_run import Call

__all__ = ["Checkpoint"]

_FORMAT, _VERSION = "gbdnn.training", 4
_UNSIGNED = "0" * 16  # where the checksum is, as long as it is computed
_WHY = "a checkpoint is a safetensors file"
_AT_ONCE = 1024  # inputs


class Checkpoint:
    """A file for a call of `train`.

    Parameters
    ----------
    path : path-like
        Of the file. That it can be written is tested now, before anything is computed.
    call : Call
    options : dict
        By name, all beside data and where training began that the result follows from.
    data : TrainingData
    tested : ValidationData or None
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        call: Call,
        options: dict[str, Any],
        data: TrainingData,
        tested: ValidationData | None,
    ) -> None:
        self._safetensors = require("safetensors.numpy", "store", _WHY)
        self.path = as_path(path, "checkpoint")
        require_writable(path)
        self._fingerprint = _fingerprints(call.begun, options, data, tested)
        # The begun network's weights are not held as long as training goes on.
        layers = tuple(LayerState.bare(layer.info) for layer in call.begun.layers)
        self._call = call._replace(begun=replace(call.begun, layers=layers))

    def load(self) -> tuple[TrainingRun, bool] | None:
        """Return the saved run and whether it had ended; None if there is no file."""
        try:
            content = read_bytes(self.path)
        except MissingFileError:
            return None
        try:
            arrays, text = self._read(content)
            known = json.loads(text)
            if known["format"] != _FORMAT or type(known["version"]) is not int:
                raise ValueError("no checkpoint")
            version = known.pop("version")
            known.pop("format")
            others = {} if version != _VERSION else known.pop("fingerprint")
            differ = [name for name, one in self._fingerprint.items() if others.get(name) != one]
            found = None if differ else decoded(known, arrays, self._call)
        except (
            ValueError, LookupError, TypeError, AttributeError, RecursionError, self._error,
        ) as err:  # fmt: skip
            raise FormatError(f"{self.path}: no checkpoint of gbdnn, or a damaged one") from err
        if version != _VERSION:
            raise FormatError(
                f"{self.path}: a checkpoint of version {version}; this gbdnn resumes version"
                f" {_VERSION}: remove it, or choose another file"
            )
        if found is None:
            raise FormatError(
                f"{self.path}: the checkpoint of another training, with another"
                f" {', '.join(differ)}: remove it, or choose another file"
            )
        return found

    def save(self, run: TrainingRun, *, stopped: bool) -> None:
        """Write a run, in place of the one before."""
        arrays, known = encoded(run, stopped=stopped)
        known |= {"format": _FORMAT, "version": _VERSION, "fingerprint": self._fingerprint}
        texts = {"gbdnn": json.dumps(known), "checksum": _UNSIGNED}
        content = self._safetensors.save(arrays, texts)
        content = _with_checksum(content, _UNSIGNED, checksum(content))
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
        if found != checksum(_with_checksum(content, found, _UNSIGNED)):
            raise ValueError("the checksum is another one")
        return self._safetensors.load(content), texts["gbdnn"]


def _with_checksum(content: bytes, old: str, new: str) -> bytes:
    """Return a file with another checksum in its header."""
    return content.replace(b'"checksum":"%b"' % old.encode(), b'"checksum":"%b"' % new.encode(), 1)


def _fingerprints(
    begun: TrainingRun,
    options: dict[str, Any],
    data: TrainingData,
    tested: ValidationData | None,
) -> dict[str, str]:
    """Return checksums of all that a call's result follows from, by what it is."""

    def network() -> Iterator[Any]:
        for _, array in named_arrays("", begun.layers):
            yield np.ascontiguousarray(array)
        yield identity([described(layer.info) for layer in begun.layers] + [begun.steps]).encode()

    found = {name: checksum(identity(option).encode()) for name, option in options.items()}
    found["network"] = checksum_of(network())
    for name, each in (("", data), ("validation ", tested)):
        found[f"{name}X"] = found[f"{name}y"] = found[f"{name}sample_weight"] = ""
        if each is not None:
            arrays = _contents(each.inputs, begun.layers[0].info)
            found[f"{name}X"] = checksum_of(chain([each.rows], arrays))
            found[f"{name}y"] = checksum(np.ascontiguousarray(each.targets))
            found[f"{name}sample_weight"] = checksum(each.weights)
    return found


def _contents(inputs: Inputs, info: LayerInfo) -> Iterator[np.ndarray]:
    for start in range(0, inputs.nrows, _AT_ONCE):
        rows = np.arange(start, min(start + _AT_ONCE, inputs.nrows))
        out = np.empty((len(rows), info.nrows), info.dtype)
        inputs.take(rows, out)
        yield out
