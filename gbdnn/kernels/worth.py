"""When preparing or compiling is worth its time: the ski-rental rule.

Work is done without it until the work has cost as much. So the total is at most twice that of the
best decision, whatever follows. Compiled code stays on disk and serves all later processes, so that
it is compiled after less work (`costs.work_before_compiling`).
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any

from gbdnn.errors import MissingPackageError
from gbdnn.kernels import costs
from gbdnn.runtime.machine import machine
from gbdnn.runtime.optional import warn

if TYPE_CHECKING:
    from collections.abc import Callable

    from gbdnn.kernels.compiled.functions import Part
    from gbdnn.kernels.compiled.library import Library

__all__ = ["Code", "Investment", "library_of"]


def library_of(dtype: str, part: Part) -> Library:
    """Return a library of compiled functions; nothing of it is imported before this call."""
    from gbdnn.kernels.compiled.functions import library

    return library(dtype, part)


class Investment:
    """Work that went without something that costs time once; it may belong to an object."""

    def __init__(self, of: object = None) -> None:
        self._work = 0.0

    def left(self, price: float) -> float:
        """Return the work from which it pays to spend `price`, in the same unit."""
        return max(0.0, price - self._work)

    def went_without(self, work: float) -> None:
        """Record work that was done without."""
        self._work += work

    def made(self) -> None:
        """Record that the price was paid."""
        self._work = math.inf


class Code:
    """A library of compiled functions: whether and when this process compiles it.

    Parameters
    ----------
    library : callable
        Returns the library; it may raise any exception.
    price : callable
        Returns the time of compiling it, in ns, an entry of `costs`.
    what : str
        What is compiled, for warnings: ``"fused kernel"``.
    """

    def __init__(
        self, library: Callable[[], Library], price: Callable[[], float], what: str
    ) -> None:
        self._library, self._price, self._what = library, price, what
        self._functions: dict[str, Any] | None = None
        self._fault: str | None = None
        self._past, self._lock, self._has_told = Investment(), threading.Lock(), False

    def work_left(self) -> float:
        """Return the work without the code, in ns, from which it pays; 0 if it is compiled.

        It is infinite if the code would be slow or cannot be compiled, and while another thread
        compiles it.
        """
        if self._functions is not None:
            return 0.0
        if self._fault is not None or not machine().has_fma:
            return math.inf
        if self._library_is("at_hand"):
            return 0.0
        return math.inf if self._lock.locked() else self._past.left(self._needed())

    def went_without(self, work: float) -> None:
        """Record work that was done without the code, in ns; tell once that it takes longer."""
        self._past.went_without(work)
        price, needed = self._cost(), self._needed()
        if self._has_told or price < costs.AT_ONCE or self._past.left(needed / 10):
            return
        if 0 < self.work_left() < math.inf:
            self._has_told = True
            after, seconds = needed / 1e9, price / 1e9
            text = (
                f"the {self._what}, which takes less time, is not compiled yet. That takes about"
                f" {seconds:.2g} s, once per machine, and begins after {after:.2g} s of calls; to"
                " compile it now, call gbdnn.compile(network) or run gbdnn info --machine --compile"
            )
            warn(text)

    def functions(self) -> dict[str, Any] | None:
        """Return the functions, which are loaded or compiled at the first call.

        If this fails, the result is None. A failure is reported once.
        """
        first = self._fault is None
        if self._functions is None and (fault := self._load()) is not None and first:
            text = f"no {self._what}, which would take less time: {fault}"
            warn(text)
        return self._functions

    def required(self) -> dict[str, Any]:
        """Return the functions, which are loaded or compiled at the first call.

        Raises
        ------
        MissingPackageError
            numba is missing, or its version is not supported.
        """
        if self._functions is None and (fault := self._load()) is not None:
            raise MissingPackageError(f"engine='fused' needs a working numba: {fault}")
        found: Any = self._functions
        return found

    @property
    def seconds(self) -> float:
        """Time this process spent compiling; 0 if the code was on disk."""
        return 0.0 if self._functions is None else self._library().seconds

    def _cost(self) -> float:
        """Return the time of compiling, in ns."""
        return self._price() * (costs.FROM_IR if self._library_is("carried") else 1)

    def _needed(self) -> float:
        return costs.work_before_compiling(self._cost())

    def _library_is(self, what: str) -> bool:
        try:
            return bool(getattr(self._library(), f"is_{what}"))
        except Exception:
            return False

    def _load(self) -> str | None:
        """Return why compiled code is unavailable, or None if it is available."""
        with self._lock:
            if self._fault is None and self._functions is None:
                try:
                    self._functions = self._library().functions()
                except Exception as error:
                    self._fault = f"{type(error).__name__}: {error}"
        return self._fault
