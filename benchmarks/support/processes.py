"""Programs that are compared, each in its own process; they exchange lines of JSON.

Two libraries in one process would have two thread pools, whose idle threads slow down each other. A
process sleeps between requests. A module of programs declares them in its `Programs`, and serves
one of them if it runs as a script.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_PACKAGES = "scipy torch torch_geometric sparse_dot_mkl sparselab onnxruntime openvino sparseprop"
_PACKAGES += " deepsparse"


class Program:
    """A program that is compared.

    Parameters
    ----------
    title : str
        Name in tables.
    prepare : callable
        The function that prepares it.
    *traits : str
        Words that distinguish it, such as "own" for gbdnn.
    **options
        Keyword arguments of `prepare`.
    """

    def __init__(
        self, title: str, prepare: Callable[..., Any], *traits: str, **options: Any
    ) -> None:
        self.title, self.prepare, self.traits, self.options = title, prepare, traits, options


class Programs(dict[str, Program]):
    """The programs of a module by name; `script` is its file, which calls `serve`."""

    def __init__(self, script: str) -> None:
        super().__init__()
        self.script = script

    def add(self, title: str, *traits: str) -> Callable[[Any], Any]:
        """Return a decorator that declares a function as a program with the function's name."""

        def declared(prepare: Callable[..., Any]) -> Callable[..., Any]:
            self[prepare.__name__] = Program(title, prepare, *traits)
            return prepare

        return declared

    def prepared(self, name: str, *arguments: Any) -> Any:
        """Prepare a program, with its options, in this process."""
        return self[name].prepare(*arguments, **self[name].options)

    def having(self, trait: str) -> list[str]:
        """Return the names of the programs that have a trait."""
        return [name for name, program in self.items() if trait in program.traits]

    @contextmanager
    def started(
        self, names: Iterable[str], found: dict[str, Any], *arguments: object, **environment: str
    ) -> Iterator[dict[str, Process]]:
        """Start programs, wait until they are prepared, and end them afterwards.

        Programs with missing packages are listed in ``found["skipped"]``; the versions of the
        others are stored in ``found["versions"]``. `arguments` are those of `serve`'s function
        after the name; `environment` are variables to set. A variable ``PYTHON_NAME`` is the Python
        of a program whose packages need an environment of their own.
        """
        skipped, able, started = found.setdefault("skipped", {}), {}, []
        for name in names:
            python = os.environ.get(f"PYTHON_{name.upper()}", sys.executable)
            command = [python, self.script, name, *arguments]
            started.append(Process(command, environment))
        try:
            for name, each in zip(names, started, strict=True):
                each.prepared = each.answer()
                if "missing" in each.prepared:
                    if name not in skipped:
                        print(f"{name}: skipped: {each.prepared['missing']}")
                    skipped[name] = each.prepared["missing"]
                else:
                    found.setdefault("versions", {}).update(each.prepared["versions"])
                    able[name] = each
            yield able
        finally:
            for each in started:
                each.close()


class Process:
    """The client of a process that calls `serve`."""

    def __init__(self, command: list[object], environment: dict[str, str]) -> None:
        self.prepared: dict[str, Any] = {}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            list(map(str, command)),
            stdin=pipe,
            stdout=pipe,
            text=True,
            env=os.environ | environment,
        )

    def ask(self, **what: Any) -> dict[str, Any]:
        """Send a request and return its response."""
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """Wait for a response and return it."""
        line = self._process.stdout.readline()
        if not line:
            command = " ".join(self._process.args)
            raise SystemExit(f"{command} ended with exit code {self._process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        """Close its standard input, which ends the process."""
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


@contextmanager
def busy() -> Iterator[None]:
    """Keep one core busy."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def serve(prepare: Callable[..., Callable[..., dict[str, Any]]]) -> None:
    """Serve requests; output of libraries is redirected to standard error.

    `prepare` is called with the arguments of the script, and returns a function that is called with
    each request. The first response contains the versions, or ``missing`` if a package is missing.
    """
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)

        def answer(**what: Any) -> None:
            answers.write(json.dumps(what) + "\n")
            answers.flush()

        try:
            run = prepare(*sys.argv[1:])
        except ImportError as err:
            answer(missing=str(err).splitlines()[0])
            return
        answer(versions=_versions())
        for line in sys.stdin:
            answer(**run(**json.loads(line)))


def _versions() -> dict[str, str]:
    """Return the versions of the imported packages."""
    found = {name: version(name) for name in _PACKAGES.split() if name in sys.modules}
    if "sparse_dot_mkl" in found:
        text = sys.modules["sparse_dot_mkl"].get_version_string()
        found["mkl"] = re.findall(r"Version ([\d.]+)", text)[0]
    return found
