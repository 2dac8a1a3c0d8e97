"""What a run takes at most, against what `memory=` and `memory_needed` promise."""

import pytest

import gbdnn
from gbdnn.engine import prefetch
from gbdnn.engine.memory import Budget


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


@pytest.mark.parametrize(("engine", "returns"), [("full", True), ("fused", False)])
def test_matrices_of_windows_go_back_to_the_system(engine, returns, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(prefetch, "return_freed", lambda: calls.append(1))
    gbdnn.save(gbdnn.radixnet(1024, 30), tmp_path / "net")
    X = gbdnn.gallery.features_from_images(gbdnn.gallery.digits(), 1024, inputs=300)
    net = gbdnn.load(tmp_path / "net", lazy=True)
    gbdnn.infer(net, X, engine=engine, memory=8 << 20)
    assert bool(calls) == returns
