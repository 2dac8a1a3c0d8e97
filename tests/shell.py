"""The command `gbdnn` as a process."""

import subprocess
import sys

GBDNN = [sys.executable, "-m", "gbdnn"]


def run(*arguments, **options):
    return subprocess.run(
        [*GBDNN, *map(str, arguments)], capture_output=True, text=True, check=False, **options
    )


def well(*arguments):
    """Exit code 0, nothing on standard error; what is on standard output."""
    done = run(*arguments)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def fails(*arguments, match):
    """Exit code 2, one line on standard error, nothing on standard output."""
    done = run(*arguments)
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("gbdnn: ")
    assert match in done.stderr
    return done
