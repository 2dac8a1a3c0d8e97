"""infer against the dense FP64 oracle: values and pattern, over a table of networks."""

import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import graphblas as gb
import numpy as np
import pytest
import scipy.sparse as sp
from calls import raises
from matrices import assert_close

import gbdnn
from gbdnn import errors


def stored(net, path):
    gbdnn.save(net, path / "net")
    return gbdnn.load(path / "net", lazy=True)


def as_text(net, path):
    gbdnn.save(net, path, "matrix-market", lossy=True)
    return gbdnn.load(path, "matrix-market", bias_rule="entries", clip=0.7, dtype="FP32")


@pytest.mark.parametrize("bias", [-0.3, [-0.3, -0.1, -1e-50]])
@pytest.mark.parametrize(
    "kept",
    [
        lambda net, path: net,
        lambda net, path: pickle.loads(pickle.dumps(net)),  # noqa: S301
        stored,
        as_text,
        lambda net, path: gbdnn.Network.lazy([each.info for each in net], net.__getitem__)[:2],
    ],
)
def test_bias_and_clip_are_those_given_whatever_the_dtype_of_the_layers(kept, bias, tmp_path):
    """0.3 rounded to FP32 and then computed with in FP64 would be wrong from the eighth digit."""
    W, X = np.eye(3, dtype="f4"), np.array([[0.5, 0.25, 0.125], [4, 0, 1]], "f4")
    net = kept(gbdnn.Network([W, W], bias=[bias] * 2, bias_rule="entries", clip=0.7), tmp_path)
    assert net.dtype == np.float32
    assert net[0].bias == pytest.approx(np.float32(bias), abs=0)
    expected = X.astype("f8")
    for _ in range(2):
        expected = np.where(expected > 0, np.clip(expected + bias, 0, 0.7), 0)
    assert_close(gbdnn.infer(net, X, dtype="FP64"), expected, rtol=1e-15)
    cast = net.astype("FP64")
    assert cast.infos[0].lowest_bias == cast[0].lowest_bias == -0.3
    assert cast.infos[0].info == cast[0].info


@pytest.fixture(scope="module")
def pool():
    with ThreadPoolExecutor(1) as found:
        yield found


@pytest.mark.parametrize(
    ("given", "expected"),
    [(bool, None), (np.int64, None), (np.uint8, None), (np.float32, "FP32"),
     (np.float16, "FP32"), (np.float64, "FP64")],
)  # fmt: skip
def test_the_weights_decide_the_dtype(given, expected, pool, tmp_path):
    """Those of bool and integers leave it to the features."""
    W = np.array([[1, 0], [1, 1]]).astype(given)
    third = 1 / 3
    for features in (np.float16, np.float32, np.float64, np.int32, bool):
        X = np.array([[1, 2 + third]]).astype(features)
        want = expected or ("FP64" if features is np.float64 else "FP32")
        answers = [
            gbdnn.infer([W], X), gbdnn.infer([W], X, executor=pool), *gbdnn.infer_batches([W], [X]),
            *gbdnn.infer_batches([W], [X], executor=pool),
            gbdnn.infer_to_store([W], X, tmp_path / features.__name__).matrix(),
            gbdnn.graph.infer([W], X, np.eye(1, dtype=bool)),
            gbdnn.graph.infer([W], X, np.eye(1, dtype="f8" if want == "FP32" else "f4")),
        ]  # fmt: skip
        exact = X.astype("f4" if want == "FP32" else "f8") @ [[1, 0], [1, 1]]
        for Y in answers:
            assert Y.dtype == want
            np.testing.assert_allclose(Y.to_dense(), exact, rtol=1e-7 if want == "FP32" else 1e-15)
    assert gbdnn.Network([W]).dtype == (expected or "FP32").replace("FP", "float")


@pytest.mark.parametrize("other", [np.float32, np.float64])
def test_weights_of_integers_take_the_dtype_of_the_other_weights(other):
    layers = [np.eye(2, dtype=bool), np.eye(2, dtype=other), np.eye(2, dtype=int)]
    for features in (np.float32, np.float64, np.int64):
        X = np.ones((1, 2), features)
        assert gbdnn.infer(layers, X).dtype.np_type == other
        assert gbdnn.graph.infer(layers, X, np.eye(1)).dtype.np_type == other
    assert gbdnn.Network(layers).dtype == gbdnn.compile(layers)(np.ones(2)).dtype == other


def make_vector(X):
    return gb.Vector.from_dense(X[0])


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int32])
@pytest.mark.parametrize(
    "make", [np.asarray, np.asfortranarray, sp.csr_array, sp.csc_array, gb.Matrix.from_dense,
             lambda X: gb.Matrix.from_dense(X, missing_value=0), make_vector]
)  # fmt: skip
def test_integers_that_fp32_rounds_are_refused(make, dtype, pool, tmp_path):
    """2**24 + 1 would become 16,777,216 in silence."""
    W, match = np.ones((2, 1), bool), r"16777217 is above 2\*\*24.*dtype='FP64'"
    X, A = make(np.array([[2**24 + 1, 0]], dtype)), np.eye(1, dtype="f4")
    calls = [
        lambda X, **given: gbdnn.infer([W], X, **given),
        lambda X, **given: gbdnn.infer([W.astype("f4")], X, **given),
        lambda X, **given: next(gbdnn.infer_batches([W], [X], **given)),
        lambda X, **given: gbdnn.infer([W], X, executor=pool, **given),
    ]
    if make is not make_vector:
        calls += [
            lambda X, **given: gbdnn.graph.infer([W], X, A, **given),
            lambda X, **given: gbdnn.graph.propagate(A, X, **given),
        ]
    for call in calls:
        raises(errors.ArgumentError, match, call, X)
        Y = call(X, dtype="FP64")
        Y = Y if isinstance(Y, np.ndarray) else Y.to_dense(fill_value=0)
        assert Y.ravel()[0] == 2**24 + 1
        Y = call(make(np.array([[2**24, 0]], dtype)))
        assert Y.dtype == (np.float32 if isinstance(Y, np.ndarray) else "FP32")
    raises(errors.ArgumentError, match, gbdnn.io.write_features, X, tmp_path / "X")
    with pytest.raises(errors.ArgumentError, match=match.replace("16777217", "-?16777217")):
        gbdnn.Network([np.array([[2**24 + 1]], dtype)])
    raises(errors.ArgumentError, match, gbdnn.compile([W]), np.array([[2**24 + 1, 0]], dtype))


def test_the_last_activation_of_bare_matrices(infer):
    W, X = np.array([[1.0, -2.0], [0.5, -1.0]]), np.array([[1.0, 2.0], [-3.0, 1.0]])
    options = {"bias": 0.25, "clip": 1.5}
    logits = np.clip(X @ W + 0.25, 0, 1.5) @ W + 0.25
    assert (logits < 0).any()
    assert (logits > 1.5).any()
    net = gbdnn.Network([W, W], **options, last_activation="identity")
    for Y in (infer(net, X), infer([W, W], X, **options, last_activation="identity")):
        np.testing.assert_array_equal(Y.to_dense(fill_value=0), logits)
    for Y in (infer(gbdnn.Network([W, W], **options), X), infer([W, W], X, **options)):
        np.testing.assert_array_equal(Y.to_dense(fill_value=0), np.clip(logits, 0, 1.5))
    with pytest.raises(errors.ArgumentTypeError, match="last_activation= cannot be combined"):
        infer(net, X, last_activation="relu")


@pytest.mark.parametrize(
    "expression",
    [
        lambda X: X + X, lambda X: X @ np_matrix(np.eye(3)), lambda X: X[1:, :], lambda X: X.T,
        lambda X: X.T @ X, lambda X: X > 1, lambda X: X.S, lambda X: gb.monoid.max(X | X),
        lambda X: X.kronecker(np_matrix(np.ones((1, 1)))), lambda X: X.T[:2, :],
    ],
)  # fmt: skip
@pytest.mark.parametrize("engine", ["auto", "fused", "graphblas"])
def test_expressions_as_features_and_weights(engine, expression):
    W, X = np.arange(9.0).reshape(3, 3), np_matrix(np.array([[0, 1, 2], [3, 0, 1], [1, 1, 0.0]]))
    held = expression(X).new()
    infer = partial(gbdnn.infer, engine=engine)
    assert infer([W], expression(X)).isequal(infer([W], held))
    if held.shape[0] == 3:
        assert infer([expression(X)], X).isequal(infer([held], X))


def np_matrix(A):
    return gb.Matrix.from_coo(*np.nonzero(A), A[np.nonzero(A)], nrows=len(A), ncols=A.shape[1])


def middle(weight, **options):
    return gbdnn.Layer(np.diag([1, weight, 1]).astype("f4"), **options)


HIDDEN = {
    "the bias": ([middle(1, bias=3.3e38, clip=1)], 8e37),
    "negative features": ([middle(-2, clip=1)], -3e38),
    "large features": ([middle(2, clip=1)], 3e38),
    "a clip without a ReLU": ([middle(-1e30, activation="identity", clip=1), middle(1e30)], 1),
}


@pytest.mark.parametrize("inputs", [1, 40])
def test_an_overflow_is_an_error_even_where_a_clip_or_relu_hides_it(infer, inputs, tmp_path):
    """One value of one input overflows, from arrays, matrices and stores."""
    for name, (layers, value) in HIDDEN.items():
        X = np.zeros((inputs, 3), "f4")
        X[:, 0], X[-1, 1] = 0.5, value
        assert np.isfinite(X).all()
        gbdnn.io.write_features(X, tmp_path / name)
        matrix = gb.Matrix.from_dense(X, missing_value=0)
        for features in (X, matrix, gbdnn.io.open_features(tmp_path / name)):
            with pytest.raises(errors.NonFiniteError, match=f"layer {len(layers) - 1}"):
                infer(gbdnn.Network(layers), features)
        X[-1, 1] = 0
        assert infer(gbdnn.Network(layers), X).nvals


def test_a_vector_is_one_input(infer):
    W, x = np.arange(9.0).reshape(3, 3), gb.Vector.from_coo([0, 2], [1.0, -2.0], size=3)
    expected = np.array([[1.0, 0, -2.0]])
    for given, factor in ((x, 1), (3 * x, 3), (gb.Vector(float, 3), 0)):
        assert infer([-W], given).isequal(infer([-W], factor * expected)[0, :].new())
    assert gbdnn.infer([], x).isequal(gbdnn.infer([], expected)[0, :].new())


def test_no_error_shows_a_whole_array():
    X = np.arange(1000.0)
    for call in (
        lambda: gbdnn.infer([np.eye(3)], np.eye(3), bias_rule=X),
        lambda: gbdnn.infer([np.eye(3)], np.eye(3), nthreads=X.tolist()),
        lambda: gbdnn.infer([np.eye(3)], np.eye(3), executor=X),
        lambda: gbdnn.infer(X.tolist(), np.eye(3)),
        lambda: gbdnn.infer([np.eye(3)], ["a"] * 1000),
        lambda: gbdnn.infer([np.eye(3)], "features.tsv"),
    ):
        with pytest.raises(gbdnn.GbdnnError) as error:
            call()
        assert len(str(error.value)) < 250
        assert re.search("ndarray|list|float|str", str(error.value))


def test_memory_with_a_unit_and_all_cores():
    W, X = np.eye(4), np.ones((3, 4))
    assert gbdnn.infer([W], X, memory="64MiB", nthreads=-1).isequal(gbdnn.infer([W], X))
    Y = gbdnn.graph.infer([W], np.eye(4), W, memory="1 GB", nthreads=-1)
    assert Y.isequal(gbdnn.infer([W], np.eye(4)))


@pytest.mark.parametrize("dtype", [None, "FP32", "FP64"])
def test_zero_layers_give_the_features_anew(infer, dtype):
    X = gb.Matrix.from_coo([0, 1, 1], [2, 0, 1], [1.5, 0.0, -2.0], nrows=3, ncols=3)
    for layers in ([], gbdnn.Network([])):
        Y = infer(layers, X, dtype=dtype)
        assert Y is not X
        assert Y.dtype == (dtype or "FP64")
        assert Y.nvals == 2
        np.testing.assert_array_equal(Y.to_dense(fill_value=0), X.to_dense(fill_value=0))


@pytest.mark.parametrize("engine", ["sparse", "full", "fused"])
def test_a_record_names_the_block_that_goes_through_layers_together(engine):
    """Nothing dies: each block comes to each layer once, as rows or as columns."""
    net = gbdnn.Network([gbdnn.Layer(np.eye(64), 0.25, dtype="FP32")] * 3)
    stats = []
    gbdnn.infer(
        net, np.eye(64)[np.arange(300) % 64], engine=engine, deduplicate=False, nthreads=2,
        callback=stats.append, memory=200_000 if engine == "sparse" else 64 << 20,
    )  # fmt: skip
    ways = {s.block: [] for s in stats}
    for s in stats:
        ways[s.block].append((s.layer, s.inputs))
    assert len(ways) > 1
    assert sorted(ways) == list(range(len(ways)))
    assert all(way == [(k, way[0][1]) for k in range(3)] for way in ways.values())
    assert sum(way[0][1] for way in ways.values()) == 300


def test_what_a_linear_layer_would_not_notice_is_checked():
    """A clip that it does not use, and negative integers that FP32 would round."""
    layers, linear = [np.eye(2, dtype="f4")], {"last_activation": "identity"}
    raises(errors.ArgumentError, "clip", gbdnn.infer, layers, np.eye(2), clip=-1, **linear)
    X = np.array([[-(2**24) - 1, 1]])
    raises(errors.ArgumentError, "-16777217", gbdnn.infer, layers, X, **linear)
