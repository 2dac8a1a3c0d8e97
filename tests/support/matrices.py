"""Matrices as arrays, and compared with arrays."""

import numpy as np


def dense(A):
    return A.to_dense(fill_value=0)


def assert_equal(A, expected):
    np.testing.assert_array_equal(dense(A), expected)


def assert_close(A, expected, **tolerances):
    np.testing.assert_allclose(dense(A), expected, **tolerances)
