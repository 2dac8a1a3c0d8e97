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


@pytest.mark.parametrize(
    ("x", "w", "b"),
    [
        ([3e38, 3e38], [1, 1], -0.5),  # the product is inf
        ([3e38, 3e38], [-1, -1], -0.5),  # it is -inf, which the select would drop
        ([3e38, 3e38, 3e38, 3e38], [2, 2, -2, -2], -0.5),  # or NaN
        ([3e38], [1], 3e38),  # the addition overflows
        ([3e38], [-1], -3e38),  # of a value that the select would drop
    ],
)
def test_overflow_is_an_error_even_where_the_relu_would_drop_it(x, w, b):
    weights = np.float32(w)[:, np.newaxis]
    layer = gbdnn.Layer(weights, b, bias_rule="entries")
    with pytest.raises(gbdnn.errors.NonFiniteError, match="layer 0"):
        gbdnn.infer(gbdnn.Network([layer]), np.float32([x]), engine="sparse")
