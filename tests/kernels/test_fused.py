"""What only the fused kernel has: tiles, pairs of neurons, one value for all edges."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from built import SHAPES, kernels
from conftest import network
from networks import as_iso
from oracles import Dense, dense_inference

import gbdnn
from gbdnn import errors
from gbdnn.kernels import fused_chain, fused_shares
from gbdnn.kernels.fused import FUSED

BOTH = pytest.mark.parametrize("dtype", ["FP32", "FP64"])
TOLERANCE = {"FP32": 2e-5, "FP64": 1e-12}


def degrees(random, kind, nrows, ncols):
    """A pattern: columns of some five rows each, or power laws of columns and rows alike."""
    if kind == "even":
        return random.random((nrows, ncols)) < 5 / nrows
    pattern = np.zeros((nrows, ncols), bool)
    share = 1 / np.arange(1, nrows + 1)
    for j, count in enumerate(np.minimum(random.zipf(1.6, ncols) - 1, nrows)):
        pattern[random.choice(nrows, count, replace=False, p=share / share.sum()), j] = True
    return pattern


def rough(random, sizes, *, kind="even", iso=False, bias="vector", **options):
    """Layers whose sums are not exact; values are those of FP32, in FP64."""
    layers = []
    for n, m in itertools.pairwise(sizes):
        pattern = degrees(random, kind, n, m)
        scale = 1.4 / np.sqrt(max(1, pattern.sum() / m))
        values = 0.3 if iso else random.normal(0, scale, (n, m))
        b = random.normal(0.05, 0.2, m) if bias == "vector" else np.full(1, 0.05)
        W, b = (np.asarray(a, "f4").astype("f8") for a in (values * pattern, b))
        layers.append(Dense(W, b if bias == "vector" else float(b[0]), **options))
    return layers


def features(random, inputs, neurons):
    """Half of the values are 0; all are those of FP32."""
    X = random.normal(0, 1, (inputs, neurons)).astype("f4").astype("f8")
    X[random.random(X.shape) < 0.5] = 0
    return X


# In a single window, a block at a time, and from sparse rows.
WAYS = [({}, np.asarray), ({"callback": id}, np.asarray), ({}, sp.csr_array)]


def answer(way, net, X):
    options, kind = way
    Y = gbdnn.infer(net, kind(X), engine="fused", deduplicate=False, **options)
    return Y.to_dense(fill_value=0)


@pytest.mark.pairwise
@BOTH
@pytest.mark.parametrize("inputs", [1, 7, 16, 33, 100, 197])
@pytest.mark.parametrize("kind", ["even", "power law"])
@pytest.mark.parametrize("iso", [False, True])
@pytest.mark.parametrize("bias", ["scalar", "vector"])
@pytest.mark.parametrize("activation", ["relu", "identity"])
@pytest.mark.parametrize("clip", [None, 0.75])
def test_values(dtype, inputs, kind, iso, bias, activation, clip):
    random = np.random.default_rng(inputs)
    options = {"kind": kind, "iso": iso, "bias": bias, "activation": activation, "clip": clip}
    layers = rough(random, (50, 97, 33, 120, 10), **options)
    if kind == "power law":
        assert any((layer.W == 0).all(axis=0).any() for layer in layers)
    X = features(random, inputs, 50)
    net = network([as_iso(layer) for layer in layers] if iso else layers, dtype)
    assert all(len(FUSED.prepare(layer, None, None).arrays["weights"]) == 1 for layer in net) == iso
    expected = dense_inference(layers, X)
    assert np.count_nonzero(expected) > expected.size / 20
    tolerance = TOLERANCE[dtype] * max(1.0, np.abs(expected).max())
    for way in WAYS:
        found = answer(way, net, X)
        np.testing.assert_allclose(found, expected, rtol=TOLERANCE[dtype], atol=tolerance)


@BOTH
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("at", [0, 8, 21])
@pytest.mark.parametrize("column", [4, 35])
def test_a_sum_that_is_not_finite_is_found_in_its_layer(dtype, sign, at, column):
    """Before ReLU or clip hide it: in one input, and in the first or second neuron of a pair."""
    W = np.eye(40) * 0.5 + 0.25 * np.eye(40)[::-1]  # columns 4 and 35 have the same rows
    large = W.copy()
    large[W[:, column] != 0, column] = sign * 0.45 * np.finfo(dtype.replace("FP", "float")).max
    net = network([Dense(each, 0.0, clip=2.0) for each in (W, large, W)], dtype)
    assert FUSED.prepare(net[1], None, None).arrays["pairs"][8:10].tolist() == [1, 0]
    for way in WAYS:
        X = np.zeros((22, 40))
        X[at] = 1
        assert answer(way, net, X).any()
        X[at] = 2
        with pytest.raises(errors.NonFiniteError, match="layer 1"):
            answer(way, net, X)


@BOTH
def test_tiles_of_other_processors_give_the_same_bits(dtype, monkeypatch):
    """Those for AVX-512 and those for AVX2, on whatever runs this."""
    random = np.random.default_rng(3)
    pattern = np.kron(np.ones((8, 8)), random.random((12, 12)) < 0.3)
    layers = [
        Dense(pattern * random.normal(0, 0.4, (96, 96)), random.normal(0, 0.1, 96)),
        *rough(random, (96, 300, 301, 50)),
        Dense(random.normal(0, 0.2, (50, 137)), random.normal(0, 0.1, 137)),
        *rough(random, (137, 40), kind="power law"),
    ]
    X, answers = features(random, 300, 96), []
    for pair_lines in SHAPES:
        made = kernels(dtype.replace("FP", "float"), pair_lines)
        for module in (fused_chain, fused_shares):
            monkeypatch.setattr(module, "required", lambda _, made=made: made)
        net = network(layers, dtype)
        for inputs in (300, 71, 33, 16, 1):
            answers += [answer(way, net, X[:inputs]) for way in WAYS]
    expected = dense_inference(layers, X)
    tolerance = TOLERANCE[dtype] * np.abs(expected).max()
    np.testing.assert_allclose(answers[0], expected, rtol=0, atol=tolerance)
    for k, found in enumerate(answers):
        np.testing.assert_array_equal(found, answers[0][: len(found)], err_msg=str(k))
