"""Folders with one file of weights per layer, and maybe one of biases beside it.

The files of a network have one prefix, a number and an ending: ``n1024-l1.mtx``, ``n1024-l2.mtx``
to ``n1024-l30.mtx``. Their order is that of the numbers. A bias has the layer's name and ``-bias``.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbdnn.arrays.values import as_dtype
from gbdnn.errors import (
    ArgumentError,
    ArgumentTypeError,
    FormatError,
    GbdnnError,
    MissingFileError,
    OutputError,
    TooLargeError,
)
from gbdnn.io.challenge.table import first_duplicate
from gbdnn.io.frameworks.scipy import import_scipy, require_activation
from gbdnn.model.layer import Layer
from gbdnn.model.network import Network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gbdnn.model.layer import Activation, BiasRule

__all__ = ["Kind", "damaged", "read_numbered", "refuse_duplicates", "writable_folder"]


class Kind(NamedTuple):
    """A format: the endings of its files, whether they may have ``.gz``, how each is read."""

    weights: str
    bias: str
    gzip: bool
    read_weights: Callable[[Path], Any]
    read_bias: Callable[[Path], Any]


def read_numbered(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    kind: Kind,
    *,
    prefix: str | None,
    bias: float | None,
    bias_rule: BiasRule,
    clip: float | None,
    last_activation: Activation,
    dtype: Any,
) -> Network:
    """Read a folder, or files in the order given; one layer at a time is held twice."""
    require_activation(last_activation)
    wanted = None if dtype is None else as_dtype(dtype)
    options: dict[str, Any] = {"bias_rule": bias_rule, "dtype": wanted}
    # A fault of the options is not one of the first file.
    Layer(np.empty((0, 0)), 0.0 if bias is None else bias, clip=clip, **options)
    import_scipy()
    if isinstance(paths, str | os.PathLike):
        files = layer_files(Path(paths), kind, prefix)
    else:
        files = [Path(path) for path in paths]
        if prefix is not None:
            raise ArgumentTypeError("prefix= beside a list of files; it goes with a folder")
    layers = []
    for k, file in enumerate(files):
        identity = last_activation == "identity" and k == len(files) - 1
        W, b = kind.read_weights(file), _bias_beside(file, kind)
        if b is not None and bias is not None:
            raise ArgumentError(f"bias= beside {bias_file(file, kind)}: the layer has its own")
        try:
            layers.append(
                Layer(
                    W,
                    (0.0 if bias is None else bias) if b is None else b,
                    activation="identity" if identity else "relu",
                    clip=None if identity else clip,
                    **options,
                )
            )
        except (ArgumentError, ArgumentTypeError) as err:
            raise FormatError(f"{file}: {err}") from err
        except GbdnnError as err:
            raise type(err)(f"{file}: {err}") from err
    return Network(layers)


def layer_files(folder: Path, kind: Kind, prefix: str | None = None) -> list[Path]:
    """Return the files of the one network in `folder`, in the order of their numbers."""
    shape = f"<prefix><number>{kind.weights}"
    found = _by_prefix(folder, kind)
    if prefix is not None:
        found = {prefix: found[prefix]} if prefix in found else {}
        shape = f"{prefix}<number>{kind.weights}"
    if not found:
        raise MissingFileError(f"{folder}: no layers; expected files {shape}")
    if len(found) > 1:
        raise ArgumentError(
            f"{folder}: numbered files of {len(found)} kinds; prefix= says which: "
            + ", ".join(repr(name) for name in sorted(found))
        )
    [(name, files)] = found.items()
    first = 0 if 0 in files else 1
    for k in range(first, max(files) + 1):
        if k not in files:
            raise MissingFileError(
                f"{folder / f'{name}{k}{kind.weights}'} is missing; the folder has {len(files)}"
                f" layers, the last of them {files[max(files)].name}"
            )
    return [files[k] for k in sorted(files)]


def writable_folder(
    directory: str | os.PathLike[str], kind: Kind, prefix: str, count: int
) -> Iterator[tuple[Path, Path]]:
    """Make the folder, refuse one with further layers, and return pairs of files to write."""
    folder = Path(directory)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as err:
        raise OutputError(f"{folder}: cannot be made: {getattr(err, 'strerror', err)}") from err
    old = _by_prefix(folder, kind).get(prefix, {})
    if further := [path.name for k, path in sorted(old.items()) if not 1 <= k <= count]:
        raise OutputError(
            f"{folder}: holds {further[0]} of another network, this one has {count} layers;"
            " choose another folder or remove it"
        )
    return (
        (folder / f"{prefix}{k}{kind.weights}", folder / f"{prefix}{k}{kind.bias}")
        for k in range(1, count + 1)
    )


def bias_file(weights: Path, kind: Kind) -> Path:
    """Return where the bias of a layer's file lies: ``l1.mtx.gz`` has ``l1-bias.mtx``."""
    stem = weights.name.removesuffix(".gz").removesuffix(kind.weights)
    return weights.with_name(stem + kind.bias)


@contextlib.contextmanager
def damaged(path: Path, *faults: type[Exception]) -> Iterator[None]:
    """Turn a package's exception about a file into one of ours that names the file."""
    try:
        yield
    except GbdnnError:
        raise
    except MemoryError as err:
        raise TooLargeError(f"{path}: {err or 'more than memory has room for'}") from err
    except FileNotFoundError as err:
        raise MissingFileError(f"{path}: no such file") from err
    except IsADirectoryError as err:
        raise FormatError(f"{path}: is a folder, not a file") from err
    except PermissionError as err:
        raise MissingFileError(f"{path}: cannot be read: {err.strerror}") from err
    except (OSError, EOFError, ValueError, OverflowError) as err:
        raise FormatError(f"{path}: {err}") from err
    except faults as err:
        raise FormatError(f"{path}: {type(err).__name__}: {err}") from err


def refuse_duplicates(A: Any, path: Path) -> None:
    """Raise FormatError if a sparse array has two entries at one place."""
    if A.format in ("csr", "csc", "bsr"):  # before its indices are trusted
        with damaged(path):
            A = A.copy()
            A.check_format(full_check=True)
    entries = A.tocoo(copy=True)
    rows, columns = entries.coords
    entries.sum_duplicates()
    if entries.nnz < rows.size:
        _, second = first_duplicate(rows, columns)
        raise FormatError(
            f"{path}: a second entry in row {rows[second] + 1}, column {columns[second] + 1}"
        )


def _bias_beside(file: Path, kind: Kind) -> Any:
    plain = bias_file(file, kind)
    for path in (plain, plain.with_name(plain.name + ".gz"))[: 1 + kind.gzip]:
        if path.exists():
            return kind.read_bias(path)
    return None


def _by_prefix(folder: Path, kind: Kind) -> dict[str, dict[int, Path]]:
    """Return the numbered files by prefix and number, a plain one before a compressed one."""
    try:
        listing = sorted(folder.iterdir())
    except (OSError, ValueError) as err:
        reason = getattr(err, "strerror", None) or err
        raise MissingFileError(f"{folder}: cannot be listed: {reason}") from err
    gz = r"(\.gz)?" if kind.gzip else ""
    name = re.compile(rf"(.*?)([0-9]+){re.escape(kind.weights)}{gz}", re.DOTALL)
    found: dict[str, dict[int, Path]] = {}
    for path in listing:
        if match := name.fullmatch(path.name):
            first = found.setdefault(match[1], {}).setdefault(int(match[2]), path)
            if path.name not in (first.name, first.name + ".gz"):
                raise ArgumentError(f"{folder}: {first.name} and {path.name} have one number")
    return found
