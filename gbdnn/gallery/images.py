"""From images to features: one input per image, one neuron per pixel, 1 where there is ink.

    digits()  or an MNIST file         images, n x height x width
      -> resized to side x side        a Fourier series through all of them, side by side
      -> 0/1 by a threshold            a share of the largest value of all resized pixels
      -> shifted copies                until there are as many inputs as were asked for
      -> one sparse row per input      inputs x neurons, neurons = side * side

The checks and the conversion to a Matrix are here, the interpolation in `gallery.fourier`, ink and
shifts in `gallery.raster`. 60,000 images of 256 x 256 pixels are never dense.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gbdnn.arrays.checks import whole_number
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.errors import ArgumentError, ArgumentTypeError, ShapeError
from gbdnn.gallery.raster import Ink, ink_of, threshold_for, with_shifts
from gbdnn.runtime.first_use import COMPLETION, complete, gb, shown
from gbdnn.runtime.optional import require

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_SIDE = 2**15  # the largest whose positions, squared, fit into 64 bits
_THRESHOLD = 0.5  # the challenge's, unless
_DENSITY = 1 / 7  # of the pixels are ink at a higher one


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
    >>> from gbdnn.gallery.images import digits
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
        Rows of the answer; by default one per image. Fewer than n are the first of them. More
        are the n images in order, then all of them shifted by the first offset of a spiral
        around (0, 0), then by the second, and so on, the last round cut short. Shifts are by
        whole pixels of the resized images; what leaves the frame is lost and what comes in is
        empty.
    threshold : float, optional
        The share of the largest value that any resized pixel has, between 0 and 1, from which
        a resized pixel is ink. By default 0.5, as in the challenge; where that makes ink of
        more than a seventh of the pixels (thick strokes, such as the digits'; MNIST has a
        tenth), the share that makes ink of a seventh.
    order : {"F", "C"}
        How pixels become neurons: column by column ("F", as in the official files: a row of
        the answer is ``row.reshape((side, side), order="F")``) or row by row ("C").
    dtype : GraphBLAS or NumPy dtype
        The type of the ones.

    Returns
    -------
    Matrix, inputs x neurons
        1 at every pixel with ink; iso-valued, stored row by row.

    Raises
    ------
    ShapeError
        ``images`` has another rank than 3, or has no pixels.
    ArgumentError
        Another argument has no meaning, a pixel is NaN or infinite, no image has ink, or
        `inputs` is more than the shifts can give: an offset is used if it leaves every image
        (blank ones apart) the ink that is nearest to the middle of its frame.
    ArgumentTypeError
        An argument is of the wrong kind.

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
    if not isinstance(order, str) or order not in ("C", "F"):
        raise ArgumentError(f'order: expected "C" or "F", found {shown(order)}')
    dtype = _checked_dtype(dtype)

    if threshold is not None:
        threshold = _checked_threshold(threshold)
    peak = images.max()
    if not peak > 0:
        raise ArgumentError(f"images: no image has ink: the largest value is {peak}")
    if threshold is None:
        threshold = threshold_for(images, _THRESHOLD, _DENSITY)

    parts = ink_of(images, side, min(n, inputs), threshold, order)
    if not any(part.pixels.size for part in parts):
        raise ArgumentError(
            f"images: no image has ink: no pixel of the first {min(n, inputs)} of {n} images "
            f"reaches {threshold:.3g} of the largest value of all"
        )
    if inputs > n:
        parts = with_shifts(parts, side, inputs, columns_first=order == "F")
    return _matrix(parts, neurons, dtype)


def _matrix(parts: list[Ink], neurons: int, dtype: Any) -> gb.Matrix:
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
    return SparseRows(indptr, columns, np.ones(1, dtype.np_type), neurons).matrix()


def _checked_images(images: ArrayLike) -> NDArray:
    if isinstance(images, np.ma.MaskedArray):
        raise ArgumentTypeError("images: a masked array; fill what is masked: filled(0)")
    complete(images)
    try:
        array = np.asarray(images)
    except ValueError as err:
        raise ShapeError(f"images: not an array of n x height x width: {err}") from err
    if array.dtype.kind not in "biuf":
        raise ArgumentTypeError(f"images: expected real numbers, found dtype {array.dtype}")
    if array.ndim != 3 or not array.size:
        raise ShapeError(
            "images: expected n x height x width with at least one pixel, found shape "
            f"{array.shape}"
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        image, row, col = np.argwhere(~np.isfinite(array))[0]
        raise ArgumentError(
            f"images: image {image} has {array[image, row, col]} at row {row}, column {col}"
        )
    return array


def _checked_threshold(threshold: float) -> float:
    if not isinstance(threshold, Real) or isinstance(threshold, bool):
        raise ArgumentTypeError(f"threshold: expected a number, found {shown(threshold)}")
    if not 0 < threshold < 1:
        raise ArgumentError(f"threshold: expected more than 0 and less than 1, found {threshold}")
    return float(threshold)


def _checked_dtype(dtype: Any) -> Any:
    lookup = gb.dtypes.lookup_dtype
    try:
        with COMPLETION:
            found = lookup(dtype)
    except (TypeError, ValueError, KeyError, AttributeError) as err:
        raise ArgumentError(f"dtype: {shown(dtype)} is not a GraphBLAS type") from err
    if found.np_type.kind not in "biufc":
        raise ArgumentError(f"dtype: {found.name} has no 1")
    return found
