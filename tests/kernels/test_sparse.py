"""What only the sparse kernel does: it selects before it adds a bias to entries."""

import numpy as np
import pytest

import gbdnn


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_select_before_the_bias_agrees_at_the_limit(dtype):
    """Values next to -b, and bias and sum that are denormal numbers."""
    tiny = np.finfo(dtype).smallest_subnormal
    for b in (dtype(-0.3), dtype(0.3), -tiny, dtype(-1e-30)):
        x = np.array([-b, np.nextafter(-b, dtype(1)), np.nextafter(-b, dtype(-1))], dtype)
        net = gbdnn.Network([gbdnn.Layer(np.eye(3, dtype=dtype), b, bias_rule="entries")])
        Y = gbdnn.infer(net, x[np.newaxis], engine="sparse")
        expected = np.where(x == 0, 0, np.maximum(x + b, 0))
        np.testing.assert_array_equal(Y.to_dense(fill_value=0)[0], expected)
        assert Y.nvals == 1
