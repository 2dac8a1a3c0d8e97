"""Stores: folders that contain a network, features or categories; see ``docs/store.md``.

`folder` and `shards` implement the container, an index and shards of named arrays; `network` and
`features` define the arrays. Categories are one array.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.checks import require_callable
from gbdnn.arrays.matrices import as_features, as_held, is_matrix, is_vectors
from gbdnn.errors import ArgumentError, ArgumentTypeError, FormatError
from gbdnn.io.store.features import StoredFeatures, open_features, write_features
from gbdnn.io.store.folder import Reader, finish, writing
from gbdnn.io.store.network import read_network, write_network
from gbdnn.runtime.first_use import complete

if TYPE_CHECKING:
    import os

    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.model.layer import Layer
    from gbdnn.model.network import Network

    TrainingRun = Any  # of a higher layer

__all__ = [
    "RUNS",
    "StoredFeatures",
    "load",
    "open_features",
    "require_storable",
    "save",
    "write_features",
]


def save(
    x: Network | Iterable[Layer] | MatrixLike | TrainingRun,
    path: str | os.PathLike[str],
    *,
    replace: bool = False,
    progress: Callable[[int, int | None], object] | None = None,
) -> None:
    """Save a network, features or categories in a store, or a training run in a file.

    Parameters
    ----------
    x : Network, iterable of Layer, matrix, 1-D ndarray of integers, or TrainingRun
        Layers are written one by one. A matrix (graphblas, SciPy sparse, 2-D NumPy) is stored as
        features; for features larger than memory, use `gbdnn.io.write_features`. A 1-D array of
        integers is stored as categories. A `TrainingRun` is written to a safetensors file, from
        which `train` can resume, without custom losses, optimizers or schedules; save
        ``run.network`` for inference.
    path : path-like
        A new or empty folder; for a training run, a file. Not with the suffix of another format.
    replace : bool, default False
        Whether to replace an existing store or file atomically; otherwise it raises an error.
    progress : callable, optional
        Called as ``progress(k, count)`` after each layer; count is None if unknown.

    Raises
    ------
    OutputError
        The folder cannot be written, or contains a store, other files, or parts of an unfinished
        `infer_to_store`.
    ArgumentTypeError, ArgumentError, ShapeError
        `x` has another type, its layers do not fit each other, or `path` has another format's
        suffix.
    MissingPackageError
        safetensors or xxhash is not installed.

    Examples
    --------
    >>> import tempfile, gbdnn
    >>> folder = tempfile.mkdtemp()
    >>> gbdnn.save(gbdnn.gallery.radixnet(1024, 12, lazy=True), folder)
    >>> net = gbdnn.load(folder)
    >>> net[11].edges, net.isequal(gbdnn.gallery.radixnet(1024, 12))
    (32768, True)
    """
    require_callable(progress, "progress")
    complete(x)
    x = as_held(x, "x")
    x = as_features(x, "x") if is_vectors(x) else x
    if isinstance(x, np.ndarray) and x.ndim == 1:
        _write_categories(x, path, replace)
    elif is_matrix(x):
        write_features([x], path, replace=replace, progress=progress)
    elif hasattr(x, "history") and hasattr(x, "optimizer"):
        importlib.import_module(RUNS).write_run(x, path, replace=replace)
    elif isinstance(x, Iterable) and not isinstance(x, str | bytes | dict):
        write_network(x, path, progress, replace=replace)
    else:
        raise ArgumentTypeError(
            "x must be a Network, Layers, a matrix, a 1-D array of integers or a TrainingRun, not"
            f" {type(x).__qualname__}"
        )


def load(path: str | os.PathLike[str], *, verify: bool = True) -> Any:
    """Return the content of a store, networks lazily; see `gbdnn.load`."""
    reader = Reader(path, verify=verify)
    if reader.kind not in _READERS:
        raise FormatError(f"{reader.path}: the store contains {reader.kind!r}")
    return _READERS[reader.kind](reader)


def require_storable(path: str | os.PathLike[str], *, replace: bool, resumes: bool = False) -> None:
    """Raise the OutputError that `save` would raise, before the content is computed.

    With `resumes` the folder may contain the parts of an unfinished run.
    """
    with writing(path, replace=replace, resumes=resumes):
        pass


RUNS = "gbdnn.training.checkpoint"
"""The module for training runs, imported on demand because it is in a higher layer."""


def _write_categories(rows: np.ndarray, path: str | os.PathLike[str], replace: bool) -> None:
    """Write a 1-D array of integers."""
    if rows.dtype.kind not in "iu":
        raise ArgumentTypeError(f"categories must be integers, not {rows.dtype}")
    ids = np.array(rows, np.int64)  # not a masked array, not a view
    if rows.dtype.kind == "u" and (ids < 0).any():
        raise ArgumentError(f"categories must be below 2**63, not {rows.max()}")
    with writing(path, replace=replace) as writer:
        entry = writer.add("categories", {"ids": ids})
        finish(writer, "categories", {"categories": entry})


def _read_categories(reader: Reader) -> np.ndarray:
    """Return the ids of the inputs."""
    (ids,) = reader.shards.arrays(reader.index["categories"], ["ids"], "categories")
    return ids


_READERS: dict[str, Callable[[Reader], Any]] = {
    "network": read_network,
    "features": lambda reader: StoredFeatures(reader).matrix(),
    "categories": _read_categories,
}
