"""The GraphBLAS calls that the sparse kernel issues for each kind of layer."""

import re

import graphblas as gb
import numpy as np
import pytest

import gbdnn

W = gb.Matrix.from_dense(np.float32([[1, 2, 0], [0, -1, 0.5], [0.25, 0, 1]]), missing_value=0)
X = gb.Matrix.from_dense(np.float32([[1, 0, 2], [0, 3, 0]]), missing_value=0)

COMPUTES = re.compile(r"Gr?x?B_.*(mxm|mxv|vxm|select|apply|eWise|assign|extract|reduce|kronecker)")

PRODUCT = "GrB_mxm(Z, NULL, NULL, GrB_PLUS_TIMES_SEMIRING_FP32, M, M, NULL);"
DIAGONAL = "GrB_mxm(Z, NULL, NULL, GxB_ANY_PLUS_FP32, Z, D, NULL);"
FILL = [
    "GrB_Vector_assign_FP32(ones, NULL, NULL, 1.0, GrB_ALL, 2, NULL);",
    "GrB_mxm(B, NULL, NULL, GxB_ANY_SECOND_FP32, (GrB_Matrix)ones, (GrB_Matrix)b, GrB_DESC_T1);",
    "GrB_Matrix_eWiseAdd_BinaryOp(Z, NULL, NULL, GrB_FIRST_FP32, Z, B, NULL);",
]


def select(operator, value):
    return f"GrB_Matrix_select_FP32(Z, NULL, NULL, GrB_{operator}_FP32, Z, {value}, NULL);"


def apply(operator, value):
    operands = f"GrB_{operator}_FP32, Z, {value}, NULL"
    return f"GrB_Matrix_apply_BinaryOp2nd_FP32(Z, NULL, NULL, {operands});"


CASES = {
    "challenge": (
        {"bias": -0.25, "bias_rule": "entries", "clip": 32},
        [PRODUCT, select("VALUEGT", 0.25), apply("PLUS", -0.25), apply("MIN", 32.0)],
    ),
    "a bias per neuron, one of them positive": (
        {"bias": [0.25, -1, 0]},
        [PRODUCT, DIAGONAL, *FILL, select("VALUEGT", 0.0)],
    ),
    "identity with a bias on entries": (
        {"activation": "identity", "bias": -0.5, "bias_rule": "entries", "clip": 3},
        [PRODUCT, apply("PLUS", -0.5), select("VALUENE", 0.0), apply("MIN", 3.0)],
    ),
}


def computed(net):
    """Return what a run of the sparse engine computes in GraphBLAS, matrices without numbers."""
    gbdnn.infer(net, X, engine="sparse")  # what GraphBLAS is asked once in a process
    with gb.Recorder() as recorder:
        gbdnn.infer(net, X, engine="sparse")
    calls = [re.sub(r"\bM_\d+", "M", str(call)) for call in recorder.data]
    return [call for call in calls if COMPUTES.match(call)]


@pytest.mark.parametrize(("options", "expected"), CASES.values(), ids=CASES.keys())
def test_calls_of_a_layer(options, expected):
    assert computed(gbdnn.Network([gbdnn.Layer(W, **options)])) == expected


def test_calls_of_two_layers():
    layer = gbdnn.Layer(W, -0.25, bias_rule="entries", clip=32)
    once = [PRODUCT, select("VALUEGT", 0.25), apply("PLUS", -0.25), apply("MIN", 32.0)]
    again = [PRODUCT.replace("M, M", "Z, M"), *once[1:]]
    assert computed(gbdnn.Network([layer, layer])) == once + again


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
