"""Images as rows of ink: resized, made 0/1 by a threshold, shifted.

Of the resized images only the positions of the ink are kept. A row is shifted by moving these
positions, which keeps them in order. A position is ``row * side + column``, or, columns first,
``column * side + row``.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gbdnn.errors import ArgumentError
from gbdnn.gallery.fourier import Strip

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_SAMPLE = 2_000  # the most images, of
_SIDE = 32  # pixels a side, from which a threshold is chosen
_HIGHEST = 0.95  # of those that are chosen
_CHUNK = 2**20  # pixels whose ink is listed at a time


class Ink(NamedTuple):
    """Some inputs as sparse rows: `counts` positions each, all `pixels` in one array."""

    counts: NDArray[np.int64]
    pixels: NDArray[np.int32]


def threshold_for(images: NDArray, lowest: float, density: float) -> float:
    """Return the threshold, of three decimals, at which at most `density` of the pixels are ink."""
    strip = Strip(images[:: math.ceil(len(images) / _SAMPLE)], _SIDE)
    return round(min(max(strip.share_for(density), lowest), _HIGHEST), 3)


def ink_of(images: NDArray, side: int, inputs: int, threshold: float, order: str) -> list[Ink]:
    """Return the ink of the first `inputs` images, some of them in each item.

    All images, n x height x width, are resized to `side` pixels a side: the threshold is a share of
    the largest value among them. Positions go column by column if `order` is ``"F"``.
    """
    ink = Strip(images, side).ink(threshold)
    axes = (2, 1, 0) if order == "F" else (2, 0, 1)
    step = max(1, _CHUNK // (8 * side * side))  # bytes, of eight images each
    parts = []
    for start in range(0, -(-inputs // 8), step):
        count = min(8 * step, inputs - 8 * start)
        bits = np.unpackbits(ink[:, :, start : start + step], axis=2, count=count)
        rows = np.ascontiguousarray(bits.transpose(axes)).view(bool).reshape(count, -1)
        pixels = np.flatnonzero(rows) % rows.shape[1]
        parts.append(Ink(np.count_nonzero(rows, axis=1), pixels.astype(np.int32)))
    return parts


def with_shifts(parts: list[Ink], side: int, inputs: int, *, columns_first: bool) -> list[Ink]:
    """Return `parts` with shifted copies of all of them after them, up to `inputs` rows.

    At least one image has ink. Where positions go column by column, offsets are swapped, for the
    same shifts. An ArgumentError says that too few shifts leave every image the ink nearest to its
    middle.
    """
    n = sum(len(part.counts) for part in parts)
    rows, cols = _middles(parts, side)
    # the offsets that keep all these pixels in the frame are a rectangle around (0, 0)
    top, bottom = -int(rows.min()), side - 1 - int(rows.max())
    left, right = -int(cols.min()), side - 1 - int(cols.max())
    usable = (bottom - top + 1) * (right - left + 1)
    if inputs > n * usable:
        raise ArgumentError(
            f"inputs: {inputs} asked for, but {n} images of {side} x {side} pixels give at most "
            f"{n * usable}: {usable} whole-pixel shifts, the one by (0, 0) among them, leave "
            "every image the ink nearest to its middle"
        )
    spiral = (at[::-1] if columns_first else at for at in _spiral())
    offsets = (at for at in spiral if top <= at[0] <= bottom and left <= at[1] <= right)
    result, missing = list(parts), inputs - n
    for down, across in islice(offsets, 1, math.ceil(inputs / n)):
        for part in parts:
            if not missing:
                break
            result.append(_shifted(part, down, across, side, missing))
            missing -= len(result[-1].counts)
    return result


def _middles(parts: list[Ink], side: int) -> tuple[NDArray, NDArray]:
    """Return row and column of the ink nearest to the middle, for each image that has ink."""
    nearest = []
    for counts, pixels in parts:
        row, col = np.divmod(pixels.astype(np.int64), side)
        distance = (2 * row - side + 1) ** 2 + (2 * col - side + 1) ** 2
        starts = (np.cumsum(counts) - counts)[counts > 0]
        key = distance * side**2 + pixels  # among equals the first pixel
        nearest.append(np.minimum.reduceat(key, starts) if len(starts) else key)
    rows, cols = np.divmod(np.concatenate(nearest) % side**2, side)
    return rows, cols


def _shifted(part: Ink, down: int, across: int, side: int, limit: int) -> Ink:
    """Return the first `limit` rows of `part`, each pixel moved, those that leave dropped."""
    counts = part.counts[:limit]
    ends = np.cumsum(counts)
    pixels = part.pixels[: ends[-1]]
    row, col = np.divmod(pixels, np.int32(side))
    row += down
    col += across
    keep = (row >= 0) & (row < side) & (col >= 0) & (col < side)
    kept = np.concatenate(([0], np.cumsum(keep)))
    return Ink(kept[ends] - kept[ends - counts], pixels[keep] + np.int32(down * side + across))


def _spiral() -> Iterator[tuple[int, int]]:
    """Yield (0, 0), (0, 1), (1, 1), (1, 0), (1, -1), ...: (down, right), without end."""
    down = across = 0
    run, step = 1, 1
    while True:
        for _ in range(run):
            yield down, across
            across += step
        for _ in range(run):
            yield down, across
            down += step
        run, step = run + 1, -step
