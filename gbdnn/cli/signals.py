"""Signals that end the command: SIGTERM and SIGHUP as Ctrl-C does, and its workers with it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection
    from types import FrameType

__all__ = ["end_with", "held_back", "raised"]

_ENDING = (signal.SIGTERM, signal.SIGHUP)
_ALL = (signal.SIGINT, *_ENDING)
_SOON = 0.05  # seconds


@contextlib.contextmanager
def raised() -> Iterator[list[int]]:
    """Raise a KeyboardInterrupt for SIGTERM and SIGHUP; give a list of those that came.

    None is raised where one is on its way: what it removes is removed. One that Python drops, since
    an object was being deleted, comes again. A signal that is ignored (``nohup``) stays so.
    """
    came: list[int] = []
    told = sys.unraisablehook

    def dropped(what: sys.UnraisableHookArgs) -> None:
        if not isinstance(what.exc_value, KeyboardInterrupt):
            told(what)
            return
        number = came[-1] if came else signal.SIGINT
        threading.Timer(_SOON, os.kill, (os.getpid(), number)).start()

    def end(number: int, _: FrameType | None) -> None:
        came.append(number)
        if not isinstance(sys.exception(), KeyboardInterrupt):
            raise KeyboardInterrupt

    in_main = threading.current_thread() is threading.main_thread()
    handled = [each for each in _ENDING if in_main and signal.getsignal(each) is signal.SIG_DFL]
    for each in handled:
        signal.signal(each, end)
    sys.unraisablehook = dropped
    try:
        yield came
    finally:
        sys.unraisablehook = told
        for each in handled:
            signal.signal(each, signal.SIG_DFL)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Hold these signals back; a process that is started meanwhile does, until `end_with`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ALL)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with(life: Connection) -> None:
    """In a worker: end when the other end of a connection is closed, or its process is killed.

    Ctrl-C and the end of a terminal, which are signals to workers as well, are left to the command.
    """
    for each in (signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ALL)

    def wait() -> None:
        with contextlib.suppress(EOFError, OSError):
            life.recv_bytes()
        signal.raise_signal(signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()
