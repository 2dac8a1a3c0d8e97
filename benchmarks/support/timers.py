"""Timers around functions of a package, put there from outside and removed again."""

from __future__ import annotations

import importlib
import threading
from contextlib import contextmanager
from functools import wraps
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Event(NamedTuple):
    """A call of a timed function.

    ``own`` is its time in seconds without the timed functions that were called within it.
    """

    thread: int
    part: str
    began: float
    ended: float
    own: float


class Timers:
    """Records an Event for each call of the functions that are wrapped."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._local = threading.local()

    @contextmanager
    def around(self, places: dict[str, str]) -> Iterator[None]:
        """Time the functions at ``{"module:name": part}``."""
        changed = []
        for place, part in places.items():
            module, _, path = place.partition(":")
            *owners, name = path.split(".")
            owner: Any = importlib.import_module(module)
            for each in owners:
                owner = getattr(owner, each)
            function = getattr(owner, name)
            changed.append((owner, name, function))
            setattr(owner, name, self._timed(function, part))
        try:
            yield
        finally:
            for owner, name, function in reversed(changed):
                setattr(owner, name, function)

    def _timed(self, function: Callable[..., Any], part: str) -> Callable[..., Any]:
        local = self._local

        @wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            outer = getattr(local, "inner", 0.0)
            local.inner = 0.0
            began = perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                ended = perf_counter()
                whole = ended - began
                own = whole - local.inner
                self.events.append(Event(threading.get_ident(), part, began, ended, own))
                local.inner = outer + whole

        return timed
