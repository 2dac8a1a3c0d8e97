"""From images to features: one input per image, one neuron per pixel, 1 where there is ink.

    digits()  or an MNIST file         images, n x height x width
      -> resized to side x side        a Fourier series through all of them, side by side
      -> 0/1 by a threshold            a share of the largest value of all resized pixels
      -> shifted copies                until there are as many inputs as were asked for
      -> one sparse row per input      inputs x neurons, neurons = side * side

The interpolation is in `gallery.fourier`. Of the resized images only the positions of the ink are
kept: 60,000 images of 256 x 256 pixels are never dense. A row is shifted by moving these positions,
which keeps them in order. A position is ``row * side + column`` or, column by column,
``column * side + row``.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from gbdnn.arrays.checks import as_array, as_dtype, as_number, as_word, whole_number
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.errors import ArgumentError, ShapeError
from gbdnn.gallery.fourier import Strip
from gbdnn.runtime.optional import require

if TYPE_CHECKING:
    from collections.abc import Iterator

    import graphblas as gb
    from numpy.typing import ArrayLike, NDArray

_SIDE = 2**15  # the largest whose positions fit into 32 bits
_THRESHOLD = 0.5  # of the challenge
_DENSITY = 1 / 7  # largest share of pixels with ink at the default threshold
_HIGHEST = 0.95  # largest default threshold
_SAMPLE, _SAMPLE_SIDE = 2_000, 32  # images, and pixels a side, that it is chosen from
_CHUNK = 2**20  # pixels whose ink is listed at a time


def digits() -> NDArray[np.float64]:
    """Return the 1,797 handwritten digits that come with scikit-learn.

    Returns
    -------
    ndarray, 1797 x 8 x 8
        Pixels from 0 (paper) to 16 (ink).

    Raises
    ------
    MissingPackageError
        scikit-learn is not installed.

    Examples
    --------
    >>> from gbdnn.gallery import digits
    >>> digits().shape
    (1797, 8, 8)
    """
    datasets = require("sklearn.datasets", "challenge", "digits() needs scikit-learn")
    return datasets.load_digits().images


def features_from_images(
    images: ArrayLike,
    neurons: int = 1024,
    *,
    inputs: int | None = None,
    threshold: float | None = None,
    order: Literal["C", "F"] = "F",
    dtype: Any = "FP32",
) -> gb.Matrix:
    """Turn images into features of zeros and ones, as the Graph Challenge does with MNIST.

    Parameters
    ----------
    images : array-like, n x height x width
        Bright ink on dark paper, of any real numeric dtype. What matters is a pixel's share
        of the largest value among all the images; values below 0 count as 0.
    neurons : int
        Pixels after resizing, a square number: 1024, 4096, 16384 and 65536 are images of 32,
        64, 128 and 256 pixels a side. Other proportions are stretched to the square.
    inputs : int, optional
        Rows of the result (default: one per image). Fewer than n are the first images. More than
        n are the images in order, followed by all of them shifted by the first offset of a spiral
        around (0, 0), then by the second, and so on; the last round may be incomplete. Shifts are
        by whole pixels of the resized images. Pixels that leave the frame are lost.
    threshold : float, optional
        The share of the largest value that any resized pixel has, between 0 and 1, from which
        a resized pixel is ink. By default 0.5, as in the challenge; where that makes ink of
        more than a seventh of the pixels (thick strokes, such as the digits'; MNIST has a
        tenth), the share that makes ink of a seventh.
    order : {"F", "C"}
        How pixels become neurons: column by column ("F", as in the official files: a row of
        the answer is ``row.reshape((side, side), order="F")``) or row by row ("C").
    dtype : {"FP32", "FP64"} or NumPy dtype, default "FP32"
        The dtype of the ones.

    Returns
    -------
    Matrix, inputs x neurons
        1 at every pixel with ink; iso-valued, stored row by row.

    Raises
    ------
    ShapeError
        ``images`` has another rank than 3, or has no pixels.
    ArgumentError
        A pixel is NaN or infinite, no image has ink, `inputs` is more than one shift per pixel
        gives, or another argument is invalid.
    ArgumentTypeError
        An argument is of the wrong type.

    Notes
    -----
    MNIST's 60,000 training images become the challenge's own inputs, entry by entry: the first
    1,200 of 1024 neurons are equal to the official ones, and the number of entries is the
    official one, 6,374,505 at 1024 neurons, 25,019,051 at 4096, 98,858,913 at 16384 and
    392,191,985 at 65536.

    The images are put side by side, and this strip is interpolated as a Fourier series at the
    points ``i * height / side`` and ``j * width / side``; frequencies for which there are fewer
    points are left out. The absolute value counts. So rows depend on all the images: one whose
    ink comes near its frame shows in the next one, and the largest value is that of all of them.
    More than 256 images are followed by blank ones, up to a number without prime factors above 5.
    `inputs` leaves no work out: 60,000 images take a few seconds at 1024 neurons, and some
    minutes at 65536. Equal arguments give equal features, and the first rows do not depend on
    `inputs`.

    Examples
    --------
    >>> from gbdnn.gallery import digits, features_from_images
    >>> Y = features_from_images(digits(), 1024, inputs=5000)
    >>> Y.shape, Y.ss.is_iso
    ((5000, 1024), True)
    """
    images = _checked_images(images)
    n = len(images)
    neurons = whole_number(neurons, "neurons", least=1)
    side = math.isqrt(neurons)
    if side * side != neurons:
        raise ArgumentError(
            f"neurons: {neurons} is not a square number, as one neuron per pixel of a square "
            f"image needs; the nearest are {side**2} and {(side + 1) ** 2}"
        )
    if side > _SIDE:
        raise ArgumentError(f"neurons: {neurons} is more than {_SIDE**2}, the most there can be")
    inputs = n if inputs is None else whole_number(inputs, "inputs", least=1)
    if inputs > n * neurons:
        raise ArgumentError(
            f"inputs={inputs} is too large: {n} images with {neurons} shifts each give at most"
            f" {n * neurons}"
        )
    as_word(order, "order", ("C", "F"))
    dtype = as_dtype(dtype)
    if threshold is not None and not 0 < as_number(threshold, "threshold") < 1:
        raise ArgumentError(f"threshold is between 0 and 1, not {threshold}")
    if not images.max() > 0:
        raise ArgumentError(f"images: the largest value is {images.max()}; no image has ink")
    if threshold is None:
        threshold = _threshold_for(images)

    parts = _ink_of(images, side, min(n, inputs), threshold, order)
    if not any(part.pixels.size for part in parts):
        raise ArgumentError(
            f"images: no pixel of the first {min(n, inputs)} images reaches {threshold:.3g} of the"
            " largest value"
        )
    return _matrix(_with_shifts(parts, side, inputs, order), neurons, dtype)


def _matrix(parts: list[_Ink], neurons: int, dtype: np.dtype) -> gb.Matrix:
    counts = np.concatenate([part.counts for part in parts])
    indptr = np.zeros(len(counts) + 1, np.uint64)
    np.cumsum(counts, out=indptr[1:])
    columns = np.empty(int(indptr[-1]), np.uint64)
    start = 0
    parts.reverse()
    while parts:  # one at a time, as they are as large as the answer
        pixels = parts.pop().pixels
        stop = start + len(pixels)
        columns[start:stop] = pixels
        start = stop
    return SparseRows(indptr, columns, np.ones(1, dtype), neurons).matrix()


def _checked_images(images: ArrayLike) -> NDArray:
    array = as_array(images, "images")
    if array.ndim != 3 or not array.size:
        raise ShapeError(
            "images: an array of n x height x width with at least one pixel is needed, not of shape"
            f" {array.shape}"
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        image, row, col = np.argwhere(~np.isfinite(array))[0]
        raise ArgumentError(
            f"images: image {image} has {array[image, row, col]} at row {row}, column {col}"
        )
    return array


class _Ink(NamedTuple):
    """Some inputs as sparse rows: `counts` positions each, all `pixels` in one array."""

    counts: NDArray[np.int64]
    pixels: NDArray[np.int32]


def _threshold_for(images: NDArray) -> float:
    """Return the challenge's threshold, or the one for `_DENSITY` if that is higher."""
    strip = Strip(images[:: math.ceil(len(images) / _SAMPLE)], _SAMPLE_SIDE)
    return round(min(max(strip.share_for(_DENSITY), _THRESHOLD), _HIGHEST), 3)


def _ink_of(images: NDArray, side: int, inputs: int, threshold: float, order: str) -> list[_Ink]:
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
        parts.append(_Ink(np.count_nonzero(rows, axis=1), pixels.astype(np.int32)))
    return parts


def _with_shifts(parts: list[_Ink], side: int, inputs: int, order: str) -> list[_Ink]:
    """Return `inputs` rows: `parts`, then all of them shifted, by one offset after the other."""
    n = sum(len(part.counts) for part in parts)
    result, missing = list(parts), inputs - n
    for at in islice(_spiral(), 1, math.ceil(inputs / n)):
        down, across = at[::-1] if order == "F" else at
        for part in parts:
            if not missing:
                break
            result.append(_shifted(part, down, across, side, missing))
            missing -= len(result[-1].counts)
    return result


def _shifted(part: _Ink, down: int, across: int, side: int, limit: int) -> _Ink:
    """Return the first `limit` rows of `part`, each pixel moved, those that leave dropped."""
    counts = part.counts[:limit]
    ends = np.cumsum(counts)
    pixels = part.pixels[: ends[-1]]
    row, col = np.divmod(pixels, np.int32(side))
    row += down
    col += across
    keep = (row >= 0) & (row < side) & (col >= 0) & (col < side)
    kept = np.concatenate(([0], np.cumsum(keep)))
    return _Ink(kept[ends] - kept[ends - counts], pixels[keep] + np.int32(down * side + across))


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
