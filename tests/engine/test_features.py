"""Features that are read where they are: checked like others, and never changed."""

import itertools
import re
from concurrent.futures import ThreadPoolExecutor

import graphblas as gb
import numpy as np
import pytest
import scipy.sparse as sp
from conftest import network
from oracles import case

import gbdnn
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.engine.sources import as_source, bytes_copied

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


class OwnFeatures:
    """Features of a caller's own: FP32 rows, and no word about their dtype."""

    def __init__(self, X, fault=None):
        self.X, self.fault = np.ascontiguousarray(X, "f4"), fault
        self.nrows, self.ncols = X.shape
        self.nvals, self.largest = int(np.count_nonzero(X)), float(np.abs(X).max())
        if fault is not None:
            fault(self)

    def sparse_rows(self, start, stop):
        X = self.X[start:stop]
        rows, columns = np.nonzero(X)
        indptr = np.searchsorted(rows, np.arange(len(X) + 1)).astype(np.uint64)
        return SparseRows(indptr, columns.astype(np.uint64), X[rows, columns], self.ncols)


class OwnArrays(OwnFeatures):
    """The same, which can be had as arrays."""

    def dense_rows(self, start, stop):
        return self.X[start:stop]


def calls(net, X, engine):
    """The calls that take features: at once, by threads, as a part of a run."""
    yield lambda: gbdnn.infer(net, X, engine=engine, nthreads=2)
    yield lambda: gbdnn.infer(net, X, engine=engine, callback=lambda _: None)
    yield lambda: next(gbdnn.infer_batches(net, [X], engine=engine))
    with ThreadPoolExecutor(2) as pool:
        yield lambda: gbdnn.infer(net, X, engine=engine, executor=pool, batch=7)
        yield lambda: next(gbdnn.infer_batches(net, [X], engine=engine, executor=pool))


@pytest.mark.parametrize("engine", ["auto", "sparse", "full", "fused"])
@pytest.mark.parametrize("kind", [OwnFeatures, OwnArrays])
@pytest.mark.parametrize("dtype", ["FP32", "FP64"])
@pytest.mark.parametrize("inputs", [3, 50])
def test_features_of_a_callers_own_are_cast(engine, kind, dtype, inputs):
    """None == np.dtype("float64"), says NumPy."""
    X = kind(CASE.X[:inputs])
    net = NET.astype(dtype)
    expected = gbdnn.infer(net, CASE.X[:inputs], engine=engine)
    assert expected.nvals
    for call in calls(net, X, engine):
        assert call().isequal(expected, check_dtype=True)


def rows_with(**changes):
    """A fault: some of the arrays are others, in rows that have an entry."""

    def fault(features):
        plain = features.sparse_rows

        def sparse_rows(start, stop):
            rows = plain(start, stop)
            if rows.nvals < 2:
                return rows
            for name, change in changes.items():
                setattr(rows, name, change(getattr(rows, name)))
            return rows

        features.sparse_rows = sparse_rows

    return fault


def at(where, value):
    def change(array):
        array = array.copy()
        array[where] = value
        return array

    return change


def same_twice(columns):
    columns = columns.copy()
    columns[1] = columns[0]
    return columns


FAULTS = {
    "a column beyond": rows_with(columns=at(-1, 24)),
    "a column far beyond": rows_with(columns=at(-1, 10**9)),
    "a negative column": rows_with(columns=lambda x: at(0, -1)(x.astype(np.int64))),
    "columns that fall": rows_with(columns=lambda x: x[::-1]),
    "a column twice": rows_with(columns=same_twice),
    "columns that are no integers": rows_with(columns=lambda x: x.astype("f8")),
    "a matrix of columns": rows_with(columns=lambda x: x.reshape(1, -1)),
    "pointers beyond": rows_with(indptr=at(-1, 10**9)),
    "pointers that fall": rows_with(indptr=at(1, 10**9)),
    "pointers from 1": rows_with(indptr=lambda x: x + np.uint64(1)),
    "a row too few": rows_with(indptr=lambda x: x[np.r_[0, 2 : len(x)]]),
    "a row too many": rows_with(indptr=lambda x: np.r_[x, x[-1:]]),
    "no pointers": rows_with(indptr=lambda x: x[:0]),
    "too few values": rows_with(values=lambda x: x[:-1]),
    "too many values": rows_with(values=lambda x: np.r_[x, x]),
    "NaN": rows_with(values=at(0, np.nan)),
    "infinity": rows_with(values=at(0, -np.inf)),
    "complex values": rows_with(values=lambda x: x * 1j),
    "another width": rows_with(ncols=lambda n: n + 1),
    "a list": rows_with(values=list),
    "a value larger than the largest": lambda X: setattr(X, "largest", X.largest / 2),
    "no largest": lambda X: delattr(X, "largest"),
    "a largest of NaN": lambda X: setattr(X, "largest", float("nan")),
    "a negative number of rows": lambda X: setattr(X, "nrows", -1),
    "no number of entries": lambda X: setattr(X, "nvals", None),
    "no rows at all": lambda X: setattr(X, "sparse_rows", lambda *_: np.eye(3)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_features_of_a_callers_own_return_is_checked(fault):
    """Before GraphBLAS and compiled code believe it."""
    ways = [("auto", 3), ("sparse", 50), ("full", 50), ("fused", 50)]
    for kind, (engine, count) in itertools.product([OwnFeatures, OwnArrays], ways):
        X = kind(CASE.X[:count], FAULTS[fault])
        if kind is OwnArrays:
            X.dense_rows = lambda start, stop, X=X: X.sparse_rows(start, stop)
        for call in calls(NET, X, engine):
            with pytest.raises(gbdnn.GbdnnError, match="features: "):
                call()


@pytest.mark.parametrize(
    "fault",
    [lambda x: x[:-1], lambda x: x[:, :-1], lambda x: x.reshape(-1), list, lambda x: x * np.nan,
     lambda x: x * 1j],
)  # fmt: skip
def test_arrays_of_a_callers_own_are_checked(fault):
    X = OwnArrays(CASE.X)
    X.dense_rows = lambda start, stop: fault(X.X[start:stop])
    for engine in ("full", "fused"):
        with pytest.raises(gbdnn.GbdnnError, match="features: "):
            gbdnn.infer(NET, X, engine=engine, callback=lambda _: None)


@pytest.mark.parametrize(
    "change",
    [np.asfortranarray, lambda x: x.astype("f8"), lambda x: x.astype(">f4"),
     lambda x: np.repeat(x, 2, axis=1)[:, ::2], lambda x: x.astype("i4")],
)  # fmt: skip
def test_arrays_of_a_callers_own_are_cast(change):
    X = OwnArrays(CASE.X)
    X.dense_rows = lambda start, stop: change(X.X[start:stop])
    expected = change(X.X).astype("f4")
    for engine in ("full", "fused"):
        Y = gbdnn.infer(NET, X, engine=engine, callback=lambda _: None)
        assert (
            Y.to_dense(fill_value=0).tolist()
            == gbdnn.infer(NET, expected, engine=engine).to_dense(fill_value=0).tolist()
        )


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
        held, held_too, held.T.new().T, *(kind(D) for kind in (sp.csr_array, sp.csr_matrix)),
        *(kind(D) for kind in (sp.csc_array, sp.coo_array, sp.lil_array)),
    ]  # fmt: skip
    for X, engine in itertools.product(given, ["auto", "sparse", "full", "fused"]):
        Y = gbdnn.infer([W] * 2, X, engine=engine, dtype=own, callback=lambda _: None)
        np.testing.assert_array_equal(Y.to_dense(fill_value=0), expected)
    iso_expected = np.maximum(np.maximum((D != 0) @ W.astype("f8"), 0) @ W, 0)
    for engine in ("sparse", "full", "fused"):
        Y = gbdnn.infer([W] * 2, iso, engine=engine, dtype=own, callback=lambda _: None)
        np.testing.assert_array_equal(Y.to_dense(fill_value=0), iso_expected)


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csr_matrix])
def test_rows_of_scipys_are_read_where_they_are(kind):
    """No copy is made of them, and they are not changed."""
    A = kind(np.eye(500, dtype="f4"))
    X = as_source(A, gbdnn.Network([gbdnn.Layer(sp.eye_array(500, dtype="f4"))]))
    assert bytes_copied(X, A) == 0
    assert not isinstance(X, SparseRows)
    flags = dict(vars(A))
    assert gbdnn.infer([sp.eye_array(500, dtype="f4")], A).nvals == 500
    assert set(vars(A)) == set(flags)
    np.testing.assert_array_equal(A.indices, np.arange(500))


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


@pytest.mark.parametrize("engine", ["auto", "sparse", "full", "fused"])
def test_memory_counts_what_is_converted(engine):
    """Columns become rows; where there is no room for them, the error says how much it takes."""
    A = sp.random_array((4000, 400), density=0.2, format="csc", rng=np.random.default_rng(0))
    net = gbdnn.Network([gbdnn.Layer(sp.eye_array(400))] * 2)
    copied = A.nnz * 16
    with pytest.raises(gbdnn.ArgumentError, match=r"memory=\d+ at least, \d+ of it for") as told:
        gbdnn.infer(net, A, engine=engine, memory=copied, callback=lambda _: None)
    least = int(re.search(r"memory=(\d+) at least", str(told.value))[1])
    assert least > copied
    Y = gbdnn.infer(net, A, engine=engine, memory=least, callback=lambda _: None)
    assert Y.nvals == A.nnz
    assert gbdnn.infer(net, A.tocsr(), engine=engine, memory=least - copied).nvals == A.nnz
