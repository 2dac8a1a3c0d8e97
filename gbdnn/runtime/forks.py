"""Locks that a forked child finds free, whatever the parent's other threads were doing.

Python has a lock for each module, which is held while the module is imported. It stays held in a
child that is forked meanwhile by another thread, and the child's own import never ends. Therefore,
gbdnn's imports on first use hold the lock `importing`, and a fork waits for it.
"""

from __future__ import annotations

import _thread
import functools
import os
import sys
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["at_fork", "cached_property", "importing", "new_lock", "of_threads", "renewed"]

_locks: WeakSet[Any] = WeakSet()
at_fork: Any = getattr(os, "register_at_fork", lambda **_: None)  # Windows has no forks
T = TypeVar("T")


def renewed(lock: T) -> T:
    """Return a lock after arranging that it is free in every forked child.

    Only the thread that forks exists in the child, so a lock held by another one would stay held.
    """
    _locks.add(lock)
    return lock


def new_lock(kind: str = "allocate_lock") -> Any:
    """Return a lock, reentrant if `kind` is "RLock", that is free in every forked child.

    It is a lock of threads also where gevent has replaced them: those of greenlets do not work
    between threads.
    """
    return renewed(of_threads(kind)())


def of_threads(name: str) -> Any:
    """Return a function of `_thread` as it was before gevent replaced it.

    While a thread waits in compiled code, none of its greenlets runs.
    """
    gevent = sys.modules.get("gevent.monkey")
    return gevent.get_original("_thread", name) if gevent else getattr(_thread, name)


importing = new_lock("RLock")


class cached_property(functools.cached_property[T]):  # noqa: N801
    """As in `functools`, with a renewed lock in Python 3.11; later versions have none."""

    def __init__(self, func: Callable[[Any], T]) -> None:
        super().__init__(func)
        if hasattr(self, "lock"):
            renewed(self.lock)


def _renew() -> None:
    for lock in list(_locks):
        lock._at_fork_reinit()  # private, but there is no other way; the standard library uses it


at_fork(before=importing.acquire, after_in_parent=importing.release, after_in_child=_renew)
