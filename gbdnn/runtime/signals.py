"""Exceptions that the handlers of signals raise, such as a time limit by SIGALRM."""

from __future__ import annotations

import signal

__all__ = ["from_handler"]


def from_handler(err: BaseException) -> bool:
    """Whether an exception passed through the handler of a signal.

    Such an exception is raised wherever the main thread happens to be, and says nothing about it.
    """
    handlers = map(signal.getsignal, signal.valid_signals())
    codes = {getattr(handler, "__code__", None) for handler in handlers}
    frame = err.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code in codes:
            return True
        frame = frame.tb_next
    return False
