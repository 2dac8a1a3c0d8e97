"""Convert images to features: one input per image, one neuron per pixel, 1 where there is ink.

    digits()  or an MNIST file         images, n x height x width
      -> resized to side x side        a Fourier series through all of them, side by side
      -> 0/1 by a threshold            a fraction of the maximum of all resized pixels
      -> shifted copies                up to the requested number of inputs
      -> one sparse row per input      inputs x neurons, neurons = side * side

Only the positions of ink are kept: 60,000 images of 256 x 256
pixels are never dense. Shifting a row keeps its positions in order. A position is
``row * side + column`` or, column by column, ``column * side + row``.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from gbdnn.arrays.checks import as_array, as_dtype, as_number, as_word, require_room, whole_number
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.errors import ArgumentError, ShapeError
from gbdnn.gallery.fourier import Strip
from gbdnn.runtime.optional import require

if TYPE_CHECKING:
    from collections.abc import Iterator

    import graphblas as gb
    from numpy.typing import ArrayLike, NDArray

_SIDE = 2**15  # largest side whose positions fit into 32 bits
_THRESHOLD = 0.5  # the challenge's threshold
_DENSITY = 1 / 7  # maximum fraction of ink pixels at the default threshold
_HIGHEST = 0.95  # maximum default threshold
_SAMPLE, _SAMPLE_SIDE = 2_000, 32  # number and side of the images from which it is chosen
_CHUNK = 2**20  # pixels whose ink is listed at a time


def digits() -> NDArray[np.float64]:
    """Return the 1,797 handwritten digits of scikit-learn.

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
    datasets = require("sklearn.datasets", "sklearn", "digits() needs scikit-learn")
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
    """Convert images to features of zeros and ones, as the Graph Challenge does with MNIST.

    Parameters
    ----------
    images : array-like, n x height x width
        Bright ink on dark paper, of any real dtype. Values are relative to the maximum of all
        images; negative values count as 0.
    neurons : int
        Number of pixels after resizing, a square number: 1024, 4096, 16384 and 65536 are images of
        32, 64, 128 and 256 pixels a side. Other aspect ratios are stretched to a square.
    inputs : int, optional
        Number of rows of the result (default: one per image). Less than n selects the first images.
        More than n adds copies of all images, shifted by whole resized pixels along a spiral around
        (0, 0). Pixels that leave the frame are lost.
    threshold : float, optional
        Fraction of the maximum, between 0 and 1, from which a resized pixel is ink. Default: 0.5,
        as in the challenge. If this makes more than a seventh of the pixels ink (MNIST: a tenth),
        the default is the fraction that makes a seventh ink.
    order : {"F", "C"}
        Order of pixels: column by column ("F", as in the official files) or row by row ("C"). An
        image is ``row.reshape((side, side), order=order)``.
    dtype : {"FP32", "FP64"} or NumPy dtype, default "FP32"
        Type of the values.

    Returns
    -------
    Matrix, inputs x neurons
        1 at every pixel with ink; iso-valued, stored by rows.

    Raises
    ------
    ShapeError
        ``images`` is not three-dimensional, or has no pixels.
    ArgumentError, ArgumentTypeError
        A pixel is NaN or infinite, no image has ink, `inputs` exceeds one shift per pixel, or
        another argument is invalid.

    Notes
    -----
    MNIST's 60,000 training images give the challenge's own inputs: the first 1,200 rows at 1024
    neurons equal the official ones, and so does the number of entries at all sizes (6,374,505 at
    1024 neurons, 25,019,051 at 4096, 98,858,913 at 16384 and 392,191,985 at 65536).

    The images are placed side by side, and this strip is interpolated as a Fourier series (see
    ``gbdnn/gallery/fourier.py``). Rows therefore depend on all images. 60,000 images take a few
    seconds at 1024 neurons and some minutes at 65536, for any number of `inputs`.

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
            f"neurons={neurons} is not a square number, but each neuron is a pixel of a square"
            f" image; the nearest square numbers are {side**2} and {(side + 1) ** 2}"
        )
    if side > _SIDE:
        raise ArgumentError(f"neurons={neurons} is too large; the maximum is {_SIDE**2}")
    inputs = n if inputs is None else whole_number(inputs, "inputs", least=1)
    if inputs > n * neurons:
        raise ArgumentError(
            f"inputs={inputs} is too large: {n} images with {neurons} shifts each give at most"
            f" {n * neurons}"
        )
    as_word(order, "order", ("C", "F"))
    dtype = as_dtype(dtype)
    if threshold is not None and not 0 < as_number(threshold, "threshold") < 1:
        raise ArgumentError(f"threshold must be between 0 and 1, not {threshold}")
    if not images.max() > 0:
        raise ArgumentError(f"images must have a positive pixel; their maximum is {images.max()}")
    if threshold is None:
        threshold = _threshold_for(images)
    require_room(n * neurons // 8, f"{n} images of {neurons} pixels")
    parts = _ink_of(images, side, min(n, inputs), threshold, order)
    if not any(part.pixels.size for part in parts):
        raise ArgumentError(
            f"no pixel of the first {min(n, inputs)} images reaches {threshold:.3g} of the maximum;"
            " pass a smaller threshold="
        )
    entries = inputs * sum(part.pixels.size for part in parts) // min(n, inputs)
    require_room(8 * (inputs + entries), f"{inputs} inputs", share=1)
    return _matrix(_with_shifts(parts, side, inputs, order), neurons, dtype)


def _matrix(parts: list[_Ink], neurons: int, dtype: np.dtype) -> gb.Matrix:
    counts = np.concatenate([part.counts for part in parts])
    indptr = np.zeros(len(counts) + 1, np.uint64)
    np.cumsum(counts, out=indptr[1:])
    columns = np.empty(int(indptr[-1]), np.uint64)
    start = 0
    parts.reverse()
    while parts:  # one at a time, because they are as large as the result
        pixels = parts.pop().pixels
        stop = start + len(pixels)
        columns[start:stop] = pixels
        start = stop
    return SparseRows(indptr, columns, np.ones(1, dtype), neurons).matrix()


def _checked_images(images: ArrayLike) -> NDArray:
    array = as_array(images, "images")
    if array.ndim != 3 or not array.size:
        raise ShapeError(
            f"images must have shape n x height x width and at least one pixel, not {array.shape}"
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        image, row, col = np.argwhere(~np.isfinite(array))[0]
        raise ArgumentError(
            f"images must be finite, but image {image} has {array[image, row, col]} at row {row},"
            f" column {col}"
        )
    return array


class _Ink(NamedTuple):
    """Inputs as sparse rows: `counts` positions each, concatenated in `pixels`."""

    counts: NDArray[np.int64]
    pixels: NDArray[np.int32]


def _threshold_for(images: NDArray) -> float:
    """Return the challenge's threshold, or the one for `_DENSITY` if it is higher."""
    strip = Strip(images[:: math.ceil(len(images) / _SAMPLE)], _SAMPLE_SIDE)
    return round(min(max(strip.share_for(_DENSITY), _THRESHOLD), _HIGHEST), 3)


def _ink_of(images: NDArray, side: int, inputs: int, threshold: float, order: str) -> list[_Ink]:
    """Return the ink of the first `inputs` images, in parts.

    All images, n x height x width, are resized to `side` x `side` pixels. The threshold is relative
    to their maximum. Positions go column by column if `order` is ``"F"``.
    """
    ink = Strip(images, side).ink(threshold)
    axes = (2, 1, 0) if order == "F" else (2, 0, 1)
    step = max(1, _CHUNK // (8 * side * side))  # bytes, each with a bit of eight images
    parts = []
    for start in range(0, -(-inputs // 8), step):
        count = min(8 * step, inputs - 8 * start)
        bits = np.unpackbits(ink[:, :, start : start + step], axis=2, count=count)
        rows = np.ascontiguousarray(bits.transpose(axes)).view(bool).reshape(count, -1)
        pixels = np.flatnonzero(rows) % rows.shape[1]
        parts.append(_Ink(np.count_nonzero(rows, axis=1), pixels.astype(np.int32)))
    return parts


def _with_shifts(parts: list[_Ink], side: int, inputs: int, order: str) -> list[_Ink]:
    """Return `inputs` rows: `parts`, followed by shifted copies of them."""
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
    """Return the first `limit` rows of `part` with shifted pixels, without those that leave."""
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
    """Yield the endless spiral (0, 0), (0, 1), (1, 1), (1, 0), (1, -1), ... of (down, right)."""
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
