"""Networks from and to ONNX, against ONNX's own reference evaluator."""

from functools import partial

import graphblas as gb
import numpy as np
import onnx
import pytest
from calls import raises
from hypothesis import given, settings
from matrices import assert_close, assert_equal
from networks import drawn
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import gbdnn
from gbdnn import errors

FEW = settings(max_examples=25, deadline=None)
RANDOM = np.random.default_rng(7)
X = RANDOM.integers(-8, 17, (20, 5)) / 16
W = RANDOM.integers(-16, 17, (5, 4)) / 16
V = RANDOM.integers(-16, 17, (4, 3)) / 16
b = np.array([0.5, -0.25, 0.0, 1.0])
c = np.array([-0.5, 0.25, 0.125])


def write_model(
    path, nodes, *, dtype=np.float32, opset=17, sparse=(), value_info=(), more=("other", 1), **given
):
    """Write a graph from `x` to `y`; `given` are its initialisers, floats of one type."""
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    arrays = {name: np.asarray(A) for name, A in given.items()}
    arrays = {name: A if A.dtype.kind == "i" else A.astype(dtype) for name, A in arrays.items()}
    graph = helper.make_graph(
        [node if isinstance(node, onnx.NodeProto) else helper.make_node(*node) for node in nodes],
        "test",
        [helper.make_tensor_value_info("x", element, [None, 5]), *value_info],
        [helper.make_tensor_value_info("y", element, [None, None])],
        [numpy_helper.from_array(A, name) for name, A in arrays.items()],
        sparse_initializer=sparse,
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(*more)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return path


@pytest.fixture
def model(tmp_path):
    """Write a model to a file."""
    return partial(write_model, tmp_path / "net.onnx")


def gemm(x, y, W="W", b="b", **options):
    return helper.make_node("Gemm", [x, W, b], [y], **options)


def refused(path, match, error=errors.ArgumentError, **options):
    raises(error, match, gbdnn.load, path, "onnx", **options)


LINEAR = {"W": W, "b": b}

CHAINS = {
    "no bias, and a node that nobody reads": (
        [gemm("x", "y", b=""), ("Relu", ["x"], ["unread"])], {"W": W}, ("identity", None),
    ),
    "transposed": ([gemm("x", "y", transB=1)], {"W": W.T, "b": b}, ("identity", None)),
    "scaled": ([gemm("x", "y", alpha=0.5, beta=-2.0)], LINEAR, ("identity", None)),
    "one number": ([gemm("x", "y")], {"W": W, "b": [0.5]}, ("identity", None)),
    "matmul, add": (
        [("MatMul", ["x", "W"], ["h"]), ("Add", ["h", "b"], ["y"])], LINEAR, ("identity", None),
    ),
    "add, the other way": (
        [("MatMul", ["x", "W"], ["h"]), ("Add", ["b", "h"], ["g"]), ("Relu", ["g"], ["y"])],
        {"W": W, "b": [0.25]}, ("relu", None),
    ),
    "clip from nowhere": (
        [gemm("x", "h"), ("Clip", ["h", "", "high"], ["y"])],
        {**LINEAR, "high": 0.75}, ("identity", 0.75),
    ),
    "relu, clip, clip": (
        [gemm("x", "h"), ("Relu", ["h"], ["g"]), ("Clip", ["g", "", "a"], ["f"]),
         ("Clip", ["f", "low", "high"], ["y"])],
        {**LINEAR, "a": 0.5, "low": 0.0, "high": 1.0}, ("relu", 0.5),
    ),
    "passed over": (
        [("Flatten", ["x"], ["f"]), ("Reshape", ["f", "to"], ["r"]), ("Identity", ["W"], ["W2"]),
         ("Identity", ["r"], ["g"]), gemm("g", "h", "W2"), ("Dropout", ["h"], ["y"])],
        {**LINEAR, "to": np.array([-1, 5])}, ("identity", None),
    ),
    "scaled before and after": (
        [("Mul", ["x", "two"], ["d"]), ("Add", ["d", "shifts"], ["e"]),
         ("Mul", ["each", "e"], ["f"]), gemm("f", "h"), ("Mul", ["h", "two"], ["y"])],
        {**LINEAR, "two": 2.0, "shifts": [0.5, 0, 1, -1, 2], "each": [1.0, 0.5, 2, -1, 4]},
        ("identity", None),
    ),
    "casts of constants": (
        [("CastLike", ["W", "x"], ["W1"]), ("CastLike", ["b", "W"], ["b1"]),
         helper.make_node("Cast", ["high"], ["high1"], to=TensorProto.FLOAT),
         ("CastLike", ["x", "W"], ["g"]), gemm("g", "h", "W1", "b1"),
         ("CastLike", ["high1", "h"], ["high2"]), ("Clip", ["h", "", "high2"], ["y"])],
        {**LINEAR, "high": 0.75}, ("identity", 0.75),
    ),
    "constant nodes": (
        [helper.make_node("Constant", [], ["W"], value=numpy_helper.from_array(W.T.astype("f4"))),
         helper.make_node("Constant", [], ["low"], value_float=0.0),
         helper.make_node("Constant", [], ["high"], value_float=0.5),
         ("Transpose", ["W"], ["Wt"]), ("MatMul", ["x", "Wt"], ["h"]),
         ("Clip", ["h", "low", "high"], ["y"])],
        {}, ("relu", 0.5),
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("nodes", "given", "expected"), CHAINS.values(), ids=CHAINS.keys())
def test_every_node(model, nodes, given, expected, dtype):
    """All sums are exact, so the answers are the reference's to the last bit."""
    if dtype == np.float64 and not given:
        pytest.skip("its constants are float")
    path = model(nodes, dtype=dtype, **given)
    onnx.checker.check_model(str(path))
    net = gbdnn.load(path, "onnx")
    assert net.dtype == dtype
    assert [(x.activation, x.clip) for x in net] == [expected]
    [Y] = ReferenceEvaluator(str(path)).run(None, {"x": X.astype(dtype)})
    assert len(np.unique(Y)) > 3
    assert_equal(gbdnn.infer(net, X), Y)


def test_two_layers_and_attributes_of_old(model):
    nodes = [
        gemm("x", "h"),
        helper.make_node("Clip", ["h"], ["g"], min=0.0, max=2.0),
        gemm("g", "f", "V", "c"),
        helper.make_node("Clip", ["f"], ["y"], min=0.0, max=float(np.finfo(np.float32).max)),
    ]
    inputs = [helper.make_tensor_value_info("W", TensorProto.FLOAT, [5, 4])]
    path = model(nodes, opset=7, value_info=inputs, **LINEAR, V=V, c=c)
    net = gbdnn.load(path, "onnx")
    assert [(x.activation, x.clip) for x in net] == [("relu", 2.0), ("relu", None)]
    assert_equal(gbdnn.infer(net, X), np.maximum(np.clip(X @ W + b, 0, 2) @ V + c, 0))


def test_an_export_for_a_fixed_number_of_inputs(model):
    nodes = [("Reshape", ["x", "to"], ["h"]), gemm("h", "y")]
    path = model(nodes, **LINEAR, to=np.array([8, 5]))
    refused(path, r"its shape \[8, 5\] does not keep")
    fixed = onnx.load(str(path))
    fixed.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 8
    onnx.save(fixed, str(path))
    assert gbdnn.load(path, "onnx").shape == (5, 4)


def sparse_tensor(A, two, dtype=np.float32):
    rows, columns = np.nonzero(A)
    places = np.stack([rows, columns], 1) if two else np.ravel_multi_index((rows, columns), A.shape)
    return helper.make_sparse_tensor(numpy_helper.from_array(A[rows, columns].astype(dtype), "W"),
        numpy_helper.from_array(places.astype(np.int64), "places"), A.shape)  # fmt: skip


@pytest.mark.parametrize("first", [False, True])
def test_max_and_min_with_a_constant(model, first):
    bounds = {"low": np.float32(0), "high": np.array([0.5], "f4")}
    nodes = [gemm("x", "z")]
    for name, y, out, bound in (("Max", "z", "r", "low"), ("Min", "r", "y", "high")):
        nodes.append(helper.make_node(name, [bound, y] if first else [y, bound], [out]))
    net = gbdnn.load(model(nodes, W=W, b=b, **bounds), "onnx")
    assert net == gbdnn.Network([gbdnn.Layer(W, b, clip=0.5, dtype="FP32")])
    nodes[1] = helper.make_node("Max", ["z", "several"], ["r"])
    several = np.zeros(W.shape[1], "f4")
    path = model(nodes, W=W, b=b, several=several, high=bounds["high"])
    refused(path, r"operator Max .*its bound is not one number")


def test_a_sparse_constant(model):
    thin = np.where(np.eye(*W.shape), W, 0)
    constant = helper.make_node("Constant", [], ["W"], sparse_value=sparse_tensor(thin, True))
    net = gbdnn.load(model([constant, gemm("x", "y")], b=b), "onnx")
    assert_equal(net[0].weights, thin)


@pytest.mark.parametrize("two", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_sparse_initialisers(model, two, transposed):
    thin = np.where(np.abs(W) > 0.5, W, 0)
    kept = [sparse_tensor(thin.T if transposed else thin, two)]
    nodes = [gemm("x", "y", transB=int(transposed), alpha=0.5)]
    net = gbdnn.load(model(nodes, sparse=kept, b=b), "onnx")
    expected = gbdnn.Layer(thin / 2, b, activation="identity", dtype="FP32")
    assert net.isequal(gbdnn.Network([expected]))


def with_external_weights(path, **entries):
    """Write a model whose weights are in another file, of which the entries say where."""
    made = onnx.load(str(write_model(path, [gemm("x", "y")], **LINEAR)))
    weights = made.graph.initializer[0]
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        weights.external_data.add(key=key, value=value)
    path.write_bytes(made.SerializeToString())
    return path


def test_external_weights(tmp_path):
    (tmp_path / "w.bin").write_bytes(bytes(8) + W.astype("<f4").tobytes() + bytes(100))
    entries = {"location": "w.bin", "offset": "8", "length": str(4 * W.size)}
    net = gbdnn.load(with_external_weights(tmp_path / "net.onnx", **entries), "onnx")
    assert_equal(net[0].weights, W)


@pytest.mark.parametrize(
    "entries",
    [{"location": "w.bin", "offset": "40"}, {"location": "nothing"}, {"location": "../w.bin"}],
)
def test_external_weights_that_are_not_there(tmp_path, entries):
    (tmp_path / "w.bin").write_bytes(bytes(100))
    path = with_external_weights(tmp_path / "net.onnx", **entries)
    refused(path, r"net\.onnx: ", errors.FormatError)


@pytest.mark.parametrize("element", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_half_precision_becomes_fp32(tmp_path, element):
    tensors = [helper.make_tensor("W", element, W.shape, W.ravel()),
               helper.make_tensor("b", element, b.shape, b)]  # fmt: skip
    graph = helper.make_graph(
        [gemm("x", "y")], "half",
        [helper.make_tensor_value_info("x", element, [None, 5])],
        [helper.make_tensor_value_info("y", element, [None, None])], tensors,
    )  # fmt: skip
    onnx.save(helper.make_model(graph), str(tmp_path / "net.onnx"))
    net = gbdnn.load(tmp_path / "net.onnx", "onnx")
    assert net.isequal(gbdnn.Network([gbdnn.Layer(W, b, activation="identity", dtype="FP32")]))
    assert gbdnn.load(tmp_path / "net.onnx", "onnx", dtype="FP64").dtype == np.float64


@FEW
@given(drawn(fewest=2, bias=-0.3))
def test_round_trips_are_exact(tmp_path_factory, net):
    path = tmp_path_factory.mktemp("net") / "net.onnx"
    gbdnn.save(net, path, "onnx")
    assert gbdnn.load(path, "onnx").isequal(net)
    onnx.checker.check_model(str(path), full_check=True)
    x = np.random.default_rng(0).standard_normal((5, net.shape[0])).astype(net.dtype)
    [expected] = ReferenceEvaluator(str(path)).run(None, {"inputs": x})
    tolerance = 1e-4 if net.dtype == np.float32 else 1e-11
    assert_close(gbdnn.infer(net, x), expected, rtol=tolerance, atol=tolerance)


def test_a_large_clip_of_fp64_stays(tmp_path):
    net = gbdnn.Network([gbdnn.Layer(W, clip=1e200)])
    gbdnn.save(net, tmp_path / "net.onnx", "onnx")
    assert gbdnn.load(tmp_path / "net.onnx", "onnx").isequal(net)


def test_writing(tmp_path):
    path = tmp_path / "net.onnx"
    harmless = gbdnn.Network([gbdnn.Layer(W, -0.5, bias_rule="entries")])
    gbdnn.save(harmless, path, "onnx")
    assert gbdnn.load(path, "onnx").isequal(gbdnn.Network([gbdnn.Layer(W, -0.5)]))
    before = path.read_bytes()
    gbdnn.save(harmless, path, "onnx", replace=True)
    assert path.read_bytes() == before
    bad = gbdnn.Network([gbdnn.Layer(W), gbdnn.Layer(V, 0.5, bias_rule="entries")])
    message = "layer 1: the format cannot store the bias rule 'entries'"
    for net, match in ((bad, message), (gbdnn.Network([]), "without layers")):
        raises(errors.ArgumentError, match, gbdnn.save, net, path, replace=True)
    assert path.read_bytes() == before


def test_weights_that_do_not_fit_as_dense_ones_are_not_written(tmp_path):
    wide = [gb.Matrix.from_coo([0], [0], [1.0], nrows=2**24, ncols=2**24)]
    raises(errors.TooLargeError, "dense weights", gbdnn.save, wide, tmp_path / "net.onnx", "onnx")


def node(op, inputs, outputs, name="", **options):
    return helper.make_node(op, inputs, outputs, name=name, **options)


UNSUPPORTED = {
    "pow": ([node("Pow", ["x", "one"], ["y"], "first")], r"operator Pow \(node 'first'\)"),
    "no name": ([gemm("x", "h"), node("Tanh", ["h"], ["y"])], r"operator Tanh \(node 1\)"),
    "skip": (
        [gemm("x", "h"), node("Relu", ["h"], ["g"]), node("Add", ["g", "h"], ["y"], "sum")],
        r"operator Add \(node 'sum'\): it reads g, h instead of g, a skip connection",
    ),
    "early": ([node("Relu", ["x"], ["h"], "r"), gemm("h", "y")], r"'r'\): .*precedes the first"),
    "late bias": (
        [gemm("x", "h"), node("Relu", ["h"], ["g"]), node("Add", ["g", "b"], ["y"], "a")],
        r"Add \(node 'a'\): there is no linear layer before or after it",
    ),
    "lower": (
        [gemm("x", "h"), node("Clip", ["h", "low", "high"], ["y"], "cl")],
        r"Clip \(node 'cl'\): the lower bound is 0.1, not 0",
    ),
    "upper": ([gemm("x", "h"), node("Clip", ["h", "", "low2"], ["y"])], "upper bound is -1"),
    "transA": ([gemm("x", "y", transA=1)], "transposes its input"),
    "left": ([node("MatMul", ["Q", "x"], ["y"])], "right factor is not constant"),
    "stack": (
        [node("MatMul", ["x", "S"], ["h"]), node("Flatten", ["h"], ["y"])],
        r"its weights have shape \(1, 5, 4\) and",
    ),
    "bias": ([gemm("x", "y", b="Q")], r"its bias has shape \(5, 5\)"),
    "domain": ([node("Gemm", ["x", "W"], ["y"], "q", domain="other")], r"other\.Gemm \(node 'q'\)"),
    "constants": ([node("Tanh", ["W"], ["N"]), gemm("x", "y", "N")], r"Tanh \(.*with constants"),
    "reciprocal": ([node("Div", ["high", "x"], ["h"]), gemm("h", "y")], "it divides by its input"),
    "dropout": (
        [node("Constant", [], ["yes"], value=numpy_helper.from_array(np.array(True))),
         node("Dropout", ["x", "high", "yes"], ["h"], "d"), gemm("h", "y")], "'d'.*training mode",
    ),
    "flatten": ([node("Flatten", ["x"], ["h"], axis=0), gemm("h", "y")], "its axis is 0, not 1"),
    "norm at last": (
        [gemm("x", "h"), node("Relu", ["h"], ["g"]),
         node("BatchNormalization", ["g", "b", "b", "b", "ones"], ["y"], "bn")],
        "no linear layer before or after it",
    ),
    "norm of the batch": (
        [gemm("x", "h"),
         node("BatchNormalization", ["h", "b", "b", "b", "ones"], ["y", "m", "n"],
              training_mode=1)],
        "in training mode",
    ),
    "cast": (
        [node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16),
         node("Cast", ["h"], ["g"], to=TensorProto.FLOAT), gemm("g", "y")],
        "casts to a",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("nodes", "message"), UNSUPPORTED.values(), ids=UNSUPPORTED.keys())
def test_unsupported_operators_are_named(model, nodes, message):
    given = {
        **LINEAR, "one": 1.0, "low": 0.1, "high": 1.0, "low2": -1.0,
        "Q": np.eye(5), "S": W[None], "ones": np.ones(4),
    }  # fmt: skip
    refused(model(nodes, **given), r"net.onnx: .*" + message)


def test_values_and_shapes_name_the_layer(model):
    nodes = [gemm("x", "h"), gemm("h", "y", "V", "c", name="out")]
    given = {**LINEAR, "V": V, "c": c}
    message = r"layer 1, .*Gemm \(node 'out'\): weights: .*nan"
    refused(model(nodes, **given | {"V": V * np.nan}), message)
    message = r"is not a valid ONNX model|layer 1, .*: bias has shape"
    refused(model(nodes, **given | {"V": V.T}), message, ValueError)


NORM = {
    "factors": [0.5, 2.0, -1.0, 0.25], "mean": [0.25, -0.5, 0.0, 1.0],
    "variance": np.array([0.25, 4.0, 1.0, 16.0]) - 2.0**-10,
    "k": [0.5, 2.0, 4.0, 1.0, 1.5],
}  # fmt: skip
AFFINE = {
    "norm of a product": [
        gemm("x", "h"),
        helper.make_node(
            "BatchNormalization", ["h", "factors", "b", "mean", "variance"], ["n"], epsilon=2.0**-10
        ),
        ("Relu", ["n"], ["y"]),
    ],
    "norm behind an activation": [
        gemm("x", "h"), ("Relu", ["h"], ["r"]),
        ("BatchNormalization", ["r", "factors", "b", "mean", "variance"], ["n"]),
        gemm("n", "y", "V", "c"),
    ],
    "norm first": [("BatchNormalization", ["x", "k", "k", "k", "k"], ["n"]), gemm("n", "y")],
    "before": [("Sub", ["x", "u"], ["h"]), ("Div", ["h", "v"], ["g"]), gemm("g", "y")],
    "the other way": [("Sub", ["u", "x"], ["h"]), ("Mul", ["v", "h"], ["g"]), gemm("g", "y")],
    "after": [gemm("x", "h"), ("Sub", ["h", "b"], ["g"]), ("Div", ["g", "one"], ["y"])],
    "reversed": [gemm("x", "h"), ("Sub", ["b", "h"], ["g"]), ("Relu", ["g"], ["y"])],
    "after a ReLU": [
        gemm("x", "h"), ("Relu", ["h"], ["g"]), ("Add", ["g", "b"], ["f"]),
        ("Sub", ["f", "one"], ["e"]), ("Div", ["e", "d"], ["q"]), ("MatMul", ["q", "V"], ["y"]),
    ],
    "mask": [("Mul", ["W", "mask"], ["M"]), gemm("x", "y", "M")],
    "all of it": [
        ("Sub", ["W", "one"], ["A"]), ("Add", ["A", "mask"], ["B"]), ("Neg", ["B"], ["C"]),
        ("Transpose", ["C"], ["D"]), ("Div", ["D", "one"], ["E"]), gemm("x", "y", "E", transB=1),
    ],
}  # fmt: skip


@pytest.mark.parametrize("nodes", AFFINE.values(), ids=AFFINE.keys())
def test_affine_operators(model, nodes):
    """Before, between and after layers, and of constants."""
    given = {
        "u": [0.5, 1, -1, 0.25, 2], "v": [0.5, 1, 2, -1, 4], "d": [0.5, 1, 2, -1], "one": 0.5,
        "mask": RANDOM.integers(0, 2, W.shape) / 1.0, "V": V, "c": c, **LINEAR, **NORM,
    }  # fmt: skip
    path = model(nodes, dtype=np.float64, **given)
    [Y] = ReferenceEvaluator(str(path)).run(None, {"x": X})
    assert len(np.unique(Y)) > 3
    assert_close(gbdnn.infer(gbdnn.load(path, "onnx"), X), Y, rtol=1e-12, atol=1e-12)


HEADS = {
    "softmax": [gemm("x", "h"), ("Softmax", ["h"], ["y"])],
    "sigmoid": [gemm("x", "h"), ("Sigmoid", ["h"], ["y"])],
    "log": [gemm("x", "h"), ("LogSoftmax", ["h"], ["s"]), ("Identity", ["s"], ["y"])],
}


@pytest.mark.parametrize("nodes", HEADS.values(), ids=HEADS.keys())
def test_probabilities_are_left_out_where_that_is_said(model, nodes):
    path = model(nodes, **LINEAR)
    refused(path, r"operator (Log)?S.*pass logits=True to drop it")
    for net in (gbdnn.load(path, "onnx", logits=True), gbdnn.load(path, logits=True)):
        assert_equal(gbdnn.infer(net, X), X @ W + b)


def test_a_sigmoid_between_layers_stays_refused(model):
    nodes = [gemm("x", "h"), ("Sigmoid", ["h"], ["g"]), gemm("g", "y", "V", "c")]
    for logits in (False, True):
        refused(model(nodes, **LINEAR, V=V, c=c), "Sigmoid", logits=logits)


def _more_dimensions(given):
    given.graph.input[0].type.tensor_type.shape.dim.add().dim_value = 5
    given.graph.output[0].type.tensor_type.shape.dim.add()


def _typed(given):
    given.graph.input[0].type.tensor_type.elem_type = TensorProto.DOUBLE


def _of(version):
    return lambda given: setattr(given.opset_import[0], "version", version)


GEMM = [gemm("x", "y")]
MATMUL = [("MatMul", ["x", "W"], ["h"]), ("Add", ["h", "b"], ["y"])]


@pytest.mark.parametrize(
    ("nodes", "change", "error", "message"),
    [
        (GEMM, _typed, errors.FormatError, "is not a valid ONNX model"),
        (MATMUL, _more_dimensions, errors.ArgumentError, "its input has 3 dimensions"),
        (GEMM, _of(1000), errors.ArgumentError, "operator set 1000; .* supports 7 to"),
        (GEMM, _of(6), errors.ArgumentError, r"operator set 6; .* supports 7 to \d+"),
    ],
)  # fmt: skip
def test_what_other_programs_refuse_or_read_otherwise(model, nodes, change, error, message):
    path = model(nodes, **LINEAR)
    gbdnn.load(path, "onnx")
    given = onnx.load(str(path))
    change(given)
    path.write_bytes(given.SerializeToString())
    refused(path, message, error)


def test_a_model_of_two_inputs(model):
    more = [helper.make_tensor_value_info("z", TensorProto.FLOAT, [None, 5])]
    refused(model(GEMM, value_info=more, **LINEAR), "must have one input, not 2")


@pytest.mark.parametrize("to", [[-1, 2], [0, 2], [3, 4]])
def test_a_reshape_that_is_no_row_per_input(model, to):
    nodes = [gemm("x", "h"), ("Reshape", ["h", "to"], ["y"])]
    for good in ([-1, 4], [0, 4], [0, -1]):
        gbdnn.load(model(nodes, **LINEAR, to=np.array(good)), "onnx")
    refused(model(nodes, **LINEAR, to=np.array(to)), "does not keep one row per input")


@pytest.mark.parametrize(("places", "values"), [([3, 3], 2), ([3, 20], 2), ([1, 2, 3], 2)])
def test_corrupt_sparse_initializers(model, places, values):
    corrupt = helper.make_sparse_tensor(numpy_helper.from_array(np.ones(values, np.float32), "W"),
        numpy_helper.from_array(np.array(places), "places"), W.shape)  # fmt: skip
    message = r"net\.onnx: is not a valid ONNX model"
    refused(model(GEMM, sparse=[corrupt], b=b), message, errors.FormatError)


@pytest.mark.parametrize("mean", [np.arange(4.0).reshape(1, 2, 2), np.full((), 0.5), [[1.0, 2]]])
def test_inputs_of_several_dimensions_are_shifted_before_they_are_flat(model, mean):
    nodes = [("Sub", ["x", "u"], ["h"]), ("Flatten", ["h"], ["g"]), gemm("g", "y")]
    file = model(nodes, u=mean, W=W[:4], b=b)
    written = onnx.load(file)
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 2, 2])
    written.graph.input[0].CopyFrom(info)
    onnx.save(written, file)
    X = RANDOM.integers(-8, 9, (1, 1, 2, 2)).astype(np.float32) / 4
    (expected,) = ReferenceEvaluator(str(file)).run(None, {"x": X})
    assert_close(gbdnn.infer(gbdnn.load(file, "onnx"), X.reshape(1, 4)), expected, rtol=1e-6)


def test_weights_of_eight_bits(model):
    """Their values are constants; operator sets before 19 mean the same."""
    scaled = helper.make_node("DequantizeLinear", ["Q", "scale", "zero"], ["W"], axis=1)
    Q, scale = RANDOM.integers(-9, 9, (5, 4)).astype("i1"), b + 2
    nodes, zero = [scaled, gemm("x", "y")], np.array([1, 0, 2, 0], "i1")
    file = model(nodes, Q=Q, scale=scale, zero=zero, b=b)
    assert_close(gbdnn.load(file, "onnx")[0].weights, (Q.astype("f4") - zero) * scale, rtol=1e-7)
