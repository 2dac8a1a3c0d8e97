"""What a run takes at most, against what `memory=` and `memory_needed` promise."""

import memory_grid
import pytest

import gbdnn

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


def test_a_network_that_leaves_too_little_is_read_for_each_part(tmp_path):
    """What it would take from `memory`, read once, a part of so many inputs needs."""
    gbdnn.save(gbdnn.radixnet(1024, 9), tmp_path / "net")
    X = gbdnn.gallery.features_from_images(gbdnn.gallery.digits(), 1024, inputs=5000)
    net = gbdnn.load(tmp_path / "net")
    Y = gbdnn.infer_to_store(net, X, tmp_path / "Y", memory=34 << 20)
    assert Y.nvals == gbdnn.infer(net, X).nvals > 0
