"""Code in processes that are forked from one that has imported gbdnn and started GraphBLAS.

A fork takes milliseconds, where a new interpreter would do all of that anew.
"""

import os
import sys
from multiprocessing import forkserver, get_context
from pathlib import Path
from tempfile import NamedTemporaryFile
from unittest.mock import patch

CONTEXT = get_context("forkserver")


class Forked:
    """A process that runs code, as `subprocess.Popen` of ``python -c`` with pipes would."""

    def __init__(self, code, environment):
        path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        CONTEXT.set_forkserver_preload(["forkable"])
        # The process that is forked imports what is tested, and not what lies in this folder.
        with patch.dict(os.environ, PYTHONPATH=path, PYTHONSAFEPATH="1"):
            forkserver.ensure_running()
        self._streams = [NamedTemporaryFile("w+") for _ in range(2)]  # noqa: SIM115
        names = [each.name for each in self._streams]
        self._process = CONTEXT.Process(target=_run, args=(code, environment, names))
        self._process.start()

    def communicate(self, timeout):
        self._process.join(timeout)
        if self._process.is_alive():
            self._process.kill()
            raise TimeoutError(f"still there after {timeout} s")
        told = [each.read() for each in self._streams]
        for each in self._streams:
            each.close()
        return told

    @property
    def returncode(self):
        return self._process.exitcode


def _run(code, environment, names):
    import forkable

    os.environ.clear()
    os.environ.update(environment)
    for stream, name in zip((sys.stdout, sys.stderr), names, strict=True):
        stream.flush()
        descriptor = os.open(name, os.O_WRONLY)
        os.dup2(descriptor, stream.fileno())
        os.close(descriptor)
    forkable.gb.ss.config["nthreads"] = forkable.NTHREADS
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102
