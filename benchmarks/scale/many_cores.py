"""Measure on a machine with many cores: one part, one command, one JSON document.

    python benchmarks/scale/many_cores.py --list
    python benchmarks/scale/many_cores.py threads-1024 > threads-1024.json
    python benchmarks/scale/many_cores.py choices --quick > /dev/null

A part takes at most nine minutes on 16 cores. The document contains the command, commit, machine,
seconds, the last lines of the output, and the results, or, when the time is over, those written so
far. ``--quick`` runs small problems. A copy without the folder ``.git`` gets its commit
from ``GBDNN_COMMIT``.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, NamedTuple

import typer

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "support"))
import report


class Part(NamedTuple):
    """Expected minutes on 16 cores, a script, and its options, in full and with ``--quick``."""

    minutes: int
    script: str
    full: str
    quick: str = "--quick"


_REAL, _SOME = "comparison/real_networks.py", "--nthreads {some}"
_NETWORKS = (
    " --network 784-512x2-10@2 --network 1024x7@1 --network 1024x7@5 --network 1024x7@10 --network"
    " 2048-4096-2048@5 --network 768-3072-768@20 --network 784-128x18-10@60"
)
_THREADS = "papers/threads.py"
PARTS = {
    "choices": Part(3, "limits/choices.py", ""),
    "threads-1024": Part(
        7, _THREADS, "--networks 1024x120 --inputs 60000 --rounds 6", "--quick --inputs 64"
    ),
    "threads-16384": Part(
        8, _THREADS, "--networks 16384x120 --inputs 8000 --rounds 3", "--quick --inputs 64"
    ),
    "cells": Part(
        7, _REAL, f"{_SOME} --inputs 1,32,1000 --programs infer,compiled,torch,torch_csr --rounds 2"
        f"{_NETWORKS}", f"--quick {_SOME}",
    ),
    "steps": Part(
        4, "comparison/training_steps.py", f"{_SOME} --programs gbdnn,sparse_sequential --rounds 3"
        " --network 784-512x2-10@2 --network 1024x7@5 --network 1024x7@10", f"--quick {_SOME}",
    ),
    "tests": Part(
        8, "-m pytest", "-q -m '' tests/engine tests/kernels tests/test_inference.py tests/graph"
        " tests/training", "-q tests/kernels/test_fused.py",
    ),
    "graph": Part(
        6, "comparison/graph.py", f"{_SOME} --what product,gcn --rounds 3", f"--quick {_SOME}"
    ),
}  # fmt: skip


def main(
    part: Annotated[str | None, typer.Argument(metavar="PART", help=", ".join(PARTS))] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Run small problems.")] = False,
    show: Annotated[bool, typer.Option("--list", help="Print all commands in order.")] = False,
    limit: Annotated[float, typer.Option(help="Seconds until the command is ended.")] = 540,
) -> None:
    """Run a part and print its results as one JSON document."""
    if show:
        for name, each in PARTS.items():
            print(f"{name}, {each.minutes} minutes:\n  {command(each, quick)}")
        return
    if part not in PARTS:
        raise typer.BadParameter(f"{part!r} is none of {', '.join(PARTS)}")
    words = command(PARTS[part], quick)
    found = {"part": part, "quick": quick, **report.circumstances(), "command": words}
    found |= run(words, limit)
    print(json.dumps(found, indent=1))
    raise typer.Exit(1 if found["exit_code"] is None else found["exit_code"])


def command(part: Part, quick: bool) -> str:
    """Return the command of a part, without the file of its results."""
    cores = int(report.circumstances()["machine"]["cores"])
    some = ",".join(map(str, sorted({1, min(4, cores), cores})))
    script = part.script if part.script.startswith("-") else f"benchmarks/{part.script}"
    return f"python {script} {part.quick if quick else part.full}".format(some=some, cores=cores)


def run(words: str, limit: float) -> dict[str, Any]:
    """Run a command; return seconds, exit code (None if it was ended), output and results."""
    path = os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    environment = {"OMP_NUM_THREADS": str(os.cpu_count())} | os.environ | {"PYTHONPATH": path}
    with tempfile.TemporaryDirectory() as folder:
        file, log = Path(folder) / "results.json", Path(folder) / "output"
        options = [] if " -m pytest" in words else ["--json", str(file)]
        began, code = perf_counter(), None
        with log.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, *shlex.split(words)[1:], *options],
                cwd=ROOT, env=environment, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(limit)
            if code is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return {
            "seconds": perf_counter() - began,
            "exit_code": code,
            "output": log.read_text(encoding="utf-8", errors="replace").splitlines()[-40:],
            "results": json.loads(file.read_text(encoding="utf-8")) if file.exists() else None,
        }


if __name__ == "__main__":
    typer.run(main)
