"""ThreadSanitizer on the compiled loops: tests/stress/races.py."""

import platform
import runpy
from pathlib import Path

import pytest

RACES = Path(__file__).parents[1] / "stress" / "races.py"


@pytest.mark.slow
@pytest.mark.parametrize("planted", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("program", ["races.c", "loops.c"])
def test_threads_do_not_race(program, dtype, planted):
    """A race that is planted is found."""
    pytest.importorskip("ziglang")
    if platform.machine() != "x86_64" or platform.system() != "Linux":
        pytest.skip("the programs are built for x86-64 Linux")
    status, printed = runpy.run_path(str(RACES))["run"](program, dtype, planted=planted)
    assert ("data race" in printed) == planted, printed
    assert (status != 0) == planted, printed
    assert ("equal answers" in printed) or planted
