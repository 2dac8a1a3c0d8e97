"""Networks of SciPy's arrays, and back."""

import graphblas as gb
import numpy as np
import pytest
import scipy.sparse as sp
from calls import raises
from hypothesis import given, settings
from networks import drawn

import gbdnn
from gbdnn import errors, io

FEW = settings(max_examples=25, deadline=None)
W0 = np.array([[1.0, 0.0, 2.0], [0.0, -3.0, 0.0]])


@FEW
@given(drawn(fewest=2, scales=(1.0, 1e-30, 1e30)))
def test_round_trips_are_exact(tmp_path_factory, net):
    folder = tmp_path_factory.mktemp("net")
    gbdnn.save(net, folder, "matrix-market", lossy=True)
    found = gbdnn.load(folder, "matrix-market")
    for layer, (W, b), read in zip(net, io.to_scipy(net), found, strict=True):
        assert gbdnn.Layer(W, b, activation=layer.activation, clip=layer.clip).isequal(layer)
        assert read.weights.isequal(layer.weights, check_dtype=True)
        np.testing.assert_array_equal(read.bias, np.asarray(layer.bias, layer.dtype))


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


E = np.eye(4)


def refused(A, match):
    for call in (lambda: gbdnn.infer([E], A), lambda: gbdnn.categories(A), lambda: gbdnn.Layer(A)):
        raises(errors.ArgumentError, f"invalid SciPy array: .*{match}", call)


@pytest.mark.parametrize("form", ["csr", "csc", "bsr"])
@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("indptr", [0, 1, 2, 0, 4], "non-decreasing sequence"),
        ("indptr", [0, 1, 2, 3, 0], "indptr decreases"),
        ("indptr", np.arange(4), "index pointer size"),
        ("indices", [0, 1, 4, 3], r"must be < 4"),
        ("indices", [0, 1, -1, 3], "must be >= 0"),
    ],
)
def test_corrupt_compressed_arrays(form, name, value, fault):
    A = sp.bsr_array(E, blocksize=(1, 1)) if form == "bsr" else getattr(sp, f"{form}_array")(E)
    setattr(A, name, np.array(value))
    refused(A, fault)


def test_other_corrupt_arrays():
    for index in (4, -1):
        coo, lil, dok = sp.coo_array(E), sp.lil_array(E), sp.dok_array(E)
        coo.col[1] = lil.rows[1][0] = index
        dok._dict[1, index] = 1.0
        for A in (coo, lil, dok):
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
