"""Programs in their own processes, which exchange lines of JSON.

Two libraries in one process would have two thread pools, whose idle threads slow down each other. A
process sleeps between requests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from importlib.metadata import version
from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_PACKAGES = (
    "scipy", "torch", "torch_geometric", "sparse_dot_mkl", "sparselab", "onnxruntime", "numba",
    "deepsparse", "openvino", "sparseprop",
)  # fmt: skip


class Process:
    """The client of a process.

    Parameters
    ----------
    name : str
        Name in messages.
    *command : object
        A script that calls `serve`, and its arguments.
    python : str
        The interpreter; default: this one.
    **environment : str
        Environment variables to set.
    """

    def __init__(
        self, name: str, *command: object, python: str = sys.executable, **environment: str
    ) -> None:
        self.name = name
        self.prepared: dict[str, Any] = {}
        self._process = subprocess.Popen(
            [python, *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )

    def ask(self, **what: Any) -> dict[str, Any]:
        """Send a request and return its response."""
        assert self._process.stdin is not None  # noqa: S101 -- it is a pipe
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """Wait for a response and return it."""
        assert self._process.stdout is not None  # noqa: S101
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended with exit code {self._process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        """Close its standard input, which ends the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()


@contextmanager
def prepared(started: Sequence[Process], found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Wait until programs are prepared, and end them afterwards.

    Programs with missing packages are listed in ``found["skipped"]``; the versions of the others
    are stored in ``found["versions"]``.
    """
    skipped, able = found.setdefault("skipped", {}), {}
    try:
        for each in started:
            each.prepared = each.answer()
            if "missing" in each.prepared:
                if each.name not in skipped:
                    print(f"{each.name}: skipped: {each.prepared['missing']}")
                skipped[each.name] = each.prepared["missing"]
            else:
                found.setdefault("versions", {}).update(each.prepared["versions"])
                able[each.name] = each
        yield able
    finally:
        for each in started:
            each.close()


def serve(prepare: Callable[[], Callable[..., dict[str, Any]]]) -> None:
    """Serve requests; output of libraries is redirected to standard error.

    `prepare` returns a function that is called with each request. The first response contains its
    time, versions and the function's ``facts``, if any, or ``missing`` if a package is missing.
    """
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)

        def answer(**what: Any) -> None:
            answers.write(json.dumps(what) + "\n")
            answers.flush()

        began = perf_counter()
        try:
            run = prepare()
        except ImportError as err:
            answer(missing=str(err).splitlines()[0])
            return
        seconds = perf_counter() - began
        answer(seconds=seconds, versions=_versions(), facts=getattr(run, "facts", {}))
        for line in sys.stdin:
            answer(**run(**json.loads(line)))


def _versions() -> dict[str, str]:
    """Return the versions of the imported packages."""
    found = {name: version(name) for name in _PACKAGES if name in sys.modules}
    if "sparse_dot_mkl" in found:
        found["mkl"] = sys.modules["sparse_dot_mkl"].get_version_string()
    return found
