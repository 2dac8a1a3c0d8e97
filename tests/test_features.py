"""Features that are read where they are: checked like others, and never changed."""

import graphblas as gb
import numpy as np
import pytest
from conftest import network
from oracles import case

import gbdnn

CASE = case(2, inputs=50)
NET = network(CASE.layers)


def stored(dense, dtype="FP32"):
    """Every place stored, the zeros too."""
    rows, columns = np.indices(dense.shape).reshape(2, -1)
    return gb.Matrix.from_coo(
        rows, columns, dense.reshape(-1), dtype=dtype, nrows=dense.shape[0], ncols=dense.shape[1]
    )


@pytest.mark.parametrize("engine", ["sparse", "full", "fused"])
def test_stored_zeros_are_ignored(engine):
    """Under the rule `entries` a stored zero would be an entry, and get a positive bias."""
    X = stored(CASE.X)
    assert X.nvals > np.count_nonzero(CASE.X)
    layers = [gbdnn.Layer(np.eye(24, dtype="f4"), 0.5, bias_rule="entries")]
    net = gbdnn.Network(layers)
    assert X.ss.format == "fullr"
    before = X.dup()
    Y = gbdnn.infer(net, X, engine=engine)
    np.testing.assert_array_equal(
        Y.to_dense(fill_value=0), np.where(CASE.X, np.maximum(CASE.X + 0.5, 0), 0)
    )
    assert X.isequal(before)
    assert X.nvals == before.nvals


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_before_anything_runs(bad):
    dense = CASE.X.copy()
    dense[37, 3] = bad
    told = []
    with pytest.raises(gbdnn.ArgumentError, match=f"features: contains {bad}"):
        gbdnn.infer(NET, stored(dense), callback=told.append)
    assert told == []


def test_finite_values_whose_sum_is_not():
    """The sum only finds what to look at."""
    big = np.full((30, 2), 3e38, "f4")
    Y = gbdnn.infer([np.eye(2, dtype="f4") / 4], stored(big))
    np.testing.assert_array_equal(Y.to_dense(), big / 4)


@pytest.mark.parametrize("form", ["by_col", "by_row", "hypercsr", "iso", "pending", "transposed"])
def test_however_the_matrix_is_held(form):
    X = gb.Matrix.from_dense(CASE.X.astype("f4"), missing_value=0)
    expected = gbdnn.infer(NET, CASE.X)
    if form == "by_col":
        X = gb.Matrix.ss.import_csc(**X.ss.export("csc"))
    elif form == "hypercsr":
        X = gb.Matrix.ss.import_hypercsr(**X.ss.export("hypercsr"))
    elif form == "transposed":
        X = X.T.new().T
    elif form == "pending":
        X[0, 0] = 0.5
        del X[0, 0]
        dense = CASE.X.copy()
        dense[0, 0] = 0
        expected = gbdnn.infer(NET, dense)
    elif form == "iso":
        X = gb.Matrix.from_coo(*np.nonzero(CASE.X), np.float32(1), nrows=50, ncols=24)
        expected = gbdnn.infer(NET, (CASE.X != 0).astype(float))
    assert gbdnn.infer(NET, X).isequal(expected)
