"""How many threads GraphBLAS may use during a call; afterwards all is as it was."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import graphblas as gb
import numpy as np

from gbdnn.errors import ArgumentError, ArgumentTypeError

__all__ = ["available", "engaged"]

_MOST = 2**31 - 1  # GraphBLAS holds it in a C int


def engaged(nthreads: int | None) -> AbstractContextManager[object]:
    """Engage a GraphBLAS Context of `nthreads` threads for the length of a ``with`` block.

    None leaves the caller's Context and configuration in force.
    """
    if nthreads is None:
        return nullcontext()
    if isinstance(nthreads, bool) or not isinstance(nthreads, int | np.integer):
        raise ArgumentTypeError(f"nthreads is a whole number or None, not {nthreads!r}")
    if nthreads < 1:
        raise ArgumentError(f"nthreads is at least 1, not {nthreads}")
    if nthreads > _MOST:
        raise ArgumentError(f"nthreads is at most {_MOST}, not {nthreads}")
    context: AbstractContextManager[object] = gb.ss.Context(engage=False, nthreads=int(nthreads))
    return context


def available() -> int:
    """Return the threads that GraphBLAS may use now: the engaged Context's, or the configured."""
    return int(gb.ss.Context(engage=False)["nthreads"])
