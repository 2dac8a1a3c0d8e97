"""What only the fused kernel has: tiles, pairs of neurons, many layers in one call."""

import itertools
import re

import graphblas as gb
import numpy as np
import pytest
from built import SHAPES, kernels
from conftest import network
from oracles import Dense, dense_inference, dense_layer

import gbdnn
from gbdnn import errors
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.kernels import costs, fused_chain
from gbdnn.kernels.blocks import AlignedBlock, Buffers
from gbdnn.kernels.fused import FUSED
from gbdnn.kernels.fused_chain import FusedChain
from gbdnn.kernels.kernel import ChainLayers, LayerPlan

BOTH = pytest.mark.parametrize("dtype", ["FP32", "FP64"])
TOLERANCE = {"FP32": 2e-5, "FP64": 1e-12}
NUMPY = {"FP32": np.dtype("f4"), "FP64": np.dtype("f8")}


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


def prepared(layers, dtype="FP32", *, iso=False):
    net = network(layers, dtype)
    if iso:
        net = gbdnn.Network(
            [
                gbdnn.Layer(
                    as_iso(layer.W),
                    layer.bias,
                    activation=layer.activation,
                    clip=layer.clip,
                    dtype=dtype,
                )
                for layer in net
            ]
        )
    return [FUSED.prepare(layer, None, None) for layer in net]


def as_iso(W):
    rows, columns, values = W.to_coo()
    made = gb.Matrix.from_coo(rows, columns, values[0], nrows=W.nrows, ncols=W.ncols)
    assert made.ss.is_iso
    return made


def advance(weights, X, dtype="FP32", *, droppable=False, tidy=False, width=None):
    """Return activations after the layers, the ids of their inputs, and the faulty layer."""
    width = width or len(X)
    neurons = max(X.shape[1], *(layer.ncols for layer in weights))
    Y, Z = (AlignedBlock(neurons, width, NUMPY[dtype]) for _ in range(2))
    Y.flat[:], Z.flat[:] = 0, 7  # Z's content is arbitrary
    Y.neurons, Y.inputs = X.shape[1], np.arange(len(X))
    Y.filled[:] = X.T
    Y, faulty = through(weights, Y, Z, dtype, droppable=droppable, tidy=tidy)
    return Y.filled.T.copy(), Y.inputs, faulty


def chain(weights, dtype, *, droppable=False, position=None):
    """The chain of some prepared layers."""
    infos = [
        gbdnn.model.LayerInfo((int(each.record.array["nrows"][0]), each.ncols), 1, 1.0, dtype)
        for each in weights
    ]
    plans = [LayerPlan(info, True, droppable, droppable, True) for info in infos]
    return FusedChain(ChainLayers(0, plans, weights, [position] * len(weights)))


def through(weights, Y, Z, dtype, *, droppable=False, tidy=False):
    """Return a block behind the layers, and the layer in which a sum was not finite, or -1."""

    class Given(Buffers):
        def get(self, *_):
            return Z

    buffers = Given(NUMPY[dtype], 10**9, AlignedBlock)
    try:
        Y = chain(weights, dtype, droppable=droppable).run(
            Y, 0, len(weights), buffers, tidy=tidy, counts=None, stands=None
        )
    except errors.NonFiniteError as err:
        return Y, int(re.match(r"layer (\d+)", str(err))[1])
    return Y, -1


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
    expected = dense_inference(layers, X)
    assert np.count_nonzero(expected) > expected.size / 20
    weights = prepared(layers, dtype, iso=iso)
    assert all((len(each.arrays["weights"]) == 1) == iso for each in weights)
    found, ids, faulty = advance(weights, X, dtype)
    assert faulty == -1
    assert ids.tolist() == list(range(inputs))
    tolerance = TOLERANCE[dtype] * max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE[dtype], atol=tolerance)


@BOTH
@pytest.mark.parametrize("inputs", range(1, 100, 7))
def test_odd_widths_and_padding(dtype, inputs):
    """Wider than the inputs are many, or just as wide; a positive bias fills the padding."""
    random = np.random.default_rng(2)
    layers = rough(random, (20, 31, 20))
    layers[0].b = np.abs(layers[0].b)
    weights, X = prepared(layers, dtype), features(random, 100, 20)
    whole, _, _ = advance(weights, X, dtype)
    assert whole.shape == (100, 20)
    for width in (inputs, 100, 192):
        found, _, _ = advance(weights, X[:inputs], dtype, width=width)
        assert found.shape == (inputs, 20)
        np.testing.assert_array_equal(found, whole[:inputs])


@BOTH
def test_pairs_change_no_bit(dtype):
    """Columns of equal rows, scattered: they are computed in pairs, and stand where they were."""
    random = np.random.default_rng(1)
    pattern = np.kron(np.ones((8, 8)), random.random((12, 12)) < 0.3)
    pattern = pattern[random.permutation(96)][:, random.permutation(96)]
    layers = [Dense(pattern * random.normal(0, 0.4, (96, 96)), random.normal(0, 0.1, 96))] * 3
    weights = prepared(layers, dtype)
    assert weights[0].arrays["pairs"].sum() > 30
    X = features(random, 150, 96)
    found, _, _ = advance(weights, X, dtype)
    tolerance = TOLERANCE[dtype] * np.abs(found).max()
    np.testing.assert_allclose(found, dense_inference(layers, X), rtol=0, atol=tolerance)
    for each in weights:
        each.arrays["pairs"][:] = 0
    np.testing.assert_array_equal(advance(weights, X, dtype)[0], found)


@BOTH
def test_an_input_has_its_bits_wherever_it_is(dtype):
    random = np.random.default_rng(5)
    layers = rough(random, (70, 60, 50), clip=3.0)
    weights = prepared(layers, dtype)
    seen = set()
    for width in (1, 16, 48, 191):
        for at in {0, 1, 7, 15, width - 1} & set(range(width)):
            X = features(random, width, 70)
            X[at] = np.linspace(-1, 2, 70)
            seen.add(advance(weights, X, dtype)[0][at].tobytes())
    assert len(seen) == 1


@BOTH
@pytest.mark.parametrize("tidy", [False, True])
@pytest.mark.parametrize("hurry", [False, True])
def test_the_dead_leave_on_the_way(dtype, tidy, hurry, monkeypatch):
    """Ids go with their inputs, whenever dropping pays, and wherever the living stand."""
    if hurry:
        monkeypatch.setattr(costs, "MOVE", 0.0)
        monkeypatch.setattr(costs, "MOVE_ROW", 0.0)
    random = np.random.default_rng(3)
    layers = rough(random, [128] * 9, bias="scalar", clip=4.0)
    for layer in layers:
        layer.b = -0.6
    X = 2.0 * (random.random((150, 128)) < 0.16 * random.random((150, 1)))
    after = list(itertools.accumulate(layers, lambda Y, layer: dense_layer(layer, Y), initial=X))
    living = [int(Y.any(axis=1).sum()) for Y in after[1:]]
    assert 0 < living[-1] < living[3] < 150
    found, ids, faulty = advance(prepared(layers, dtype), X, dtype, droppable=True, tidy=tidy)
    assert faulty == -1
    assert len(set(ids.tolist())) == len(ids) < 150
    assert set(np.flatnonzero(after[-1].any(axis=1))) <= set(ids.tolist())
    lanes = 64 // NUMPY[dtype].itemsize
    if tidy:
        assert len(ids) == living[-1]
    elif hurry:  # who fills a line costs nothing
        assert len(ids) <= -(-living[-1] // lanes) * lanes
    np.testing.assert_allclose(found, after[-1][ids], rtol=1e-4, atol=1e-5)


def test_all_die_and_none_is_dropped_where_none_may_be():
    layers = [Dense(np.eye(9), -10.0), Dense(np.eye(9), 0.5)]
    X = np.ones((20, 9))
    found, ids, _ = advance(prepared(layers[:1]), X, droppable=True, tidy=True)
    assert (found.shape, len(ids)) == ((0, 9), 0)
    found, ids, _ = advance(prepared(layers), X, droppable=False, tidy=True)
    assert ids.tolist() == list(range(20))
    assert (found == 0.5).all()


@BOTH
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("at", [0, 8, 21])
@pytest.mark.parametrize("column", [8, 9])
def test_a_sum_that_is_not_finite_is_found_in_its_layer(dtype, sign, at, column):
    """Before ReLU or clip hide it: in one input, and in the first or second neuron of a pair."""
    W = np.eye(40) * 0.5 + 0.25 * np.eye(40)[::-1]
    first, then, last = prepared([Dense(W, 0.0, clip=1.0)] * 3, dtype)
    assert then.arrays["pairs"][8:10].tolist() == [1, 0]
    X = np.zeros((22, 40))
    X[at] = 1
    assert advance([first, then, last], X, dtype)[2] == -1
    values = then.arrays["weights"]
    values[2 * column : 2 * column + 2] = sign * np.finfo(values.dtype).max
    assert advance([first, then, last], X, dtype)[2] == 1
    X[at] = 0.5
    assert advance([first, then, last], X, dtype)[2] == -1


@BOTH
@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("iso", [False, True])
def test_rows_into_a_block_and_out_of_it(dtype, shuffled, iso):
    random = np.random.default_rng(0)
    dense = features(random, 70, 45).astype(NUMPY[dtype])
    if iso:
        dense = np.where(dense, dense.dtype.type(0.3), 0)
    dense[[0, 33, 69]] = 0
    indptr = np.concatenate(([0], np.cumsum((dense != 0).sum(axis=1)))).astype(np.uint64)
    values = dense[dense != 0][: 1 if iso else None]
    columns = np.nonzero(dense)[1].astype(np.uint64)
    rows = SparseRows(indptr, columns, values, 45, np.arange(70) * 3).sparse_rows(5, 70)
    position = random.permutation(45) if shuffled else None
    block = AlignedBlock(50, 80, NUMPY[dtype])
    block.flat[:] = 9
    block.neurons = 45
    (weights,) = prepared([Dense(np.ones((45, 45)))], dtype)
    made = chain([weights], dtype, position=position)
    made.read(block, 0, rows)
    expected = dense[5:70].T
    np.testing.assert_array_equal(
        block.filled[slice(None) if position is None else position], expected
    )
    assert not block.array[:, 65:].any()
    assert rows.ids is not block.inputs
    back = SparseRows.joined(list(made.rows(block, 0, droppable=False)))
    assert back.ids.tolist() == list(range(15, 210, 3))
    some = SparseRows.joined(list(made.rows(block, 0, droppable=True)))
    assert some.ids.tolist() == [i for i in range(15, 210, 3) if i not in (99, 207)]
    found = back.matrix().to_dense(fill_value=0)
    np.testing.assert_array_equal(found, dense[5:70])
    assert some.matrix().nvals == np.count_nonzero(dense[5:70])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
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
    name = {"float32": "FP32", "float64": "FP64"}[dtype]
    weights, X = prepared(layers, name), features(random, 300, 96)
    assert [bool(each.record.array["dense"]) for each in weights].count(True) == 1
    answers = []
    for pair_lines in SHAPES:
        made = kernels(dtype, pair_lines)
        monkeypatch.setattr(fused_chain, "required", lambda _, made=made: made)
        for inputs in (300, 71, 33, 16, 1):
            answers.append(advance(weights, X[:inputs], name)[0])
    expected = dense_inference(layers, X)
    tolerance = TOLERANCE[name] * np.abs(expected).max()
    np.testing.assert_allclose(answers[0], expected, rtol=0, atol=tolerance)
    for k, answer in enumerate(answers):
        np.testing.assert_array_equal(answer, answers[0][: len(answer)], err_msg=str(k))
