"""Features that are read where they are: checked like others, and never changed."""

import graphblas as gb
import numpy as np
import pytest
import scipy.sparse as sp
from conftest import network
from oracles import case

import gbdnn
from gbdnn import errors
from gbdnn.arrays import sources

CASE = case(2, inputs=50)
NET = network(CASE.layers)


def test_finite_values_whose_sum_is_not():
    """The sum only finds what to look at."""
    big = np.full((30, 2), 3e38, "f4")
    Y = gbdnn.infer([np.eye(2, dtype="f4") / 4], gb.Matrix.from_dense(big))
    np.testing.assert_array_equal(Y.to_dense(), big / 4)


@pytest.mark.parametrize("engine", ["auto", "sparse", "full", "fused"])
def test_an_overflow_of_large_negative_features(engine):
    """A clip hides it. The sparse matrix is so large that it is read in place."""
    X = np.zeros((1000, 100), "f4")
    X[:, :2], X[0, :2] = 1, -1.5e38
    W = -1.5 * np.eye(100, 4, dtype="f4")
    W[1] = W[0]
    X = gb.Matrix.from_dense(X, missing_value=0)
    with pytest.raises(errors.NonFiniteError, match="layer 0"):
        gbdnn.infer([W], X, clip=1, engine=engine)


def test_hypersparse_matrices_and_pending_work():
    X, expected = gb.Matrix.from_dense(CASE.X.astype("f4")), gbdnn.infer(NET, CASE.X)
    hypersparse = gb.Matrix.ss.import_hypercsr(**X.ss.export("hypercsr"))
    X[0, 0] = 0.5
    del X[0, 0]
    assert CASE.X[0, 0] == 0
    for given in (hypersparse, X):
        assert gbdnn.infer(NET, given).isequal(expected)


@pytest.mark.parametrize("engine", ["auto", "sparse", "full", "fused"])
def test_features_of_a_store_that_do_not_fit_the_dtype(engine, tmp_path):
    gbdnn.io.write_features(np.full((3, 24), 1e300), tmp_path / "large")
    with pytest.raises(errors.ArgumentError, match=r"1e\+300 in row .* does not fit into float32"):
        gbdnn.infer(NET, gbdnn.io.read_features(tmp_path / "large"), engine=engine)


@pytest.mark.parametrize("engine", ["auto", "sparse", "full", "fused"])
def test_stored_zeros_are_no_entries(engine, monkeypatch):
    monkeypatch.setattr(sources, "_COPIED", 0)  # as a large matrix
    X = gb.Matrix.from_coo([0, 0, 1], [0, 1, 0], np.array([2, 0, 0], "f4"), nrows=40, ncols=2)
    layer = gbdnn.Layer(np.eye(2, dtype="f4"), 0.5, bias_rule="entries")
    Y = gbdnn.infer([layer], X, engine=engine)
    assert [each.tolist() for each in Y.to_coo()] == [[0], [0], [2.5]]


@pytest.mark.parametrize("engine", ["sparse", "full", "fused"])
def test_sums_of_larger_features_are_checked(engine):
    """Those of the first call with this network need no checks; a clip hides the overflow."""
    net = gbdnn.Network([gbdnn.Layer(1e37 * np.eye(2, dtype="f4"), clip=1.0)])
    X = sp.eye_array(2, dtype="f4", format="csr")
    assert gbdnn.infer(net, X, engine=engine, deduplicate=True).nvals == 2
    with pytest.raises(errors.NonFiniteError, match="layer 0"):
        gbdnn.infer(net, 90 * X, engine=engine, deduplicate=True)
