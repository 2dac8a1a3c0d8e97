"""One program of the side-by-side run, in a process of its own.

It prepares the problem once, and its first answer is what that took, or ``missing`` if a package
is; then it runs the problem when it is told to.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from processes import Process, answering, requests
from programs import PROGRAMS


class Worker(Process):
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
        super().__init__(name, __file__, name, str(folder), str(inputs))
        self.inputs = inputs

    def run(self, nthreads: int, batch: int, inputs: int | None = None) -> dict[str, Any]:
        """Return seconds, cpu seconds and categories of one run, of all inputs or the first."""
        return self.ask(nthreads=nthreads, batch=batch, inputs=inputs or self.inputs)


def _serve(name: str, folder: Path, inputs: int) -> None:
    """The side that runs."""
    import peers
    import problems

    program = PROGRAMS[name]
    with answering() as answer:
        began = perf_counter()
        try:
            arrays = problems.load(folder, inputs)
            peer = getattr(peers, program.prepare)(arrays, **program.options)
        except ImportError as err:
            answer(missing=str(err).splitlines()[0])
            return
        answer(seconds=perf_counter() - began, versions=_versions(), facts=peer.facts)
        for asked in requests():
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
