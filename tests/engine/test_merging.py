"""Equal inputs are computed once: the same bits as without merging."""

import numpy as np
import pytest
from conftest import narrow, network, reordered
from hypothesis import given
from networks import converging
from test_properties import ANY, problems

import gbdnn
from gbdnn.kernels.blocks import Buffers

ENGINES = pytest.mark.parametrize("engine", ["full", "fused", "sparse"])


@pytest.mark.pairwise
@pytest.mark.parametrize("engine", ["full", "fused", "sparse", "auto"])
@pytest.mark.parametrize("nthreads", [1, 3])
@pytest.mark.parametrize("patches", [[], [narrow], [narrow, reordered]])
@pytest.mark.parametrize("deduplicate", [True, "auto"])
def test_bitwise_the_same_as_without(engine, nthreads, patches, deduplicate, monkeypatch):
    for patch in patches:
        patch(monkeypatch)
    net, X = converging()
    plain = gbdnn.infer(net, X, engine=engine, nthreads=nthreads, deduplicate=False)
    assert 0 < len(gbdnn.categories(plain)) < len(X)
    Y = gbdnn.infer(net, X, engine=engine, nthreads=nthreads, deduplicate=deduplicate)
    assert Y.isequal(plain)


@ENGINES
def test_records_count_inputs_living_distinct_and_computed(engine, monkeypatch):
    narrow(monkeypatch)
    net, X = converging()
    live = {}
    for deduplicate in (False, True):
        stats = []
        gbdnn.infer(net, X, engine=engine, deduplicate=deduplicate, callback=stats.append)
        table = gbdnn.inference.per_layer(stats)
        live[deduplicate] = table["alive"].tolist()
        if deduplicate:
            assert table["distinct"][-1] < 0.2 * table["alive"][-1]
            assert table["inputs"][-1] < 0.2 * table["alive"][-1]
        else:
            assert table["distinct"].tolist() == live[False]
    assert live[True] == live[False]


@pytest.mark.parametrize("engine", ["full", "fused"])
def test_equal_inputs_in_different_blocks_become_one(engine, monkeypatch):
    narrow(monkeypatch)
    net, X = converging()
    X[:] = X[np.flatnonzero(X.any(axis=1))[0]]
    stats = []
    Y = gbdnn.infer(net, X, engine=engine, deduplicate=True, nthreads=2, callback=stats.append)
    table = gbdnn.inference.per_layer(stats)
    assert (table["inputs"][11], table["alive"][11]) == (1, 200)
    assert len(gbdnn.categories(Y)) == 200


def test_memory_of_a_block_is_given_back_once(monkeypatch):
    """Two blocks in the same memory would lose inputs."""
    narrow(monkeypatch)
    put, again = Buffers.put, []

    def watched(self, block):
        again.extend(each for each in self._idle if each is block)
        put(self, block)

    monkeypatch.setattr(Buffers, "put", watched)
    net, X = converging(layers=30)
    gbdnn.infer(net, X, engine="fused", deduplicate=True, nthreads=1)
    assert again == []


@ANY
@given(problems())
def test_any_network(problem):
    layers, X = problem
    net, X = network(layers), np.repeat(X, 3, axis=0)
    for engine in ("full", "fused", "sparse"):
        plain = gbdnn.infer(net, X, engine=engine, deduplicate=False)
        assert gbdnn.infer(net, X, engine=engine, deduplicate=True).isequal(plain)


@ENGINES
def test_zeros_of_both_signs_are_distinct_bits(engine, monkeypatch):
    """Inputs that differ in the sign of a zero have equal answers, merged or not."""
    narrow(monkeypatch)
    layer = gbdnn.Layer(np.array([[1.0, 0.5], [0.0, -1.0]], "f4"), activation="identity")
    X = np.array([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0], [1.0, -0.0]] * 9, "f4")
    Y = gbdnn.infer([layer] * 3, X, engine=engine, deduplicate=True)
    assert Y.isequal(gbdnn.infer([layer] * 3, X, engine=engine, deduplicate=False))


@pytest.mark.parametrize("flag", [True, np.bool_(True), np.bool_(False), False, "auto"])
def test_flags(flag, monkeypatch):
    """Equal inputs of a shallow network are merged only if that is asked for."""
    narrow(monkeypatch)
    net, X = converging(layers=3)
    X[:] = X[np.flatnonzero(X.any(axis=1))[0]]
    stats = []
    gbdnn.infer(net, X, deduplicate=flag, callback=stats.append)
    assert (gbdnn.inference.per_layer(stats)["distinct"][-1] == 200) == (not flag)
