"""Networks and data to train with, and comparisons of runs."""

import itertools

import numpy as np
from training_oracle import Oracle

import gbdnn


def network(sizes=(37, 50, 41, 10), density=0.2, dtype="FP64", clip=None, seed=0, last="identity"):
    """Biases of both signs: some neurons are dead for some inputs, none for all."""
    random = np.random.default_rng(seed)
    layers = []
    for k, (n, m) in enumerate(itertools.pairwise(sizes)):
        mask = random.random((n, m)) < density
        W = random.standard_normal((n, m)) * np.sqrt(2 / np.maximum(mask.sum(0), 1)) * mask
        inner = k < len(sizes) - 2
        activation, bias = "relu" if inner else last, random.standard_normal(m) * 0.1
        options = {"dtype": dtype, "clip": clip if activation == "relu" else None}
        layers.append(gbdnn.Layer(W, bias, activation=activation, **options))
    return gbdnn.Network(layers)


def data(net, inputs=333, seed=1, labels=True):
    random = np.random.default_rng(seed)
    X = random.random((inputs, net.shape[0]))
    X[random.random(X.shape) < 0.3] = 0
    if labels:
        return X, random.permutation(np.arange(inputs) % net.shape[1])
    return X, random.standard_normal((inputs, net.shape[1]))


def problem(*given, inputs=333, labels=True, **options):
    """Return a network and data to train it with."""
    net = network(*given, **options)
    return net, *data(net, inputs, labels=labels)


def learned(run):
    return [
        array
        for layer in run.layers
        for array in (layer.weights, layer.bias, *layer.moments, *layer.bias_moments)
    ]


def same_bits(a, b):
    arrays = ([*learned(run), *(layer.edges for layer in run.layers)] for run in (a, b))
    return len(a.layers) == len(b.layers) and all(map(np.array_equal, *arrays))


def oracle(net, **options):
    return Oracle(
        [layer.W.to_dense(fill_value=0) for layer in net],
        [np.broadcast_to(layer.bias, layer.ncols) for layer in net], [layer.clip for layer in net],
        [layer.activation == "relu" for layer in net], **options,
    )  # fmt: skip


def orders(inputs, epochs, seed=0):
    """The documented order of inputs: a permutation per epoch, from seed and epoch."""
    return [stream(seed, "order", e).permutation(inputs) for e in range(epochs)]


def stream(seed, purpose, *numbers):
    """The documented stream of random numbers for a purpose."""
    words = (int.from_bytes(each.encode(), "big") for each in ("gbdnn", purpose))
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(*words, *numbers)))
