"""The command `gbdnn`, run in this process or as a process of its own; code in a process."""

import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from unittest.mock import patch

import pytest

GBDNN = [sys.executable, "-P", "-m", "gbdnn"]


def run(*arguments):
    """Exit code and output of the command, in this process."""
    from gbdnn import cli

    command = ["gbdnn", *map(str, arguments)]
    out, err = StringIO(), StringIO()
    with (
        redirect_stdout(out), redirect_stderr(err), patch.object(sys, "argv", command),
        pytest.raises(SystemExit) as ended,
    ):  # fmt: skip
        cli.main()
    code = ended.value.code or 0
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())


def as_process(*arguments, **options):
    """Exit code and output of the command, as a process."""
    command = [*GBDNN, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def python(code, *arguments, **environment):
    """Exit code and output of a new interpreter that runs some code."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300,
        env=os.environ | environment,
    )  # fmt: skip


def well(*arguments, run=run):
    """Standard output of a command that succeeds."""
    done = run(*arguments)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def fails(*arguments, match, run=run):
    """The one line that a command writes to standard error before it ends with exit code 2."""
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("gbdnn: ")
    assert match in done.stderr
    return done.stderr
