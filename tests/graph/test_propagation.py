import graphblas as gb
import numpy as np
import pytest
import scipy.sparse as sp
from calls import raises

from gbdnn import errors, graph
from gbdnn.graph import features


@pytest.fixture(params=["fused", "graphblas"])
def engine(request):
    return request.param


def test_a_stored_zero_and_a_missing_one_are_the_same():
    A = np.array([[0.0, 1, 1], [0, 0, 1], [0, 0, 0]])
    X = np.array([[3.0], [0], [-2]])
    sparse = gb.Matrix.from_coo([0, 2], [0, 0], [3.0, -2.0], nrows=3, ncols=1)
    assert graph.propagate(A, X, aggregate="max").tolist() == [[0], [-2], [0]]
    Y = graph.propagate(A, sparse, aggregate="max")
    assert Y.to_dense(fill_value=0).tolist() == [[0], [-2], [0]]
    assert Y.nvals == 1


@pytest.mark.parametrize("dtypes", [("f4", "f4"), ("f8", "f4"), ("f4", "f8"), ("i2", "f4")])
@pytest.mark.parametrize("nthreads", [1, 3, 8])
def test_a_sparse_times_a_dense_matrix(engine, nthreads, dtypes):
    rng = np.random.default_rng(nthreads)
    A = (rng.random((70, 40)) < 0.2) * rng.integers(-9, 9, (70, 40)).astype(dtypes[0])
    Y = rng.normal(size=(40, 5)).astype(dtypes[1])
    held = gb.Matrix.from_dense(A, missing_value=0)
    for left in (A, sp.csc_array(A), held, held.T.new().T):
        found = graph.spmm(left, Y, engine=engine, nthreads=nthreads)
        assert found.dtype == (np.float64 if "f8" in dtypes else np.float32)
        np.testing.assert_allclose(found, A.astype(float) @ Y, atol=1e-4)
    for right in (sp.csr_array(Y), gb.Matrix.from_dense(Y)):
        Z = graph.spmm(held, right, engine=engine, nthreads=nthreads)
        np.testing.assert_array_equal(Z.to_dense(fill_value=0), found)
    assert graph.propagate(A[:40], Y, engine=engine).dtype == found.dtype


def test_errors_of_a_product(engine):
    A = np.ones((3, 2))
    for Y in (np.ones((3, 2)), gb.Matrix.from_dense(np.ones((3, 2)))):
        raises(errors.ShapeError, "A is 3 x 2 but Y is 3 x 2", graph.spmm, A, Y)
    raises(errors.ShapeError, "Y must have two dimensions", graph.spmm, A, np.ones(2))
    raises(errors.ArgumentError, "Y: features: contains nan", graph.spmm, A, A[:2, :1] * np.nan)
    A, Y = A.astype("f4"), np.full((2, 1), 3e38, "f4")
    raises(errors.NonFiniteError, "A Y overflows float32", graph.spmm, A, Y, engine=engine)
    assert graph.spmm(np.ones((0, 2)), np.ones((2, 3)), engine=engine).shape == (0, 3)


@pytest.mark.parametrize("all_hops", [False, True])
def test_no_hops_are_a_copy(all_hops):
    X = np.arange(6.0).reshape(3, 2)
    found = graph.propagate(np.eye(3), X, hops=0, all_hops=all_hops)
    np.testing.assert_array_equal(found, X)
    assert not np.may_share_memory(found, X)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (1, 2)])
def test_nothing(shape, engine):
    X = np.ones(shape)
    A = gb.Matrix(float, shape[0], shape[0])
    found = graph.propagate(A, X, hops=2, all_hops=True, engine=engine)
    assert found.shape == (shape[0], 3 * shape[1])
    assert not found[:, shape[1] :].any()


def test_errors(engine, monkeypatch):
    X, A = np.ones((3, 2)), np.eye(3)
    monkeypatch.setattr(features, "_AT_ONCE", 2)
    raises(errors.ShapeError, "A must be square, not 3 x 2", graph.propagate, X, X)
    with pytest.raises(errors.ShapeError, match="the features are 2 x 3 but A, 3 x 3, has 3 nodes"):
        graph.propagate(A, X.T)
    for bad in (np.nan, np.inf):
        for k in (0, -2):
            with pytest.raises(errors.ArgumentError, match="features: contains"):
                graph.propagate(A, np.where(np.eye(3, 2, k) > 0, bad, 1))
        with pytest.raises(errors.ArgumentError, match="A: contains"):
            graph.propagate(np.diag([1, bad, 1]), X, engine=engine)
    with pytest.raises(errors.NonFiniteError, match="hop 2: A Y overflows float32"):
        graph.propagate((A * 1e30).astype("f4"), X.astype("f4"), hops=3, engine=engine)


def test_a_vector_is_one_feature():
    A = np.eye(4, k=-1)
    v = gb.Vector.from_coo([0, 2], [5.0, 7.0], size=4)
    S = graph.propagate(A, v)
    assert isinstance(S, gb.Vector)
    np.testing.assert_array_equal(S.to_dense(fill_value=0), [0, 5, 0, 7])
    assert graph.propagate(A, v, all_hops=True).shape == (4, 2)
    Y = graph.infer([np.array([[2.0, 1.0]])], v, A)
    np.testing.assert_array_equal(Y.to_dense(fill_value=0)[:, 0], [0, 10, 0, 14])
    for few in (v[:3], v[:3].new()):
        raises(errors.ShapeError, "features are 3 x 1 but A, 4 x 4", graph.propagate, A, few)
