"""A run in a store: to go on with it another day, with other options and on other data."""

from __future__ import annotations

from dataclasses import asdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.errors import ArgumentError, FormatError
from gbdnn.io.store.writer import Writer
from gbdnn.model.layer_info import LayerInfo
from gbdnn.training.losses import CrossEntropy, SquaredError
from gbdnn.training.optimizers import SGD, Adam
from gbdnn.training.run import EpochRecord, LayerState, TrainingRun
from gbdnn.training.saved_run import Call, decoded, encoded
from gbdnn.training.schedules import Constant, Cosine, Stepwise

if TYPE_CHECKING:
    import os

    from gbdnn.io.store.reader import Reader

__all__ = ["read_run", "write_run"]

_KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (CrossEntropy, SquaredError, SGD, Adam, Constant, Cosine, Stepwise)
}
_WHOLE, _PARTS = ("batch_size", "seed", "steps"), ("loss", "optimizer", "schedule")


def write_run(run: TrainingRun, path: str | os.PathLike[str]) -> None:
    """Write a run into a store; errors as for `gbdnn.save`."""
    arrays, fields = encoded(run, stopped=True)
    known: dict[str, Any] = {name: getattr(run, name) for name in _WHOLE}
    for name in _PARTS:
        part = getattr(run, name)
        if type(part) not in (type(None), *_KINDS.values()):
            raise ArgumentError(f"save: a {name} of one's own, {type(part).__name__}, is not kept")
        known[name] = part and {"kind": type(part).__name__, "options": asdict(part)}
    known["arrays"] = {name: [each.dtype.name, len(each)] for name, each in arrays.items()}
    with Writer(path) as writer:
        writer.finish("training", {**known, "run": fields, "state": writer.add("run", arrays)})


def read_run(reader: Reader) -> TrainingRun:
    """Return the run in a store, or raise a FormatError."""
    index = reader.index
    try:
        arrays = {
            name: reader.array(index["state"], name, np.dtype(dtype), length, "run").copy()
            for name, (dtype, length) in index["arrays"].items()
        }
        fields, known = index["run"], {name: index[name] for name in _WHOLE}
        for name in _PARTS:
            known[name] = (part := index[name]) and _KINDS[part["kind"]](**part["options"])
            if part and asdict(known[name]).keys() != part["options"].keys():
                raise ValueError(f"an option of {name} is missing")
        infos = [LayerInfo(**each) for each in fields["layers"]]
        if any((a.ncols, a.dtype) != (b.nrows, b.dtype) for a, b in pairwise(infos)):
            raise ValueError("layers that do not fit each other")
        layers = tuple(LayerState.bare(info) for info in infos)
        history = tuple(EpochRecord(*record) for record in fields["history"])
        moments = sum(name.startswith("0.moment.") for name in arrays)
        begun = TrainingRun(layers, history, **known)
        call = Call(begun, 0, 0, moments, True, True, keeps_best="best" in fields)
        return decoded(fields, arrays, call)[0]
    except (ValueError, TypeError, LookupError, AttributeError) as err:
        if isinstance(err, FormatError):
            raise
        raise FormatError(f"{reader.path}: no run of training, or a damaged one: {err}") from err
