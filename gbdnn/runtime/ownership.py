"""Arrays that move into GraphBLAS, safe against exceptions of signal handlers.

python-graphblas creates a matrix and only then tells NumPy that the memory is no longer its own. An
exception in between, such as KeyboardInterrupt, would leave two owners that both free the memory
(reported in docs/upstream.md). Signals cannot be held back: their handlers are Python code, and a
handler may raise anything.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["owned"]

_of_two: dict[object, dict[str, Any]] = {}
"""Arrays that may have two owners. NumPy never frees them, not even at the end of the process."""
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_of_two))


def owned(importer: Callable[..., Any], **arrays: Any) -> Any:
    """Return ``importer(take_ownership=True, **arrays)``; an exception leaks the arrays' memory.

    `importer` is an import or pack function of python-graphblas. Arrays that do not own their
    memory are copied.
    """
    for name, x in arrays.items():
        if isinstance(x, np.ndarray) and not (x.flags.owndata and x.flags.writeable):
            arrays[name] = x.copy("A")  # as python-graphblas would, out of our reach
    call = object()
    _of_two[call] = arrays
    found = importer(take_ownership=True, **arrays)
    del _of_two[call]
    return found
