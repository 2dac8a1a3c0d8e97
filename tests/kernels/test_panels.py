"""Panels of rows: faster, and the same bits."""

import itertools

import graphblas as gb
import numpy as np
import pytest

import gbdnn
from gbdnn import errors
from gbdnn.kernels import costs


def some_layers(dtype, *, iso=False):
    rng = np.random.default_rng(3)
    layers, sizes = [], (301, 77, 640, 300)
    for nrows, ncols in itertools.pairwise(sizes):
        W = rng.normal(size=(nrows, ncols)) * (rng.random((nrows, ncols)) < 0.1)
        W[:, 5] = 0  # a neuron without edges
        W[:130, 7] = 0  # and one without any in the first panels
        W[40:, 9] = 0
        bias = rng.normal(size=ncols) / 2
        if iso:
            rows, columns = np.nonzero(W)
            W = gb.Matrix.from_coo(rows, columns, -1 / 16, nrows=nrows, ncols=ncols)
            bias = 6 * bias + 3
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
