"""Runs as forked children of a process that itself never uses GraphBLAS.

A fork takes milliseconds, where a new interpreter would take a second.
"""

import os
import signal
import sys
import time
import traceback

from gbdnn.cli import entry
from gbdnn.io.store import writer

LONGEST = 120  # seconds of a run
INTERRUPTED = 130


def command(*arguments):
    """Run the command line in this process; return its exit code."""
    sys.argv = ["gbdnn", *map(str, arguments)]
    try:
        entry.main()
    except SystemExit as end:
        return end.code or 0
    return 0


class Child:
    """A run in a process of its own, and of its own group.

    It ends with the function's code, with 130 after a KeyboardInterrupt, with 1 after another
    exception, which `errors` then tells.
    """

    def __init__(self, errors, function, *arguments, shard_bytes=None):
        self.errors = errors
        self.pid = os.fork()
        if self.pid:
            return
        code = 1
        try:
            os.setsid()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            null = os.open(os.devnull, os.O_RDWR)
            told = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for at, stream in enumerate((null, told, told)):
                os.dup2(stream, at)
            if shard_bytes is not None:
                writer.SHARD_BYTES = shard_bytes
            code = function(*arguments) or 0
        except KeyboardInterrupt:
            code = INTERRUPTED
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)

    def wait(self, seconds=LONGEST, *, stopped=False):
        """Return the exit code (less than 0: a signal), None if it runs still.

        If `stopped`, also when it has stopped itself: then that signal, as a number less than 0.
        """
        end = time.monotonic() + seconds
        pause = 0.0005
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG | (os.WUNTRACED if stopped else 0))
            if pid:
                if os.WIFSTOPPED(status):
                    return -os.WSTOPSIG(status)
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() >= end:
                return None
            time.sleep(pause)
            pause = min(2 * pause, 0.01)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def end_group(self):
        """End what the killed process has started: workers."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def ended(self, seconds=LONGEST):
        """Return the exit code; a process that does not end is killed."""
        code = self.wait(seconds)
        if code is None:
            self.kill()
        return code

    def well(self, seconds=LONGEST):
        """Wait for the end; an AssertionError tells what went wrong."""
        if (code := self.ended(seconds)) != 0:
            raise AssertionError(f"ended with {code}: {self.errors.read_text()[-2000:]}")
