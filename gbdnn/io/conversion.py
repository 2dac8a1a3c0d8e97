"""Conversion of networks between formats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from gbdnn.arrays.checks import as_flag, as_path, as_word, require_callable
from gbdnn.errors import ArgumentError
from gbdnn.io.files import require_writable, whole_folder
from gbdnn.io.format import FORMATS, Format
from gbdnn.io.formats import chosen, read_network, target_format
from gbdnn.io.losses import losses
from gbdnn.io.store.network import STORE
from gbdnn.io.store.network import write_network as write_store
from gbdnn.model.network import Network

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from pathlib import Path

    from gbdnn.io.formats import ReadOptions
    from gbdnn.model.layer import Layer

    Progress = Callable[[int, int | None], object] | None


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    to: str | None = None,
    lossy: bool = False,
    replace: bool = False,
    progress: Progress = None,
    **options: Unpack[ReadOptions],
) -> list[str]:
    """Convert a network from one format to another.

    Only one layer at a time is in memory for conversions from the challenge's files to a store, and
    from a store to any format except ONNX and PyTorch.

    Parameters
    ----------
    source : path-like
        A network in any format, as for `load`.
    target : path-like
        A new file, or a new or empty folder.
    to : {"store", "tsv", "matrix-market", "onnx", "torch"}, optional
        Format of the target. Default: from its suffix, or a store.
    lossy : bool, default False
        Whether to drop properties that the target's format cannot store; otherwise they raise an
        error.
    replace : bool, default False
        Whether to replace an existing store or file atomically; otherwise it raises an error.
        Folders of other formats are never replaced.
    progress : callable, optional
        Called as ``progress(k, count)`` after each layer is written, and, unless the target is a
        store, after each of the challenge's files is read.
    **options
        Options of the source, as for `load`.

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
        As for `load`.

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
    as_flag(lossy, "lossy")
    as_flag(replace, "replace")
    require_callable(progress, "progress")
    before, given = chosen(source, options)
    form = target_format(target) if to is None else FORMATS[as_word(to, "to", FORMATS)]
    if before.layers is not None and form is STORE:
        count = len(before.paths(source, given))
        write_store(before.layers(source, given, None), target, progress, count, replace=replace)
        return []
    reading = None if form is STORE else progress
    net = read_network(source, progress=reading, **options)
    lost = losses(net, form, target, lossy=lossy)
    write(net, target, form, progress=progress, replace=replace)
    return lost


def write(
    net: Network, path: Path, form: Format, *, progress: Progress = None, replace: bool
) -> None:
    """Write a network in a format, a lazy one layer by layer, except to ONNX and PyTorch.

    A store or a file is replaced if `replace`; any other folder must be new or empty.
    """
    if form is STORE:
        write_store(net, path, progress, replace=replace)
        return
    if not len(net):
        raise ArgumentError(f"{path}: a network without layers can only be written to a store")
    if progress is not None:
        net = _reporting(net, progress)
    if form.mark:
        with whole_folder(path) as folder:
            form.write(net, folder)
    else:
        require_writable(path, replace=replace)
        form.write(net.loaded(), path)


def _reporting(net: Network, progress: Callable[[int, int], object]) -> Network:
    """Return a lazy network that reports each layer that is read."""

    def layer(k: int, /) -> Layer:
        progress(k + 1, len(net))
        return net[k]

    return Network.lazy(net.infos, layer)
