"""Every mistake gets an error that names the layer or the argument, and the numbers."""

import sys
from types import ModuleType

import graphblas as gb
import numpy as np
import pytest
import scipy.sparse as sp
from calls import raises

import gbdnn
from gbdnn import Layer, Network, errors, infer

W = np.eye(3)
X = np.ones((2, 3))


def bad(error, match, call):
    """The call raises gbdnn's error, which is also the built-in one."""
    with pytest.raises(error, match=match) as raised:
        call()
    assert isinstance(raised.value, gbdnn.GbdnnError)


def test_layers_that_do_not_fit():
    bad(ValueError, r"layer 1: weights are 4 x 4 but layer 0, 3 x 3, has 3 outputs",
        lambda: infer([W, np.eye(4)], X))  # fmt: skip


def test_a_generator_of_batches():
    bad(TypeError, r"not generator; pass batches to gbdnn\.infer_batches or gbdnn\.io\.",
        lambda: infer([W], (W for _ in range(2))))  # fmt: skip


def test_layers_of_different_dtypes():
    layers = [Layer(W, dtype="FP32"), Layer(W, dtype="FP64")]
    bad(ValueError, "layer 1 is float64 but layer 0 is float32; pass dtype= to cast",
        lambda: Network(layers))  # fmt: skip
    bad(ValueError, "layer 1 is float32", lambda: infer([W, W.astype(np.float32)], X))
    assert Network(layers, dtype="FP32").dtype == np.float32


ROWS = [
    np.array, np.asfortranarray, sp.csr_array, sp.csc_array, sp.coo_array, gb.Matrix.from_dense,
    lambda A: gb.Matrix.from_dense(A, missing_value=0),
    lambda A: gb.Matrix.from_dense(A.T.copy(), missing_value=0).T,
]  # fmt: skip


@pytest.mark.parametrize("make", ROWS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_errors_name_row_and_column_of_the_value(make, dtype, tmp_path):
    A = np.zeros((600, 3), dtype)
    A[::7, 0], A[500, 2] = 1, np.nan
    where = "contains nan in row 500, column 2; all values must be finite"
    bad(ValueError, f"^features: {where}", lambda: infer([W.astype(dtype)], make(A)))
    bad(ValueError, f"^features: {where}", lambda: gbdnn.io.write_features(make(A), tmp_path / "X"))
    bad(ValueError, f"^weights: {where}", lambda: Layer(make(A)))
    bad(ValueError, f"^layer 1: weights: {where}", lambda: infer([np.eye(600), make(A)], A.T))
    bad(ValueError, f"^Y: {where}", lambda: gbdnn.categories(make(A)))
    bad(ValueError, f"^Y: {where}", lambda: gbdnn.argmax(make(A)))
    big = np.where(np.isnan(A), 1e300, A.astype(float))
    bad(ValueError, r"^features: 1e\+300 in row 500, column 2 does not fit into float32",
        lambda: infer([W.astype("f4")], make(big)))  # fmt: skip


def test_errors_name_the_item_of_a_vector(tmp_path):
    bad(ValueError, "^bias: contains nan at index 2;", lambda: Layer(W, [0, 1, np.nan]))
    bad(ValueError, "^bias: contains nan;", lambda: Layer(W, np.nan))
    bad(ValueError, "^layer 0: bias: contains -inf;", lambda: infer([W], X, bias=-np.inf))
    A = gb.Matrix.from_coo([1, 4], [2, 0], [1.0, np.inf], nrows=5, ncols=3)
    bad(ValueError, "^features: contains inf in row 4, column 0;",
        lambda: gbdnn.io.write_features(A, tmp_path / "A.tsv"))  # fmt: skip


def test_overflow_in_the_cast():
    big, wide = W * 1e300, "does not fit into float32"
    bad(ValueError, rf"weights: .*1e\+300.* {wide}", lambda: Layer(big, dtype="FP32"))
    bad(ValueError, f"features: .* {wide}", lambda: infer([W.astype("f4")], X * 1e39))
    bad(ValueError, f"bias: .* {wide}", lambda: Layer(W, 1e39, dtype="FP32"))
    bad(ValueError, f"clip: .* {wide}", lambda: Layer(W, clip=1e39, dtype="FP32"))
    bad(ValueError, r"layer 0: weights", lambda: infer([big], X, dtype="FP32"))


def test_clip_that_is_not_positive():
    bad(ValueError, "layer 0: clip must be finite and positive, or None for no limit, not 0",
        lambda: infer([W], X, clip=0))  # fmt: skip
    bad(ValueError, "rounds to 0 in float32", lambda: Layer(W, clip=1e-60, dtype="FP32"))


@pytest.mark.parametrize("option", [{"bias": 0.0}, {"clip": 1}, {"bias_rule": "all"}])
def test_options_beside_a_network(option):
    match = f"{next(iter(option))}= cannot be combined with "
    bad(TypeError, match + "a Network", lambda: infer(Network([Layer(W)]), X, **option))
    bad(TypeError, match + "Layers", lambda: infer([Layer(W)], X, **option))


def test_bias_of_the_wrong_shape():
    bad(ValueError, r"bias has shape \(2,\) but the layer has 3 neurons", lambda: Layer(W, [1, 2]))
    bad(ValueError, r"bias= has 2 items for 1 layers", lambda: infer([W], X, bias=[0, 0]))
    bad(ValueError, r"layer 1: bias has shape", lambda: infer([W, W], X, bias=[0, [1, 2]]))
    bad(TypeError, r"bias must contain real numbers", lambda: Layer(W, "0.5"))
    bad(TypeError, r"bias= must be a number", lambda: infer([W], X, bias="0.5"))
    bad(TypeError, r"bias= must be a number",
        lambda: infer([W], X, bias=gb.Vector.from_coo([0], [1.0], size=3)))  # fmt: skip


def test_a_matrix_in_place_of_a_list():
    for one in (W, sp.csr_array(W), gb.Matrix.from_dense(W)):
        bad(TypeError,
            r"layers must be a Network or a list of matrices, not \w+; pass a list of .*, \[W\]",
            lambda one=one: infer(one, X))  # fmt: skip


def test_mixed_lists():
    bad(TypeError, "layer 1 is a Layer but others are matrices", lambda: infer([W, Layer(W)], X))
    bad(TypeError, "layer 0: weights must be .*, not str", lambda: Network(["W"]))


def test_nan_on_the_way_names_the_layer():
    # inf - inf inside one sum
    A = np.array([[1e38, 0], [-1e38, 0]], np.float32)
    bad(ArithmeticError, "layer 0", lambda: infer([A], np.array([[1e10, 1e10]])))


def test_argmax_without_columns():
    bad(ValueError, "2 x 0", lambda: gbdnn.argmax(np.ones((2, 0))))


def test_a_seed_of_more_than_32_bits():
    bad(ValueError, "seed", lambda: gbdnn.gallery.radixnet(1024, 1, seed=2**32))


@pytest.mark.parametrize(
    ("systems", "widths", "match"),
    [
        ([(2, 2), ()], None, "each with a radix"), ([(2, 1)], None, "radix"),
        ([(2, 3), (4,), (6,)], None, r"system 1, \(4,\), has the product 4; it must be 6"),
        ([(2, 3), (4,)], None, "must be 6 or a divisor"),
        ([(2, 3)], [1, 1], "widths has 2 values; 3 levels"), ([(2, 3)], [1, 0, 1], "width"),
    ],
)  # fmt: skip
def test_radix_layers(systems, widths, match):
    bad(ValueError, match, lambda: gbdnn.gallery.radix_layers(systems, widths))


def test_radix_layers_with_a_weight_of_no_dtype():
    for weight in (1e39, 10**400):
        bad(ValueError, "weight", lambda: gbdnn.gallery.radix_layers([(2, 3)], weight=weight))  # noqa: B023


def test_radix_layers_of_absurd_sizes():
    bad(MemoryError, "GiB", lambda: gbdnn.gallery.radix_layers([(2,) * 62]))


def test_advice_on_a_graph_with_many_nodes_keeps_it_square():
    A = gb.Matrix(float, 2**50, 2**50)
    bad(MemoryError, r"G: .* pointers alone need .*as rows and columns, such as A\[nodes, nodes\]",
        lambda: gbdnn.graph.normalized(A))  # fmt: skip


def test_more_rows_than_memory_has_room_for():
    tall = gb.Matrix.from_coo([0, 2**40], [1, 2], [1.0, 0.0], nrows=2**50, ncols=3)
    bad(MemoryError, r"features: 1125899906842624 x 3: row pointers alone need 8,388,608 GiB",
        lambda: infer([W], tall, bias=1))  # fmt: skip
    bad(MemoryError, "weights have 1125899906842624 rows", lambda: Layer(tall))
    bad(MemoryError, r"weights: .*column pointers .* 8,388,608 GiB.* \d+$", lambda: Layer(tall.T))
    bad(MemoryError, "argmax: Y is 1125899906842624 x 3", lambda: gbdnn.argmax(tall))
    bad(MemoryError, "features", lambda: infer([W], sp.coo_array((2**50, 3))))
    assert gbdnn.categories(tall).tolist() == [0]
    bad(ValueError, "Y: contains nan",
        lambda: gbdnn.categories(gb.Matrix.from_coo([5], [1], [np.nan], nrows=2**50)))  # fmt: skip


def test_masked_arrays():
    masked = np.ma.MaskedArray(W, mask=W > 0)
    rows, match = list(masked), "masked arrays are not supported"
    bad(TypeError, f"weights: {match}", lambda: Layer(masked))
    bad(TypeError, f"features: {match}", lambda: infer([W], masked))
    bad(TypeError, match, lambda: infer([W], rows))
    bad(TypeError, match, lambda: gbdnn.compile([W])(rows))
    bad(TypeError, match, lambda: gbdnn.train([W], rows, W))
    bad(TypeError, match, lambda: gbdnn.train([W], W, rows))
    bad(TypeError, match, lambda: Layer(W, [1.0, np.ma.masked, 2.0]))
    bad(TypeError, f"bias: {match}", lambda: Layer(W, masked[0]))
    bad(TypeError, f"bias: {match}", lambda: infer([W], X, bias=masked[0][:1]))


def test_numbers_of_any_size():
    assert Layer(W, 10**30).bias == 1e30
    bad(ValueError, "clip: an integer of 1329 bits", lambda: Layer(W, clip=10**400))
    bad(ValueError, "nthreads must be at most 2147483647", lambda: infer([W], X, nthreads=2**31))


def test_a_refused_layer_leaves_the_matrix():
    A = gb.Matrix.from_dense(W, missing_value=0)
    for option in ({"bias": [1, 2]}, {"bias": np.nan}, {"clip": 0}, {"dtype": "INT8"}):
        raises(gbdnn.GbdnnError, None, Layer, A, copy=False, **option)
    assert A.isequal(gb.Matrix.from_dense(W, missing_value=0))


@pytest.mark.parametrize(("dtype", "advised"), [("FP32", True), ("FP64", False)])
def test_advice_about_an_overflow_is_of_use(dtype, advised):
    layer = Layer(np.full((1, 1), 1e30), dtype=dtype)
    with pytest.raises(errors.NonFiniteError, match="a clip") as told:
        gbdnn.infer([layer] * 12, np.ones((3, 1)))
    assert ("dtype='FP64'" in str(told.value)) == advised
    large = np.full((3, 1), 1e30 if advised else 1e300)  # a clip does not bound sums of its layer
    with pytest.raises(errors.NonFiniteError, match="; pass smaller features") as told:
        gbdnn.infer([layer], large)
    assert ("dtype='FP64'" in str(told.value)) == advised


def test_an_expression_is_the_matrix_that_it_makes(tmp_path):
    A = gb.Matrix.from_dense(np.arange(1.0, 10.0).reshape(3, 3) / 8)
    gbdnn.io.write_features(2 * A, tmp_path / "X")
    assert gbdnn.io.read_features(tmp_path / "X").isequal((2 * A).new(), check_dtype=False)
    assert gbdnn.Layer(A, 2 * gb.Vector.from_dense(np.full(3, 0.25))).bias.tolist() == [0.5] * 3
    for layers, features, name in (([A], A | A, "features"), ([A | A], A, "layer 0: weights")):
        bad(TypeError, f"{name} must be .* a monoid or semiring",
            lambda layers=layers, features=features: infer(layers, features))  # fmt: skip


def test_batches_decide_the_dtype_of_integers_as_features_do():
    """The layers are checked when the first batch is known."""
    large = np.array([[1 << 30, 0], [0, 3]])
    wide, narrow = np.eye(2), np.eye(2, dtype="f4")
    [found] = gbdnn.infer_batches([large], [wide])
    assert found.isequal(infer([large], wide), check_dtype=True)
    found = list(gbdnn.infer_batches([large // 1000], [narrow, wide]))
    assert [each.dtype for each in found] == ["FP32", "FP32"]
    bad(ValueError, r"above 2\*\*24", lambda: infer([large], narrow))
    bad(ValueError, r"above 2\*\*24", lambda: list(gbdnn.infer_batches([large], [narrow])))
    bad(ValueError, "finite", lambda: gbdnn.infer_batches([large * np.nan], [wide]))


@pytest.mark.parametrize("name", ["scipy.sparse", "networkx", "torch.nn", "torch"])
def test_a_module_that_another_thread_is_importing(name, monkeypatch):
    """It is in `sys.modules`, and its attributes are not there yet."""
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    assert infer([W], X).nvals
    assert gbdnn.graph.propagate(W, W).any()
    assert len(gbdnn.io.from_torch({"weight": W, "bias": np.zeros(3)}, activation="relu")) == 1


def test_advice_on_shapes():
    hyper = gb.Matrix.from_coo([0, 5, 9], [1, 2, 3], 1.0, nrows=10**6, ncols=7)
    E, W = np.eye(8), np.ones((3, 5))
    bad(ValueError, "are 1000000 x 7, .*features with 8 columns$", lambda: infer([E], hyper))
    bad(ValueError, "3 columns, or transpose the weights, as PyT", lambda: infer([W], W[:2]))
    bad(ValueError, "with 3 columns, such as the transpose$", lambda: infer([W], np.ones((3, 4))))


@pytest.mark.parametrize("memory", ["1" + "0" * 400, 10**400, "1" + "0" * 300 + "GiB"])
def test_more_memory_than_there_is(memory):
    net, X = [np.eye(3)], np.eye(3)
    np.testing.assert_array_equal(gbdnn.infer(net, X, memory=memory).to_dense(0.0), X)
    assert "memory" in repr(gbdnn.plan(net, X, memory=memory))
    gbdnn.graph.infer(net, X, X, memory=memory)


def test_units_of_memory():
    for k, letter in enumerate("KMGT", 1):
        for unit, size in ((f"{letter}B", 1000**k), (f"{letter}iB", 1024**k)):
            assert gbdnn.plan([W], X, memory=f"90 {unit}").facts.memory == 90 * size


def test_little_memory_is_not_shown_as_none(monkeypatch):
    pages = {"SC_PHYS_PAGES": 2**16, "SC_PAGE_SIZE": 2**12}
    monkeypatch.setattr("os.sysconf", pages.__getitem__)
    with pytest.raises(MemoryError, match=r"alone need 0.25 GiB, but this machine has 0.25"):
        gbdnn.Layer(gb.Matrix(float, 2**25, 3))


def test_scalars_of_graphblas_are_numbers():
    bias, clip = gb.Scalar.from_value(-0.5), gb.Scalar.from_value(0.25)
    expected = gbdnn.infer([np.eye(3)], np.ones((2, 3)), bias=-0.5, clip=0.25)
    assert gbdnn.infer([np.eye(3)], np.ones((2, 3)), bias=bias, clip=clip).isequal(expected)
    assert gbdnn.infer([np.eye(3)], np.ones((2, 3)), bias=[bias], clip=clip).isequal(expected)
    assert gbdnn.Layer(np.eye(3), bias, clip=clip) == gbdnn.Layer(np.eye(3), -0.5, clip=0.25)
    bad(TypeError, "bias", lambda: gbdnn.Layer(np.eye(3), gb.Scalar(float)))


@pytest.mark.parametrize("call", [infer, lambda layers, X: gbdnn.compile(layers)(X)])
def test_features_of_images_before_they_are_flat(call):
    """A model with a Flatten takes them; its network has rows."""
    X = np.ones((5, 1, 2, 3), "f4")
    with pytest.raises(errors.ShapeError, match=r"\(5, 1, 2, 3\); reshape\(5, -1\) gives each"):
        call([np.eye(6, dtype="f4")], X)
    assert call([np.eye(6, dtype="f4")], X.reshape(5, -1)).shape == (5, 6)
