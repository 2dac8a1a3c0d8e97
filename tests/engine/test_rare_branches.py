"""Branches that few calls reach: faults put in here by hand were noticed by no other test."""

import graphblas as gb
import numpy as np
import oracles
import pytest
from conftest import network
from patches import divided, narrow, regrouped

import gbdnn
from gbdnn import errors, graph
from gbdnn.engine.graphblas_run import GraphBlasRun
from gbdnn.kernels import gather


def halves(seed, shape, density=0.5):
    random = np.random.default_rng(seed)
    return random.integers(1, 4, shape) * (random.random(shape) < density) / 2


def test_a_heavy_node_starts_at_its_own_row(monkeypatch):
    monkeypatch.setattr(gather, "HEAVY", 8)
    monkeypatch.setattr(gather, "SHARE", 4)
    A, X, W, V = np.eye(30), halves(0, (30, 5)), halves(1, (5, 5), 1), halves(2, (5, 5), 1)
    A[17] = 1
    Y = graph.infer([graph.Convolution(W, self_weights=V)], X, A, engine="fused")
    assert np.array_equal(Y.to_dense(fill_value=0), A @ X @ W + X @ V)


def test_survivors_of_large_features_stay_checked(monkeypatch):
    """They share a block with others; the sum overflows in a later window."""
    narrow(monkeypatch)
    net = gbdnn.Network([gbdnn.Layer(1e5 * np.eye(4, dtype="f4"), clip=None)] * 6)
    X = np.ones((64, 4), "f4")
    X[::2], X[1] = 0, 1e9
    with pytest.raises(errors.NonFiniteError, match="layer 5"):
        gbdnn.infer(net, X, engine="fused", nthreads=1, deduplicate=False)


def test_equal_survivors_are_computed_once(monkeypatch):
    narrow(monkeypatch)
    net, records = gbdnn.Network([gbdnn.Layer(np.eye(8, dtype="f4"))] * 3), []
    X = np.eye(8, dtype="f4")[np.arange(60) % 7]
    X[::3] = 0  # blocks of 16 have 10 or 11 survivors: the second one does not fit the pool
    gbdnn.infer(net, X, engine="fused", deduplicate=True, nthreads=1, callback=records.append)
    assert gbdnn.per_layer(records)["inputs"][1] == 7


def test_a_compiled_network_writes_the_dead(on):
    on("Zen 4, 2 cores")
    run = gbdnn.compile([gbdnn.Layer(np.ones((64, 64), "f4"), clip=1.0)] * 2, nthreads=1)
    X = np.ones((256, 64), "f4")
    X[1::2] = 0
    out = run(X, out=np.full((256, 64), np.nan, "f4"))
    assert np.array_equal(out, X)


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
    layers = [oracles.Dense(halves(k, (48, 48), 0.1), 0.0, clip=2.0) for k in range(3)]
    X = halves(9, (1500, 48), 0.1).astype("f4")
    options = {"engine": engine, "memory": 60_000, "deduplicate": True, "nthreads": 1}
    Y = gbdnn.infer(network(layers), form(X), **options)
    assert np.array_equal(Y.to_dense(fill_value=0), oracles.dense_inference(layers, X))
    assert any(k == 0 and start > 0 for k, start in starts)


def test_statistics_of_layers_that_threads_share(monkeypatch, on):
    """A window of several layers, for the few inputs that are left."""
    on("Zen 4, 2 cores")
    regrouped(monkeypatch)
    divided(monkeypatch)
    layers, records = (
        [oracles.Dense(halves(k, (40, 40), 0.2), 0.0, clip=2.0) for k in range(12)],
        [],
    )
    X = np.zeros((400, 40), "f4")
    X[::20] = halves(5, (20, 40))
    options = {"engine": "fused", "deduplicate": False, "nthreads": 2}
    gbdnn.infer(network(layers), X, callback=records.append, **options)
    table, Y = gbdnn.per_layer(records, 12), X
    for k, layer in enumerate(layers):
        Y = oracles.dense_layer(layer, Y)
        assert table["alive"][k] == np.count_nonzero(Y.any(axis=1))
        assert table["entries"][k] == np.count_nonzero(Y)
