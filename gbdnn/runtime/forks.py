"""Locks that a forked child finds free, whatever the parent's other threads were doing.

Python has a lock for each module, which is held while the module is imported. It stays held in a
child that is forked meanwhile by another thread, and the child's own import never ends. Therefore,
gbdnn's imports on first use hold the lock `importing`, and a fork waits for it.
"""

from __future__ import annotations

import functools
import os
import threading
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["cached_property", "importing", "renewed"]

_locks: WeakSet[Any] = WeakSet()
T = TypeVar("T")


def renewed(lock: T) -> T:
    """Return a lock of `threading` after arranging that it is free in every forked child.

    Only the thread that forks exists in the child, so a lock held by another one would stay held.
    """
    _locks.add(lock)
    return lock


importing = renewed(threading.RLock())


class cached_property(functools.cached_property[T]):  # noqa: N801
    """As in `functools`, with a renewed lock in Python 3.11; later versions have none."""

    def __init__(self, func: Callable[[Any], T]) -> None:
        super().__init__(func)
        if hasattr(self, "lock"):
            renewed(self.lock)


def _renew() -> None:
    for lock in list(_locks):
        lock._at_fork_reinit()  # private, but there is no other way; the standard library uses it


os.register_at_fork(
    before=importing.acquire, after_in_parent=importing.release, after_in_child=_renew
)
