"""Load the compiled kernels: the library of the best level that this processor has.

    functions(np.dtype(np.float32))["chain"](plan, 0, 120, Y, Z, ...)

Functions take integers, and arrays, blocks or records where C has pointers; None is a null pointer.
Arguments live until the call returns. Calls release the GIL.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gbdnn.errors import MissingPackageError
from gbdnn.kernels.compiled.build import PLATFORMS, file_name, this_platform
from gbdnn.kernels.compiled.record import FUNCTIONS, word
from gbdnn.runtime.machine import machine

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

__all__ = ["available", "functions", "library", "of_any_processor", "required"]

FOLDER = Path(__file__).parent / "libraries"


def library(dtype: str) -> Path | None:
    """Return the path of the library for "float32" or "float64"; None without one.

    The installation has none for other processors than x86-64 and 64-bit ARM. A checkout has none
    until ``python gbdnn/kernels/compiled/build.py`` was run with these sources.
    """
    levels = PLATFORMS.get(this_platform(), {})
    level = levels.get(machine().level)
    path = None if level is None else FOLDER / file_name(level, dtype)
    return path if path is not None and path.exists() else None


def functions(dtype: np.dtype) -> dict[str, Callable[..., int]] | None:
    """Return the functions for a dtype by name; None if there are none for this processor."""
    return of_any_processor(dtype) if machine().level else None


def of_any_processor(dtype: np.dtype) -> dict[str, Callable[..., int]] | None:
    """Return the functions for a dtype, also for a processor on which most of them are slow.

    Threads and calls of GraphBLAS are as fast there. The result is None if there is no library.
    """
    return _loaded(dtype, machine().level)


@cache
def _loaded(dtype: np.dtype, level: str) -> dict[str, Callable[..., int]] | None:
    path = library(dtype.name)
    return None if path is None else functions_of(path)


def functions_of(path: Path) -> dict[str, Callable[..., int]]:
    """Return the functions of a library by name."""
    loaded = ctypes.CDLL(str(path))
    return {name: _function(loaded, name, count) for name, count in FUNCTIONS.items()}


def _function(loaded: ctypes.CDLL, name: str, count: int) -> Callable[..., int]:
    call = getattr(loaded, name)
    call.argtypes, call.restype = [ctypes.c_int64] * count, ctypes.c_int64

    def function(*given: int | np.ndarray | Any | None) -> int:
        # `given` keeps what has an address until the call returns.
        return call(*[each if type(each) is int else word(each) for each in given])

    return function


def available(dtype: np.dtype) -> bool:
    """Whether there are compiled kernels for a dtype and this processor."""
    return functions(dtype) is not None


def required(dtype: np.dtype) -> dict[str, Callable[..., int]]:
    """Return the functions for a dtype by name.

    Raises
    ------
    MissingPackageError
        This installation has no library for this processor.
    """
    found = functions(dtype)
    if found is None:
        raise MissingPackageError(
            f"no compiled kernels for this processor ({this_platform()}, {machine().level or 'no'}"
            " AVX2); they exist for x86-64 with AVX2 and 64-bit ARM; a checkout that is used in"
            " place needs python gbdnn/kernels/compiled/build.py; engine='graphblas' needs none"
        )
    return found
