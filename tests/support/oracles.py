"""What the answers must be, in FP64 with NumPy alone. Nothing here imports gbdnn."""

import itertools
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Dense:
    """A layer as dense arrays and plain options."""

    W: np.ndarray
    b: float | np.ndarray = 0.0
    rule: str = "all"
    activation: str = "relu"
    clip: float | None = None


def dense_inference(layers, X):
    """The activations after the last layer, dense, FP64."""
    Y = np.asarray(X, np.float64)
    for layer in layers:
        Y = dense_layer(layer, Y)
    return Y


def dense_layer(layer, Y):
    W = np.asarray(layer.W, np.float64)
    Z = Y @ W
    if layer.rule == "entries":
        paths = (Y != 0).astype(np.float64) @ (W != 0).astype(np.float64)
        Z = np.where(paths > 0, Z + layer.b, 0.0)
    else:
        Z = Z + layer.b
    if layer.activation == "relu":
        Z = np.where(Z > 0, Z, 0.0)
    if layer.clip is not None:
        Z = np.where(layer.clip < Z, layer.clip, Z)
    return Z


@dataclass
class Case:
    """A network, features and their dense answer."""

    layers: list[Dense]
    X: np.ndarray
    exact: bool = True
    Y: np.ndarray = field(init=False)

    def __post_init__(self):
        self.Y = dense_inference(self.layers, self.X)
        entries = np.count_nonzero(self.Y)
        assert entries > 0, "the expected answer is empty"
        last = self.layers[-1]
        everywhere = last.rule == "all" and last.activation == "identity" and np.any(last.b)
        assert everywhere or entries < self.Y.size, "the expected answer is full"
        assert len(np.unique(self.Y)) > 3, "the expected answer is saturated"


def dyadic(random, shape, density, low=-16, high=16):
    """Multiples of 1/16 from low/16 to high/16, the given share of them not 0."""
    values = random.integers(low, high, shape, endpoint=True) / 16
    return np.where(random.random(shape) < density, values, 0.0)


def case(
    seed, *, sizes=(24, 30, 18, 20), inputs=40, density=0.3, rule="all", bias="negative",
    activation="relu", clip=2.0, exact=True,
):  # fmt: skip
    """A random network with the given bias signs; with `exact`, all sums are exact in FP32."""
    random = np.random.default_rng(seed)
    layers = []
    for k, (n, m) in enumerate(itertools.pairwise(sizes)):
        last = k == len(sizes) - 2
        W = dyadic(random, (n, m), density, low=-8)
        if not exact:
            W = W * random.random((n, m))
        b, kind = biases(random, bias, m), activation if last else "relu"
        layers.append(Dense(W, b, rule, kind, clip))
    X = dyadic(random, (inputs, sizes[0]), density, low=-4, high=32)
    X[:: max(inputs // 5, 2)] = 0  # some inputs are dead from the start
    return Case(layers, X, exact)


def biases(random, kind, neurons):
    b = random.integers(1, 6, neurons) / 16
    if kind == "mixed vector":
        return np.where(random.random(neurons) < 0.3, 0, b) * random.choice([-1, 1], neurons)
    numbers = {"zero": 0.0, "negative": -0.1875, "positive": 0.125}
    return (numbers | {"negative vector": -b, "positive vector": b})[kind]
