"""Equal inputs are computed once: the same bits as without merging."""

import numpy as np
import pytest
from networks import converging
from patches import narrow

import gbdnn

ENGINES = pytest.mark.parametrize("engine", ["full", "fused", "sparse"])


@pytest.mark.parametrize("engine", ["full", "fused"])
@pytest.mark.parametrize("nthreads", [1, 3])
@pytest.mark.parametrize("seed", range(6))
def test_blocks_of_which_nothing_is_left_between_others(engine, nthreads, seed, monkeypatch):
    """All inputs of every second block are equal to inputs of the block before it."""
    narrow(monkeypatch)
    distinct = np.random.default_rng(seed).integers(1, 99, (50, 30)).astype("f4")
    some = [np.arange(10 * k, 10 * k + 16 - k) % (10 * k + 10) for k in range(5)]
    X = np.concatenate([distinct[np.resize(rows, 16)] for rows in some for _ in range(2)])
    layers = [gbdnn.Layer(np.eye(30, dtype="f4"))] * 3
    options = {"engine": engine, "deduplicate": True, "nthreads": nthreads}
    np.testing.assert_array_equal(gbdnn.infer(layers, X, **options).to_dense(fill_value=0), X)
    stats = []
    gbdnn.infer(layers, X, callback=stats.append, **options)
    left = len(np.unique(X, axis=0))
    assert gbdnn.per_layer(stats)["inputs"].tolist() == [160, left, left]


@pytest.mark.parametrize("engine", ["full", "fused"])
@pytest.mark.parametrize("neurons", [160, 1024, 2100])
def test_inputs_that_are_equal_in_the_sample_alone(engine, neurons, monkeypatch):
    """Fingerprints are of a sample of neurons; a comparison of all bits decides."""
    narrow(monkeypatch)
    X = np.random.default_rng(0).integers(1, 99, (60, neurons)).astype("f4")
    X[20:] = X[np.arange(20, 60) % 20]
    step = min(16, neurons // 64)
    others = np.setdiff1d(np.arange(neurons), np.arange(0, neurons, step))
    X[np.arange(30, 60), np.resize(others, 30)] += 1
    layers = [gbdnn.Layer(np.eye(neurons, dtype="f4"))] * 3
    stats, options = [], {"engine": engine, "deduplicate": True, "nthreads": 3}
    Y = gbdnn.infer(layers, X, callback=stats.append, **options)
    left = gbdnn.per_layer(stats)["inputs"][1]
    assert left == 50 or (engine == "fused" and 50 < left <= 60)  # compared with the first found
    np.testing.assert_array_equal(Y.to_dense(fill_value=0), X)


def test_equal_survivors_are_computed_once(monkeypatch):
    narrow(monkeypatch)
    layers, records = [gbdnn.Layer(np.eye(8, dtype="f4"))] * 3, []
    X = np.eye(8, dtype="f4")[np.arange(60) % 7]
    X[::3] = 0  # blocks of 16 have 10 or 11 survivors: the second one does not fit the pool
    gbdnn.infer(layers, X, engine="fused", deduplicate=True, nthreads=1, callback=records.append)
    assert gbdnn.per_layer(records)["inputs"][1] == 7


@pytest.mark.parametrize(("flag", "left"), [("auto", 60), (True, 50)])
def test_few_equal_inputs_are_merged_only_if_that_is_asked_for(flag, left, monkeypatch):
    narrow(monkeypatch)
    X, records = np.eye(50)[np.arange(60) % 50], []
    options = {"engine": "sparse", "deduplicate": flag, "nthreads": 1}
    gbdnn.infer([np.eye(50)] * 3, X, callback=records.append, **options)
    assert gbdnn.per_layer(records)["inputs"].tolist() == [60, left, left]


def test_windows_before_which_inputs_are_merged_grow_by_half():
    """Each layer removes the neuron that distinguishes one more input from the others."""
    X, records = np.eye(60), []
    X[:, -1] = 1
    layers = [np.diag(np.arange(60.0) > k) for k in range(59)]
    gbdnn.infer(layers, X, engine="sparse", deduplicate=True, callback=records.append)
    inputs = gbdnn.per_layer(records)["inputs"]
    assert (inputs[6:] <= 61 - np.arange(6, 59) / 1.6).all()


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
    net, X = converging(layers=3)
    plan = gbdnn.plan(net, X, engine="fused", deduplicate=flag)
    assert plan.is_single_window == (flag == "auto" or not flag)
    narrow(monkeypatch)
    X[:] = X[np.flatnonzero(X.any(axis=1))[0]]
    stats = []
    gbdnn.infer(net, X, deduplicate=flag, callback=stats.append)
    assert (gbdnn.per_layer(stats)["distinct"][-1] == 200) == (not flag)
