"""Networks that are not in memory: read in windows, ahead of the inputs, within the memory."""

import threading
from functools import partial

import graphblas as gb
import numpy as np
import pytest
from conftest import assert_answer, moved, narrow, network, reordered
from oracles import case

import gbdnn
from gbdnn.engine import prefetch as windows
from gbdnn.engine.prefetch import layer_bytes
from gbdnn.engine.queues import RunState

SIZES = (24, 30, 18, 20, 25, 31, 17, 22, 28, 20)
OPTIONS = {"sizes": SIZES, "inputs": 90, "density": 0.4, "exact": False}
CASE = case(4, rule="entries", **OPTIONS)


class Layers:
    """A source that counts what it is asked for."""

    def __init__(self, net):
        self.net, self.read = net, []

    def __call__(self, k):
        self.read.append(k)
        return self.net[k]


def lazy(net):
    source = Layers(net)
    return gbdnn.Network.lazy([layer.info for layer in net], source), source


def room_for(net, layers):
    """The memory of a run in which windows have so many layers."""
    return 4 * layers * max(map(layer_bytes, net.infos)) + 4


CONFIGURATIONS = {
    "auto": ({}, []),
    "sparse": ({"engine": "sparse"}, []),
    "full": ({"engine": "full"}, []),
    "full, narrow": ({"engine": "full", "nthreads": 3}, [narrow]),
    "full, narrow, reordered": ({"engine": "full"}, [narrow, reordered]),
    "full, moved": ({"engine": "full"}, [narrow, moved]),
    "fused": ({"engine": "fused"}, []),
    "fused, narrow": ({"engine": "fused", "nthreads": 3}, [narrow]),
    "fused, narrow, reordered": ({"engine": "fused"}, [narrow, reordered]),
}


@pytest.fixture(params=CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
def infer(request, monkeypatch):
    options, patches = request.param
    for patch in patches:
        patch(monkeypatch)
    return partial(gbdnn.infer, **options)


@pytest.mark.pairwise
@pytest.mark.parametrize("layers", [1, 2, 4, 9])
@pytest.mark.parametrize(("rule", "bias"), [("entries", "negative"), ("all", "mixed vector")])
def test_windows_of_any_size(infer, layers, rule, bias):
    a_case = case(0, rule=rule, bias=bias, **OPTIONS)
    net = network(a_case.layers)
    streamed, source = lazy(net)
    assert_answer(infer(streamed, a_case.X, memory=room_for(net, layers)), a_case)
    assert set(source.read) == set(range(9))


@pytest.mark.parametrize("engine", ["full", "fused"])
def test_every_layer_is_read_once_where_memory_allows(engine, monkeypatch):
    narrow(monkeypatch)
    net = network(CASE.layers)
    streamed, source = lazy(net)
    monkeypatch.setattr(windows, "cuts", lambda *_: [0, 2, 5, 6])
    assert_answer(gbdnn.infer(streamed, CASE.X, engine=engine), CASE)
    assert sorted(source.read) == list(range(9))


@pytest.mark.parametrize("engine", ["auto", "full", "fused"])
def test_little_memory_costs_passes_not_answers(engine, monkeypatch):
    """What waits is bounded: inputs are read in several goes, and layers more than once."""
    narrow(monkeypatch)
    net = network(CASE.layers)
    streamed, source = lazy(net)
    monkeypatch.setattr(windows, "cuts", lambda *_: [0, 1, 2, 3, 6])
    most = []

    class Watched(RunState):
        def next(self):
            most.append(sum(queue.nbytes for queue in self.queues.values()))
            return super().next()

    monkeypatch.setattr("gbdnn.engine.run.RunState", Watched)
    neurons = max(max(info.shape) for info in net.infos)
    memory = 2 * 3 * 16 * neurons * 4 * 2  # a few blocks of 16 inputs
    answer = gbdnn.infer(streamed, CASE.X, engine=engine, nthreads=1, memory=memory)
    assert_answer(answer, CASE)
    block = 16 * (neurons * 12 + 8)
    assert 0 < max(most) <= memory / 2 + 2 * block
    assert len(source.read) > 9


def test_a_layer_too_large_for_the_memory_is_named():
    net = network(CASE.layers)
    streamed, _ = lazy(net)
    with pytest.raises(ValueError, match=r"layer 0 of a network that is not in memory .* memory="):
        gbdnn.infer(streamed, CASE.X, memory=3 * layer_bytes(net.infos[0]))


def test_an_error_of_the_reader_reaches_the_caller(monkeypatch):
    """Read ahead by another thread; no thread is left behind."""
    monkeypatch.setattr(windows, "cuts", lambda *_: [0, 3, 6])
    net = network(CASE.layers)

    def read(k):
        if k == 7:
            raise OSError("the disk is gone")
        return net[k]

    streamed = gbdnn.Network.lazy([layer.info for layer in net], read)
    with pytest.raises(OSError, match="the disk is gone"):
        gbdnn.infer(streamed, CASE.X)
    assert not [t for t in threading.enumerate() if t.name.startswith("gbdnn-")]


def test_an_overflow_names_the_layer_of_the_network(monkeypatch):
    monkeypatch.setattr(windows, "cuts", lambda *_: [0, 1, 2])
    grow = gbdnn.Layer(np.eye(3) * 1e15, dtype="FP32")
    streamed, _ = lazy(gbdnn.Network([grow] * 4))
    with pytest.raises(ArithmeticError, match="layer 2"):
        gbdnn.infer(streamed, np.ones((5, 3)))


def test_the_last_inputs_die_in_a_window_between(monkeypatch):
    monkeypatch.setattr(windows, "cuts", lambda *_: [0, 1, 2])
    kill = gbdnn.Layer(np.eye(3), -10.0, dtype="FP32")
    keep = gbdnn.Layer(np.eye(3), dtype="FP32")
    streamed, _ = lazy(gbdnn.Network([keep, kill, keep]))
    Y = gbdnn.infer(streamed, np.ones((5, 3)))
    assert Y.shape == (5, 3)
    assert Y.nvals == 0


def test_the_dead_are_revived_in_the_next_window(monkeypatch):
    """Who waits without an entry is not lost where a later layer has a positive bias."""
    monkeypatch.setattr(windows, "cuts", lambda *_: [0, 1, 2])
    kill = gbdnn.Layer(np.eye(3), -10.0, dtype="FP32")
    revive = gbdnn.Layer(np.eye(3), 0.5, dtype="FP32")
    for engine in ("auto", "sparse", "full", "fused"):
        streamed, _ = lazy(gbdnn.Network([kill, kill, revive]))
        Y = gbdnn.infer(streamed, np.ones((5, 3)), engine=engine)
        np.testing.assert_array_equal(Y.to_dense(fill_value=0), np.full((5, 3), 0.5))


@pytest.mark.parametrize("engine", ["full", "fused"])
def test_equal_inputs_across_windows(engine, monkeypatch):
    narrow(monkeypatch)
    monkeypatch.setattr(windows, "cuts", lambda *_: [0, 30, 60, 90])
    net = gbdnn.radixnet(1024, 120)
    streamed = gbdnn.radixnet(1024, 120, lazy=True)
    random = np.random.default_rng(0)
    X = gb.Matrix.from_dense((random.random((60, 1024)) < 0.4).astype("f4"), missing_value=0)
    plain = gbdnn.infer(net, X, compress=False, engine=engine)
    assert plain.nvals > 0
    for compress in (True, False, "auto"):
        assert gbdnn.infer(streamed, X, compress=compress, engine=engine).isequal(plain)
