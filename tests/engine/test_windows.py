"""Windows of layers: networks on disk, little memory, and equal bits whatever the blocks."""

import gc
import re
import threading
import weakref

import graphblas as gb
import numpy as np
import pytest
from calls import raises
from conftest import network
from oracles import case, dense_layer
from patches import divided, eager, narrow, regrouped, reordered

import gbdnn
from gbdnn import errors
from gbdnn.engine.graphblas_run import GraphBlasRun
from gbdnn.engine.sizes import layer_bytes

SIZES = (24, 30, 18, 20, 25, 31, 17, 22, 28, 20)
CASE = case(4, rule="entries", sizes=SIZES, inputs=90, density=0.4, exact=False)


def lazy(net):
    return gbdnn.Network.lazy([layer.info for layer in net], net.__getitem__)


def room_for(net, layers):
    """The memory of a run that holds so many layers in each of two groups."""
    return 4 * layers * max(map(layer_bytes, net.infos)) + 4


# Networks on disk


def test_a_layer_too_large_for_the_memory_is_named():
    net = network(CASE.layers)
    needed = layer_bytes(net.infos[0])
    with pytest.raises(ValueError, match=rf"layer 0 .* not fit; pass memory={4 * needed} or"):
        gbdnn.infer(lazy(net), CASE.X, memory=3 * needed)


@pytest.mark.parametrize("engine", ["auto", "fused"])
def test_neurons_of_networks_on_disk_are_reordered(engine, monkeypatch):
    """Each group of layers goes on in the order of the one before; inputs may leave in between."""
    net = network(CASE.layers)
    expected = gbdnn.infer(net, CASE.X, engine="sparse").to_dense(fill_value=0)
    assert np.count_nonzero(expected)
    for change in (narrow, reordered, eager):
        change(monkeypatch)
    for nthreads in (1, 3, 8):
        options = {"memory": room_for(net, 2), "nthreads": nthreads, "engine": engine}
        Y = gbdnn.infer(lazy(net), CASE.X, **options).to_dense(fill_value=0)
        np.testing.assert_allclose(Y, expected, rtol=1e-4, atol=1e-5)


def test_few_inputs_of_networks_on_disk_are_reordered(monkeypatch, on):
    """Threads share their layers, but not the first of a group, which moves neurons."""
    on("Zen 4, 2 cores")
    net, X, records = network(CASE.layers), CASE.X[:20], []
    expected = gbdnn.infer(net, X, engine="sparse").to_dense(fill_value=0)
    for change in (narrow, reordered, divided):
        change(monkeypatch)
    options = {"engine": "fused", "nthreads": 2, "callback": records.append}
    Y = gbdnn.infer(lazy(net), X, memory=room_for(net, 2), **options)
    np.testing.assert_allclose(Y.to_dense(fill_value=0), expected, rtol=1e-4, atol=1e-5)
    assert 0 < gbdnn.per_layer(records)["inputs"][6] <= 16


def test_an_error_of_the_reader_reaches_the_caller():
    """A layer that is read ahead by another thread; no thread is left behind."""
    net = network(CASE.layers)

    def read(k):
        if k == 7:
            raise OSError("the disk is gone")
        return net[k]

    streamed = gbdnn.Network.lazy([layer.info for layer in net], read)
    raises(OSError, "the disk is gone", gbdnn.infer, streamed, CASE.X, memory=room_for(net, 2))
    assert not [t for t in threading.enumerate() if t.name.startswith("gbdnn-")]


@pytest.mark.parametrize("engine", ["full", "fused", "sparse"])
def test_layers_are_freed_with_the_last_reference(engine):
    """Those of the group before, of this one and of the next may be in memory."""
    made, most, held = [], [], gbdnn.gallery.radixnet(1024, 48)

    def read(k):
        most.append(sum(each() is not None for each in made))
        layer = gbdnn.Layer(held[k].W, held[k].bias, bias_rule="entries", clip=32)
        made.append(weakref.ref(layer))
        return layer

    X = gbdnn.gallery.features_from_images(gbdnn.gallery.digits()[:100], 1024)
    net = gbdnn.Network.lazy(held.infos, read)
    starts = gbdnn.plan(net, X, engine=engine, memory=16 << 20).sizes.starts
    gc.disable()
    try:
        Y = gbdnn.infer(net, X, engine=engine, memory=16 << 20)
    finally:
        gc.enable()
    assert Y.isequal(gbdnn.infer(held, X, engine=engine))
    assert len(made) >= 48
    assert len(starts) > 6
    assert max(most) <= 3 * max(np.diff(starts))


# Bits and memory


@pytest.mark.parametrize("memory", [50_000, 250_000])
@pytest.mark.parametrize("inputs", [1, 40])
def test_the_advice_for_an_input_too_large_for_the_memory(memory, inputs):
    """The bytes named suffice for all layers, and 1 % less do not; the plan says so."""
    W, X = np.ones((4, 3000), "f4"), np.eye(40, 4, dtype="f4")[-inputs:]
    X[-1] = 1
    layers = [W, W.T[:, :2], np.ones((2, 3500), "f4")]
    plan = gbdnn.plan(layers, X, engine="sparse", memory=memory)
    assert "refuses inputs with more than" in repr(plan)
    with pytest.raises(errors.ArgumentError, match="one input does not fit at layer 0") as told:
        gbdnn.infer(layers, X, engine="sparse", memory=memory)
    needed = int(re.search(r"pass memory=(\d+) or more", str(told.value))[1])
    Y = gbdnn.infer(layers, X, engine="sparse", memory=needed)
    np.testing.assert_array_equal(Y.to_dense(fill_value=0), X @ layers[0] @ layers[1] @ layers[2])
    assert "refuses" not in repr(gbdnn.plan(layers, X, engine="sparse", memory=needed))
    with pytest.raises(errors.ArgumentError, match="does not fit"):
        gbdnn.infer(layers, X, engine="sparse", memory=int(0.99 * needed))


def test_the_advice_for_a_network_on_disk():
    layers = [np.tile(np.eye(20), 100), np.eye(2000, 20)]
    net = gbdnn.Network(layers)
    net, X = net.lazy(net.infos, net.__getitem__), np.ones((3, 20))
    options = {"engine": "sparse", "nthreads": 1}
    with pytest.raises(errors.ArgumentError, match="one input does not fit") as told:
        gbdnn.infer(net, X, memory=450_000, **options)
    needed = int(re.search(r"pass memory=(\d+) or more", str(told.value))[1])
    Y = gbdnn.infer(net, X, memory=needed, **options)
    np.testing.assert_array_equal(Y.to_dense(fill_value=0), X @ layers[0] @ layers[1])


def test_layers_too_wide_for_blocks_take_the_sparse_kernel():
    n = 1 << 18
    step = np.arange(n)
    W = gb.Matrix.from_coo(step, (step + 1) % n, np.float32(0.5), nrows=n, ncols=n)
    X = gb.Matrix.from_coo([0, 1], [7, n - 1], np.float32(1), nrows=2, ncols=n)
    net = gbdnn.Network([gbdnn.Layer(W, copy=False)] * 3)
    Y = gbdnn.infer(net, X, memory=16 << 20)
    assert [a.tolist() for a in Y.to_coo()] == [[0, 1], [10, 2], [0.125, 0.125]]
    raises(errors.ArgumentError, "too small", gbdnn.infer, net, X, memory=16 << 20, engine="fused")


@pytest.mark.parametrize("nthreads", [1, 3, 8])
def test_survivors_are_pooled(nthreads, monkeypatch):
    """A fifth of the inputs lives."""
    narrow(monkeypatch)
    X = np.where(np.arange(200)[:, np.newaxis] % 5, 0.5, 2.0) * np.eye(40)[np.arange(200) % 40]
    options, stats = {"engine": "fused", "nthreads": nthreads, "deduplicate": False}, []
    gbdnn.infer([np.eye(40)] * 6, X, bias=[-1.0, *[0] * 5], callback=stats.append, **options)
    table = gbdnn.per_layer(stats)
    assert (table["alive"] == 40).all()
    assert table["blocks"][0] >= 200 / 16
    assert table["blocks"][-1] <= 40 / 16 + 2 * nthreads


def test_survivors_of_large_features_stay_checked(monkeypatch):
    """They share a block with others; the sum overflows in a later window."""
    narrow(monkeypatch)
    W, X = 1e5 * np.eye(4, dtype="f4"), np.ones((64, 4), "f4")
    X[::2], X[1] = 0, 1e9
    with pytest.raises(errors.NonFiniteError, match="layer 5"):
        gbdnn.infer([W] * 6, X, engine="fused", nthreads=1, deduplicate=False)


def test_large_features_stay_checked_in_late_windows():
    """Blocks are exchanged after each layer, and windows have odd numbers of layers."""
    W, X = np.eye(16, dtype="f4"), np.ones((2400, 16), "f4")
    X[1200] = 1e25
    with pytest.raises(errors.NonFiniteError, match="layer 49"):
        gbdnn.infer([*[W] * 49, 1e20 * W], X, engine="fused", nthreads=1, deduplicate=False)


@pytest.mark.parametrize(
    ("engine", "form"),
    [("full", np.asarray), ("sparse", lambda X: gb.Matrix.from_dense(X, missing_value=0))],
)
def test_rows_that_were_not_read_are_read_later(engine, form, monkeypatch):
    narrow(monkeypatch)
    divided(monkeypatch)
    starts, step = [], GraphBlasRun.step

    def noted(run, loaded, rows, *given, **options):
        starts.append((rows.k, rows.start))
        return step(run, loaded, rows, *given, **options)

    monkeypatch.setattr(GraphBlasRun, "step", noted)
    some = case(0, sizes=(48,) * 4, inputs=1500, density=0.1, bias="zero")
    options = {"engine": engine, "memory": 60_000, "deduplicate": True, "nthreads": 1}
    Y = gbdnn.infer(network(some.layers), form(some.X.astype("f4")), **options)
    np.testing.assert_array_equal(Y.to_dense(fill_value=0), some.Y)
    assert any(k == 0 and start > 0 for k, start in starts)


def test_statistics_of_layers_that_threads_share(monkeypatch, on):
    """A window of several layers, for the few inputs that are left; pairs of equal neurons."""
    on("Zen 4, 2 cores")
    regrouped(monkeypatch)
    divided(monkeypatch)
    some, records = case(0, sizes=(40,) * 13, inputs=20, bias="zero", exact=False), []
    for layer in some.layers:
        layer.W[:, 2::2] = layer.W[:, 1:-1:2]
    Y = np.zeros((400, 40), "f4")
    Y[::20] = some.X
    options = {"engine": "fused", "deduplicate": False, "nthreads": 2}
    gbdnn.infer(network(some.layers), Y, callback=records.append, **options)
    table = gbdnn.per_layer(records, 12)
    for k, layer in enumerate(some.layers):
        Y = dense_layer(layer, Y)
        assert table["alive"][k] == np.count_nonzero(Y.any(axis=1))
        assert table["entries"][k] == np.count_nonzero(Y)


# Errors


def test_records_of_more_layers_than_given():
    stats = []
    gbdnn.infer([np.eye(2)] * 2, np.eye(2), callback=stats.append)
    raises(errors.ArgumentError, "layer", gbdnn.per_layer, stats, layers=1)
