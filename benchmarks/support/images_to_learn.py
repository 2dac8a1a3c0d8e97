"""Training and test images: MNIST if its files exist, else scikit-learn's digits.

The four IDX files of MNIST, plain or gzip, are in ``$GBDNN_DATA/mnist``.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gbdnn import io

_FILES = ("{}-images-idx3-ubyte", "{}-labels-idx1-ubyte")


class Images(NamedTuple):
    """FP32 features with mean 0 and variance 1 over all pixels, and labels."""

    name: str
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray

    def validation(self) -> Images:
        """Return the training images only, with the last sixth as test images."""
        n = len(self.X) - len(self.X) // 6
        name = f"{self.name}, the last sixth of the training images to test with"
        return Images(name, self.X[:n], self.y[:n], self.X[n:], self.y[n:])


def images() -> Images:
    """Return MNIST, or digits."""
    data = os.environ.get("GBDNN_DATA")
    folder = Path(data or "") / "mnist"
    has_files = data and _file(folder, _FILES[0].format("train"))
    return _mnist(folder) if has_files else _digits()


def _mnist(folder: Path) -> Images:
    arrays = []
    for part in "train", "t10k":
        X, y = (io.read_idx(_file(folder, each.format(part)) or folder) for each in _FILES)
        X = X.reshape(len(X), -1) / np.float32(255)
        arrays += [(X - np.float32(0.1307)) / np.float32(0.3081), y.astype(np.int64)]
    return Images("MNIST", *arrays)


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
