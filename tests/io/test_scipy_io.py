"""Networks from and to SciPy's arrays."""

import itertools
import subprocess
import sys

import graphblas as gb
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import Dense, dense_inference

import gbdnn
from gbdnn import io

FEW = settings(max_examples=25, deadline=None)
W0 = np.array([[1.0, 0.0, 2.0], [0.0, -3.0, 0.0]])
W1 = np.array([[0.5, 0.0], [0.0, 0.25], [-1.0, 1 / 3]])


@st.composite
def networks(draw):
    """Any values of either precision, empty layers and columns, numbers and vectors as biases."""
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = draw(st.lists(st.integers(1, 9), min_size=2, max_size=5))
    scale = draw(st.sampled_from([1.0, 1e-30, 1e30]))
    layers = []
    for n, m in itertools.pairwise(sizes):
        W = (random.standard_normal((n, m)) * scale).astype(dtype)
        W[random.random((n, m)) > draw(st.sampled_from([0.0, 0.3, 1.0]))] = 0
        vector = random.standard_normal(m).astype(dtype)
        layers.append((W, draw(st.sampled_from([0.0, float(dtype(-0.3)), vector]))))
    options = {
        "bias_rule": draw(st.sampled_from(["all", "entries"])),
        "clip": draw(st.sampled_from([None, 0.1, 32])),
        "last_activation": draw(st.sampled_from(["relu", "identity"])),
    }
    return layers, options


def assert_same(net, expected):
    """Equal to the last bit, but that a number may have become a vector of it, or back."""
    assert len(net) == len(expected)
    for mine, its in zip(net, expected, strict=True):
        assert mine.dtype == its.dtype
        assert mine.weights.isequal(its.weights, check_dtype=True)
        np.testing.assert_array_equal(
            np.broadcast_to(mine.bias, mine.ncols), np.broadcast_to(its.bias, its.ncols)
        )
        assert (mine.bias_rule, mine.activation) == (its.bias_rule, its.activation)
        assert mine.clip == its.clip


@FEW
@given(networks())
def test_round_trips_are_exact(tmp_path_factory, problem):
    layers, options = problem
    net = io.from_scipy(layers, **options)
    for layer, (W, b) in zip(net, layers, strict=True):
        np.testing.assert_array_equal(layer.weights.to_dense(fill_value=0), W)
        np.testing.assert_array_equal(layer.bias, b)
        assert layer.edges == np.count_nonzero(W)
    assert io.from_scipy(io.to_scipy(net), **options).isequal(net)
    folder = tmp_path_factory.mktemp("net")
    io.write_matrix_market(net, folder / "mtx")
    assert_same(io.read_matrix_market(folder / "mtx", **options), net)


def test_the_answer_is_the_textbooks():
    X = np.array([[1.0, 2.0], [0.0, 1.0], [3.0, -1.0]])
    b = np.array([0.5, 1.0, -0.25])
    net = io.from_scipy([(W0, b), (sp.coo_array(W1), -1)], clip=2.0, last_activation="identity")
    oracle = [Dense(W0, b, clip=2.0), Dense(W1, -1.0, activation="identity")]
    got = gbdnn.infer(net, X).to_dense(fill_value=0)
    np.testing.assert_allclose(got, dense_inference(oracle, X), rtol=1e-15)
    assert (got < 0).any()


def test_the_last_layer_alone_has_no_activation():
    net = io.from_scipy([W0, W1], clip=3, last_activation="identity")
    assert [(layer.activation, layer.clip) for layer in net] == [("relu", 3.0), ("identity", None)]
    assert {layer.activation for layer in io.from_scipy([W0, W1])} == {"relu"}


def test_bias_beside_bare_matrices():
    net = io.from_scipy([W0, W1], bias=[-0.5, [1.0, 2.0]], dtype="FP32")
    assert net[0].bias == -0.5
    assert net[1].bias.tolist() == [1, 2]
    assert net.dtype == np.float32
    assert io.from_scipy([(W0, None), W1])[0].bias == 0
    assert len(io.from_scipy([])) == 0


def test_to_scipy_gives_copies():
    net = io.from_scipy([(W0, [1.0, 2.0, 3.0])])
    [(W, b)] = io.to_scipy(net)
    W.data[:] = 9
    b[:] = 9
    assert net.isequal(io.from_scipy([(W0, [1.0, 2.0, 3.0])]))


def test_iso_weights_come_out_whole():
    W = gb.Matrix.from_coo([0, 1], [1, 2], 0.25, nrows=2, ncols=3)
    [(A, _)] = io.to_scipy(gbdnn.Network([gbdnn.Layer(W)]))
    np.testing.assert_array_equal(A.toarray(), [[0, 0.25, 0], [0, 0, 0.25]])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: io.from_scipy([W0, W0]), gbdnn.ShapeError, "layer 1: weights are 2 x 3"),
        (lambda: io.from_scipy([W0, W1 * np.nan]), gbdnn.ArgumentError, "layer 1: .*nan"),
        (lambda: io.from_scipy([W0, W1 * 1j]), gbdnn.ArgumentTypeError, "layer 1: .*complex"),
        (lambda: io.from_scipy([(W0, [1.0])]), gbdnn.ShapeError, "layer 0: bias has shape"),
        (lambda: io.from_scipy([(W0, 1)], bias=1), gbdnn.ArgumentTypeError, "bias= beside pairs"),
        (lambda: io.from_scipy(W0), gbdnn.ArgumentTypeError, "a list, not one"),
        (lambda: io.from_scipy([gbdnn.Layer(W0)]), gbdnn.ArgumentTypeError, "layer 0 is a Layer"),
        (lambda: io.from_scipy(3), gbdnn.ArgumentTypeError, "list of matrices or of pairs"),
        (
            lambda: io.from_scipy([W0], last_activation="tanh"),
            gbdnn.ArgumentError,
            "last_activation is 'relu' or 'identity', not 'tanh'",
        ),
        (lambda: io.to_scipy([W0]), gbdnn.ArgumentTypeError, "a Network is needed"),
        (lambda: io.write_matrix_market([W0], "x"), gbdnn.ArgumentTypeError, "a Network is needed"),
    ],
)
def test_bad_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()


NET = io.from_scipy([(W0, [0.5, -0.5, 0.0]), (W1, -0.3)])


def test_every_format_of_scipy(tmp_path):
    layers = []
    for k, form in enumerate(["csr", "csc", "coo", "bsr", "dia"]):
        sp.save_npz(tmp_path / f"w{k}.npz", sp.coo_array(np.diag([1.0, k, 3.0])).asformat(form))
        layers.append(sp.load_npz(tmp_path / f"w{k}.npz"))
    net = io.from_scipy([*layers, sp.csr_matrix(np.eye(3))])
    assert [layer.weights.to_dense(fill_value=0)[1, 1] for layer in net] == [0, 1, 2, 3, 4, 1]
    A = sp.csr_array(W0)
    A.indices[0] = 10**6
    with pytest.raises(gbdnn.ArgumentError, match="corrupt"):
        io.from_scipy([A])


def test_formats_bring_in_their_packages_when_they_are_used():
    code = "import sys, gbdnn.io; print({'scipy', 'torch', 'onnx', 'polars'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize(
    ("package", "call"),
    [
        ("scipy.sparse", lambda folder: io.to_scipy(NET)),
        ("scipy.sparse", lambda folder: io.read_matrix_market(folder)),
        ("torch", lambda folder: io.to_torch(NET)),
        ("onnx", lambda folder: io.write_onnx(NET, folder / "net.onnx")),
    ],
)
def test_a_package_that_is_not_there(tmp_path, monkeypatch, package, call):
    monkeypatch.setitem(sys.modules, package, None)
    if "." in package:  # else the attribute of the package around it would do
        monkeypatch.delattr("scipy.sparse", raising=False)
    with pytest.raises(gbdnn.MissingPackageError, match=r'pip install "gbdnn\['):
        call(tmp_path)
