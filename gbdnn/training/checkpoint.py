"""Store training runs in files, for the checkpoints of `train`.

The format is safetensors. The metadata contains a JSON description of the run and a checksum of
the description and all arrays.
"""

from __future__ import annotations

import copyreg
import json
from dataclasses import asdict, is_dataclass, replace
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.checks import as_path
from gbdnn.errors import ArgumentError, FormatError, MissingFileError, require_kind
from gbdnn.io.formats import of_suffix
from gbdnn.io.reading import foreign_errors, read_bytes, valid_fields
from gbdnn.io.store.fingerprints import checksum, digest
from gbdnn.io.writing import require_writable, whole_file
from gbdnn.model.layer_info import LayerInfo
from gbdnn.runtime.first_use import shown
from gbdnn.runtime.optional import require
from gbdnn.training import losses, optimizers
from gbdnn.training.run import BestEpoch, EpochRecord, LayerState, TrainingRun

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["identity", "read_run", "resumed", "write_checkpoint", "write_run"]

_FORMAT = "gbdnn.training 7"
_NUMBERS, _RULES = (
    ("batch_size", "seed", "steps", "stopped", "moments_of", "moment_steps"),
    ("loss", "optimizer", "schedule"),
)
_KINDS: dict[str, Any] = {
    name: kind
    for module in (losses, optimizers)
    for name, kind in vars(module).items()
    if is_dataclass(kind)
}
_LONG = 200  # characters of a text that is stored
_WHY = "training runs are stored as safetensors files with checksums"


def write_run(run: TrainingRun, path: str | os.PathLike[str], *, replace: bool = False) -> None:
    """Write a training run to a file, from which `train` can resume.

    Parameters
    ----------
    run : TrainingRun
        Custom losses, optimizers and schedules are not stored. For inference, save ``run.network``
        with `gbdnn.save`.
    path : path-like
        Written atomically, as safetensors.
    replace : bool, default False
        Whether to replace an existing file; otherwise it raises an error.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        `run` is not a TrainingRun, or the name has the suffix of a network.
    OutputError, MissingPackageError
        The file cannot be written, or exists; safetensors or xxhash is not installed.

    Examples
    --------
    >>> import pathlib, tempfile, numpy as np, gbdnn
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "run.safetensors"
    >>> run = gbdnn.train([np.eye(2)], np.eye(2), [0, 1], epochs=1)
    >>> gbdnn.training.write_run(run, file)
    >>> len(gbdnn.training.read_run(file).history)
    1
    """
    require_kind(run, TrainingRun, "run must be a TrainingRun")
    write_checkpoint(run, path, None, replace=replace)


def write_checkpoint(
    run: TrainingRun,
    path: str | os.PathLike[str],
    call: dict[str, str] | None,
    *,
    replace: bool = True,
) -> None:
    """Write a run to a file; `call` describes the call of which it is a checkpoint."""
    _require_name(as_path(path))
    numpy_files = require("safetensors.numpy", "store", _WHY)
    arrays, known = dict(_arrays("", run.layers)), {name: getattr(run, name) for name in _NUMBERS}
    known |= {"history": run.history, "call": call}
    known["layers"] = [_described(layer) for layer in run.layers]
    for name in _RULES:
        rule = getattr(run, name)
        kind = type(rule).__name__
        known[name] = [kind, asdict(rule)] if _KINDS.get(kind) is type(rule) else None
    if run.best is not None:
        arrays |= dict(_arrays("best.", run.best.layers))
        known["best"] = [run.best.epoch, run.best.validation_loss]
        known["best_layers"] = [_described(layer) for layer in run.best.layers]
    text = json.dumps(known, default=lambda scalar: scalar.item())
    # A single item, because safetensors does not keep the order of several.
    metadata = json.dumps([_FORMAT, _checksum(text, arrays), text])
    content = numpy_files.save(arrays, {"gbdnn": metadata})
    with whole_file(path, replace=replace) as file:
        file.write(content)


def read_run(path: str | os.PathLike[str]) -> TrainingRun:
    """Read a training run from a file of `write_run`, or a checkpoint of `train`.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    TrainingRun
        Pass it to `train` in place of a network to continue.

    Raises
    ------
    MissingFileError, FormatError, MissingPackageError
        The file does not exist, is damaged or was written by another version; safetensors or xxhash
        is not installed.

    Examples
    --------
    >>> import pathlib, tempfile, numpy as np, gbdnn
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "run.safetensors"
    >>> run = gbdnn.train([np.eye(2)], np.eye(2), [0, 1], epochs=1, checkpoint=file)
    >>> gbdnn.train(gbdnn.training.read_run(file), np.eye(2), [0, 1], epochs=2).history[-1].epoch
    2
    """
    return _read(path)[0]


def _read(path: str | os.PathLike[str]) -> tuple[TrainingRun, dict[str, str] | None]:
    """Return the run in a file, and the call of which it is a checkpoint."""
    path = as_path(path)
    load = require("safetensors.numpy", "store", _WHY).load
    content = read_bytes(path)
    fault = "damaged, or not a training run"
    with foreign_errors(path, fault):
        arrays = load(content)
    with valid_fields(path, fault):
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        version, checksum, text = json.loads(header["__metadata__"]["gbdnn"])
    if version != _FORMAT:
        raise FormatError(
            f"{path}: written by another version of gbdnn (format {version!r}, this version"
            f" reads {_FORMAT!r}); delete it or choose another file"
        )
    if checksum != _checksum(text, arrays):
        raise FormatError(f"{path}: the training run is damaged; its checksum differs")
    known = json.loads(text)
    with valid_fields(path, fault):
        values: dict[str, Any] = {name: known[name] for name in _NUMBERS}
        for name in _RULES:
            values[name] = None if known[name] is None else _KINDS[known[name][0]](**known[name][1])
        if "best" in known:
            epoch, loss = known["best"]
            best = _layers("best.", known["best_layers"], arrays)
            values["best"] = BestEpoch(epoch, loss, best)
        history = tuple(EpochRecord(*record) for record in known["history"])
        run = TrainingRun(_layers("", known["layers"], arrays), history, **values)
    return run, known.get("call")


def resumed(path: str | os.PathLike[str], begun: TrainingRun, call: dict[str, str]) -> TrainingRun:
    """Return the run in a checkpoint, or `begun` if the file does not exist.

    `begun` is the initial run of the call, with its options. Raise ArgumentError if the checkpoint
    belongs to another call.
    """
    path = as_path(path, "checkpoint")
    _require_name(path)
    require_writable(path)
    try:
        run, before = _read(path)
    except MissingFileError:
        return begun
    if before is None:
        raise ArgumentError(
            f"{path}: the file is a saved run, not a checkpoint; choose another file (to continue"
            " the run, pass gbdnn.training.read_run(path) in place of the network)"
        )
    for name in call | before:
        if before.get(name) != call.get(name):
            raise ArgumentError(
                f"{path}: the checkpoint has {name} {before.get(name)}, but this call has"
                f" {call.get(name)}; delete the file or choose another"
            )
    return replace(run, **{name: getattr(begun, name) for name in _RULES})


def identity(x: Any, seen: dict[int, Any] | None = None) -> str:
    """Return a text that is the same for equal values, from all of their content.

    Long texts are hashed. Objects are described by class and by what pickle stores of them,
    functions by module and name. `seen` are the objects that contain `x`, which may refer to them.
    """
    seen = {} if seen is None else seen
    if x is None or isinstance(
        x, bool | int | float | complex | str | bytes | np.generic | np.dtype
    ):
        # NumPy 1 writes numbers without their type.
        text = f"{type(x).__name__} {x!r}" if isinstance(x, np.generic) else repr(x)
    elif isinstance(x, type | FunctionType):
        text = f"{x.__module__}.{x.__qualname__}"
        if not isinstance(x, type) and "<" in text:
            raise ArgumentError(
                f"checkpoint= cannot compare {text} with that of another call; use a function of"
                " a module, or an object whose attributes are its options"
            )
    elif id(x) in seen:
        text = f"#{list(seen).index(id(x))}"
    else:
        text = _content(x, {**seen, id(x): x})
    return text if len(text) <= _LONG else f"hash {checksum(text.encode())}"


def _content(x: Any, seen: dict[int, Any]) -> str:
    if type(x) is np.ndarray and not x.dtype.hasobject:
        return f"{x.dtype} {x.shape} {checksum(np.ascontiguousarray(x))}"
    if type(x) is dict:
        pairs = (f"{identity(key, seen)}: {identity(value, seen)}" for key, value in x.items())
        return f"{{{', '.join(pairs)}}}"
    if type(x) in (list, tuple, set, frozenset):
        texts = [identity(item, seen) for item in x]
        name = "" if type(x) in (list, tuple) else type(x).__name__
        left, right = "[]" if type(x) is list else "()"
        return f"{name}{left}{', '.join(sorted(texts) if name else texts)}{right}"
    try:
        reduce = copyreg.dispatch_table.get(type(x))  # of regular expressions and ufuncs
        made = x.__reduce_ex__(4) if reduce is None else reduce(x)
    except TypeError as err:
        raise ArgumentError(f"checkpoint= cannot compare {shown(x)} with another: {err}") from err
    if isinstance(made, str):
        return made
    make, args, state, *items = (*made, None)[:5]
    known = args[1:] if getattr(make, "__name__", "") == "__newobj__" else (make, *args)
    parts = [*known, *([] if state is None else [state]), *(list(each) for each in items if each)]
    name = f"{type(x).__module__}.{type(x).__qualname__}"
    return f"{name}({', '.join(identity(each, seen) for each in parts)})"


def _require_name(path: Path) -> None:
    if of_suffix(path):
        raise ArgumentError(
            f"{path}: the suffix is that of a network, not of a training run; choose another name"
        )


def _described(layer: LayerState) -> dict[str, Any]:
    return asdict(layer.info) | {"dtype": layer.info.dtype.name, "moments": len(layer.moments)}


def _arrays(prefix: str, layers: Sequence[LayerState]) -> Iterator[tuple[str, np.ndarray]]:
    for k, layer in enumerate(layers):
        for name in ("numbers", "weights", "bias"):
            yield f"{prefix}{k}.{name}", getattr(layer, name)
        for name in ("moments", "bias_moments"):
            for n, array in enumerate(getattr(layer, name)):
                yield f"{prefix}{k}.{name}.{n}", array


def _layers(
    prefix: str, described: Sequence[dict[str, Any]], arrays: Mapping[str, np.ndarray]
) -> tuple[LayerState, ...]:
    states = []
    for k, known in enumerate(described):
        fields = dict(known)
        count = fields.pop("moments")
        values: Any = [arrays[f"{prefix}{k}.{name}"] for name in ("numbers", "weights", "bias")]
        for name in ("moments", "bias_moments"):
            values.append(tuple(arrays[f"{prefix}{k}.{name}.{n}"] for n in range(count)))
        info = LayerInfo(**fields)
        largest = min(np.iinfo(values[0].dtype).max, 2**63 - 1)  # number of an edge
        if values[2].shape != (info.ncols,) or info.nrows * info.ncols - 1 > largest:
            raise ValueError(f"layer {k} of shape {info.shape} has a bias of {values[2].shape}")
        states.append(LayerState(info, *values))
    if not states:
        raise ValueError("the run has no layers")
    return tuple(states)


def _checksum(text: str, arrays: Mapping[str, np.ndarray]) -> str:
    state = digest(text.encode())
    for name, array in sorted(arrays.items()):
        state.update(f"{name} {array.dtype} {array.shape}".encode())
        state.update(array)
    return state.hexdigest()
