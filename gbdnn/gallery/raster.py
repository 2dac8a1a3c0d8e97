"""Images as rows of ink: resized, made 0/1 by a threshold, shifted.

The images go through in chunks, of which only the positions of the ink are kept. A row is
shifted by moving these positions, which keeps them in order. A position is
``row * side + column``; whoever wants columns first swaps the axes of the images.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbdnn.errors import ArgumentError, MissingPackageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_SIDE = 32  # pixels a side, and
_SAMPLE = 10_000  # the most images, from which a threshold is chosen
_CHUNK = 2**20  # pixels resized at a time: their 4 MiB stay in a cache


class Ink(NamedTuple):
    """Some inputs as sparse rows: `counts` positions each, all `pixels` in one array."""

    counts: NDArray[np.int64]
    pixels: NDArray[np.int32]


def threshold_for(images: NDArray, density: float, lowest: float, highest: float) -> float:
    """Return the threshold, of three decimals, at which `density` of the pixels are ink."""
    sample = images[:: math.ceil(len(images) / _SAMPLE)]
    resized = [chunk.flatten() for chunk in _resized(sample, _SIDE, images.max())]
    found = float(np.quantile(np.concatenate(resized), 1 - density))
    return round(min(max(found, lowest), highest), 3)


def ink_of(images: NDArray, side: int, peak: Any, threshold: float) -> Iterator[Ink]:
    """Yield the ink of `images`, some of them at a time.

    Parameters
    ----------
    images : ndarray, n x height x width
        Finite real numbers.
    side : int
        Pixels a side after resizing.
    peak : number
        The value of a pixel full of ink, > 0.
    threshold : float
        The share of `peak` from which a resized pixel is ink.
    """
    for chunk in _resized(images, side, peak):
        ink = (chunk >= np.float32(threshold)).reshape(len(chunk), -1)
        pixels = np.flatnonzero(ink) % ink.shape[1]
        yield Ink(np.count_nonzero(ink, axis=1), pixels.astype(np.int32))


def _resized(images: NDArray, side: int, peak: Any) -> Iterator[NDArray[np.float32]]:
    """Yield A X B' for chunks X of the images, as shares of `peak`, in one and the same buffer."""
    A, B = (_interpolation(length, side) for length in images.shape[1:])
    step = max(1, _CHUNK // max(side * side, images[0].size))
    buffer = np.empty((min(step, len(images)), side, side), np.float32)
    for start in range(0, len(images), step):
        X = np.maximum(images[start : start + step] / peak, 0).astype(np.float32)
        yield np.matmul(A, X @ B.T, out=buffer[: len(X)])


def _interpolation(length: int, side: int) -> NDArray[np.float32]:
    """Return the side x length matrix that resizes a line of `length` pixels to `side`."""
    try:
        from scipy import ndimage
    except ImportError as err:
        raise MissingPackageError(
            'features_from_images() needs SciPy: pip install "gbdnn[files]"'
        ) from err
    A = np.eye(length)
    if length > side:  # several pixels become one: smooth, or thin strokes fall between
        A = ndimage.gaussian_filter1d(A, (length / side - 1) / 2, axis=0, mode="constant")
    zoom = (side / length, 1)
    return ndimage.zoom(A, zoom, order=1, mode="grid-constant", grid_mode=True).astype(np.float32)


def with_shifts(parts: list[Ink], side: int, inputs: int, *, columns_first: bool) -> list[Ink]:
    """Return `parts` with shifted copies of all of them after them, up to `inputs` rows.

    Parameters
    ----------
    parts : list of Ink
        The n originals, fewer than `inputs`; at least one has ink.
    side : int
        Pixels a side.
    inputs : int
        Rows of the answer.
    columns_first : bool
        The images' axes were swapped: so are the offsets, for the same shifts.

    Raises
    ------
    ArgumentError
        There are fewer shifts that leave every image the ink nearest to its middle.
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
