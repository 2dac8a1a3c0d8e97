"""Networks of SciPy's arrays, and back."""

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
from gbdnn import errors, io

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


def network(pairs, **options):
    """The network of pairs of weights and bias."""
    weights, biases = zip(*pairs, strict=True)
    return gbdnn.Network(weights, bias=biases, **options)


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
    net = network(layers, **options)
    for layer, (W, b) in zip(net, layers, strict=True):
        np.testing.assert_array_equal(layer.weights.to_dense(fill_value=0), W)
        np.testing.assert_array_equal(layer.bias, b)
        assert layer.edges == np.count_nonzero(W)
    assert network(io.to_scipy(net), **options).isequal(net)
    folder = tmp_path_factory.mktemp("net")
    io.write_matrix_market(net, folder / "mtx", lossy=True)
    assert_same(io.read_matrix_market(folder / "mtx", **options), net)


def test_the_answer_is_the_textbooks():
    X = np.array([[1.0, 2.0], [0.0, 1.0], [3.0, -1.0]])
    b = np.array([0.5, 1.0, -0.25])
    net = network([(W0, b), (sp.coo_array(W1), -1)], clip=2.0, last_activation="identity")
    oracle = [Dense(W0, b, clip=2.0), Dense(W1, -1.0, activation="identity")]
    got = gbdnn.infer(net, X).to_dense(fill_value=0)
    np.testing.assert_allclose(got, dense_inference(oracle, X), rtol=1e-15)
    assert (got < 0).any()


def test_the_last_layer_alone_has_no_activation():
    net = gbdnn.Network([W0, W1], clip=3, last_activation="identity")
    assert [(layer.activation, layer.clip) for layer in net] == [("relu", 3.0), ("identity", None)]
    assert {layer.activation for layer in gbdnn.Network([W0, W1])} == {"relu"}


def test_bias_beside_bare_matrices():
    net = gbdnn.Network([W0, W1], bias=[-0.5, [1.0, 2.0]], dtype="FP32")
    assert net[0].bias == -0.5
    assert net[1].bias.tolist() == [1, 2]
    assert net.dtype == np.float32
    assert gbdnn.Network([W0, W1])[0].bias == 0
    assert len(gbdnn.Network([])) == 0


def test_to_scipy_gives_copies():
    net = gbdnn.Network([W0], bias=[[1.0, 2.0, 3.0]])
    [(W, b)] = io.to_scipy(net)
    W.data[:] = 9
    b[:] = 9
    assert net.isequal(gbdnn.Network([W0], bias=[[1.0, 2.0, 3.0]]))


def test_iso_weights_come_out_whole():
    W = gb.Matrix.from_coo([0, 1], [1, 2], 0.25, nrows=2, ncols=3)
    [(A, _)] = io.to_scipy(gbdnn.Network([gbdnn.Layer(W)]))
    np.testing.assert_array_equal(A.toarray(), [[0, 0.25, 0], [0, 0, 0.25]])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: gbdnn.Network([W0, W0]), errors.ShapeError, "layer 1: weights are 2 x 3"),
        (lambda: gbdnn.Network([W0, W1 * np.nan]), errors.ArgumentError, "layer 1: .*nan"),
        (lambda: gbdnn.Network([W0, W1 * 1j]), errors.ArgumentTypeError, "layer 1: .*complex"),
        (lambda: gbdnn.Network([W0], bias=[[1.0]]), errors.ShapeError, "layer 0: bias has shape"),
        (
            lambda: gbdnn.Network([(W0, 1)]),
            errors.ArgumentTypeError,
            "weights must be .* not tuple",
        ),
        (
            lambda: gbdnn.Network([W0], last_activation="tanh"),
            errors.ArgumentError,
            "last_activation must be 'relu' or 'identity', not 'tanh'",
        ),
        (lambda: io.to_scipy([W0]), errors.ArgumentTypeError, "net must be a Network"),
        (
            lambda: io.write_matrix_market([W0], "x"),
            errors.ArgumentTypeError,
            "net must be a Network",
        ),
    ],
)
def test_bad_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()


NET = gbdnn.Network([W0, W1], bias=[[0.5, -0.5, 0.0], -0.3])


E = np.eye(4)


def refused(A, match):
    for call in (
        lambda: gbdnn.infer([A], E),
        lambda: gbdnn.infer([E], A),
        lambda: gbdnn.categories(A),
        lambda: gbdnn.Network([A]),
    ):
        with pytest.raises(errors.ArgumentError, match=f"invalid SciPy array: .*{match}"):
            call()


@pytest.mark.parametrize("form", ["csr", "csc", "bsr"])
@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("indptr", [0, 1, 2, 0, 4], "non-decreasing sequence"),
        ("indptr", [0, 1, 2, 3, 0], "indptr decreases"),
        ("indptr", [1, 1, 2, 3, 4], "index pointer should start with 0"),
        ("indptr", [0, 1, 2, 3, 2**31 - 1], "Last value of index pointer"),
        ("indptr", np.arange(4), "index pointer size"),
        ("indices", [0, 1, 4, 3], r"must be < 4"),
        ("indices", [0, 1, -1, 3], "must be >= 0"),
        ("indices", np.arange(3), "indices and data should have the same"),
    ],
)
def test_corrupt_compressed_arrays(form, name, value, fault):
    A = sp.bsr_array(E, blocksize=(1, 1)) if form == "bsr" else getattr(sp, f"{form}_array")(E)
    setattr(A, name, np.array(value))
    refused(A, fault)


def test_other_corrupt_arrays():
    for index in (4, -1):
        A = sp.coo_array(E)
        A.col[1] = index
        refused(A, str(index))
        A = sp.lil_array(E)
        A.rows[1][0] = index
        refused(A, str(index))
        A = sp.dok_array(E)
        A._dict[1, index] = 1.0
        refused(A, str(index))
    A = sp.lil_array(E)
    A.data[1] += [2.0] * 100_000
    refused(A, "lists of different lengths")
    A = sp.dia_array(E)
    A.offsets = np.array([0, 1])
    refused(A, "number of diagonals")


@pytest.mark.parametrize("form", ["csr", "csc", "bsr", "coo", "lil", "dok", "dia"])
def test_a_good_array_of_each_form(form):
    rng = np.random.default_rng(3)
    A = rng.normal(size=(6, 4)) * (rng.random((6, 4)) < 0.5)
    found = gbdnn.infer([sp.coo_array(A).asformat(form)], np.eye(6), engine="sparse")
    np.testing.assert_array_equal(found.to_dense(fill_value=0), np.maximum(A, 0))


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
    with pytest.raises(errors.MissingPackageError, match=r'pip install "gbdnn\['):
        call(tmp_path)
