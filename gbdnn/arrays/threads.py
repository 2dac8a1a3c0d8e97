"""How many threads GraphBLAS may use during a call; afterwards all is as it was."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from gbdnn.arrays.first_use import gb
from gbdnn.arrays.values import whole_number

__all__ = ["MOST_THREADS", "available", "engaged"]

MOST_THREADS = 2**31 - 1  # GraphBLAS holds it in a C int


def engaged(nthreads: int | None) -> AbstractContextManager[object]:
    """Engage a GraphBLAS Context of `nthreads` threads for the length of a ``with`` block.

    None leaves the caller's Context and configuration in force.
    """
    if nthreads is None:
        return nullcontext()
    nthreads = whole_number(nthreads, "nthreads", least=1, most=MOST_THREADS)
    context: AbstractContextManager[object] = gb.ss.Context(engage=False, nthreads=nthreads)
    return context


def available() -> int:
    """Return the threads that GraphBLAS may use now: the engaged Context's, or the configured."""
    return int(gb.ss.Context(engage=False)["nthreads"])
