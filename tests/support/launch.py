"""Programs on ranks of MPI on this machine."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = 300  # a job that hangs is ended


def mpiexec(ranks, *arguments):
    """Run Python with these arguments on some ranks; return the completed process."""
    pytest.importorskip("mpi4py")
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        pytest.skip("mpiexec is not installed")
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    top = Path(__file__).parents[1]
    path = os.pathsep.join([*map(str, (top / "support", top, top.parent)),
                            os.environ.get("PYTHONPATH", "")])  # fmt: skip
    command = [found, "--oversubscribe", "--bind-to", "none", "-n", ranks, sys.executable]
    return subprocess.run([str(word) for word in (*command, *arguments)], capture_output=True,
        text=True, check=False, timeout=SECONDS,
        env={**os.environ, **root, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"})  # fmt: skip
