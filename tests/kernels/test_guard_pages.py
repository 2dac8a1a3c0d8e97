"""Compiled functions stay inside the arrays that they are given."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from built import SHAPES, path_of

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="memory is mapped as on Linux"),
    pytest.mark.parametrize("place", ["end", "start"]),
    pytest.mark.parametrize("pair_lines", SHAPES),
    pytest.mark.parametrize("dtype", ["float32", "float64"]),
    pytest.mark.parametrize("group", ["networks", "products", "training"]),
]


@pytest.mark.pairwise
def test_no_access_outside_of_arrays(group, dtype, pair_lines, place):
    # A page that cannot be read follows, or precedes, each array.
    compute(group, dtype, pair_lines, place, step=7)


@pytest.mark.slow
def test_no_access_outside_of_arrays_in_any_case(group, dtype, pair_lines, place):
    compute(group, dtype, pair_lines, place, step=1)


def compute(group, dtype, pair_lines, place, step):
    library = path_of(dtype, pair_lines)
    script = ROOT / "tests" / "support" / "guarded.py"
    words = ["-X", "faulthandler", script, library, dtype, group, place, step]
    done = subprocess.run(
        [sys.executable, *map(str, words)], env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    last = done.stdout.splitlines()[-1:]
    assert (done.returncode, last) == (0, ["done"]), (last, done.stderr)
