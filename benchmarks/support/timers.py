"""Timers around functions of a package, put there from outside and taken away again."""

from __future__ import annotations

import importlib
import threading
from collections import defaultdict
from contextlib import contextmanager
from functools import wraps
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Event(NamedTuple):
    """A call of a timed function.

    ``own`` are its seconds without those of timed functions that were called within it.
    """

    thread: int
    part: str
    began: float
    ended: float
    own: float


class Timers:
    """Calls, and seconds by part, and by layer and part, of whatever functions are wrapped.

    A part's seconds are its own: those of a timed function called within it are not counted twice.
    Layers are told by arguments: a function that is given something with an integer ``k`` works
    for layer k, and so does what its caller calls afterwards, until another layer is told.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self.layers: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self.missing: list[str] = []
        self.events: list[Event] = []
        self._lock = threading.Lock()
        self._local = threading.local()

    @contextmanager
    def around(self, places: dict[str, str]) -> Iterator[None]:
        """Time the functions at ``{"module:name": part}``; a name that is not there is noted."""
        changed = []
        for place, part in places.items():
            module, _, path = place.partition(":")
            *owners, name = path.split(".")
            owner: Any = None
            try:
                owner = importlib.import_module(module)
                for each in owners:
                    owner = getattr(owner, each)
                function = getattr(owner, name)
            except (ImportError, AttributeError):
                self.missing.append(place)
                continue
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
            outer, before = getattr(local, "inner", 0.0), getattr(local, "layer", None)
            local.inner = 0.0
            told = next((k for arg in args if isinstance(k := _k(arg), int)), before)
            local.layer = told
            began = perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                ended = perf_counter()
                whole = ended - began
                event = Event(threading.get_ident(), part, began, ended, whole - local.inner)
                self._note(event, told)
                local.inner = outer + whole
                local.layer = before if before is None else told

        return timed

    def _note(self, event: Event, layer: int | None) -> None:
        with self._lock:
            self.events.append(event)
            self.seconds[event.part] += event.own
            self.calls[event.part] += 1
            if layer is not None:
                self.layers[layer][event.part] += event.own


def _k(argument: Any) -> Any:
    return getattr(argument, "k", None)
