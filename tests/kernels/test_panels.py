"""Panels of rows: faster, and the same bits."""

import itertools

import numpy as np
import pytest
from machines import MACHINES

import gbdnn
from gbdnn import errors
from gbdnn.kernels import costs


def some_layers(dtype, *, iso=False):
    rng = np.random.default_rng(3)
    layers, sizes = [], (301, 77, 640, 300)
    for nrows, ncols in itertools.pairwise(sizes):
        W = rng.normal(size=(nrows, ncols)) * (rng.random((nrows, ncols)) < 0.1)
        W = np.where(W, -1 / 16, 0) if iso else W
        W[:, 5] = 0  # a neuron without edges
        W[:130, 7] = 0  # and one without any in the first panels
        W[40:, 9] = 0
        bias = rng.normal(size=ncols) / 2
        bias = 6 * bias + 3 if iso else bias
        layers.append(gbdnn.Layer(W, bias, clip=2, dtype=dtype))
    return layers


def answer(monkeypatch, layers, X, rows):
    monkeypatch.setattr(costs, "panel_rows", lambda _edges, nrows, _ncols: min(rows, nrows))
    net = gbdnn.Network(layers)  # which keeps its weights as they were prepared first
    return gbdnn.infer(net, X, engine="fused").to_dense(fill_value=0)


@pytest.mark.parametrize("inputs", [5, 16, 40, 200])
@pytest.mark.parametrize("iso", [False, True])
@pytest.mark.parametrize("dtype", ["FP32", "FP64"])
def test_bits_are_those_of_one_panel(dtype, iso, inputs, monkeypatch):
    layers = some_layers(dtype, iso=iso)
    X = np.random.default_rng(4).random((inputs, 301)).astype(layers[0].dtype)
    plain = answer(monkeypatch, layers, X, 10**9)
    assert 0.1 < np.count_nonzero(plain) / plain.size < 0.95
    assert 0 < np.count_nonzero(plain == 2) < 0.6 * plain.size
    assert np.array_equal(answer(monkeypatch, layers, X, 128), plain)
    assert np.array_equal(answer(monkeypatch, layers, X, 50), plain)


def test_a_sum_that_leaves_the_range_in_an_early_panel_is_told(monkeypatch):
    W = np.zeros((600, 20), "f4")
    W[:3, 4], W[500:, 4] = 3e38, -3e38
    X = np.ones((30, 600), "f4")
    for rows in (64, 10**9):
        with pytest.raises(errors.NonFiniteError, match="layer 0"):
            answer(monkeypatch, [gbdnn.Layer(W)], X, rows)


@pytest.mark.parametrize("name", MACHINES)
def test_panels_are_for_neurons_with_some_edges_in_each(name, on, monkeypatch):
    """At 13 %, they fit the first-level cache, with four cache lines of each row."""
    on(name)
    square = 4096 * 4096
    half = costs.panel_rows(square // 2, 4096, 4096)
    each = square // 2 // 4096 / -(-4096 // half)  # edges of a neuron in a panel
    monkeypatch.setattr(costs, "PANEL_EDGES", each + 1)
    assert costs.panel_rows(square // 2, 4096, 4096) == 4096
    monkeypatch.setattr(costs, "PANEL_EDGES", 0)
    densities = (0.5, 0.26, 0.13, 0.065)
    dense, fourth, eighth, sparse = (
        costs.panel_rows(round(x * square), 4096, 4096) for x in densities
    )
    fitting = MACHINES[name].caches[0] / 256
    assert dense <= fourth <= eighth <= sparse
    assert eighth == np.clip(round(fitting), 128, 512)
    assert sparse == np.clip(round(2 * fitting), 128, 512)
    assert dense == np.clip(round(0.26 * fitting), 128, 512)


# Milliseconds of a step of 128 inputs in FP32, by neurons, density and rows of a panel.
STEPS = {
    "Zen 3, 16 cores": {
        (4096, 0.1): {128: 92, 256: 119, 512: 143, 1024: 149, 4096: 166},
        (4096, 0.05): {128: 62, 256: 60, 512: 71, 1024: 79, 4096: 89},
        (4096, 0.02): {128: 40, 256: 30, 512: 34, 1024: 31, 4096: 41},
        (4096, 0.01): {128: 31.8, 256: 24.7, 512: 23.5, 1024: 22.9, 2048: 25.4, 4096: 24.1},
        (1024, 0.3): {128: 14.3, 256: 20.1, 512: 21.9, 1024: 21.8},
        (1024, 0.1): {128: 6.43, 256: 7.58, 512: 8.35, 1024: 8.4},
        (1024, 0.05): {128: 4.37, 256: 4.95, 512: 5.12, 1024: 5.42},
        (512, 0.05): {128: 0.39, 256: 0.38, 512: 0.36},
    },
    "Zen 4, 2 cores": {
        (4096, 0.1): {256: 20.3, 512: 20.3, 1024: 21.4, 2048: 28.3},
        (4096, 0.05): {256: 16.3, 512: 18.1, 1024: 19.1, 2048: 23.8},
        (4096, 0.01): {256: 5.9, 512: 5.7, 1024: 4.9, 2048: 5.6, 4096: 5.6},
        (1024, 0.1): {256: 2.64, 512: 3.27, 1024: 3.37},
    },
}


@pytest.mark.parametrize("name", STEPS)
def test_panels_of_training_take_about_the_least_time(name, on):
    on(name)
    for (neurons, density), times in STEPS[name].items():
        rows = costs.training_panel_rows(round(density * neurons**2), neurons, neurons)
        nearest = min(times, key=lambda each: abs(np.log(each / rows)))
        assert times[nearest] <= 1.2 * min(times.values())
        assert times[nearest] <= 1.05 * times[max(times)]


@pytest.mark.parametrize("name", MACHINES)
def test_panels_of_training_fit_the_first_level_cache(name, on):
    on(name)
    fitting = MACHINES[name].caches[0] // 256
    assert fitting <= costs.training_panel_rows(9000**2 // 2, 9000, 9000) < 1.2 * fitting
    assert costs.training_panel_rows(9000 * 4, 9000, 9000) == 9000
    assert costs.training_panel_rows(0, 9000, 20) == 9000
    assert costs.training_panel_rows(0, 0, 20) == 0
