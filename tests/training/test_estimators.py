"""Estimators are what scikit-learn expects, and learn."""

import pickle
import subprocess
import sys

import graphblas as gb
import numpy as np
import pytest
import scipy.sparse as sp

import gbdnn
from gbdnn.errors import ArgumentError, ArgumentTypeError

pytest.importorskip("sklearn", minversion="1.6")

from sklearn.base import clone
from sklearn.datasets import load_digits, make_regression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from gbdnn.training import SGD, Adam, Constant, SparseClassifier, SparseRegressor

DIGITS = load_digits()
X, Y = DIGITS.data[:1000] / 16, DIGITS.target[:1000]
X_TEST, Y_TEST = DIGITS.data[1000:] / 16, DIGITS.target[1000:]
SMALL = {
    "hidden": (128,),
    "density": 0.3,
    "learning_rate": 0.01,
    "random_state": 0,
    "n_jobs": 1,
}


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


# A weight of 2 is a row that is there twice in the gradient of all rows; minibatches are others.
# Where scikit-learn tells others to take 1,000 epochs, these take 100.
OPTIONS = {
    "check_sample_weight_equivalence_on_dense_data": {"batch_size": 1000, "dtype": "FP64"},
    "check_sample_weight_equivalence_on_sparse_data": {"batch_size": 1000, "dtype": "FP64"},
    "check_class_weight_classifiers": {"epochs": 100},
    "check_estimator_sparse_matrix": {"epochs": 2},
    "check_estimator_sparse_array": {"epochs": 2},
}


def run_check(estimator, check):
    from unittest import SkipTest

    options = OPTIONS.get(getattr(check, "func", check).__name__, {})
    try:
        check(clone(estimator).set_params(**options))
    except SkipTest as reason:
        pytest.skip(str(reason))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("estimator", "check"),
    list(
        checks(
            SparseClassifier((64,), 0.5, n_jobs=1),
            SparseRegressor((64,), 0.5, epochs=30, n_jobs=1),
        )
    ),
)
def test_check(estimator, check):
    run_check(estimator, check)


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
    Z = gbdnn.infer(model.network_, X_TEST).to_dense(fill_value=0).astype(float)
    E = np.exp(Z)
    np.testing.assert_allclose(proba, E / E.sum(axis=1, keepdims=True), rtol=1e-5)
    assert model.network_.edges == pytest.approx(0.3 * (64 * 128 + 128 * 10), abs=1)
    assert model.n_iter_ == len(model.history_) == 20


def test_equal_seeds_equal_bits(model):
    again = clone(model).set_params(n_jobs=2).fit(X, Y)
    assert again.network_.isequal(model.network_)
    other = clone(model).set_params(random_state=1, epochs=1).fit(X, Y)
    assert not other.network_.isequal(model.network_)


def test_pickle(model):
    again = pickle.loads(pickle.dumps(model))  # noqa: S301
    np.testing.assert_array_equal(again.predict_proba(X_TEST), model.predict_proba(X_TEST))
    assert again.partial_fit(X, Y).n_iter_ == 21


def test_pipeline_scores_and_grid():
    pipeline = make_pipeline(MinMaxScaler(), SparseClassifier(**SMALL, epochs=10))
    assert cross_val_score(pipeline, DIGITS.data, DIGITS.target, cv=3).min() > 0.85
    grid = GridSearchCV(
        pipeline, {"sparseclassifier__density": [0.002, 0.3]}, cv=2, error_score="raise"
    ).fit(DIGITS.data, DIGITS.target)
    assert grid.best_params_ == {"sparseclassifier__density": 0.3}


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
    with pytest.raises(ArgumentError, match="label 11 is not among the 10 classes"):
        model.partial_fit(X[:2], [1, 11])
    with pytest.raises(ArgumentError, match="differs from the classes of the first call"):
        model.partial_fit(X[:2], [1, 2], classes=[1, 2])
    with pytest.raises(ArgumentError, match="requires classes="):
        clone(model).partial_fit(X, Y)
    with pytest.raises(ArgumentError, match="does not support class_weight"):
        clone(model).set_params(class_weight="balanced").partial_fit(X, Y, range(10))


def test_validation_and_patience():
    model = SparseClassifier(**SMALL, epochs=60, validation_fraction=0.2, patience=3).fit(X, Y)
    assert model.n_iter_ < 60
    losses = [record.validation_loss for record in model.history_]
    assert model.run_.best.epoch == np.argmin(losses) == len(losses) - 4
    with pytest.raises(ArgumentError, match="requires validation data"):
        SparseClassifier(patience=3).fit(X, Y)


def test_optimizers():
    few = SMALL | {"epochs": 2}
    sgd = SparseClassifier(**few, optimizer="sgd").fit(X, Y)
    same = SparseClassifier(**few | {"learning_rate": None}, optimizer=SGD(0.01)).fit(X, Y)
    assert sgd.network_.isequal(same.network_)
    plain = SparseClassifier(**few).fit(X, Y).network_
    assert not sgd.network_.isequal(plain)
    assert not SparseClassifier(**few, rewire="set").fit(X, Y).network_.isequal(plain)
    few["learning_rate"] = None
    for wrong, match in (
        ({"optimizer": "adagrad"}, '"adam" or "sgd"'),
        ({"optimizer": 3}, "Adam, SGD or an object .*, not 3"),
        ({"optimizer": SGD(), "learning_rate": 0.1}, "learning_rate= cannot be combined"),
        ({"optimizer": SGD(), "weight_decay": 0.1}, "weight_decay= cannot be combined"),
        ({"class_weight": "equal"}, "class_weight must be 'balanced'"),
        ({"class_weight": 3}, "class_weight must be 'balanced'"),
        ({"rewire": "rigel"}, '"set" or "rigl"'),
        ({"density": 0}, "density"),
        ({"batch_size": 0}, "batch_size"),
        ({"hidden": (0,)}, "hidden must be at least 1"),
    ):
        with pytest.raises((ArgumentError, ArgumentTypeError), match=match):
            SparseClassifier(**few | wrong).fit(X, Y)


@pytest.mark.parametrize("outputs", [1, 3])
def test_regression(outputs):
    A, b = make_regression(600, 10, n_targets=outputs, noise=5, random_state=0)
    b = 1000 + b * 20
    model = SparseRegressor(**SMALL).fit(A[:400], b[:400])
    assert model.predict(A).shape == b.shape
    assert model.score(A[400:], b[400:]) > 0.95
    np.testing.assert_allclose(model.y_mean_, b[:400].mean(axis=0))
    # The network that is given away has y's units.
    Z = gbdnn.infer(model.network_, A).to_dense(fill_value=0).reshape(b.shape)
    np.testing.assert_allclose(Z, model.predict(A), rtol=1e-4, atol=0.1)
    assert model.network_.edges == model.run_.network.edges


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
        dense = X.toarray() if kind is sp.csr_array else X
        answers = gbdnn.infer(model.network_, dense[200:]).to_dense(fill_value=0)[:, 0]
        assert np.abs(answers - model.predict(X[200:])).max() < 1e-6 * np.ptp(y)
    assert scores[0] == pytest.approx(scores[1], abs=0.02)  # rounding grows in training
    assert scores[0] > 0.8


@pytest.mark.parametrize("estimator", [SparseClassifier, SparseRegressor])
def test_graphblas_matrices_are_features(estimator):
    random = np.random.default_rng(0)
    X, y = sp.csr_array((random.random((60, 8)) < 0.3) * random.random((60, 8))), np.arange(60) % 2
    A, I = gb.io.from_scipy_sparse(X), gb.Matrix.from_dense(np.eye(8))  # noqa: E741
    options = {"epochs": 2, "random_state": 0, "n_jobs": 1}
    expected = estimator((8,), **options).fit(X, y).predict(X)
    for given in (A, A.T.new().T, A @ I):
        model = estimator((8,), **options).fit(given, y)
        np.testing.assert_array_equal(model.predict(given), expected)


def test_regression_by_parts():
    A, b = make_regression(600, 10, noise=5, random_state=0)
    model = SparseRegressor(**SMALL)
    for _ in range(10):
        for part in np.array_split(np.arange(400), 4):
            model.partial_fit(A[part], b[part])
    assert model.n_iter_ == 40
    assert model.score(A[400:], b[400:]) > 0.9
    np.testing.assert_allclose(model.y_mean_, b[:100].mean())
    with pytest.raises(ArgumentError, match=r"2 outputs, but .* 1"):
        model.partial_fit(A, np.stack([b, b], axis=1))


def test_class_weights():
    """In one minibatch of all inputs: a label's weight is that of its inputs."""
    model = SparseClassifier(**SMALL, batch_size=10_000, epochs=5, dtype="FP64")
    of_labels = {label: 1 / (label == Y).sum() for label in range(10)}
    by_hand = (
        clone(model).fit(X, Y, [7 * of_labels[label] for label in Y]).predict_log_proba(X_TEST)
    )
    for given in ("balanced", of_labels):
        found = clone(model).set_params(class_weight=given).fit(X, Y).predict_log_proba(X_TEST)
        assert np.abs(found - by_hand).max() < 1e-9


def test_warm_start_goes_on():
    options = SMALL | {"schedule": Constant(), "epochs": 2, "batch_size": 64}
    model = SparseClassifier(**options, warm_start=True).fit(X, Y)
    first = model.run_
    model.fit(X, Y)
    assert model.n_iter_ == 4
    expected = gbdnn.train(first, X, Y, epochs=2)
    assert model.network_.isequal(expected.network)
    with pytest.raises(ArgumentError, match="requires the same labels: y has 9"):
        model.fit(X, Y % 9)
    again = SparseClassifier(**options).fit(X, Y)
    assert again.fit(X, Y).n_iter_ == 2
    model = SparseRegressor(**options, warm_start=True).fit(X, Y)
    scale = model.y_scale_
    assert model.fit(X, Y * 2.0).y_scale_ == scale


def test_weight_decay_schedule_and_callback():
    seen = []
    model = SparseClassifier(**SMALL, epochs=3, batch_size=64).set_params(
        weight_decay=0.1, schedule=Constant(), callback=lambda now: seen.append(now.network.edges)
    )
    model.fit(X, Y)
    assert seen == [model.network_.edges] * 3
    net = gbdnn.training.erdos_renyi([64, 128, 10], 0.3, seed=model.run_.seed)
    expected = gbdnn.train(
        net, X, Y, epochs=3, batch_size=64, optimizer=Adam(0.01, weight_decay=0.1),
        schedule=Constant(), seed=model.run_.seed,
    )  # fmt: skip
    assert model.network_.isequal(expected.network)


def test_decision_function(model):
    z = model.decision_function(X_TEST)
    assert np.array_equal(model.classes_[z.argmax(axis=1)], model.predict(X_TEST))
    two = SparseClassifier(**SMALL, epochs=2).fit(X, Y > 4)
    z, p = two.decision_function(X_TEST), two.predict_proba(X_TEST)
    assert z.shape == (len(X_TEST),)
    assert np.abs(1 / (1 + np.exp(-z)) - p[:, 1]).max() < 1e-9


def test_scikit_learn_is_missing():
    code = """
import sys, gbdnn.training
assert "sklearn" not in sys.modules
sys.modules["sklearn"] = None
gbdnn.training.SparseClassifier
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MissingPackageError: SparseClassifier needs scikit-learn" in done.stderr
    assert 'pip install "gbdnn[sklearn]"' in done.stderr
    with pytest.raises(AttributeError, match="no attribute 'SparseNonsense'"):
        gbdnn.training.SparseNonsense  # noqa: B018
