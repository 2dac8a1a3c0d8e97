"""Whole runs of training, drawn at random, against formulas of PyTorch's optimizers in NumPy."""

import copy
from contextlib import suppress

import numpy as np
import pytest
from drawn import FORMS, same, seeds
from patches import pieces
from training_cases import data, network, oracle, orders, same_bits

import gbdnn
from gbdnn import errors, training
from gbdnn.training.losses import CrossEntropy, SquaredError

SIZES = (1, 2, 5, 8, 15, 16, 17, 37, 64, 130)


RULES = [
    [training.GroupLasso(1e-4), training.SET(every=2)], training.RigL(0.4, every=2),
    training.MagnitudePruning(0.6, every=2),
    training.MagnitudePruning(0.1, every=2, scope="layer"),
]  # fmt: skip


class Momentum:
    """SGD with momentum in NumPy."""

    learning_rate, moments = 0.05, 1

    def update(self, values, gradient, moments, learning_rate, step):
        moments[0] *= values.dtype.type(0.9)
        moments[0] += gradient
        values -= values.dtype.type(learning_rate) * moments[0]


# They call the methods of their classes, in NumPy.
LOSSES = [type("Same", (kind,), {}) for kind in (SquaredError, CrossEntropy)]


def optimizer(random):
    """An optimizer, and what the oracle calls it."""
    if random.random() < 0.1:
        return Momentum(), {}
    decay, norm = float(random.choice([0, 0.02])), random.choice([None, 0.2])
    options = {"weight_decay": decay, "clip_norm": norm}
    known = {"decay": decay, "norm": norm or np.inf}
    kind = random.choice(["sgd", "nesterov", "adam"])
    if kind == "adam":
        return training.Adam(0.01, **options), known | {"optimizer": "adam", "rate": 0.01}
    momentum = float(random.choice([0.5, 0.9] if kind == "nesterov" else [0, 0.5, 0.9]))
    made = training.SGD(0.05, momentum=momentum, nesterov=kind == "nesterov", **options)
    return made, known | {"optimizer": kind, "momentum": momentum}


def check(seed):
    """Draw a network, data and options; train, and raise if a weight or a loss is wrong."""
    random = np.random.default_rng(seed)
    sizes = [int(n) for n in random.choice(SIZES, random.integers(2, 6))]
    if random.random() < 0.03:  # activations in panels, or remainders of groups of edges
        sizes = [[30, 4500, 20, 4], [30, 750, 725, 4]][random.integers(2)]
    dtype, labels = random.choice(["FP32", "FP64"]), sizes[-1] > 1 and random.random() < 0.6
    last = "relu" if not labels and random.random() < 0.3 else "identity"
    clip = random.choice([None, 0.7])
    net = network(sizes, random.choice([0.1, 0.4, 1.0]), dtype, clip, seed, last)
    inputs, batch = (int(random.choice(some)) for some in ([1, 9, 33, 200], [1, 7, 16, 64, 500]))
    batch, epochs = max(batch, inputs // 20), int(random.integers(1, 4))
    X, y = data(net, inputs, seed, labels)
    X = np.asarray(X, "f4").astype(net.dtype)
    weights = None
    if random.random() < 0.5:  # some are 0
        weights = random.random(inputs) * (random.random(inputs) < 0.8)
        weights[0] = 0.5
    made, known = optimizer(random)
    of_all = np.ones(inputs) if weights is None else weights / weights.mean()

    expected, losses, hits, tested = oracle(net, **known), [], [], []
    for order in orders(inputs, epochs, seed):
        found = []
        for i in np.split(order, range(batch, inputs, batch)):
            right = expected.activations(X[i])[-1].argmax(axis=1) == y[i] if labels else [0]
            hits.append(np.dot(right, of_all[i]) if labels else 0)
            found.append(expected.step(X[i], y[i], of_all[i]))
        losses.append(np.concatenate(found).mean())
        tested.append(expected.loss_and_gradients(X, y, of_all)[0].mean())
    form = FORMS[random.integers(len(FORMS))][1]
    given, before = form(X), copy.deepcopy(net)
    options = {"sample_weight": weights, "epochs": epochs, "batch_size": batch, "seed": seed}
    options |= {"optimizer": made, "schedule": training.Constant()}
    options["loss"] = LOSSES[int(labels)]() if random.random() < 0.2 else None
    validation = X, y, *([] if weights is None else [weights])
    with pytest.MonkeyPatch.context() as patch:
        if random.random() < 0.5:  # one step per call of compiled code, or many
            patch.setattr("gbdnn.training.trainer._INTERVAL", float(random.choice([1e-9, 1e9])))
            pieces(patch)
        try:
            run, other = (
                gbdnn.train(net, given, y, validation=validation, nthreads=n, **options)
                for n in (1, 3)
            )
        except errors.DivergenceError:  # all outputs have become equal
            return False

    told = f"seed {seed}: {sizes}, {dtype}, {inputs} inputs in {batch}, {made}, clip {clip}"
    assert same_bits(run, other), told
    assert same(given, form(X)), told
    assert net.isequal(before), told
    with suppress(errors.DivergenceError):  # a run goes on with its optimizer and moments
        if epochs > 1:
            part = gbdnn.train(net, X, y, **options | {"epochs": 1})
            more = {"epochs": epochs - 1, "sample_weight": weights}
            more = gbdnn.train(part, X, y, schedule=options["schedule"], **more)
            assert same_bits(more, run), told
    with suppress(errors.DivergenceError):
        options["adjustments"] = RULES[random.integers(len(RULES))]
        ruled = [gbdnn.train(net, X, y, nthreads=n, **options) for n in (1, 3, 8)]
        assert all(same_bits(ruled[0], each) for each in ruled[1:]), (told, options)
    # Adam divides by the root of a small gradient's square: FP32's rounding is magnified.
    rough = 5e-3 if known.get("optimizer") == "adam" else 1e-4
    within = 1e-9 if dtype == "FP64" else rough
    for layer, W, b in zip(run.network, expected.W, expected.b, strict=True):
        largest = max(1, np.abs(W).max())  # of a run that diverges
        assert np.abs(layer.W.to_dense(fill_value=0) - W).max() < within * largest, told
        assert np.abs(layer.bias - b).max() < within * largest, told
    found = [record.loss for record in run.history]
    np.testing.assert_allclose(found, losses, rtol=10 * within, atol=10 * within, err_msg=told)
    found = [record.validation_loss for record in run.history]
    np.testing.assert_allclose(found, tested, rtol=10 * within, atol=10 * within, err_msg=told)
    if labels:
        accuracy = np.sum(hits) / inputs / epochs
        found = np.mean([record.accuracy for record in run.history])
        # FP32 may turn the largest of two.
        assert abs(found - accuracy) < max(1.5, of_all.max()) / inputs, told
    return losses[-1] < losses[0]


@pytest.mark.parametrize("count", [None, pytest.param(3000, marks=pytest.mark.slow)])
def test_weights_and_losses_are_those_of_the_oracle(count):
    found = [check(seed) for seed in seeds("training", count)]
    assert sum(found) > len(found) / 5
