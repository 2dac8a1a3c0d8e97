"""The reports of docs/upstream.md are of faults that there are, in the releases that they name."""

import re
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
REPORTS = (DOCS / "upstream.md").read_text(encoding="utf-8")


def tried(package):
    """Skip where the package is another one than the report names."""
    named = re.search(rf"\*[^*\n]*?{package} ([\d.]+[0-9])[,;*]", REPORTS)[1]
    if version(package) != named:
        pytest.skip(f"{package} {version(package)}: try it, and change the report")


def run(script):
    return subprocess.run(
        [sys.executable, DOCS / "upstream" / script], capture_output=True, text=True, check=False
    )


def test_every_script_is_in_a_report():
    scripts = sorted(each.name for each in (DOCS / "upstream").glob("*.py"))
    assert scripts == sorted(re.findall(r"literalinclude} upstream/(\w+\.py)", REPORTS))


def test_python_graphblas_is_initialised_twice():
    tried("python-graphblas")
    done = run("first_use_race.py")
    [shown] = re.findall(r"^RuntimeError: .*$", REPORTS, re.MULTILINE)
    assert (done.returncode, done.stderr.splitlines()) == (1, [shown])


@pytest.mark.frameworks
def test_a_matrix_is_not_shown_with_pandas():
    pytest.importorskip("pandas")
    tried("pandas")
    done = run("repr_with_pandas.py")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "ValueError: assignment destination is read-only"


def test_scipy_divides_by_the_number_of_rows():
    tried("SciPy")
    done = run("mmread_without_rows.py")
    assert (done.returncode, done.stdout) == (-signal.SIGFPE, "")
