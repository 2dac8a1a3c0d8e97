"""One program of the side-by-side run, in a process of its own.

Two libraries in one process would bring two OpenMP runtimes, whose idle threads take time from each
other's working ones. So every program has a process: it prepares the problem once, runs it when it
is told to, by a line of JSON on standard input, and answers with another. Between runs it sleeps.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from programs import PROGRAMS


class Worker:
    """The side that tells: starts the process, asks for runs.

    Parameters
    ----------
    name : str
        A key of `PROGRAMS`.
    folder : Path
        Where `problems.save` wrote the problem.
    inputs : int
        How many inputs it gets.
    """

    def __init__(self, name: str, folder: Path, inputs: int) -> None:
        self.name, self.inputs = name, inputs
        self._process = subprocess.Popen(
            [sys.executable, __file__, name, str(folder), str(inputs)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ready(self) -> dict[str, Any]:
        """Wait for the preparation; the answer has ``missing`` if a package is."""
        return self._answer()

    def run(self, nthreads: int, batch: int, inputs: int | None = None) -> dict[str, Any]:
        """Return seconds, cpu seconds and categories of one run, of all inputs or the first."""
        asked = {"nthreads": nthreads, "batch": batch, "inputs": inputs or self.inputs}
        assert self._process.stdin is not None  # noqa: S101 -- it is a pipe
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """End the process: it reads no more lines."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None  # noqa: S101
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended with exit code {self._process.wait()}")
        return json.loads(line)


def _serve(name: str, folder: Path, inputs: int) -> None:
    """The side that runs."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is not an answer

    def answer(**what: Any) -> None:
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    import peers
    import problems

    program = PROGRAMS[name]
    began = perf_counter()
    try:
        arrays = problems.load(folder, inputs)
        peer = getattr(peers, program.prepare)(arrays, **program.options)
    except ImportError as err:
        answer(missing=str(err).splitlines()[0])
        return
    answer(seconds=perf_counter() - began, versions=_versions(), facts=peer.facts)
    for line in sys.stdin:
        asked = json.loads(line)
        answer(**_timed(peer.ready(asked["nthreads"], asked["batch"], asked["inputs"])))


def _timed(run: Any) -> dict[str, Any]:
    cpu, began = process_time(), perf_counter()
    found = run()
    seconds = perf_counter() - began
    return {"seconds": seconds, "cpu": process_time() - cpu, "categories": found.tolist()}


def _versions() -> dict[str, str]:
    """Return the versions of what this program has brought in."""
    from importlib.metadata import version

    packages = {"scipy": "scipy", "torch": "torch", "sparse_dot_mkl": "sparse_dot_mkl"}
    found = {name: version(package) for name, package in packages.items() if name in sys.modules}
    if "sparse_dot_mkl" in found:
        found["mkl"] = importlib.import_module("sparse_dot_mkl").get_version_string()
    return found


if __name__ == "__main__":
    _serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
