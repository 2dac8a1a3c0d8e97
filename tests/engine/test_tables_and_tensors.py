"""What people hold: tables and tensors, by their ``__array__``."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from calls import raises

import gbdnn
from gbdnn import errors

pytestmark = pytest.mark.frameworks

ROWS = np.random.default_rng(0).random((60, 8)).round(2)
NET = gbdnn.training.erdos_renyi([8, 20, 3], 0.5, seed=1)
LABELS = np.arange(60) % 3


class Held:
    """Nothing but an array."""

    def __array__(self, dtype=None, copy=None):
        return ROWS


def pandas():
    return pytest.importorskip("pandas").DataFrame(ROWS, columns=list("abcdefgh"))


def polars():
    return pytest.importorskip("polars").DataFrame(ROWS)


def xarray():
    return pytest.importorskip("xarray").DataArray(ROWS, dims=["input", "neuron"])


def torch():
    return pytest.importorskip("torch").from_numpy(ROWS)


KINDS = [Held, pandas, polars, xarray, torch]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_same_answers_as_the_array(kind, tmp_path):
    X, A, want = kind(), np.eye(60, k=1), gbdnn.infer(NET, ROWS)
    assert want.nvals > 100
    (Y,) = gbdnn.infer_batches(NET, [X])
    with ThreadPoolExecutor(2) as executor:
        answers = [gbdnn.infer(NET, X), Y, gbdnn.infer(NET, X, executor=executor)]
    assert all(Y.isequal(want) for Y in answers)
    assert gbdnn.graph.infer(NET, X, A).isequal(gbdnn.graph.infer(NET, ROWS, A))
    gbdnn.io.write_features(X, tmp_path / "X")
    assert gbdnn.io.read_features(tmp_path / "X").isequal(gbdnn.infer([], ROWS))
    for call in (
        gbdnn.categories, gbdnn.argmax, gbdnn.compile(NET),
        lambda X: gbdnn.graph.propagate(A, X),
    ):  # fmt: skip
        np.testing.assert_array_equal(call(X), call(ROWS))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_same_training_as_the_array(kind):
    X, want = kind(), gbdnn.train(NET, ROWS, LABELS, epochs=2)
    y = pytest.importorskip("torch").from_numpy(LABELS) if kind is torch else LABELS
    assert gbdnn.train(NET, X, y, epochs=2, validation=(X, y)).network.isequal(want.network)


@pytest.mark.parametrize("kind", [pandas, polars, xarray, torch], ids=lambda kind: kind.__name__)
def test_the_same_estimator_as_of_the_array(kind):
    pytest.importorskip("sklearn")
    model = gbdnn.sklearn.SparseClassifier((16,), 0.5, epochs=2, random_state=0)
    want = model.fit(ROWS, LABELS).network_
    assert model.fit(kind(), LABELS).network_.isequal(want)
    assert model.predict(kind()).shape == (60,)


class Words(Held):
    def __array__(self, dtype=None, copy=None):
        return ROWS.astype(str).astype(object)


class Elsewhere(Held):
    def __array__(self, dtype=None, copy=None):
        raise TypeError("can't convert a tensor of another device")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Words, "must contain only real numbers; .*Words"),
        (Elsewhere, "cannot convert .*Elsewhere to an array: can't convert"),
        (lambda: Held, "features must be a graphblas.Matrix"),
    ],
)
def test_what_is_no_matrix_of_numbers(kind, message):
    raises(errors.ArgumentTypeError, message, gbdnn.infer, NET, kind())
    raises(errors.ArgumentTypeError, message, gbdnn.train, NET, kind(), LABELS)


COLUMNS = {
    "bool and float": {"a": [True, False, True], "b": [0.5, 2.0, 0.0]},
    "int and float": {"a": [3, 0, 1], "b": [0.5, 2.0, 0.0]},
    "bool and int": {"a": [True, False, True], "b": [7, 0, 2]},
    "Float64": {"a": [0.5, 2.0, 0.0], "b": [1.5, 0.0, 1.0]},
}


@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_several_types_are_numbers(name, nullable):
    frame = pytest.importorskip("pandas").DataFrame(COLUMNS[name])
    frame = frame.convert_dtypes() if nullable else frame
    want = np.array(list(COLUMNS[name].values()), float).T
    Y = gbdnn.infer([np.eye(2)], frame)
    np.testing.assert_array_equal(Y.to_dense(fill_value=0), want)
    found = gbdnn.graph.propagate(np.eye(3), frame)
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_errors_name_the_column_that_is_no_number(library):
    table = pytest.importorskip(library).DataFrame
    with pytest.raises(errors.ArgumentTypeError, match=r"row 0, column 'city' of .* is '1'$"):
        gbdnn.infer([np.eye(2)], table({"age": [1.5, 2.5], "city": ["1", "Oslo"]}))
    pandas = pytest.importorskip("pandas")
    missing = pandas.DataFrame({"age": pandas.array([1, None], "Int64"), "tall": [True, False]})
    with pytest.raises(errors.ArgumentTypeError, match=r"row 1, column 'age' of .* is <NA>$"):
        gbdnn.infer([np.eye(2)], missing)


def test_vectors_are_stacked_to_rows():
    """The usual step in GraphBLAS: one Vector per input."""
    import graphblas as gb

    want = np.array([[0, 2.5, 0], [0, 0, 0], [1, 0, 4]])
    vectors = [gb.Vector.from_dense(row, missing_value=0) for row in want]
    vectors[2] = vectors[2].dup(dtype="FP32")
    for given in (vectors, tuple(vectors)):
        Y = gbdnn.infer([np.eye(3)], given)
        np.testing.assert_array_equal(Y.to_dense(fill_value=0), want)
    (Y,) = gbdnn.infer_batches([np.eye(3)], [vectors])
    np.testing.assert_array_equal(Y.to_dense(fill_value=0), want)
    assert gbdnn.infer([np.eye(3)], vectors[:1]).shape == (1, 3)
    with pytest.raises(errors.ShapeError, match="Vectors of different sizes: 3 and 4"):
        gbdnn.infer([np.eye(3)], [*vectors, gb.Vector(float, 4)])


def test_labels_of_weights_are_aligned_or_refused():
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame([[1.0, 2, 3], [4, 5, 6]], columns=list("abc"))
    V = pandas.DataFrame([[1.0, 10], [2, 20], [3, 30]], index=list("abc"), columns=list("pq"))
    W = pandas.DataFrame([[1.0], [0.5]], index=list("pq"))
    expected = X.to_numpy() @ V.to_numpy() @ W.to_numpy()
    for weights in ([V, W], [V.loc[list("cab")], W[::-1]], [V[["q", "p"]], W], [V.to_numpy(), W]):
        Y = gbdnn.infer(weights, X)
        np.testing.assert_array_equal(Y.to_dense(fill_value=0), expected)
    np.testing.assert_array_equal(gbdnn.compile([V[["q", "p"]], W])(X.to_numpy()), expected)
    bias = [pandas.Series([-20.0, 5], index=["q", "p"]), 0]
    first = np.maximum(X.to_numpy() @ V.to_numpy() + [5, -20], 0)
    Y = gbdnn.infer([V, W], X, bias=bias).to_dense(fill_value=0)
    np.testing.assert_array_equal(Y, first @ W.to_numpy())
    layers = [gbdnn.Layer(V, bias[0]), gbdnn.Layer(W)]
    np.testing.assert_array_equal(gbdnn.infer(layers, X).to_dense(fill_value=0), Y)
    for weights in ([V.rename({"a": "z"}), W], [V, W.rename({"p": "z"})]):
        with pytest.raises(errors.ArgumentError, match="weights: the labels of the rows differ"):
            gbdnn.infer(weights, X)


def test_labels_that_repeat_are_refused():
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame([[1.0, 10, 100]], columns=list("aab"))
    W = pandas.DataFrame([[1.0], [2], [3]], index=list("aba"))
    raises(errors.ArgumentError, "layer 0: .* must be unique, but 'a' repeats", gbdnn.infer, [W], X)
    with pytest.raises(errors.ArgumentError, match="labels of the rows differ"):
        gbdnn.infer([W.set_axis(list("abc"))], X)
    for weights in (W.to_numpy(), W.set_axis(list("aab")), W.set_axis([2, 0, 1])):
        np.testing.assert_array_equal(gbdnn.infer([weights], X).to_dense(), [[321]])


def test_numbers_of_columns_are_no_labels():
    """They are what is left of positions after columns were shuffled."""
    pandas = pytest.importorskip("pandas")
    X, W = pandas.DataFrame([[1.0, 10, 100]]), pandas.DataFrame([[1.0], [2], [3]])
    for features, weights in ((X[[2, 0, 1]], W), (X, W.loc[[2, 0, 1]])):
        expected = features.to_numpy() @ weights.to_numpy()
        Y = gbdnn.infer([weights], features).to_dense()
        np.testing.assert_array_equal(Y, expected)
