"""Conversion of networks and features between formats."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from gbdnn.arrays.checks import as_flag, as_path, require_callable
from gbdnn.errors import ArgumentError
from gbdnn.io.array_files import form_of_start
from gbdnn.io.data import read_features, write_features
from gbdnn.io.formats import FEATURES, of_suffix
from gbdnn.io.networks import chosen, opened, target_format, write
from gbdnn.io.store.features import open_features
from gbdnn.io.store.folder import INDEX, Reader, require_free
from gbdnn.io.store.network import STORE, write_network

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gbdnn.model.layer import Activation, BiasRule

__all__ = ["convert"]


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    to: str | None = None,
    lossy: bool = False,
    replace: bool = False,
    progress: Callable[[int, int | None], object] | None = None,
    format: str | None = None,  # noqa: A002
    layers: int | None = None,
    dtype: Any = None,
    neurons: int | None = None,
    prefix: str | None = None,
    bias: float | None = None,
    bias_rule: BiasRule | None = None,
    clip: float | None = None,
    activation: Activation | None = None,
    last_activation: Activation | None = None,
    logits: bool = False,
) -> list[str]:
    """Convert a network or features from one format to another.

    Only one layer at a time is in memory for conversions from the challenge's files to a store, and
    from a store to any format except ONNX and PyTorch; of features only some rows, from a store to
    a store.

    Parameters
    ----------
    source : path-like
        A network in any format, as for `gbdnn.load`; a store or a file
        of features, as for `read_features`. A single ``.mtx`` file is a network of one layer unless
        the suffix of the target is that of a file of features.
    target : path-like
        A new file, or a new or empty folder.
    to : str, optional
        Format of the target: for networks as for `gbdnn.save`, for features as for
        `write_features`. Default: from its suffix, or a store.
    lossy : bool, default False
        Whether to drop properties that the target's format cannot store; otherwise they raise an
        error.
    replace : bool, default False
        Whether to replace an existing store or file atomically; otherwise it raises an error.
        Folders of other formats are never replaced.
    progress : callable, optional
        Called as ``progress(k, count)`` after each layer is written.
    format : str, optional
        Format of a network at the source. Default: detected.
    layers, dtype, neurons, prefix, bias, bias_rule, clip, activation, last_activation, logits
        Options of the source, as for `gbdnn.load`; only `dtype` applies to features.

    Returns
    -------
    list of str
        The dropped properties, such as ``"clip 32 (layer 0)"``.

    Raises
    ------
    ArgumentError
        The target's format cannot store the network, or an option does not apply.
    OutputError
        The target cannot be written, or exists.
    MissingFileError, FormatError, MissingPackageError
        As for `gbdnn.load`.

    Examples
    --------
    >>> import pathlib, tempfile, numpy as np, gbdnn
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> gbdnn.save([gbdnn.Layer(np.eye(3), clip=6)], folder / "net")
    >>> gbdnn.io.convert(folder / "net", folder / "net.onnx")
    []
    >>> gbdnn.io.convert(folder / "net", folder / "files", to="matrix-market", lossy=True)
    ['clip 6 (layer 0)']
    """
    source, target = as_path(source, "source"), as_path(target, "target")
    require_callable(progress, "progress")
    as_flag(lossy, "lossy")
    options = {
        "layers": layers, "neurons": neurons, "prefix": prefix, "bias": bias,
        "bias_rule": bias_rule, "clip": clip, "activation": activation,
        "last_activation": last_activation, "logits": as_flag(logits, "logits") or None,
    }  # fmt: skip
    kind = "network" if format is not None else _kind(source, target, to)
    if kind != "network":
        for name, x in (options | {"lossy": lossy or None}).items():
            if x is not None:
                raise ArgumentError(f"{name}= does not apply to {kind}")
        X = open_features(source) if source.is_dir() else read_features(source, dtype=dtype)
        write_features(X, target, to, dtype=dtype, replace=replace, progress=progress)
        return []
    before, given = chosen(source, format, dtype=dtype, **options)
    form = target_format(target, to, "to")
    if form is STORE or not form.mark:
        require_free(target, stored=form is STORE, replace=replace)
    if before.layers is not None and form is STORE:
        count, each = before.layers(source, given, None)
        write_network(each, target, progress, count, replace=replace)
        return []
    if before is STORE:
        given["lazy"] = True
    net = opened(source, before, given)
    return write(net, target, form, lossy=lossy, progress=progress, replace=replace)


def _kind(source: Path, target: Path, to: str | None) -> str:
    """Return what a path contains, a network or features."""
    if os.path.exists(source / INDEX):  # noqa: PTH110 -- no error for a long name
        return Reader(source).kind
    if of_suffix(source, FEATURES) == "matrix-market":
        return "features" if of_suffix(target, FEATURES) or to in ("npy", "npz") else "network"
    if of_suffix(source) or not os.path.isfile(source):  # noqa: PTH113
        return "network"
    return "features" if of_suffix(source, FEATURES) or form_of_start(source) else "network"
