"""Copies between feature arrays and blocks, for the squares of each width of registers."""

import numpy as np
import pytest
from built import SHAPES as LINES
from built import kernels

from gbdnn.kernels.blocks import AlignedBlock

CASES = [(dtype, lines) for dtype in ("float32", "float64") for lines in LINES]


@pytest.fixture(params=CASES, ids=str)
def copies(request):
    """The compiled copies, and their dtype."""
    return kernels(*request.param), np.dtype(request.param[0])


SHAPES = [(1, 1), (3, 40), (4, 5), (8, 9), (9, 7), (16, 16), (17, 33), (33, 10), (40, 1024)]


def numbers(shape, dtype):
    random = np.random.default_rng(sum(shape))
    return (random.normal(size=shape) * (random.random(shape) < 0.6)).astype(dtype)


def read(functions, X, *, ids=None, positions=None):
    """Return the block, with its padding, and the largest magnitude."""
    count, nrows = X.shape if ids is None else (len(ids), X.shape[1])
    Y = AlignedBlock(nrows, count, X.dtype)
    Y._memory[:] = np.nan
    strides = [each // X.itemsize for each in X.strides]
    bits = functions.from_dense(X, *strides, ids, count, positions, Y.whole, Y.stride, nrows)
    return Y, np.array([bits]).astype(f"u{X.itemsize}").view(X.dtype)[0]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_inputs_become_columns_of_the_block(copies, shape):
    functions, dtype = copies
    X = numbers(shape, dtype)
    for given in (X, np.asfortranarray(X)):
        Y, largest = read(functions, given)
        np.testing.assert_array_equal(Y.array, X.T)
        assert largest == np.abs(X).max()
        lanes = 64 // dtype.itemsize
        whole = -(-len(X) // lanes) * lanes
        assert not Y._memory[:, len(X) : whole].any()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_chosen_inputs_and_reordered_neurons(copies, shape):
    functions, dtype = copies
    random = np.random.default_rng(1)
    X = numbers((50, shape[1]), dtype)
    ids, positions = random.permutation(50)[: shape[0]], random.permutation(shape[1])
    expected = np.empty(shape[::-1], dtype)
    expected[positions] = X[ids].T
    for given in (X, np.asfortranarray(X)):
        np.testing.assert_array_equal(read(functions, given, ids=ids)[0].array, X[ids].T)
        Y, _ = read(functions, given, ids=ids, positions=positions)
        np.testing.assert_array_equal(Y.array, expected)


@pytest.mark.parametrize("value", [np.nan, -np.inf, -1e30], ids=str)
@pytest.mark.parametrize("shape", [(3, 3), (20, 20)], ids=str)
def test_the_largest_magnitude_is_found_anywhere(copies, shape, value):
    functions, dtype = copies
    for place in ((0, 0), (shape[0] - 1, 1), (1, shape[1] - 1)):
        X = np.ones(shape, dtype)
        X[place] = value
        assert str(read(functions, X)[1]) == str(abs(dtype.type(value)))


@pytest.mark.parametrize("shape", [*SHAPES, (3, 2200), (20, 2200)], ids=str)
def test_columns_of_the_block_become_rows(copies, shape):
    """2,200 neurons: more nonzero values than the bytes of a word of 64 bits count."""
    functions, dtype = copies
    X = numbers(shape, dtype)
    if shape[1] == 2200:
        X[:] = 1
    Y, _ = read(functions, X)
    ids = np.random.default_rng(2).permutation(shape[0] + 3)[: shape[0]]
    for has_marks in (False, True):
        found = np.full((shape[0] + 3, shape[1]), 7, dtype)
        present = np.full(found.shape, 7, np.uint8)
        marks = present if has_marks else None
        sizes = shape[1], ids, shape[0]
        entries = functions.to_dense(Y.whole, Y.stride, *sizes, found, shape[1], marks)
        np.testing.assert_array_equal(found[ids], X)
        others = np.setdiff1d(np.arange(len(found)), ids)
        assert (found[others] == 7).all()
        assert (present[others] == 7).all()
        if has_marks:
            np.testing.assert_array_equal(present[ids], X != 0)
            assert entries == np.count_nonzero(X)
        else:
            assert entries == 0
            assert (present == 7).all()
