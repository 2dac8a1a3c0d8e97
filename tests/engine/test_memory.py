"""What a run takes at most, against what `memory=` and `memory_needed` promise."""

from concurrent.futures import ThreadPoolExecutor

import memory_grid
import numpy as np
import pytest

import gbdnn
from gbdnn.engine import memory, prefetch
from gbdnn.engine.memory import Budget

pytestmark = pytest.mark.skipif(
    not memory_grid.PEAK.exists(), reason="peaks of memory are measured where there is /proc"
)

SOME = [
    ("auto", "auto", 0, "all", "lives", "matrix", 32),
    ("fused", "auto", 1, "all", "half", "matrix", 64),
    *(
        pytest.param(given, marks=pytest.mark.slow)
        for given in (
            ("full", "0", 1, "all", "lives", "matrix", 64),
            ("fused", "0", 0, "all", "lives", "array", 32),
            ("auto", "auto", 1, "all", "lives-wide", "matrix", 32),
            ("auto", "auto", 1, "all", "cold-wide", "matrix", 32),
            ("fused", "auto", 1, "all", "compiles-wide", "matrix", 32),
        )
    ),
]


@pytest.mark.parametrize("given", SOME, ids=lambda given: " ".join(map(str, given)))
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
    """A quarter of the grid; all of it is run by hand."""
    first = 4 * part + memory_grid.FORMS.index(form)
    for n, given in enumerate(memory_grid.grid(form)[first::12]):
        folder = tmp_path / str(n)
        folder.mkdir()
        found = memory_grid.run(*given, mib, folder=folder)
        assert not memory_grid.faults(found), (given, found)


def test_a_network_that_leaves_too_little_is_read_for_each_part(tmp_path):
    """What it would take from `memory`, read once, a part of so many inputs needs."""
    gbdnn.save(gbdnn.radixnet(1024, 9), tmp_path / "net")
    X = gbdnn.gallery.features_from_images(gbdnn.gallery.digits(), 1024, inputs=5000)
    net = gbdnn.load(tmp_path / "net", lazy=True)
    Y = gbdnn.infer_to_store(net, X, tmp_path / "Y", memory=34 << 20)
    assert Y.nvals == gbdnn.infer(net, X).nvals > 0


@pytest.mark.parametrize("engine", ["full", "fused", "sparse"])
@pytest.mark.parametrize("anew", [True, False])
def test_layers_that_are_made_at_each_call_are_freed(engine, anew):
    """And no others: they may be somebody's."""
    made, held = [], gbdnn.radixnet(1024, 9)

    class Reader:
        reads_anew = anew

        def __call__(self, k):
            layer = held[k]
            made.append(gbdnn.Layer(layer.W, layer.bias, bias_rule="entries", clip=32))
            return made[-1]

    X = gbdnn.gallery.features_from_images(gbdnn.gallery.digits(), 1024, inputs=300)
    net = gbdnn.Network.lazy(held.infos, Reader())
    Y = gbdnn.infer(net, X, engine=engine, memory=16 << 20)
    assert Y.isequal(gbdnn.infer(held, X, engine=engine))
    assert len(made) >= 9
    assert {int(layer.W.nvals) for layer in made} == {0 if anew else held[0].edges}


def test_what_is_kept_is_given_to_nothing():
    net = gbdnn.radixnet(1024, 2)
    kept, copied = 12 << 20, 1 << 20
    budget = Budget.of_run(64 << 20, net, 60_000, copied)
    assert budget.working + budget.queued + budget.layers == (64 << 20) - kept - copied
    lazy = Budget.of_run(64 << 20, gbdnn.radixnet(1024, 2, lazy=True), 60_000)
    assert lazy.working + lazy.queued + lazy.layers == (64 << 20) - kept


def test_freed_memory_goes_back_to_the_system():
    """Of a thread, below an array that lives: the C library alone would keep it."""

    def held():
        return memory_grid.status("RssAnon")

    def work():
        arrays = [np.ones(12_000) for _ in range(200)]  # 19 MB, each less than the C library maps
        left.append(arrays.pop())
        del arrays
        before.append(held())
        memory.return_freed()
        after.append(held())

    left, before, after = [], [], []
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()
    assert before[0] - after[0] > 10 << 20


@pytest.mark.parametrize(("engine", "returns"), [("full", True), ("fused", False)])
def test_matrices_of_windows_go_back_to_the_system(engine, returns, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(prefetch, "return_freed", lambda: calls.append(1))
    gbdnn.save(gbdnn.radixnet(1024, 30), tmp_path / "net")
    X = gbdnn.gallery.features_from_images(gbdnn.gallery.digits(), 1024, inputs=300)
    net = gbdnn.load(tmp_path / "net", lazy=True)
    gbdnn.infer(net, X, engine=engine, memory=8 << 20)
    assert bool(calls) == returns
