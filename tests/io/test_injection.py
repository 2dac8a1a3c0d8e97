"""Writers whose n-th operation on the file system fails: nothing that was complete is lost."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

INJECTION = Path(__file__).parents[1] / "support" / "injection.py"


@pytest.mark.parametrize(
    ("arguments", "least"),
    [
        (("answer", "--every", "211"), 5),
        pytest.param(("--every", "37"), 300, marks=pytest.mark.slow),
    ],
    ids=["few", "many"],
)
def test_operations_that_fail(arguments, least):
    for package in ("safetensors", "polars", "onnx", "scipy"):
        pytest.importorskip(package)
    if sys.platform != "linux":
        pytest.skip("what a descriptor is of, /proc tells")
    done = subprocess.run(
        [sys.executable, INJECTION, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = re.fullmatch(r"(\d+) cases, 0 faults\n", done.stdout)
    assert told, done.stdout
    assert int(told[1]) >= least
