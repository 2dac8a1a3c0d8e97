"""A program in a process of its own, which answers lines of JSON with lines of JSON.

Two libraries in one process would bring two thread pools, whose idle threads take time from each
other's working ones. Between two requests a process sleeps.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Process:
    """The side that asks.

    Parameters
    ----------
    name : str
        For messages.
    *command : str
        A script and its arguments; it runs in this Python, and calls `answering`.
    **environment : str
        Variables to set.
    """

    def __init__(self, name: str, *command: str, **environment: str) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )

    def ask(self, **what: Any) -> dict[str, Any]:
        """Send a request, and return its answer."""
        assert self._process.stdin is not None  # noqa: S101 -- it is a pipe
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """Wait for an answer."""
        assert self._process.stdout is not None  # noqa: S101
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended with exit code {self._process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        """End the process: it reads no more lines."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()


def prepared(started: list[Process], found: dict[str, Any]) -> list[Process]:
    """Return the programs whose packages are there."""
    able = []
    for each in started:
        answer = each.answer()
        if "missing" in answer:
            if each.name not in found["skipped"]:
                print(f"{each.name}: skipped: {answer['missing']}")
            found["skipped"][each.name] = answer["missing"]
        else:
            found["versions"] |= answer["versions"]
            able.append(each)
    return able


@contextmanager
def answering() -> Iterator[Callable[..., None]]:
    """The side that answers: within, what a library prints goes to standard error."""
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)

        def answer(**what: Any) -> None:
            answers.write(json.dumps(what) + "\n")
            answers.flush()

        yield answer


def requests() -> Iterator[dict[str, Any]]:
    """Yield what is asked, until there is no more."""
    for line in sys.stdin:
        yield json.loads(line)
