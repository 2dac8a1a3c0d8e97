"""Products with dense weights, for the tiles of each width of registers."""

import numpy as np
import pytest
from built import SHAPES, kernels

import gbdnn
from gbdnn.kernels import dense_product


@pytest.fixture(params=SHAPES)
def multiply(request, monkeypatch):
    """The product with the tiles of one shape."""
    monkeypatch.setattr(dense_product, "functions", lambda of: kernels(of.name, request.param))
    return dense_product.multiply


def test_an_overflow_is_found_in_every_place(multiply):
    layer = gbdnn.Layer(np.full((3, 70), 2, "f4"))
    for row in range(13):
        Y, Z = np.ones((13, 3), "f4"), np.empty((13, 70), "f4")
        result = dense_product.target(Z, np.zeros(70, "f4"), 0, 1)
        assert multiply(layer, Y, result, 2)
        Y[row] = 3e38
        assert not multiply(layer, Y, result, 2)
    for column in range(70):
        start = np.where(np.arange(70) == column, np.inf, 0).astype("f4")
        assert not multiply(layer, np.ones((1, 3), "f4"), dense_product.target(Z, start, 0, 1), 1)
