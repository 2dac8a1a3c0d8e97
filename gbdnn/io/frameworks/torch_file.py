"""PyTorch's files of a ``state_dict``: pickles, of which tensors alone are read."""

from __future__ import annotations

import pickle
import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

from gbdnn.arrays.checks import as_path
from gbdnn.errors import FormatError, MissingPackageError, naming
from gbdnn.io.files import whole_file
from gbdnn.io.frameworks.torch import from_torch, to_torch
from gbdnn.io.frameworks.torch_tensors import import_torch, nbytes, sparse_fault
from gbdnn.io.reading import open_checked, require_unpacked

if TYPE_CHECKING:
    import os

    from gbdnn.model.layer import Activation
    from gbdnn.model.network import Network

_SAFE = (2, 6)  # before, weights_only=True could be made to run code (CVE-2025-32434)
_BEFORE = 4  # pickles before the last one: magic number, version, system, the state


def read_torch(
    path: str | os.PathLike[str],
    *,
    clip: float | None = None,
    last_activation: Activation | None = None,
    dtype: Any = None,
) -> Network:
    """Read a network from a file of ``torch.save(model.state_dict(), path)``.

    Parameters
    ----------
    path : path-like
        Tensors by name, in the order of their use. A file with a whole module is refused: reading
        it would run code from the file.
    clip, last_activation, dtype
        As for `from_torch`: a ``state_dict`` has no activations.

    Returns
    -------
    Network
        Its bias rule is ``all``.

    Raises
    ------
    MissingFileError
        There is no such file.
    FormatError
        The file is not a ``state_dict`` of tensors, or is damaged.
    ArgumentError, ShapeError
        As `from_torch`.
    MissingPackageError
        PyTorch is not installed, or is older than 2.6: there, reading could run code.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np, gbdnn
    >>> folder = Path(tempfile.mkdtemp())
    >>> net = gbdnn.Network([gbdnn.Layer(np.eye(3), clip=6)])
    >>> gbdnn.io.write_torch(net, folder / "net.pt")
    >>> gbdnn.io.read_torch(folder / "net.pt", clip=6, last_activation="relu").isequal(net)
    True
    """
    torch, file = import_torch(), as_path(path)
    version = tuple(map(int, re.findall(r"[0-9]+", torch.__version__)[:2]))
    if version < _SAFE:
        raise MissingPackageError(
            f"PyTorch {torch.__version__} could run code that is in a file (CVE-2025-32434):"
            ' pip install "torch>=2.6"'
        )
    with open_checked(file) as opened:
        try:
            state = torch.load(opened, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as err:
            raise FormatError(
                f"{file}: no state_dict, or damaged: what is in it besides tensors would run code"
                " when read; save model.state_dict() and not the model"
            ) from err
        _require_state(state, torch.Tensor)
        # Strides of 0 give a tensor more elements than its storage in the file has.
        require_unpacked(file, sum(map(nbytes, state.values())))
        opened.seek(0)
        if opened.read(2) != b"PK":
            opened.seek(0)
            _require_filled(opened)
    with naming(file):
        return from_torch(state, clip=clip, last_activation=last_activation, dtype=dtype)


def write_torch(net: Network, path: str | os.PathLike[str]) -> None:
    """Write a network's weights and biases as the ``state_dict`` of its `to_torch`.

    Parameters
    ----------
    net : Network
        As for `to_torch`. A ``state_dict`` holds no activations and clips.
    path : path-like
        Written atomically.

    Raises
    ------
    ArgumentError, ArgumentTypeError, TooLargeError, MissingPackageError
        As `to_torch`.
    OutputError
        The file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np, gbdnn
    >>> folder = Path(tempfile.mkdtemp())
    >>> gbdnn.io.write_torch(gbdnn.Network([gbdnn.Layer(np.eye(3))]), folder / "net.pt")
    >>> gbdnn.io.read_torch(folder / "net.pt").shape
    (3, 3)
    """
    as_path(path)
    torch = import_torch()
    state = to_torch(net).state_dict()
    with whole_file(path) as file:
        torch.save(state, file)


def _require_state(state: Any, kind: type) -> None:
    """Raise a ValueError unless an object is a ``state_dict`` of tensors that PyTorch would make.

    PyTorch does not look at the indices of sparse ones when it reads them.
    """
    if not isinstance(state, Mapping):
        raise ValueError(f"no state_dict, but {type(state).__qualname__}")
    for name, tensor in state.items():
        if not isinstance(name, str) or not isinstance(tensor, kind):
            raise ValueError(f"no state_dict: {name!r} is {type(tensor).__qualname__}")
        if fault := sparse_fault(tensor):
            raise ValueError(f"{name!r} is a corrupt sparse tensor: {fault}")


class _Storages(pickle.Unpickler):
    """Collects which storages a pickle names; no class or function is looked up in any module."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self.keys: set[str] = set()

    def persistent_load(self, pid: Any) -> None:
        self.keys.add(pid[2])  # "storage", its type, its key, its device, its size

    def find_class(self, module: str, name: str) -> Any:
        return OrderedDict if name == "OrderedDict" else lambda *_: None


def _require_filled(file: BinaryIO) -> None:
    """Raise a ValueError unless a file in the format of before PyTorch 1.6 fills every storage.

    PyTorch leaves one that the list behind the state does not name as it found the memory.
    """
    named: set[str] = set()
    for _ in range(_BEFORE):
        storages = _Storages(file)
        storages.load()
        named |= storages.keys
    filled = _Storages(file).load()
    if sorted(filled) != sorted(named):
        raise ValueError(f"{len(named)} storages, of which {len(set(filled))} have values")
