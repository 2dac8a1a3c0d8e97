"""Load the compiled kernels: the library of the best level that this processor has.

    functions(np.dtype(np.float32)).chain(plan, 0, 120, Y, Z, ...)

Functions take numbers, and arrays, records or None where C has pointers. Arguments live until the
call returns. Calls release the GIL.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.errors import MissingPackageError
from gbdnn.kernels.compiled.build import PLATFORMS, file_name, this_platform
from gbdnn.kernels.compiled.record import FFI, FOLDER, passing
from gbdnn.runtime.machine import machine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["Functions", "functions", "library", "of_any_processor", "required"]


def library(dtype: str) -> Path | None:
    """Return the path of the library for "float32" or "float64"; None without one.

    The installation has none for other processors than x86-64 and 64-bit ARM. A checkout has none
    until ``python gbdnn/kernels/compiled/build.py`` was run with these sources.
    """
    levels = PLATFORMS.get(this_platform(), {})
    level = levels.get(machine().level)
    path = None if level is None else FOLDER / file_name(level, dtype)
    return path if path is not None and path.exists() else None


class Functions:
    """The functions of a library for numbers of a dtype, as attributes.

    Attributes
    ----------
    library : cffi library
        The same functions, which take numbers and pointers alone.
    """

    def __init__(self, path: Path, dtype: str) -> None:
        self._ffi = FFI[np.dtype(dtype)]
        self.library = self._ffi.dlopen(str(path))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self.library, name)
        all_passing = [passing(kind) for kind in self._ffi.typeof(call).args]

        def function(*given: Any) -> Any:
            # `given` keeps what has an address until the call returns.
            pairs = zip(all_passing, given, strict=True)
            return call(*[x if passed is None else passed(x) for passed, x in pairs])

        setattr(self, name, function)
        return function


def functions(dtype: np.dtype) -> Functions | None:
    """Return the functions for a dtype; None if there are none for this processor."""
    return of_any_processor(dtype) if machine().level else None


def of_any_processor(dtype: np.dtype) -> Functions | None:
    """Return the functions for a dtype, also for a processor on which most of them are slow.

    Threads and calls of GraphBLAS are as fast there. The result is None if there is no library.
    """
    return _loaded(dtype, machine().level)


@cache
def _loaded(dtype: np.dtype, level: str) -> Functions | None:
    path = library(dtype.name)
    return None if path is None else Functions(path, dtype.name)


def required(dtype: np.dtype) -> Functions:
    """Return the functions for a dtype.

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
