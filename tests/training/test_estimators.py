"""Estimators are what scikit-learn expects, and learn."""

import copy
from unittest import SkipTest

import graphblas as gb
import numpy as np
import pytest
import scipy.sparse as sp
from calls import raises, raising
from matrices import dense
from shell import python

import gbdnn
from gbdnn.errors import ArgumentError, ArgumentTypeError

pytest.importorskip("sklearn", minversion="1.6")

from sklearn.base import clone
from sklearn.datasets import load_digits, make_classification, make_regression
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import estimator_checks_generator

from gbdnn.sklearn import SparseClassifier, SparseRegressor
from gbdnn.training import SGD, Constant

pytestmark = pytest.mark.filterwarnings("ignore:layer . has .* edges per neuron")  # few are enough
DIGITS = load_digits()
X, Y = DIGITS.data[:1000] / 16, DIGITS.target[:1000]
X_TEST, Y_TEST = DIGITS.data[1000:] / 16, DIGITS.target[1000:]
SMALL = {
    "hidden_layer_sizes": (128,), "density": 0.3, "learning_rate": 0.01, "random_state": 0,
    "n_jobs": 1,
}  # fmt: skip
TINY = {"hidden_layer_sizes": (16,), "density": 0.5, "epochs": 2, "random_state": 0, "n_jobs": 1}
BOTH = pytest.mark.parametrize("kind", [SparseClassifier, SparseRegressor])


# These are skipped without pandas.
PANDAS = {
    "check_classifier_data_not_an_array",
    "check_regressor_data_not_an_array",
    "check_sample_weights_pandas_series",
}


def checks(*estimators):
    for estimator in estimators:
        for each, check in estimator_checks_generator(estimator):
            name = getattr(check, "func", check).__name__
            marks = [pytest.mark.frameworks] if name in PANDAS else []
            yield pytest.param(each, check, id=f"{type(each).__name__}-{name}", marks=marks)


# A weight of 2 is a row that is there twice in the gradient of all rows, up to rounding, but not of
# minibatches. scikit-learn lists these checks as expected failures of its own networks.
OPTIONS = {
    "check_sample_weight_equivalence_on_dense_data": {"batch_size": 1000, "dtype": "FP64"},
    "check_sample_weight_equivalence_on_sparse_data": {"batch_size": 1000, "dtype": "FP64"},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("estimator", "check"),
    list(checks(SparseClassifier(epochs=30, n_jobs=1), SparseRegressor(epochs=30, n_jobs=1))),
)
def test_check(estimator, check):
    options = OPTIONS.get(getattr(check, "func", check).__name__, {})
    try:
        check(clone(estimator).set_params(**options))
    except SkipTest as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def model():
    return SparseClassifier(**SMALL).fit(X, Y)


def test_digits(model):
    assert model.score(X_TEST, Y_TEST) > 0.88
    proba = model.predict_proba(X_TEST)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_array_equal(proba.argmax(axis=1), model.predict(X_TEST))
    np.testing.assert_allclose(np.log(proba), model.predict_log_proba(X_TEST))
    # The softmax of what the network answers.
    E = np.exp(dense(gbdnn.infer(model.network_, X_TEST)).astype(float))
    np.testing.assert_allclose(proba, E / E.sum(axis=1, keepdims=True), rtol=1e-5)
    assert model.network_.edges == pytest.approx(0.3 * (64 * 128 + 128 * 10), abs=1)
    assert model.n_iter_ == len(model.history_) == 100


def test_parts_without_some_labels():
    model = SparseClassifier(**SMALL)
    order = np.argsort(Y % 5, kind="stable")
    for _ in range(8):
        for part in np.array_split(np.random.default_rng(0).permutation(order), 5):
            model.partial_fit(X[part], Y[part], classes=range(10))
    assert model.score(X_TEST, Y_TEST) > 0.85
    before = model.n_iter_
    model.partial_fit(X[Y == 3], Y[Y == 3])  # one label alone
    assert model.n_iter_ == before + 1
    raises(ArgumentError, "label 11 is not among the 10 classes", model.partial_fit, X[:2], [1, 11])
    with pytest.raises(ArgumentError, match="differs from the classes of the first call"):
        model.partial_fit(X[:2], [1, 2], classes=[1, 2])
    raises(ArgumentError, "requires classes=", clone(model).partial_fit, X, Y)
    other = clone(model).set_params(class_weight="balanced").partial_fit
    raises(ArgumentError, "does not support class_weight", other, X, Y, range(10))


def test_validation_and_patience():
    model = SparseClassifier(**SMALL, epochs=60, validation_fraction=0.2, patience=3).fit(X, Y)
    assert model.n_iter_ < 60
    losses = [record.validation_loss for record in model.history_]
    assert model.run_.best.epoch == np.argmin(losses) == len(losses) - 4
    raises(ArgumentError, "pass validation_fraction=", SparseClassifier(patience=3).fit, X, Y)


@pytest.mark.parametrize("option", ["learning_rate", "weight_decay"])
def test_options_beside_an_optimizer(option):
    with pytest.raises(ArgumentError, match=f"{option}= cannot be combined"):
        SparseClassifier(optimizer=SGD(), **{option: 0.1}).fit(X, Y)


@pytest.mark.parametrize("outputs", [1, 3])
def test_regression(outputs):
    A, b = make_regression(600, 10, n_targets=outputs, noise=5, random_state=0)
    b = 1000 + b * 20
    model = SparseRegressor(**SMALL).fit(A[:400], b[:400])
    assert model.predict(A).shape == b.shape
    assert model.score(A[400:], b[400:]) > 0.95
    np.testing.assert_allclose(model.y_mean_, b[:400].mean(axis=0))
    # The network that is given away has y's units.
    Z = dense(gbdnn.infer(model.network_, A)).reshape(b.shape)
    np.testing.assert_allclose(Z, model.predict(A), rtol=1e-4, atol=0.1)
    assert model.network_.edges == model.run_.network.edges
    raises(ArgumentError, rf"4 outputs, but .* {outputs}", model.partial_fit, A, np.ones((600, 4)))


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_regression_does_not_depend_on_units(kind):
    """Of features: their scale is undone, also in the network that is kept."""
    data, y = make_regression(300, 10, noise=5, random_state=0)
    data[:, 3] = 7
    units = 10.0 ** np.arange(-4, 6)
    shifted = data if kind is sp.csr_array else data + 1
    scores = []
    for X in (kind(data), kind(shifted * units)):
        model = SparseRegressor(random_state=0, n_jobs=1, dtype="FP64").fit(X[:200], y[:200])
        scores.append(model.score(X[200:], y[200:]))
        filled = X.toarray() if kind is sp.csr_array else X
        answers = dense(gbdnn.infer(model.network_, filled[200:]))[:, 0]
        assert np.abs(answers - model.predict(X[200:])).max() < 1e-6 * np.ptp(y)
    assert scores[0] == pytest.approx(scores[1], abs=0.03)  # rounding grows in training
    assert scores[0] > 0.8


def test_class_weights():
    """In one minibatch of all inputs: a label's weight is that of its inputs."""
    model = SparseClassifier(**SMALL, batch_size=10_000, epochs=5, dtype="FP64")
    of_labels = {label: 1 / (label == Y).sum() for label in range(10)}
    weights = [7 * of_labels[label] for label in Y]
    by_hand = clone(model).fit(X, Y, weights).predict_log_proba(X_TEST)
    for given in ("balanced", of_labels):
        found = clone(model).set_params(class_weight=given).fit(X, Y).predict_log_proba(X_TEST)
        assert np.abs(found - by_hand).max() < 1e-9


def test_warm_start_goes_on():
    options = SMALL | {"schedule": Constant(), "epochs": 2, "batch_size": 64}
    model = SparseClassifier(**options, warm_start=True).fit(X, Y)
    first = model.run_
    model.fit(X, Y)
    assert model.n_iter_ == 4
    expected = gbdnn.train(first, model.scaler_.transform(X), Y, epochs=2)
    assert model.run_.network.isequal(expected.network)
    raises(ArgumentError, "requires the same labels: y has 9", model.fit, X, Y % 9)
    assert SparseClassifier(**options).fit(X, Y).fit(X, Y).n_iter_ == 2
    model = SparseRegressor(**options, warm_start=True).fit(X, Y)
    scale = model.y_scale_
    assert model.fit(X, Y * 2.0).y_scale_ == scale


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@BOTH
def test_a_fitted_network_does_not_ignore_changed_parameters(kind, method):
    model = kind(**TINY, warm_start=True).fit(X, Y)
    model.set_params(hidden_layer_sizes=np.array([16]), dtype=np.float32)  # the same
    getattr(model, method)(X, Y)
    for change in (
        {"hidden_layer_sizes": (8,)}, {"density": 0.4}, {"distribution": "uniform"},
        {"dtype": "FP64"},
    ):  # fmt: skip
        changed = copy.deepcopy(model).set_params(**change)
        with pytest.raises(ArgumentError, match=f"{next(iter(change))} has changed from"):
            getattr(changed, method)(X, Y)
        assert changed.set_params(warm_start=False).fit(X, Y).n_iter_ == 2


@BOTH
def test_partial_fit_refuses_rules_that_move_edges(kind):
    options = {"classes": np.arange(10)} if kind is SparseClassifier else {}
    with pytest.raises(ArgumentError, match="partial_fit does not support rewire="):
        kind(hidden_layer_sizes=(8,), rewire="set").partial_fit(X, Y, **options)


@BOTH
def test_warm_start_refuses_columns_in_another_order(kind):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=[f"pixel {k}" for k in range(64)])
    model = kind(hidden_layer_sizes=(8,), epochs=1, warm_start=True, random_state=0).fit(frame, Y)
    raises(ValueError, "same order as they were in fit", model.fit, frame[frame.columns[::-1]], Y)
    assert model.fit(frame, Y).n_iter_ == 2


@pytest.mark.parametrize(("weight", "match"), [(-1, "at least 0, not -1"), ("x", "real numbers")])
def test_weights_of_labels_are_numbers(weight, match):
    with pytest.raises((ArgumentError, ArgumentTypeError), match=f"class_weight must .*{match}"):
        SparseClassifier((8,), class_weight={0: weight}).fit(X, Y)


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="NumPy 1 has no StringDType")
def test_targets_of_every_type():
    """Of StringDType, SciPy and GraphBLAS, as well as arrays."""
    words = np.array([f"digit {label}" for label in Y])
    strings = words.astype(np.dtypes.StringDType())
    expected = SparseClassifier(**TINY).fit(X, words)
    found = SparseClassifier(**TINY).fit(X, strings)
    assert found.network_.isequal(expected.network_)
    assert list(found.predict(X)) == list(expected.predict(X))
    found.partial_fit(X, strings, classes=np.unique(strings))
    onehot = np.eye(10)[Y]
    for kind, target in ((SparseClassifier, onehot.astype(int)), (SparseRegressor, onehot)):
        expected = kind(**TINY).fit(X, target)
        for given in (sp.csr_array(target), gb.Matrix.from_dense(target)):
            assert kind(**TINY).fit(X, given).network_.isequal(expected.network_)
    expected = SparseClassifier(**TINY).fit(X, Y)
    found = SparseClassifier(**TINY).fit(X, gb.Vector.from_dense(Y))
    assert found.network_.isequal(expected.network_)


@pytest.mark.parametrize("dtype", ["FP32", "FP64"])
@BOTH
def test_fitted_with_dense_features_and_given_sparse_ones(kind, dtype):
    """The bias of the network holds the centring; further training centres."""
    within = dict.fromkeys(("rtol", "atol"), 1e-3 if dtype == "FP32" else 1e-9)
    for y in (Y, np.eye(10)[Y].astype(int)):
        model = kind(**TINY, dtype=dtype).fit(X, y)
        assert model.scaler_.with_mean
        sparse = [sp.csr_array(X_TEST), sp.coo_array(X_TEST), gb.Matrix.from_dense(X_TEST)]
        methods = ["predict", "predict_proba", "decision_function"]
        for name in methods if kind is SparseClassifier else methods[:1]:
            expected = getattr(model, name)(X_TEST)
            for given in sparse:
                np.testing.assert_allclose(getattr(model, name)(given), expected, **within)
        other = copy.deepcopy(model).partial_fit(sp.csr_array(X), y)
        assert other.network_.isequal(model.partial_fit(X, y).network_)
        # And the other way around.
        model = kind(**TINY, dtype=dtype).fit(sp.csr_array(X), y)
        np.testing.assert_allclose(model.predict(X_TEST), model.predict(sparse[0]), **within)


@BOTH
def test_every_storage_of_a_matrix_gives_the_same(kind):
    features, y = np.round(X[:200] * 16), Y[:200]
    rows = sp.csr_array(features)
    twice = np.repeat(rows.data / 2, 2), np.repeat(rows.indices, 2), 2 * rows.indptr
    given = sp.csr_array(twice, rows.shape)  # each entry in two halves
    before = given.copy()
    expected = kind(**TINY).fit(rows, y)
    A, eye = gb.Matrix.from_dense(features, missing_value=0), gb.Matrix.from_dense(np.eye(64))
    for other in (given, given.tocsc(), sp.coo_array(features), sp.csr_array(given), A,
                  A.T.new().T, A @ eye):  # fmt: skip
        model = kind(**TINY).fit(other, y)
        assert np.array_equal(model.scaler_.scale_, expected.scaler_.scale_)
        assert model.network_.isequal(expected.network_)
        assert np.array_equal(model.predict(given), expected.predict(features))
    for part in ("data", "indices", "indptr"):
        assert np.array_equal(getattr(before, part), getattr(given, part))


def test_the_default_density_of_a_classifier_follows_the_sizes():
    for hidden, edges in (((32,), 64 * 32 + 32 * 10), ((1024, 1024), 20 * (64 + 10 + 4 * 1024))):
        model = SparseClassifier(hidden, epochs=1, random_state=0, n_jobs=1)
        model.fit(X, np.eye(10)[Y].astype(int))
        assert model.run_.layers[0].info.shape == (64, hidden[0])
        found = sum(len(each.numbers) for each in model.run_.layers)
        assert found == pytest.approx(edges, rel=0.02)


@pytest.mark.slow
def test_default_options_do_not_overfit():
    data, labels = make_classification(4000, 100, n_informative=20, n_classes=5, random_state=0)
    scores = cross_val_score(SparseClassifier((256,), random_state=0), data, labels, cv=3)
    assert scores.mean() > 0.655  # 0.63 without weight decay


def test_few_edges_per_neuron_warn():
    with pytest.warns(RuntimeWarning, match="layer 0 has 2.6 edges per neuron") as caught:
        SparseClassifier((32,), 0.05, epochs=1, random_state=0).fit(X, Y)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@BOTH
def test_a_failed_fit_changes_nothing(kind, method):
    model = kind(**TINY)
    names = np.array(["cat", "dog"])[Y % 2] if kind is SparseClassifier else Y
    classes = {"classes": ["cat", "dog"]} if "Class" in kind.__name__ and "p" in method else {}
    getattr(model, method)(X, names, **classes)
    expected, attributes = model.predict(X_TEST), dict(vars(model))
    model.callback = failing = raising(RuntimeError)
    others = np.array(["apple", "zebra"])[Y % 2] if kind is SparseClassifier else Y * 100.0
    raises((RuntimeError, ValueError), None, getattr(model, method), X[:, :60] + 7, others)
    raises((RuntimeError, ValueError), None, getattr(model, method), X[:500] + 7, others[:500])
    assert vars(model) == attributes | {"callback": failing}
    assert np.array_equal(model.predict(X_TEST), expected)
    assert getattr(model.set_params(callback=None), method)(X, names) is model
    fresh = kind(**TINY, callback=failing)
    raises(RuntimeError, None, getattr(fresh, method), X, names, **classes)
    assert not [name for name in vars(fresh) if name.endswith("_")]


def test_labels_of_class_weight_exist():
    model = SparseClassifier(**SMALL, epochs=1)
    for wrong in ({"0": 1e6}, {**dict.fromkeys(range(9), 1.0), 11: 2.0}):
        with pytest.raises(ArgumentError, match="is not a label; labels are"):
            model.set_params(class_weight=wrong).fit(X, Y)
        raises(ArgumentError, "is not a label", clone(model).partial_fit, X, Y, range(10))
    # A part of the inputs may lack a label.
    model.set_params(class_weight=dict.fromkeys(range(10), 2.0)).fit(X[Y < 9], Y[Y < 9])
    model.set_params(class_weight={3: 2.0}).fit(X, Y)


@pytest.mark.parametrize("ratio", [1e2, 1e4, 1e5])
@BOTH
def test_the_network_is_that_of_predict_far_from_zero(kind, ratio):
    data, y = make_regression(300, 10, noise=5, random_state=0)
    data = data + ratio * np.random.default_rng(0).choice([-1, 1], 10)
    y = y > 0 if kind is SparseClassifier else y
    model = kind((32,), 0.5, random_state=0, n_jobs=1).fit(data, y)
    found = dense(gbdnn.infer(model.network_, data))
    if kind is SparseClassifier:
        expected, found = model.decision_function(data), found[:, 1] - found[:, 0]
    else:
        expected, found = model.predict(data), found[:, 0]
    # Rounding of the features in FP32, without that of weights times means.
    assert np.abs(found - expected).max() < 1e-7 * ratio * np.ptp(expected)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_several_labels_per_input(kind):
    W = np.random.default_rng(0).standard_normal((64, 5))
    y = (((X - X.mean(axis=0)) @ W) > 0).astype(int)
    y_test = (((X_TEST - X.mean(axis=0)) @ W) > 0).astype(int)
    model = SparseClassifier(**SMALL, epochs=40, validation_fraction=0.2).fit(X, kind(y))
    found = model.predict(X_TEST)
    assert found.shape == y_test.shape
    assert (found == y_test).mean() > 0.88
    assert model.score(X_TEST, y_test) == (found == y_test).all(axis=1).mean()
    proba = model.predict_proba(X_TEST)
    assert proba.shape == y_test.shape
    np.testing.assert_allclose(proba, 1 / (1 + np.exp(-model.decision_function(X_TEST))))
    np.testing.assert_allclose(proba, np.exp(model.predict_log_proba(X_TEST)))
    assert np.array_equal(found, proba > 0.5)
    assert model.history_[-1].accuracy > 0.6
    assert model.loss_curve_ == [record.loss for record in model.history_]
    parts = clone(model).set_params(validation_fraction=None)
    for _ in range(3):
        parts.partial_fit(X, kind(y))
    assert parts.n_iter_ == 3
    for call, match in (
        (lambda: clone(parts).set_params(class_weight={0: 1}).fit(X, y), "class_weight="),
        (lambda: parts.partial_fit(X, y[:, :4]), "the first call had 5"),
        (lambda: parts.partial_fit(X, Y), "the first call had 5"),
        (lambda: parts.fit(X, np.stack([Y, Y], axis=1)), "only 0 and 1"),
    ):
        raises(ArgumentError, match, call)


def test_decision_function_of_two_classes():
    two = SparseClassifier(**SMALL, epochs=2).fit(X, Y > 4)
    z, p = two.decision_function(X_TEST), two.predict_proba(X_TEST)
    assert z.shape == (len(X_TEST),)
    assert np.abs(1 / (1 + np.exp(-z)) - p[:, 1]).max() < 1e-9


def test_scikit_learn_is_missing():
    done = python(
        "import sys, gbdnn.training\n"
        "assert 'sklearn' not in sys.modules\n"
        "sys.modules['sklearn'] = None\n"
        "gbdnn.sklearn.SparseClassifier"
    )
    assert "MissingPackageError: gbdnn.sklearn needs scikit-learn" in done.stderr
    assert 'pip install "gbdnn[sklearn]"' in done.stderr
    with pytest.raises(AttributeError, match="no attribute 'SparseNonsense'"):
        gbdnn.training.SparseNonsense  # noqa: B018


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("hidden", [(64,), (128, 64), (2048,), (4,), ()])
@pytest.mark.parametrize("features", [1, 3, 10, 64])
def test_the_default_density_of_a_regressor_is_enough(hidden, features):
    rows = np.random.default_rng(0).random((20, features))
    model = SparseRegressor(hidden, epochs=1).fit(rows, rows[:, 0])
    possible = sum(info.nrows * info.ncols for info in model.network_.infos)
    assert 0.09 * possible < sum(len(layer.numbers) for layer in model.run_.layers) <= possible


@BOTH
@pytest.mark.parametrize("output", ["pandas", "polars"])
def test_scikit_learns_setting_of_outputs_is_for_transformers(kind, output):
    pytest.importorskip(output)
    from sklearn import config_context

    expected = kind(**TINY).fit(X, Y).partial_fit(X, Y).predict(X_TEST)
    with config_context(transform_output=output):
        model = kind(**TINY).fit(X, Y).partial_fit(X, Y)
        np.testing.assert_array_equal(model.predict(X_TEST), expected)
        np.testing.assert_array_equal(gbdnn.infer(model.network_, X_TEST).shape[0], len(X_TEST))


@BOTH
def test_numpy_raises_for_floating_point_errors(kind):
    """Probabilities that are nearly 0 are not an error, nor features."""
    features = np.hstack([X, 1e-200 * X]) * np.where(np.arange(len(X)) < 10, 1e4, 1)[:, np.newaxis]
    with np.errstate(all="raise"):
        model = kind(**TINY).set_params(epochs=20).fit(features, Y).partial_fit(features, Y)
        model.predict(1e3 * features)
        model.network_  # noqa: B018
        if kind is SparseClassifier:
            assert (model.predict_proba(1e3 * features) == 0).any()
            several = kind(**TINY).fit(features, np.eye(10, dtype=int)[Y])
            assert several.predict_proba(1e6 * features).shape == (len(X), 10)
