"""A network trained and pruned in PyTorch on MNIST's test images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn import io

if TYPE_CHECKING:
    from pathlib import Path

LEARNT = 2000  # the first of the 10,000 images, used for training


def images(folder: Path) -> np.ndarray:
    """Return the test images, one row of 784 numbers from 0 to 1 each."""
    return io.read_idx(folder / "t10k-images-idx3-ubyte.gz").reshape(10_000, 784) / 255


def labels(folder: Path) -> np.ndarray:
    """Return the labels of the test images."""
    return io.read_idx(folder / "t10k-labels-idx1-ubyte.gz").astype(np.int64)


def trained(x: np.ndarray, y: np.ndarray) -> Any:
    """Return a module of 784-128-64-10 in double precision, pruned by 85 % and fine-tuned.

    In double precision the order of additions changes no prediction.
    """
    import torch
    from torch import nn
    from torch.nn.utils import prune

    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU6(), nn.Linear(64, 10)
        ).double()
        _learn(model, x, y, epochs=6)
        parts = [(part, "weight") for part in model if isinstance(part, nn.Linear)]
        prune.global_unstructured(parts, prune.L1Unstructured, amount=0.85)
        _learn(model, x, y, epochs=3)
    return model.eval()


def _learn(model: Any, images: np.ndarray, labels: np.ndarray, epochs: int) -> None:
    import torch

    x, y = torch.from_numpy(images[:LEARNT]), torch.from_numpy(labels[:LEARNT])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(epochs):
        for batch in torch.randperm(LEARNT).split(100):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
