"""Initialisation of GraphBLAS: ``gb`` is the package ``graphblas`` for all of gbdnn.

python-graphblas initialises itself at the first access to an attribute, and loads modules and
operators on demand without a lock. Here the first access from any thread takes a lock, for which
forks wait, and loads everything that gbdnn uses. ``import gbdnn`` accesses no attribute, so
``graphblas.init`` may be called afterwards.

A forked child does not inherit GraphBLAS's OpenMP threads and waits for them forever if its parent
has started them, that is, has run GraphBLAS on two or more threads. There is no way to query this,
so the first access in the child raises if the parent may have started them: GraphBLAS's default is
several threads, or gbdnn has used a Context of several.
"""

from __future__ import annotations

import os
import sys
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

import graphblas
import numpy as np

from gbdnn.errors import ForkError
from gbdnn.runtime.cores import cores
from gbdnn.runtime.forks import at_fork, importing, new_lock
from gbdnn.runtime.signals import from_handler

__all__ = ["COMPLETION", "complete", "gb", "is_object", "shown", "will_use"]

_MODULES = (
    "exceptions", "dtypes", "unary", "binary", "indexunary", "select", "monoid", "semiring", "op",
    "agg", "Scalar", "Vector", "Matrix", "Recorder", "io", "ss", "core",
)  # fmt: skip
_OPERATORS = (
    "binary.plus", "binary.min", "binary.max", "binary.first", "binary.second", "monoid.any",
    "monoid.plus", "monoid.max", "monoid.min", "select.valuegt", "select.valuene",
    "semiring.plus_times", "semiring.any_plus", "semiring.plus_second", "semiring.any_times",
    "semiring.max_second", "semiring.min_second",
)  # fmt: skip
_LONG, _WIDEST = 20, 100  # most items and characters shown in an error
_DTYPES = ("BOOL", "INT64", "UINT64", "FP32", "FP64")


class _GraphBLAS:
    """The package ``graphblas``; attributes are cached after the first access."""

    def __init__(self) -> None:
        self._forked = self._used_threads = False

    def __getattr__(self, name: str) -> Any:
        if self._forked:
            raise ForkError(
                "GraphBLAS cannot be used in a process that was forked after GraphBLAS had been"
                " initialised with several threads; start processes with 'spawn' or 'forkserver',"
                " as in multiprocessing.get_context('spawn')"
            )
        with importing:
            if not any(module in self.__dict__ for module in _MODULES):
                self._load()
            value = getattr(graphblas, name)
            self.__dict__[name] = value
        return value

    def _load(self) -> None:
        for module in _MODULES:
            getattr(graphblas, module)
        _heed_quota()
        _break_cycles()
        for operator in _OPERATORS:
            family, name = operator.split(".")
            found = getattr(getattr(graphblas, family), name)
            for dtype in _DTYPES:
                if dtype in found.types:
                    found[dtype]

    def will_use(self, nthreads: int) -> None:
        """Record the number of threads of a Context in which gbdnn uses GraphBLAS."""
        self._used_threads |= nthreads != 1  # 0: one per core

    def before_fork(self) -> None:
        """Record whether a child would be unable to use GraphBLAS."""
        params = graphblas._init_params
        self._unusable = (
            self._forked
            or self._used_threads
            or bool(params and graphblas.ss.config["nthreads"] != 1)
        )

    def after_fork(self) -> None:
        """Reset the state in the child."""
        forked = self._unusable
        self.__dict__.clear()
        self.__init__()  # type: ignore[misc]
        self._forked = forked


def _heed_quota() -> None:
    """Limit GraphBLAS's default number of threads, one per core, to the quota.

    A number set by the caller is kept.
    """
    config, everywhere, most = graphblas.ss.config, cores(limited=False), cores()
    if "OMP_NUM_THREADS" not in os.environ and config["nthreads"] == everywhere > most:
        config["nthreads"] = most


def _break_cycles() -> None:
    """Let the attribute `ss` of a matrix or a vector be made when it is asked for.

    python-graphblas stores it, and it refers back: a reference cycle. A matrix would keep its
    memory after the last reference to it until Python collects garbage, which counts objects, not
    bytes. See python-graphblas's issue 559, and its pull request 598, which does the same.
    """
    for kind in (graphblas.Matrix, graphblas.Vector):
        ss = vars(kind).get("ss")
        if isinstance(getattr(ss, "member_property", None), MemberDescriptorType):
            ss.member_property = property(ss.classval, lambda *_: None)


_package = _GraphBLAS()
at_fork(before=_package.before_fork, after_in_child=_package.after_fork)
will_use = _package.will_use
if TYPE_CHECKING:
    import graphblas as gb
else:
    gb = _package

COMPLETION = new_lock("RLock")
"""Held while accessing a caller's object that may have pending work."""

_WITHOUT_OPERANDS = {"Matrix", "Vector", "Scalar"}
_NUMBERS = {int, float, bool, np.float64, np.float32, np.int64}  # lists of these may be long


def is_object(x: object) -> bool:
    """Whether `x` is a GraphBLAS matrix, vector or scalar, a transpose, or an expression.

    Includes expressions that can be evaluated (``2 * A``, ``A[:10, :]``), but not ``A @ B``, which
    lacks a semiring.
    """
    # Do not initialise GraphBLAS: if the module is not (completely) loaded, no object exists.
    module: Any = sys.modules.get("graphblas.core.matrix")
    transposed = getattr(module, "TransposedMatrix", None)
    return transposed is not None and isinstance(
        x, (module.BaseType, transposed, module.BaseExpression, module.AmbiguousAssignOrExtract)
    )


def complete(x: Any) -> None:
    """Complete pending work of GraphBLAS objects, so that several threads can read them.

    GraphBLAS completes pending work when an object is first read, even to count its entries or to
    print it; two threads that do so at once corrupt the object. So call this before any other read.
    Lists, tuples and expressions are searched for objects; other values are ignored.
    """
    if isinstance(x, list | tuple):
        if not set(map(type, x)) <= _NUMBERS:
            for each in x:
                complete(each)
        return
    kind = type(x)
    if kind.__module__.startswith("graphblas.core.") and kind.__name__ not in _WITHOUT_OPERANDS:
        for name in ("args", "left", "right", "parent"):
            complete(getattr(x, name, None))
    if is_object(x):
        held = x.T if type(x).__name__ == "TransposedMatrix" else x
        with COMPLETION:
            held.wait()


def shown(x: object) -> str:
    """Return the text for a value in an error message: arrays and long values by their type."""
    kind = f"an object of type {type(x).__module__}.{type(x).__qualname__}".replace("builtins.", "")
    if hasattr(x, "shape") and not isinstance(x, type | np.generic):
        return kind
    if isinstance(x, list | tuple | set | dict) and len(x) > _LONG:
        return kind
    with COMPLETION:
        try:
            text = repr(x)
        except Exception as err:  # any class: python-graphblas prints with pandas
            if from_handler(err):
                raise
            return kind
    return text if len(text) <= _WIDEST else kind
