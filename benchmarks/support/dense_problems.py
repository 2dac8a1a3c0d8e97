"""Networks with dense features: random networks of any size and density, and a trained one.

Programs read the problem from files, each in its own process, as NumPy arrays.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from math import inf
from pathlib import Path  # noqa: TC003 -- for those who read the annotations
from typing import Any

import numpy as np

_CHECKED = 1000  # rows of a result that are compared


@dataclass
class DenseProblem:
    """A network with dense weights, and its inputs, in FP32.

    Attributes
    ----------
    name : str
        Name in tables.
    weights : list of ndarray, each of shape (neurons before, neurons)
        ``W[i, j]`` is the edge from neuron i to neuron j.
    biases : list of ndarray, each of shape (neurons,)
        A bias for each neuron.
    limits : list of (float, float), or ndarray, shape (layers, 2)
        Lower and upper limit of each layer's activations, infinite if there is none.
    features : ndarray, shape (inputs, neurons of the first layer)
        The inputs.
    labels : ndarray
        Labels of the first inputs, or empty.
    """

    name: str
    weights: list[np.ndarray]
    biases: list[np.ndarray]
    limits: list[tuple[float, float]]
    features: np.ndarray
    labels: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def edges(self) -> int:
        """Number of nonzero weights."""
        return sum(int(np.count_nonzero(W)) for W in self.weights)

    @property
    def density(self) -> float:
        """Fraction of nonzero weights."""
        return self.edges / sum(W.size for W in self.weights)

    def network(self) -> Any:
        """Return the network as gbdnn's."""
        import gbdnn

        return gbdnn.Network(
            gbdnn.Layer(
                W,
                b,
                activation="relu" if low == 0 else "identity",
                clip=high if high < inf else None,
            )
            for W, b, (low, high) in zip(self.weights, self.biases, self.limits, strict=True)
        )

    def answer(self, inputs: int) -> np.ndarray:
        """Return the `checked` rows of the result for the first `inputs` inputs in FP64."""
        Y = self.features[checked(inputs)].astype(np.float64)
        for W, b, limits in zip(self.weights, self.biases, self.limits, strict=True):
            Y = np.clip(Y @ W.astype(np.float64) + b, *limits)
        return Y

    def save(self, folder: Path) -> None:
        """Write the arrays into `folder`, for `load`."""
        rest = {"limits": self.limits, "features": self.features, "labels": self.labels}
        np.savez(folder / "problem.npz", *self.weights, *self.biases, **rest)


def load(folder: Path) -> DenseProblem:
    """Return the problem that `DenseProblem.save` wrote."""
    with np.load(folder / "problem.npz") as found:
        limits, features, labels = (found[name] for name in ("limits", "features", "labels"))
        layers = [found[f"arr_{k}"] for k in range(2 * len(limits))]
    weights, biases = layers[: len(limits)], layers[len(limits) :]
    return DenseProblem(folder.name, weights, biases, limits, features, labels)


def checked(inputs: int) -> np.ndarray:
    """Return the rows of a result that are compared: all, or a thousand evenly spaced."""
    return np.unique(np.linspace(0, inputs - 1, min(inputs, _CHECKED)).astype(np.int64))


def random_problem(spec: str, inputs: int, seed: int) -> DenseProblem:
    """Return a network with random weights, and dense inputs that remain active.

    Weights have the variance 2 / edges into a neuron (He et al., 2015), so that activations keep
    their size. All layers have a ReLU, except a last layer with 10 neurons.

    Parameters
    ----------
    spec : str
        Neurons of the layers (512 twice) and percentage of edges, ``784-512x2-10@5``;
        ``784-512x2-10@5,100`` if that of the last layer differs.
    inputs : int
    seed : int
    """
    words, _, percentages = spec.partition("@")
    sizes: list[int] = []
    for word in words.split("-"):
        size, _, times = word.partition("x")
        sizes += [int(size)] * int(times or 1)
    body, *last = percentages.split(",")
    shares = [float(body) / 100] * (len(sizes) - 1)
    if last:
        shares[-1] = float(last[0]) / 100
    random = np.random.default_rng(seed)
    weights, biases = [], []
    for (n, m), share in zip(itertools.pairwise(sizes), shares, strict=True):
        W = random.normal(0, np.sqrt(2 / max(1, share * n)), (n, m)).astype(np.float32)
        W[random.random((n, m)) >= share] = 0
        weights.append(W)
        biases.append(random.normal(0, 0.1, m).astype(np.float32))
    limits = [(0.0, inf)] * len(weights)
    if sizes[-1] == 10:
        limits[-1] = (-inf, inf)
    features = random.normal(0.3, 1, (inputs, sizes[0])).astype(np.float32)
    name = f"{words}, {body} %" + (f", last layer {last[0]} %" if last else "")
    return DenseProblem(name, weights, biases, limits, features)


def trained_problem(folder: Path) -> DenseProblem:
    """Return a network that was trained on MNIST's images, and its test images."""
    from images_to_learn import images  # and with it gbdnn

    import gbdnn
    from gbdnn.training import erdos_renyi

    data = images(folder)
    net = erdos_renyi([data.X.shape[1], 128, 64, 10], 0.15, seed=0)
    net = gbdnn.train(net, data.X, data.y, epochs=3, seed=0, nthreads=1).network
    name = f"{data.X.shape[1]}-128-64-10, trained on {data.name}, 15 %"
    return of_network(name, net, data.X_test, data.y_test)


def of_network(name: str, net: Any, features: np.ndarray, *labels: np.ndarray) -> DenseProblem:
    """Return the problem of a gbdnn network."""
    return DenseProblem(
        name,
        [layer.weights.to_dense(fill_value=0, dtype="FP32") for layer in net],
        [np.full(layer.ncols, layer.bias, np.float32) for layer in net],
        [(0.0 if layer.activation == "relu" else -inf, layer.clip or inf) for layer in net],
        features,
        *labels,
    )
