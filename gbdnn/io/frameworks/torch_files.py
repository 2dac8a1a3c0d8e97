"""Files of ``torch.save`` that hold the ``state_dict`` of linear layers.

They are pickles. Only tensors are read; a pickle that would run code is refused.
"""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gbdnn.errors import FormatError, MissingFileError, MissingPackageError, naming
from gbdnn.io.atomic import whole_file
from gbdnn.io.frameworks.torch import from_torch, to_torch
from gbdnn.io.frameworks.torch_tensors import import_torch

if TYPE_CHECKING:
    import os

    from gbdnn.model.layer import Activation
    from gbdnn.model.network import Network

__all__ = ["read_torch", "write_torch"]

_SAFE = (2, 6)  # before, weights_only=True could be made to run code (CVE-2025-32434)


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
        The file is no ``state_dict``, or is damaged.
    ArgumentError, ShapeError
        As `from_torch`.
    MissingPackageError
        PyTorch is not installed, or is older than 2.6: there, reading could run code.
    """
    torch, file = import_torch(), Path(path)
    version = tuple(map(int, re.findall(r"[0-9]+", torch.__version__)[:2]))
    if version < _SAFE:
        raise MissingPackageError(
            f"PyTorch {torch.__version__} could run code that is in a file (CVE-2025-32434):"
            ' pip install "torch>=2.6"'
        )
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except FileNotFoundError as err:
        raise MissingFileError(f"{file}: no such file") from err
    except pickle.UnpicklingError as err:
        raise FormatError(
            f"{file}: no state_dict, or damaged: what is in it besides tensors would run code when"
            " read; save model.state_dict() and not the model"
        ) from err
    except (OSError, EOFError, RuntimeError, ValueError, KeyError) as err:
        raise FormatError(f"{file}: cannot be read: {err}") from err
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
    """
    torch = import_torch()
    state = to_torch(net).state_dict()
    with whole_file(path) as file:
        torch.save(state, file)
