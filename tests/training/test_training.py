"""Training: what is learned, against NumPy in FP64, central differences and PyTorch."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from calls import raises
from matrices import dense
from training_cases import data, network, oracle, orders, problem, same_bits, stream

import gbdnn
from gbdnn import errors, training
from gbdnn.kernels import costs
from gbdnn.training import losses

# -- losses and optimizers in NumPy --------------------------------------------------------------


class Returning:
    """A schedule or an adjustment that returns what a function of its argument does."""

    every = None

    def __init__(self, what):
        self.what = what

    def factors(self, progress):
        return self.what(progress)

    def adjust(self, layers, context):
        return self.what(layers)


def test_a_loss_in_numpy_that_is_not_finite_is_an_error():
    class Broken(losses.SquaredError):
        def losses(self, answer, targets):
            return super().losses(answer, targets) * np.where(targets[:, 0] == 7, np.nan, 1)

    net, X, y = problem((12, 9, 4), 0.5, inputs=40, labels=False)
    y[:, 0] = 1
    y[orders(40, 1)[0][30], 0] = 7  # in the second step
    with pytest.raises(errors.DivergenceError, match="step 1") as caught:
        gbdnn.train(net, X, y, epochs=1, batch_size=20, loss=Broken())
    assert not same_bits(caught.value.run, gbdnn.train(net, X, y, epochs=0))


def test_a_network_with_one_answer_is_no_error_while_the_loss_falls():
    """No input reaches the outputs, whose biases learn."""
    hidden = gbdnn.Layer(np.eye(3), -10.0)
    net = gbdnn.Network([hidden, gbdnn.Layer(np.ones((3, 1)), activation="identity")])
    X, y = np.random.default_rng(0).random((50, 3)), np.full(50, 5.0)
    run = gbdnn.train(net, X, y, epochs=30, batch_size=10, optimizer=training.SGD(0.1, momentum=0))
    losses = [record.loss for record in run.history]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 1e-3 * losses[0]


@pytest.mark.parametrize("rate", [5, 50])
@pytest.mark.parametrize(
    "rule",
    [
        (), Returning(list), training.SET(), training.MagnitudePruning(0.2, every=5),
        training.GroupLasso(100.0),
    ],
)  # fmt: skip
def test_a_network_that_dies_is_an_error(rule, rate):
    """The loss is finite: all activations of a hidden layer are 0 from then on."""
    net = training.erdos_renyi([20, 40, 40, 5], 0.5)
    X, y = data(net, 200)
    options = {"batch_size": 20, "optimizer": training.SGD(rate), "adjustments": rule}
    message = r"equal.* rate below" if rule == () else "or weaker"
    with pytest.raises(errors.DivergenceError, match=message) as caught:
        gbdnn.train(net, X, y, **options)
    assert not np.ptp(dense(gbdnn.infer(caught.value.run.network, X)), axis=0).any()


def test_an_answer_that_differs_for_few_inputs_is_no_error():
    """One hidden neuron, which only the last of 3,000 inputs reaches."""
    hidden = gbdnn.Layer(np.eye(1), -10.0)
    net = gbdnn.Network([hidden, gbdnn.Layer(np.ones((1, 1)), activation="identity")])
    X = np.random.default_rng(0).random((3000, 1))
    X[-1] = 11.0
    y = X.copy()
    options = {"optimizer": training.SGD(1e-3, momentum=0), "batch_size": 1000, "epochs": 3}
    assert len(gbdnn.train(net, X, y, **options).history) == 3
    X[-1] = 9.0
    assert len(gbdnn.train(net, X, y, **options).history) == 3  # it had one answer before


def test_large_features_are_not_blamed_on_the_learning_rate():
    net, X, y = problem((20, 30, 5), 0.3, "FP32", inputs=60)
    with pytest.raises(errors.DivergenceError, match="too large; scale them"):
        gbdnn.train(net, X * 1e30, y, optimizer="sgd")


@pytest.mark.parametrize("whole", [True, False])
def test_several_labels_per_input(whole):
    net, X, _ = problem()
    Z = X @ np.random.default_rng(3).standard_normal((net.shape[0], 10))
    y = (np.median(Z, axis=0) < Z).astype(np.int64 if whole else np.float64)
    loss = None if whole else "binary_cross_entropy"
    P = 1 / (1 + np.exp(-oracle(net).activations(X)[-1]))
    expected = -(np.log(P) * y + np.log(1 - P) * (1 - y)).sum(axis=1).mean()
    first = gbdnn.train(net, X, y, epochs=1, batch_size=len(X), loss=loss).history[0].loss
    assert first == pytest.approx(expected, rel=1e-9)
    options = {"batch_size": 32, "optimizer": training.Adam(0.01), "validation": (X, y)}
    run = gbdnn.train(net, X, y, epochs=100, loss=loss, **options)
    found = dense(gbdnn.infer(run.network, X)) > 0
    assert run.history[-1].validation_accuracy == (found == y).all(axis=1).mean()
    assert (found == y).mean() > 0.85
    assert run.history[0].loss > 2 * run.history[-1].loss


@pytest.mark.parametrize("batch", [50, 64, 150, 200])
def test_an_adjustment_gets_the_gradient_of_all_weights(batch):
    """Of the last minibatch, whether it is a full one or not."""
    seen = []

    class Compare:
        every = 1

        def adjust(self, layers, context):
            for k, layer in enumerate(layers):
                found = context.gradient(k).ravel()[layer.numbers]
                np.testing.assert_allclose(found, layer.numbered(layer.gradient), atol=1e-9)
                seen.append(found.any())
            return layers

    net, X, y = problem((30, 40, 5), 0.3, "FP64", inputs=200)
    gbdnn.train(net, X, y, epochs=1, batch_size=batch, adjustments=Compare())
    assert len(seen) == 2 * -(-200 // batch)
    assert all(seen)


def test_a_layer_without_edges_cannot_be_pruned():
    weights = np.full((2, 3), 0.5), np.zeros((3, 3)), np.full((3, 2), 0.5)
    layers = [gbdnn.Layer(W, 1.0) for W in weights]
    X, y = np.random.default_rng(0).random((20, 2)), np.arange(20) % 2
    run = gbdnn.train(layers, X, y, epochs=2, adjustments=training.MagnitudePruning(0.2, every=1))
    assert [info.edges for info in run.network.infos] == [2, 0, 2]


# -- bits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 40, 64, 1000])
def test_stored_features_that_do_not_fit_give_the_same_bits(rows, tmp_path, monkeypatch):
    net, X, y = problem((24, 30, 5), 0.3, "FP32", inputs=150)
    X = X.astype(np.float32)
    gbdnn.io.write_features(sp.csr_array(X), tmp_path / "X")
    stored = gbdnn.io.open_features(tmp_path / "X")
    options = {"epochs": 3, "batch_size": 40, "validation": 0.2, "input_dropout": 0.1}
    expected = gbdnn.train(net, X, y, **options)
    memory = rows * 3 * (8 * 150 + 12 * stored.nvals) // 150 + 1
    monkeypatch.setattr("gbdnn.training.data.MEMORY", memory)
    run = gbdnn.train(net, stored, y, **options)
    assert same_bits(run, expected)
    assert [r[:5] for r in run.history] == [r[:5] for r in expected.history]


# -- runs, schedules, validation ----------------------------------------------------------------


def test_no_epochs():
    net, X, y = problem()
    run = gbdnn.train(net, X, y, epochs=0)
    assert (run.history, run.steps, run.moment_steps) == ((), 0, 0)
    assert run.network.isequal(net)


def test_schedules():
    progress = np.array([0, 0.25, 0.5, 0.75])
    assert training.Constant().factors(progress).tolist() == [1, 1, 1, 1]
    assert training.Cosine().factors(progress) == pytest.approx([1, 0.8535534, 0.5, 0.1464466])
    assert training.Cosine(final=0.5).factors(progress)[2] == pytest.approx(0.75)
    assert training.Cosine(warmup=0.5).factors(progress) == pytest.approx([0, 0.5, 1, 0.5])
    steps = training.Stepwise(at=(0.25, 0.75), factor=0.5).factors(progress)
    assert steps.tolist() == [1, 0.5, 0.5, 0.25]
    usual = training.Stepwise().factors(np.array([0.32, 0.35, 0.8, 0.85]))
    assert usual == pytest.approx([1, 0.1, 0.01, 0.001])


def test_a_part_for_validation_is_not_trained_with():
    net, X, y = problem(inputs=300)
    run = gbdnn.train(net, X, y, epochs=1, validation=0.25, batch_size=1000)
    # One step with all inputs that are not looked at: its loss is theirs.
    losses = oracle(net).loss_and_gradients(X, y)[0]
    tested = stream(0, "validation").permutation(300)[:75]
    assert run.history[0].loss == pytest.approx(np.delete(losses, tested).mean(), rel=1e-9)
    after = oracle(run.network)
    loss = after.loss_and_gradients(X[tested], y[tested])[0].mean()
    assert run.history[0].validation_loss == pytest.approx(loss, rel=1e-9)
    hits = after.activations(X[tested])[-1].argmax(1) == y[tested]
    assert run.history[0].validation_accuracy == hits.mean()


@pytest.mark.parametrize("inputs", [1024, 2500])
def test_all_inputs_are_validated(inputs):
    """They are evaluated 1,024 at a time: each one counts, the last of a group as well."""
    net = gbdnn.Network([gbdnn.Layer(np.eye(2), activation="identity")])
    X, y = np.tile([1.0, 0.0], (inputs, 1)), np.zeros(inputs, np.int64)
    for wrong in (0, 1023, inputs - 1):
        tested = y.copy()
        tested[wrong] = 1
        given = {"epochs": 1, "optimizer": training.SGD(1e-9), "validation": (X, tested)}
        (record,) = gbdnn.train(net, X[:8], y[:8], **given).history
        assert record.validation_accuracy == (inputs - 1) / inputs


def test_weights_of_validated_inputs_do_not_change_the_rest():
    """Weights are relative to the mean weight of the inputs that are trained with."""
    net, X, y = problem(inputs=200)
    tested = stream(0, "validation").permutation(200)[:50]
    weights = np.random.default_rng(0).random(200)
    runs = []
    for factor in (1, 1000):
        weights[tested] *= factor
        runs.append(gbdnn.train(net, X, y, epochs=2, validation=0.25, sample_weight=weights))
    assert same_bits(*runs)
    for a, b in zip(runs[0].history, runs[1].history, strict=True):
        assert a.loss == b.loss
        assert a.validation_loss == pytest.approx(b.validation_loss, rel=1e-12)


def test_dropout_of_inputs():
    net = gbdnn.Network([gbdnn.Layer(np.ones((50, 2)), activation="identity")])
    X, y = np.ones((400, 50)), np.zeros((400, 2))
    options = {"optimizer": training.SGD(1e-9), "batch_size": 100}
    plain = gbdnn.train(net, X, y, epochs=1, **options)
    assert plain.history[0].loss == pytest.approx(2500, rel=1e-3)
    run = gbdnn.train(net, X, y, epochs=1, input_dropout=0.2, **options)
    # The mean stays; the variance of a sum of 50 is 50 x 0.2 / 0.8.
    assert run.history[0].loss == pytest.approx(2500 + 12.5, abs=40)
    again = gbdnn.train(net, X, y, epochs=1, input_dropout=0.2, nthreads=2, **options)
    assert same_bits(run, again)


def test_labels_may_be_whole_numbers_of_a_floating_dtype():
    net, X, y = problem()
    options = {"epochs": 1, "loss": losses.CrossEntropy()}
    assert same_bits(*(gbdnn.train(net, X, each, **options) for each in (y, y.astype(float))))


STRINGS = getattr(np.dtypes, "StringDType", lambda: object)  # NumPy 1 has none


@pytest.mark.parametrize(
    "make", [list, np.array, lambda y: np.array(y, object), lambda y: np.array(y, STRINGS())]
)
def test_labels_may_be_strings(make):
    net, X, y = problem((20, 30, 5), 0.3, inputs=60)
    y[:5] = np.arange(5)
    words = make([["ant", "bee", "cat", "dog", "eel"][k] for k in y])
    for validation in (None, "stratified", 0.2, (X, words), [X, words]):
        numbers = (X, y) if isinstance(validation, tuple | list) else validation
        want = gbdnn.train(net, X, y, epochs=2, validation=numbers)
        run = gbdnn.train(net, X, words, epochs=2, validation=validation)
        assert same_bits(run, want)
        assert [r[:5] for r in run.history] == [r[:5] for r in want.history]


# -- what is wrong is told ----------------------------------------------------------------------


def test_a_bias_rule_that_changes_nothing_is_allowed():
    net, X, y = problem((20, 30, 5), 0.3, inputs=60)
    rules = "all", "entries"
    nets = [[gbdnn.Layer(layer.W, 0, bias_rule=rule) for layer in net] for rule in rules]
    assert same_bits(*(gbdnn.train(each, X, y, epochs=1) for each in nets))


class NoGradient:
    def losses(self, answer, targets):
        return answer[:, 0]


class Loss(NoGradient):
    def gradient(self, answer, targets):
        return answer


class WrongGradient(losses.SquaredError):
    def gradient(self, answer, targets):
        return np.zeros(2)


class WrongHits(losses.SquaredError):
    def hits(self, answer, targets):
        return np.ones((len(answer), 1))


class NoUpdate(training.SGD):
    """A subclass without an update of its own."""


class NoMoments:
    learning_rate, moments = 0.1, -1

    def update(self, values, gradient, moments, learning_rate, step):
        pass


def wrong_calls():
    """Errors, their messages, and what replaces arguments of a call that is right."""
    net, X, y = problem((20, 30, 5), 0.3, inputs=60)
    nan, large, negative = X.copy(), y.copy(), y.copy()
    nan[3, 4], large[7], negative[7] = np.nan, 5, -1
    labels, values, several = losses.CrossEntropy(), np.eye(5)[y], np.stack([y] * 5, 1)
    entries = [gbdnn.Layer(layer.W, -0.1, bias_rule="entries") for layer in net]
    A, T, S = errors.ArgumentError, errors.ArgumentTypeError, errors.ShapeError
    found = [
        (A, "label 5 of input 7", {"y": large}),
        (A, "label -1 of input 7", {"y": negative}),
        (A, 'for numbers, pass loss="squared_error"', {"y": y + 40}),
        (A, "whole numbers", {"y": y + 0.5, "loss": labels}),
        (A, "y: contains nan", {"y": np.where(y > 3, np.nan, y)}),
        (A, "must be 0 or 1", {"y": several, "loss": "binary_cross_entropy"}),
        (A, 'pass.*loss="squared_error"', {"y": several}),
        (A, "y has 1 different labels, .* 5 outputs", {"y": ["a"] * 60}),
        (T, "real numbers", {"y": ["a", 1] * 30, "loss": labels}),
        (T, "y must be .* toarray", {"y": sp.csr_array(values)}),
        (S, "one dimension", {"y": np.stack([y, y], 1), "loss": labels}),
        (S, "59 targets.*60 inputs", {"y": y[:-1]}),
        (S, r"expected \(60, 5\)", {"y": np.zeros((60, 4))}),
        (A, "contains nan", {"X": sp.csr_array(nan)}),
        (A, "X has no rows", {"X": X[:0], "y": y[:0]}),
        (S, "pass features with 20 columns", {"X": X[:, :-1]}),
        (A, "no layers", {"network": []}),
        (S, "has no weights", {"network": [gbdnn.Layer(np.ones((20, 0)))]}),
        (A, "bias rule", {"network": entries}),
        (A, "neither may be empty", {"validation": 1e-9}),
        (A, "requires labels", {"y": values, "validation": "stratified"}),
        (A, "validation: y: label 5", {"validation": (X, large)}),
        (A, "label 'z' does not occur", {"y": list("abcde") * 12, "validation": (X, ["z"] * 60)}),
        (S, "validation: sample_w", {"validation": (X, y, [1])}),
        (T, r"must be \(X, y\) or .* 1 items", {"validation": [X]}),
        (A, "requires validation data", {"patience": 3}),
        (T, "losses and gradient", {"loss": NoGradient()}),
        (S, "a custom loss with a method targets", {"loss": Loss()}),
        (S, r"WrongGradient.gradient returned .* \(2,\), expected \(60, 5\)",
         {"y": values, "loss": WrongGradient()}),
        (S, r"WrongHits.hits returned .*, expected \(60,\)", {"y": values, "loss": WrongHits()}),
        (T, "subclasses of Adam and SGD also need it", {"optimizer": NoUpdate()}),
        (A, "moments must be at least 0", {"optimizer": NoMoments()}),
        (T, "Returning.factors must contain", {"schedule": Returning(lambda x: None)}),
        (A, "Returning.factors: contains nan", {"schedule": Returning(lambda x: x + np.nan)}),
        (S, r"Returning.factors .* \(2,\), expected \(1,\)",
         {"schedule": Returning(lambda x: [1.0, 1.0])}),
        (T, "Returning.adjust .*NoneType", {"adjustments": Returning(lambda x: None)}),
        (T, "Returning.adjust: item 0", {"adjustments": Returning(lambda x: [1])}),
        (S, "Returning.adjust must be all", {"adjustments": Returning(lambda x: x[1:])}),
        (A, "input_dropout must be at least 0 and less than 1", {"input_dropout": 1.0}),
    ]  # fmt: skip
    right = {"network": net, "X": X, "y": y, "epochs": 1}
    return [(error, message, right | wrong) for error, message, wrong in found]


@pytest.mark.parametrize(("error", "message", "call"), wrong_calls())
def test_wrong_calls(error, message, call):
    raises(error, message, gbdnn.train, **call)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: training.SGD(0), "learning_rate"), (lambda: training.SGD(momentum=1), "momentum"),
        (lambda: training.Adam(beta1=1), "beta1"), (lambda: training.Cosine(final=2), "final"),
        (lambda: training.Cosine(warmup=1), "warmup"),
        (lambda: training.Stepwise(factor=0), "factor"),
        (lambda: training.GroupLasso(0.1, every=0), "every"),
        (lambda: training.SET(1.1), "fraction"), (lambda: training.RigL(until=0), "until"),
        (lambda: training.MagnitudePruning(0), "density"),
        (lambda: training.MagnitudePruning(0.1, begin=0.5, end=0.4), "less than begin"),
        (lambda: training.with_ends([], 3, 2), "hidden"),
        (lambda: training.with_ends(gbdnn.gallery.radixnet(1024, 1), 3, 2, degree=0), "degree"),
        (lambda: training.with_ends([np.ones((2, 2))], 2**62, 2), "possible edges"),
        (lambda: training.with_ends([np.ones((2, 2))], 2, 2**62), "possible edges"),
        (lambda: training.erdos_renyi([5, 3], 1.5), "density"),
        (lambda: training.erdos_renyi([2**40, 2**40], 1e-20), "possible edges"),
        (lambda: training.erdos_renyi([2**9999, 2], 0.5), "possible edges"),
        (lambda: training.erdos_renyi([2, 2**60], 1e-20), "machine has"),
    ],
)  # fmt: skip
def test_wrong_options(make, message):
    raises(gbdnn.GbdnnError, message, make)


@pytest.mark.parametrize("dtype", ["FP32", "FP64"])
def test_divergence_names_epoch_and_keeps_the_weights(dtype):
    net, X, y = problem((37, 50, 41, 10), 0.3, dtype, labels=False)
    with pytest.raises(errors.DivergenceError, match=r"epoch \d+.*learning rate below") as caught:
        gbdnn.train(net, X, y, epochs=50, optimizer=training.SGD(1e3), nthreads=2)
    run = caught.value.run
    assert all(np.isfinite(layer.weights).all() for layer in run.layers)
    pairs = zip(run.layers, net, strict=True)
    assert any((after.weights != before.W.to_coo()[2]).any() for after, before in pairs)
    gbdnn.infer(run.network, X * 0)


def test_weights_that_overflow_after_the_last_step_of_an_epoch():
    net, X, y = problem((37, 50, 41, 10), 0.3, "FP32")
    options = {"batch_size": len(X), "optimizer": training.Adam(1e20), "validation": (X, y)}
    with pytest.raises(errors.DivergenceError, match=r"epoch 0.*learning rate below") as caught:
        gbdnn.train(net, X, y, epochs=2, **options)
    assert caught.value.run.history == ()


def test_divergence_in_a_later_epoch_names_it_and_its_layer():
    net, X, y = problem((37, 50, 41, 10), 0.3, "FP32", labels=False)
    good = gbdnn.train(net, X, y, epochs=2, optimizer="sgd")
    with pytest.raises(errors.DivergenceError, match=r"epoch 2, layer \d") as caught:
        gbdnn.train(good, X, y * 1e25, epochs=2)
    assert len(caught.value.run.history) == 2


@pytest.mark.parametrize("at", [0, 199])
def test_a_gradient_that_is_too_large_in_any_panel_changes_no_weight(at, monkeypatch):
    monkeypatch.setattr(costs, "training_panel_rows", lambda _edges, nrows, _ncols: min(nrows, 50))
    W = np.where(np.arange(600).reshape(200, 3) % 7, 0.1, 0).astype("f4")
    X, y = np.zeros((20, 200), "f4"), np.ones((20, 3), "f4")
    X[:, at], W[at] = 1e35, 1e-36
    net = gbdnn.Network([gbdnn.Layer(W, activation="identity")])
    with pytest.raises(errors.DivergenceError, match="epoch 0") as caught:
        gbdnn.train(net, X, y, epochs=1, batch_size=20)
    assert caught.value.run.network[0].W.isequal(net[0].W)


# -- patterns -----------------------------------------------------------------------------------


@pytest.mark.parametrize("distribution", ["erk", "uniform"])
@pytest.mark.parametrize("density", [0.01, 0.1, 0.5, 1.0])
def test_density_of_random_networks(density, distribution):
    sizes = (784, 300, 100, 10)
    net = training.erdos_renyi(sizes, density, distribution=distribution)
    shapes = list(itertools.pairwise(sizes))
    assert [layer.shape for layer in net] == shapes
    possible = [n * m for n, m in shapes]
    assert net.edges == pytest.approx(density * sum(possible), abs=3)
    parts = np.array([layer.edges for layer in net]) / possible
    assert parts.max() <= 1
    if distribution == "uniform":
        assert parts == pytest.approx([density] * 3, abs=0.001)
    elif density < 1:
        some = (parts / [(n + m) / (n * m) for n, m in shapes])[parts < 1]
        assert some == pytest.approx([some[0]] * len(some), rel=0.02)
        assert parts[-1] > parts[0]


def test_initial_weights_have_the_variance_of_he():
    net = training.erdos_renyi([500, 400, 10], 0.2, seed=3)
    degrees = np.bincount(net[0].W.to_coo()[1].astype(int), minlength=400)
    values = dense(net[0].W)
    assert np.std((values * np.sqrt(degrees / 2))[values != 0]) == pytest.approx(1, rel=0.02)
    assert training.erdos_renyi([5, 4], 0.5, dtype="FP64").dtype == np.float64


def test_a_radixnet_is_initialised_anew():
    radix = gbdnn.gallery.radixnet(1024, 2)
    for layer, old in zip(training.initialized(radix), radix, strict=True):
        assert (layer.W.to_coo()[0] == old.W.to_coo()[0]).all()
        assert (layer.bias_rule, layer.clip) == ("all", old.clip)
        assert not layer.W.ss.is_iso


# -- threads ------------------------------------------------------------------------------------


def test_training_from_two_threads_at_once():
    from concurrent.futures import ThreadPoolExecutor

    net, X, y = problem(dtype="FP32")
    expected = gbdnn.train(net, X, y, epochs=3)
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(lambda _: gbdnn.train(net, X, y, epochs=3, nthreads=2), range(4)))
    assert all(same_bits(run, expected) for run in runs)


def test_rows_go_by_position_whatever_their_labels():
    """As in scikit-learn: a scaler returns shuffled rows with a new index."""
    pandas = pytest.importorskip("pandas")
    net, X, y = problem()
    weights = np.arange(1.0, len(X) + 1)
    options = {"epochs": 1, "validation": (X, y, weights)}
    expected = gbdnn.train(net, X, y, sample_weight=weights, **options)
    order = np.random.default_rng(0).permutation(len(X))
    for index in (order, [f"row {k}" for k in order]):
        targets, counts = (pandas.Series(each, index=index) for each in (y, weights))
        frame = pandas.DataFrame(X)
        options["validation"] = frame, targets, counts
        run = gbdnn.train(net, frame, targets, sample_weight=counts, **options)
        assert same_bits(run, expected)
        assert run.history[0].validation_loss == expected.history[0].validation_loss


def test_a_seed_may_be_a_generator():
    """Calls draw from it: equal generators give equal results, a second call another one."""
    X, y = data(network())
    calls = [
        lambda seed: training.erdos_renyi([37, 50, 10], 0.2, seed=seed)[0].W,
        lambda seed: training.initialized(network(), seed=seed)[0].W,
        lambda seed: training.with_ends(network(), 20, 5, degree=3, seed=seed)[0].W,
        lambda seed: gbdnn.gallery.radixnet(1024, 12, seed=seed)[11].W,
        lambda seed: gbdnn.train(network(), X, y, epochs=1, seed=seed).network[0].W,
        lambda seed: gbdnn.challenge.generate(1024, 12, inputs=10, seed=seed).network[11].W,
    ]
    for call in calls:
        random = np.random.default_rng(5)
        first = call(random)
        assert first.isequal(call(np.random.default_rng(5)))
        assert not first.isequal(call(random))
        assert not first.isequal(call(0))


# -- objects of users ---------------------------------------------------------------------------


def adjusted(function):
    gbdnn.train([np.eye(3)], np.eye(3), np.arange(3), epochs=2, adjustments=Returning(function))


@pytest.mark.parametrize("name", ["weights", "bias", "gradient", "rows", "indptr", "moments"])
def test_arrays_of_a_layer_change_in_place_only(name):
    message = rf"{name} of a layer in training cannot be assigned"
    raises(AttributeError, message, adjusted, lambda x: setattr(x[0], name, np.zeros(3, "f4")))

    def halve(layers):
        layers[0].weights *= 0.5
        return layers

    adjusted(halve)


@pytest.mark.parametrize("numbers", [[4, 0], [0, 0, 4], [-1, 4], [4, 9], [0.0, 4.0], [[0, 4]]])
def test_edges_ascend_within_the_layer(numbers):
    with pytest.raises(errors.ArgumentError, match="edges must be integers from 0 to 8"):
        adjusted(lambda layers: layers[0].with_edges(np.array(numbers)))
