"""Which inputs are computed together: batches in order, or dealt by a hash of their number."""

from __future__ import annotations

import numpy as np

from gbdnn.kernels.costs import REORDER_FROM

__all__ = ["FEWEST", "LARGE_PART", "LATE", "cuts", "dealt", "part_size"]

FEWEST = REORDER_FROM
"""Inputs of a batch from which on its layers are computed as those of all inputs: reordered."""

_ROUNDS = 4  # batches per worker, so that a slow one is made up for
_HALVED = 8192  # inputs of a batch that takes a tenth more time than larger ones
_PARTS, _LARGEST_PART = 64, 16_384

LATE = 2 * _ROUNDS * _HALVED
"""Inputs for each worker that may come while others compute, in batches that cost no more time."""

LARGE_PART = 65_536
"""Inputs of a part that the caller computes, or a worker that streams the network.

All weights are passed over once for each part, at the cost of some 7,000 inputs where most of them
die early (4096 neurons, 480 layers, 2 cores: 3.4 s for 20,000 inputs at once, 4.8 s in two parts).
"""


def cuts(inputs: int, workers: int, batch: int | None = None) -> np.ndarray:
    """Return where batches begin, and the number of inputs.

    By default each worker gets up to four batches of equal size, of at least `FEWEST` inputs; the
    last of them in two halves where these have `_HALVED` inputs: the end is where a worker waits
    for others, and smaller batches take longer in all. With `batch`, equal shares of at least so
    many inputs.
    """
    if batch is not None:
        return _even(0, inputs, inputs // batch)
    rounds = min(_ROUNDS, inputs // (FEWEST * workers))
    if rounds < _ROUNDS or inputs // (_ROUNDS * workers) < 2 * _HALVED:
        return _even(0, inputs, rounds * workers or inputs // FEWEST)
    last = inputs - inputs // _ROUNDS
    whole = _even(0, last, (_ROUNDS - 1) * workers)
    return np.concatenate((whole[:-1], _even(last, inputs, 2 * workers)))


def part_size(inputs: int) -> int:
    """Return the default size of a part that a worker writes.

    Small enough that many workers have some each.
    """
    return max(FEWEST, min(_LARGEST_PART, inputs // _PARTS))


def dealt(inputs: int) -> np.ndarray:
    """Return all inputs in the order of a hash of their numbers (splitmix64).

    Inputs one by one, although runs of them would be read from fewer parts of a store: of inputs
    sorted by class, the last of 24 workers with four batches of 2,500 is done after 1.02 times the
    ideal; with runs of 256 inputs after 1.19, with the given order after 1.17.
    """
    with np.errstate(over="ignore"):
        x = np.arange(1, inputs + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.argsort(x ^ (x >> np.uint64(31)), kind="stable")


def _even(start: int, stop: int, count: int) -> np.ndarray:
    return np.linspace(start, stop, max(1, count) + 1).astype(np.int64)
