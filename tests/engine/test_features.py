"""Features that are read where they are: checked like others, and never changed."""

import itertools

import graphblas as gb
import numpy as np
import pytest
import scipy.sparse as sp
from conftest import network
from oracles import case

import gbdnn
from gbdnn import errors

CASE = case(2, inputs=50)
NET = network(CASE.layers)


def stored(dense, dtype="FP32"):
    """Every place stored, the zeros too."""
    rows, columns = np.indices(dense.shape).reshape(2, -1)
    return gb.Matrix.from_coo(
        rows, columns, dense.reshape(-1), dtype=dtype, nrows=dense.shape[0], ncols=dense.shape[1]
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_before_anything_runs(bad):
    dense = CASE.X.copy()
    dense[37, 3] = bad
    told = []
    with pytest.raises(errors.ArgumentError, match=f"features: contains {bad}"):
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


DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("own", ["FP32", pytest.param("FP64", marks=pytest.mark.slow)])
def test_rows_of_any_dtype(dtype, own):
    """Read where they are, or converted: the same values."""
    random = np.random.default_rng(5)
    low = 0 if dtype[0] in "?u" else -3
    D = ((random.random((70, 90)) < 0.04) * random.integers(low, 4, (70, 90))).astype(dtype)
    W = random.integers(-2, 3, (90, 90))
    expected = np.maximum(np.maximum(D.astype("f8") @ W, 0) @ W, 0)
    assert 0.1 < (expected > 0).mean() < 0.9
    rows, columns = np.nonzero(D)
    held = gb.Matrix.from_coo(rows, columns, D[rows, columns], nrows=70, ncols=90)
    held_too = held.dup()
    held_too.ss.config["format"] = "by_col"
    iso = gb.Matrix.from_coo(rows, columns, D.dtype.type(1), nrows=70, ncols=90)
    given = [
        held, held_too, held.T.new().T, sp.csr_array(D), sp.csr_matrix(D), sp.coo_array(D),
    ]  # fmt: skip
    for X, engine in itertools.product(given, ["sparse", "full", "fused"]):
        Y = gbdnn.infer([W] * 2, X, engine=engine, dtype=own, callback=lambda _: None)
        np.testing.assert_array_equal(Y.to_dense(fill_value=0), expected)
    iso_expected = np.maximum(np.maximum((D != 0) @ W.astype("f8"), 0) @ W, 0)
    for engine in ("sparse", "full", "fused"):
        Y = gbdnn.infer([W] * 2, iso, engine=engine, dtype=own, callback=lambda _: None)
        np.testing.assert_array_equal(Y.to_dense(fill_value=0), iso_expected)


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csr_matrix])
def test_rows_of_scipys_are_not_changed(kind):
    A = kind(np.eye(500, dtype="f4"))
    flags = dict(vars(A))
    assert gbdnn.infer([sp.eye_array(500, dtype="f4")], A).nvals == 500
    assert set(vars(A)) == set(flags)
    np.testing.assert_array_equal(A.indices, np.arange(500))


@pytest.mark.parametrize("engine", ["auto", "sparse", "full", "fused"])
def test_features_of_a_store_are_cast(engine, tmp_path):
    for dtype in ("FP32", "FP64"):
        X = gb.Matrix.from_dense(CASE.X.astype("f4"), missing_value=0, dtype=dtype)
        gbdnn.save(X, tmp_path / dtype)
        for own in ("FP32", "FP64"):
            Y = gbdnn.infer(NET.astype(own), gbdnn.load(tmp_path / dtype), engine=engine)
            expected = gbdnn.infer(NET.astype(own), CASE.X, engine=engine)
            assert Y.isequal(expected, check_dtype=True)
    gbdnn.save(np.full((3, 24), 1e300), tmp_path / "large")
    with pytest.raises(errors.ArgumentError, match=r"1e\+300 in row .* does not fit into float32"):
        gbdnn.infer(NET, gbdnn.load(tmp_path / "large"), engine=engine)


def unsorted():
    A = sp.csr_array(np.array([[1.0, 2.0, 0.0], [0.0, 0.0, 3.0]], "f4"))
    A.indices[:2], A.data[:2] = [1, 0], [2.0, 1.0]
    return A


def repeated():
    return sp.csr_array(
        (np.array([1.0, 1.0, 3.0], "f4"), np.array([0, 0, 2]), np.array([0, 2, 3])), (2, 3)
    )


@pytest.mark.parametrize("made", [unsorted, repeated])
def test_rows_that_are_not_in_order_are_put_in_order(made):
    A = made()
    before = A.indices.copy(), A.data.copy()
    expected = A.toarray()
    for engine in ("auto", "sparse", "full", "fused"):
        Y = gbdnn.infer([np.eye(3, dtype="f4")], A, engine=engine, callback=lambda _: None)
        np.testing.assert_array_equal(Y.to_dense(fill_value=0), expected)
    assert [each.tolist() for each in (A.indices, A.data)] == [x.tolist() for x in before]
