"""Packages that gbdnn does not require."""

from __future__ import annotations

import importlib
from typing import Any

from gbdnn.errors import MissingPackageError

__all__ = ["require"]


def require(package: str, extra: str, why: str) -> Any:
    """Import an optional package.

    Parameters
    ----------
    package : str
        A module: ``"polars"``, ``"scipy.sparse"``.
    extra : str
        The extra of gbdnn that brings it.
    why : str
        What needs it; begins the error's message.

    Returns
    -------
    module

    Raises
    ------
    MissingPackageError
        It is not installed; the message has the pip line.
    """
    try:
        return importlib.import_module(package)
    except ImportError as err:
        raise MissingPackageError(f'{why}: pip install "gbdnn[{extra}]"') from err
