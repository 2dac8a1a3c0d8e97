import gc
import weakref

import graphblas as gb
import numpy as np
import pytest
import scipy.sparse as sp
from calls import raises

import gbdnn
from gbdnn import errors
from gbdnn.arrays import answer


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint64])
@pytest.mark.parametrize("make", [np.array, gb.Matrix.from_dense, sp.csr_array])
def test_argmax_tells_large_integers_apart(make, dtype):
    A = np.array([[16777216, 16777217], [2**31 - 1, 2**31 - 2]], dtype)
    assert gbdnn.argmax(make(A)).tolist() == [1, 0]
    assert gbdnn.categories(make(A)).tolist() == [0, 1]


@pytest.mark.parametrize("dtype", [bool, np.float16, ">f8"])
def test_argmax_of_other_dtypes(dtype):
    assert gbdnn.argmax(np.array([[0, 1, 1], [0, 0, 0]], dtype)).tolist() == [1, 0]


@pytest.mark.parametrize("kind", ["full", "bitmap"])
def test_argmax_of_dense_matrices(kind):
    """What is not stored counts as 0, whatever its memory holds."""
    random = np.random.default_rng(0)
    A = random.normal(-0.5, 1, (50, 7)).astype("f4")
    present = np.ones(A.shape, bool) if kind == "full" else random.random(A.shape) < 0.7
    Y = gb.Matrix.ss.import_bitmapr(values=A.copy(), bitmap=present.copy())
    best = np.argmax(np.where(present, A, 0), axis=1)
    assert len(set(best)) > 4
    assert gbdnn.argmax(Y).tolist() == best.tolist()
    Y[3, 2] = np.nan
    raises(errors.ArgumentError, "Y: contains nan", gbdnn.argmax, Y)


@pytest.mark.parametrize(
    "features", [np.eye(4), sp.eye_array(4, format="csr")], ids=["dense", "sparse"]
)
def test_an_answer_is_freed_with_its_last_reference(features):
    """`ss` is such a reference. python-graphblas alone leaves it to the garbage collection."""
    gc.disable()
    try:
        Y = gbdnn.infer([np.eye(4)], features)
        gone, ss = weakref.ref(Y), Y.ss
        del Y
        assert ss.export("csr")["indptr"][-1] == 4
        del ss
        assert gone() is None
    finally:
        gc.enable()


def test_argmax_of_rows_without_entries():
    """They are class 0, or what the caller says; rows of negative values are not dead."""
    Y = np.array([[0.0, 2], [0, 0], [-1, -2], [3, 0]])
    held = gb.Matrix.from_dense(Y)
    for each in (Y, sp.csr_array(Y), held, gb.Matrix.from_dense(Y, missing_value=0)):
        np.testing.assert_array_equal(gbdnn.argmax(each), [1, 0, 0, 0])
        np.testing.assert_array_equal(gbdnn.argmax(each, dead=-1), [1, -1, 0, 0])
    hyper = gb.Matrix.from_coo([3, 10**6], [1, 0], [1.0, 2], nrows=2 * 10**6, ncols=3)
    np.testing.assert_array_equal(gbdnn.argmax(hyper, dead=7)[[0, 3, 10**6]], [7, 1, 0])
    raises(errors.ArgumentError, "dead must be at least -1", gbdnn.argmax, Y, dead=-2)


def test_sparse_rows_are_copied_several_times_before_the_answer_is_complete(monkeypatch):
    """To maps, whose memory returns to the system at once."""
    made, mapped = [], answer._mapped
    monkeypatch.setattr(answer, "_LEAST", 1000)
    monkeypatch.setattr(answer, "_mapped", lambda *given: made.append(given) or mapped(*given))
    X = sp.eye_array(50, format="csr")[np.arange(2000) % 50]
    Y = gbdnn.infer([np.eye(50)], X, engine="sparse", memory=60_000, nthreads=1)
    assert np.array_equal(Y.to_dense(fill_value=0), X.toarray())
    assert len(made) > 9


def test_one_input_may_be_a_vector():
    W = np.array([[0.0, 2.0], [1.0, -1.0]])
    x = gb.Vector.from_coo([0], [3.0], size=2)
    for one in (x, x[:]):
        y = gbdnn.infer([W], one)
        assert isinstance(y, gb.Vector)
        np.testing.assert_array_equal(y.to_dense(fill_value=0), [0, 6])
    assert gbdnn.argmax(y).tolist() == gbdnn.argmax(np.array([0.0, 6.0])).tolist() == [1]
    assert gbdnn.categories(y).tolist() == [0]
    assert isinstance(gbdnn.infer([W], [x, x]), gb.Matrix)
