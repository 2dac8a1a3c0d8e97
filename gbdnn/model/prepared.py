"""Weights as the forms need them, prepared at the first request and kept."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Prepared"]

T = TypeVar("T")


class Prepared:
    """Results of functions of one layer or network: each is made once, however many threads ask.

    A pickle of it is empty.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._made: dict[Callable[[Any], Any], Any] = {}

    def once(self, prepare: Callable[[Any], T], of: Any) -> T:
        """Return ``prepare(of)``; `of` is the same at each call."""
        with self._lock:
            if prepare not in self._made:
                self._made[prepare] = prepare(of)
            found: T = self._made[prepare]
        return found

    def made(self) -> list[Any]:
        """Return all that was made."""
        with self._lock:
            return list(self._made.values())

    def __reduce__(self) -> tuple[Any, ...]:
        return Prepared, ()
