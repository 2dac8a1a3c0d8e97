"""Signals that end the command: SIGTERM and SIGHUP as Ctrl-C does, and its workers with it."""

from __future__ import annotations

import contextlib
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


@contextlib.contextmanager
def raised() -> Iterator[list[int]]:
    """Raise a KeyboardInterrupt for SIGTERM and SIGHUP; give a list of those that came.

    None is raised where one is on its way: what it removes is removed. A signal that is ignored
    (``nohup``) stays so.
    """
    came: list[int] = []

    def end(number: int, _: FrameType | None) -> None:
        came.append(number)
        if not isinstance(sys.exception(), KeyboardInterrupt):
            raise KeyboardInterrupt

    in_main = threading.current_thread() is threading.main_thread()
    handled = [each for each in _ENDING if in_main and signal.getsignal(each) is signal.SIG_DFL]
    for each in handled:
        signal.signal(each, end)
    try:
        yield came
    finally:
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
