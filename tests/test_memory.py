"""What a run takes at most, against what `memory=` and `memory_needed` promise."""

import memory_grid
import pytest

pytestmark = pytest.mark.skipif(
    not memory_grid.PEAK.exists(), reason="peaks of memory are measured where there is /proc"
)

QUICK = [
    ("auto", "auto", 0, "all", "lives", "matrix", 32),
    ("fused", "auto", 1, "all", "half", "matrix", 64),
    ("full", "0", 1, "all", "lives", "matrix", 64),
    ("fused", "0", 0, "all", "lives", "array", 32),
]


@pytest.mark.parametrize("given", QUICK, ids=lambda given: " ".join(map(str, given)))
def test_a_run_keeps_to_its_memory(given, tmp_path):
    found = memory_grid.run(*given, folder=tmp_path)
    assert not memory_grid.faults(found), found
    assert found["entries"] > 10**6


def test_too_little_is_refused_with_the_number(tmp_path):
    found = memory_grid.run("auto", "0", 0, "all", "lives", "matrix", 4, folder=tmp_path)
    assert f"memory={32 << 20} at least" in found["refused"]


@pytest.mark.slow
@pytest.mark.parametrize(("part", "mib"), [(0, 32), (1, 64), (2, 512)])
@pytest.mark.parametrize("form", memory_grid.FORMS)
def test_the_grid(form, part, mib, tmp_path):
    for n, given in enumerate(memory_grid.grid(form)[part::3]):
        folder = tmp_path / str(n)
        folder.mkdir()
        found = memory_grid.run(*given, mib, folder=folder)
        assert not memory_grid.faults(found), (given, found)
