"""Training and test images: MNIST if its files exist, else scikit-learn's digits.

The four IDX files of MNIST, plain or gzip, are in a folder, by default ``$GBDNN_DATA/mnist``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

import gbdnn

_FILES = [
    f"{part}-{what}-ubyte" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1")
]


class Images(NamedTuple):
    """FP32 features with mean 0 and variance 1 over all pixels, and labels."""

    name: str
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray

    def accuracy(self, net: gbdnn.Network) -> float:
        """Return the percentage of test images that a network classifies correctly."""
        found = gbdnn.argmax(gbdnn.infer(net, self.X_test, nthreads=1))
        return float(100 * np.mean(found == self.y_test))


def images(folder: Path | None = None) -> Images:
    """Return MNIST, or digits."""
    if folder is None and (data := os.environ.get("GBDNN_DATA")):
        folder = Path(data) / "mnist"
    found = [folder and _file(folder, name) for name in _FILES]
    return _mnist(found) if all(found) else _digits()


def _mnist(files: list[Path]) -> Images:
    X, X_test = (
        (gbdnn.io.read_features(file).to_dense() - np.float32(0.1307)) / np.float32(0.3081)
        for file in files[::2]
    )
    y, y_test = map(gbdnn.io.read_labels, files[1::2])
    return Images("MNIST", X, y.astype(np.int64), X_test, y_test.astype(np.int64))


def _file(folder: Path, name: str) -> Path | None:
    found = (folder / each for each in (name, f"{name}.gz"))
    return next((path for path in found if path.exists()), None)


def _digits() -> Images:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    X = ((X - X.mean()) / X.std()).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(X))
    train, test = order[:1500], order[1500:]
    return Images("digits of scikit-learn", X[train], y[train], X[test], y[test])
