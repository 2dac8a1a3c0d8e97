"""Optional packages."""

from __future__ import annotations

import importlib
import inspect
import sys
import warnings
from typing import Any

from gbdnn.errors import MissingPackageError
from gbdnn.runtime.forks import importing


def require(package: str, extra: str, why: str) -> Any:
    """Return a module of an optional package, such as ``"scipy.sparse"``.

    If it cannot be imported, raise a MissingPackageError with the reason `why` and the pip command
    of gbdnn's extra `extra`.
    """
    try:
        with importing:
            return importlib.import_module(package)
    except (ImportError, RuntimeError) as err:  # mpi4py raises RuntimeError without MPI
        raise MissingPackageError(f'{why}; run pip install "gbdnn[{extra}]"') from err


def if_imported(module: str, name: str) -> Any:
    """Return an attribute of a module, or None if it is not, or not yet completely, imported.

    Another thread may be importing it; then no object of its types exists.
    """
    return getattr(sys.modules.get(module), name, None)


def warn(text: str) -> None:
    """Issue a RuntimeWarning that names the line from which gbdnn was called."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").startswith("gbdnn."):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, RuntimeWarning, stacklevel=level)
