import os
from pathlib import Path

import numpy as np
import pytest

import gbdnn


@pytest.fixture(scope="session")
def data():
    """The folder with official data: its `graphchallenge/` and `mnist/`."""
    folder = os.environ.get("GBDNN_DATA")
    if not folder:
        pytest.skip("GBDNN_DATA is not set: official data are needed")
    return Path(folder)


@pytest.fixture(scope="session")
def official(data):
    """The official challenge files."""
    return data / "graphchallenge"


def network(layers, dtype="FP32"):
    """The oracle's layers as a Network."""
    return gbdnn.Network(
        [
            gbdnn.Layer(
                layer.W,
                layer.b,
                bias_rule=layer.rule,
                activation=layer.activation,
                clip=layer.clip,
                dtype=dtype,
            )
            for layer in layers
        ]
    )


def assert_answer(Y, case, dtype="FP32"):
    """Y has the case's values and pattern: exactly, or but for what rounding can turn."""
    assert Y.shape == case.Y.shape
    assert Y.dtype == dtype
    rows, columns, values = Y.to_coo()
    assert not (values == 0).any(), "a zero is stored"
    got = np.zeros(case.Y.shape)
    got[rows, columns] = values
    if case.exact:
        np.testing.assert_array_equal(got, case.Y)
    else:
        tolerance = 1e-5 if dtype == "FP32" else 1e-12
        np.testing.assert_allclose(got, case.Y, rtol=tolerance, atol=tolerance)
        sure = np.abs(case.Y) > tolerance
        np.testing.assert_array_equal((got != 0)[sure], True)
