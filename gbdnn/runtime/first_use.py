"""GraphBLAS, initialised once: ``gb`` is the package ``graphblas`` for all of gbdnn.

python-graphblas initialises itself at the first access to one of its attributes, and loads its
modules and operators as they are asked for, without a lock. Here the first access, from whatever
thread, takes a lock and loads all that gbdnn uses. ``import gbdnn`` accesses nothing, so that
``graphblas.init`` may follow it.

A forked child does not inherit GraphBLAS's OpenMP threads, and waits for them for ever if its
parent has started them: by a sparse run on two threads or more. Whether it has cannot be asked.
Where it may have, the first access in the child raises.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import graphblas
import numpy as np

from gbdnn.errors import ForkError
from gbdnn.runtime.cores import cores

__all__ = ["COMPLETION", "complete", "gb", "is_object", "shown"]

_MODULES = (
    "exceptions", "dtypes", "unary", "binary", "indexunary", "select", "monoid", "semiring", "op",
    "agg", "Scalar", "Vector", "Matrix", "Recorder", "io", "ss", "core",
)  # fmt: skip
_OPERATORS = (
    "binary.plus", "binary.min", "binary.first", "binary.second", "monoid.any", "monoid.plus",
    "monoid.max", "monoid.min", "select.valuegt", "select.valuene", "semiring.plus_times",
    "semiring.any_plus", "semiring.plus_second", "semiring.any_times", "semiring.max_second",
    "semiring.min_second",
)  # fmt: skip
_LONG, _WIDEST = 20, 100  # items and characters that an error shows
_DTYPES = ("BOOL", "INT64", "UINT64", "FP32", "FP64")


class _GraphBLAS:
    """The package ``graphblas``; attributes are kept after the first access."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._forked = False

    def __getattr__(self, name: str) -> Any:
        if self._forked:
            raise ForkError(
                "this process was forked from one in which GraphBLAS runs on several threads, which"
                " do not exist here: start processes with 'spawn' or 'forkserver', as in"
                " multiprocessing.get_context('spawn')"
            )
        with self._lock:
            if not any(module in self.__dict__ for module in _MODULES):
                self._load()
            value = getattr(graphblas, name)
            self.__dict__[name] = value
        return value

    def _load(self) -> None:
        for module in _MODULES:
            getattr(graphblas, module)
        _heed_quota()
        for operator in _OPERATORS:
            family, name = operator.split(".")
            found = getattr(getattr(graphblas, family), name)
            for dtype in _DTYPES:
                if dtype in found.types:
                    found[dtype]

    def before_fork(self) -> None:
        """Note whether a child could not use GraphBLAS."""
        params = graphblas._init_params
        self._unusable = self._forked or bool(
            params and graphblas.ss.config["nthreads"] != 1  # 0: as many as there are cores
        )

    def after_fork(self) -> None:
        """Begin anew in the child."""
        forked = self._unusable
        self.__dict__.clear()
        self.__init__()  # type: ignore[misc]
        self._forked = forked


def _heed_quota() -> None:
    """Have GraphBLAS's default of threads, a thread for each core, end at the quota.

    A number that the caller has set stays.
    """
    config, everywhere, most = graphblas.ss.config, cores(limited=False), cores()
    if "OMP_NUM_THREADS" not in os.environ and config["nthreads"] == everywhere > most:
        config["nthreads"] = most


if TYPE_CHECKING:
    import graphblas as gb
else:
    gb = _GraphBLAS()
    os.register_at_fork(before=gb.before_fork, after_in_child=gb.after_fork)

COMPLETION = threading.RLock()
"""Held while a caller's object is touched that may have pending work."""

_NUMBERS = {int, float, bool, np.float64, np.float32, np.int64}  # of which lists may be long


def is_object(x: object) -> bool:
    """Whether `x` is an object of GraphBLAS's: a matrix, vector, scalar, or an expression of these.

    A transpose counts, and so do the expressions that become an object where they are read
    (``2 * A``, ``A[:10, :]``), unlike ``A @ B``, which does not say by which semiring.
    """
    # A foreign object never makes GraphBLAS initialise: without the module there is no object, nor
    # while it is loaded.
    module: Any = sys.modules.get("graphblas.core.matrix")
    transposed = getattr(module, "TransposedMatrix", None)
    return transposed is not None and isinstance(
        x, (module.BaseType, transposed, module.BaseExpression, module.AmbiguousAssignOrExtract)
    )


def complete(x: Any) -> None:
    """Finish the pending work of a caller's GraphBLAS objects, which threads may then read at once.

    GraphBLAS finishes pending work where an object is first read, even by a function that only
    counts its entries, or shows it: two threads that do so at once corrupt it. So this comes before
    anything else that reads an object; what is not an object stays as it is; lists, tuples and
    expressions may have some in them.
    """
    if isinstance(x, list | tuple):
        if not set(map(type, x)) <= _NUMBERS:
            for each in x:
                complete(each)
        return
    if type(x).__module__.startswith("graphblas.core."):  # what an expression is of
        for name in ("args", "left", "right", "parent"):
            complete(getattr(x, name, None))
    if is_object(x):
        held = x.T if type(x).__name__ == "TransposedMatrix" else x
        with COMPLETION:
            held.wait()


def shown(x: object) -> str:
    """Return how an error shows a caller's value: arrays and long values by their type."""
    kind = f"an object of type {type(x).__module__}.{type(x).__qualname__}".replace("builtins.", "")
    if hasattr(x, "shape") and not isinstance(x, type | np.generic):
        return kind
    if isinstance(x, list | tuple | set | dict) and len(x) > _LONG:
        return kind
    with COMPLETION:
        try:
            text = repr(x)
        except Exception:  # of a class of anybody's: python-graphblas draws tables with pandas
            return kind
    return text if len(text) <= _WIDEST else kind
