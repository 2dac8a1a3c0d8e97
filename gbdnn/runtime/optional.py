"""Packages that gbdnn does not require."""

from __future__ import annotations

import importlib
from typing import Any

from gbdnn.errors import MissingPackageError


def require(package: str, extra: str, why: str) -> Any:
    """Return a module of an optional package, such as ``"scipy.sparse"``.

    If it cannot be imported, a MissingPackageError says why it is needed, and the pip line: `extra`
    is the extra of gbdnn that brings it.
    """
    try:
        return importlib.import_module(package)
    except (ImportError, RuntimeError) as err:  # mpi4py raises RuntimeError if it finds no MPI
        raise MissingPackageError(f'{why}: pip install "gbdnn[{extra}]"') from err
