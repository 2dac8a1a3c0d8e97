"""Images to features, checked against NumPy arrays that are resized and shifted here.

The oracle writes the Fourier series of the images side by side as sums, one matrix for the strip.
"""

import numpy as np
import pytest
from calls import raises
from matrices import dense

from gbdnn.errors import ArgumentError, ArgumentTypeError, ShapeError
from gbdnn.gallery import digits, features_from_images
from gbdnn.io import read_features
from gbdnn.io.array_files import read_idx

# (down, right): the first offsets of the spiral
SPIRAL = [(0, 0), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1), (-1, 2)]


def pictures(Y, order="F"):
    """Return the rows of Y as 0/1 images."""
    side = round(Y.ncols**0.5)
    return np.stack([row.reshape((side, side), order=order) for row in dense(Y)])


def blobs(n, side, seed=0):
    """Return n images of 0 and 200 with ink around their middle."""
    images = np.zeros((n, side, side), np.uint8)
    inner = slice(side // 2 - 2, side // 2 + 2)
    images[:, inner, inner] = 200 * np.random.default_rng(seed).integers(0, 2, (n, 4, 4))
    images[:, side // 2, side // 2] = 200
    return images


def shifted(image, down, right):
    """Return `image` moved, pixel by pixel."""
    moved = np.zeros_like(image)
    for row, col in np.argwhere(image):
        if 0 <= row + down < len(image) and 0 <= col + right < len(image):
            moved[row + down, col + right] = image[row, col]
    return moved


def frequencies(length, side):
    m = min(length, side)
    return np.arange(-(m // 2), m - m // 2)


def along(length, side, copies=1):
    """Return the matrix that evaluates the Fourier series of length * copies values."""
    n, out = length * copies, side * copies
    k = frequencies(n, out)
    series = np.exp(-2j * np.pi * np.outer(k, np.arange(n)) / n) / n
    return np.exp(2j * np.pi * np.outer(np.arange(out), k) / out) @ series


def resized(images, side):
    """Return |Z| for the images side by side, in shares of the largest, n x side x side."""
    n, height, width = images.shape
    Z = np.abs(along(height, side) @ np.hstack(images.astype(float)) @ along(width, side, n).T)
    return np.stack(np.hsplit(Z / Z.max(), n))


# n, height, width, side; even widths, or odd ones of an odd number: the strip's last frequency
# has no counterpart only if the images' has none
SHAPES = [
    (9, 28, 28, 32), (1, 28, 28, 32), (5, 8, 10, 64), (7, 5, 9, 32), (17, 32, 32, 28),
    (4, 12, 6, 9), (2, 28, 28, 256),
]  # fmt: skip


@pytest.mark.parametrize(("order", "threshold"), [("C", 0.5), ("F", 0.271)])
@pytest.mark.parametrize(("n", "height", "width", "side"), SHAPES)
def test_the_strip_s_fourier_series(n, height, width, side, order, threshold):
    images = np.random.default_rng(3).integers(0, 256, (n, height, width)).astype(np.uint8)
    expected = resized(images, side)
    assert np.abs(expected - threshold).min() > 1e-9  # no pixel's side is a matter of rounding
    assert 0.02 < (expected >= threshold).mean() < 0.98
    Y = features_from_images(images, side * side, threshold=threshold, order=order)
    np.testing.assert_array_equal(pictures(Y, order), expected >= threshold)


def test_images_of_the_right_size_stay_as_they_are():
    images = blobs(6, 32)
    np.testing.assert_array_equal(pictures(features_from_images(images)), images > 0)


@pytest.mark.parametrize("share", [0.02, 0.1])
def test_thin_strokes_have_the_challenge_s_threshold(share):
    images = (np.random.default_rng(0).random((40, 32, 32)) < share) * 200.0
    images[:, :, :16] *= 0.49
    np.testing.assert_array_equal(pictures(features_from_images(images)), images >= 100)


def test_thick_strokes_have_a_higher_threshold():
    images = np.random.default_rng(0).random((40, 32, 32))
    found = pictures(features_from_images(images))
    assert found.mean() == pytest.approx(1 / 7, abs=0.002)
    assert images[found > 0].min() > images[found == 0].max()


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint64, np.float16, np.float32, np.float64])
def test_every_numeric_dtype_gives_the_same(dtype):
    ink = blobs(4, 8) > 0
    assert features_from_images(ink.astype(dtype)).isequal(features_from_images(ink))


def test_only_the_share_of_the_largest_value_counts():
    images = digits()[:50]
    expected = features_from_images(images)
    assert features_from_images(images * 1e300).isequal(expected)
    assert features_from_images(np.where(images == 0, -1e300, images)).isequal(expected)


@pytest.mark.parametrize("order", ["C", "F"])
def test_shifts_follow_the_spiral(order):
    """What leaves the frame is lost, and what comes in is empty."""
    images = np.random.default_rng(0).integers(0, 2, (3, 32, 32))
    Y = features_from_images(images, inputs=29, order=order)
    expected = [shifted(image, *at) for at in SPIRAL for image in images > 0]
    np.testing.assert_array_equal(pictures(Y, order), expected[:29])


def test_deterministic_and_the_first_rows_do_not_depend_on_inputs():
    images = digits()[:70]
    whole = features_from_images(images, inputs=300)
    assert features_from_images(images.copy(), inputs=300).isequal(whole)
    for few in (1, 69, 70, 71, 200):
        assert features_from_images(images, inputs=few).isequal(whole[:few, :].new())


def test_blank_images_stay_blank():
    images = blobs(3, 32)
    images[1] = 0
    counts = pictures(features_from_images(images, inputs=9)).sum((1, 2))
    assert (counts.reshape(3, 3)[:, 1] == 0).all()
    assert (counts.reshape(3, 3)[:, [0, 2]] > 0).all()


@pytest.mark.parametrize("neurons", [1024, 4096, 65536])
def test_a_seventh_of_the_digits_is_ink(neurons):
    images = digits()
    assert images.shape == (1797, 8, 8)
    assert (images.min(), images.max()) == (0, 16)
    if neurons > 4096:
        images = images[:100]
    Y = features_from_images(images, neurons)
    assert Y.shape == (len(images), neurons)
    assert Y.nvals / (len(images) * neurons) == pytest.approx(1 / 7, abs=0.004)


@pytest.mark.parametrize(
    ("images", "error", "message"),
    [
        (np.zeros((0, 28, 28)), ShapeError, r"at least one pixel, not \(0, 28, 28\)"),
        ([[[1.0]], [[1.0, 2.0]]], ArgumentTypeError, "images must be an array of numbers"),
        (np.zeros((2, 3, 3)), ArgumentError, "must have a positive pixel; their maximum is 0.0"),
    ],
)
def test_images_that_are_none(images, error, message):
    raises(error, message, features_from_images, images)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_pixel_that_is_no_number(value):
    images = digits()[:4]
    images[2, 5, 6] = value
    raises(ArgumentError, f"image 2 has {value} at row 5, column 6", features_from_images, images)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"neurons": 1000}, ArgumentError, "neurons=1000 is not a square .* are 961 and 1024"),
        ({"neurons": 2**32}, ArgumentError, "4294967296 is too large; the maximum is 1073741824"),
        ({"inputs": 10**12}, ArgumentError, "inputs=1000000000000 is too large: 10 images"),
        ({"threshold": 1.0}, ArgumentError, "threshold must be between 0 and 1, not 1.0"),
    ],
)
def test_bad_arguments(options, error, message):
    raises(error, message, features_from_images, digits()[:10], **options)


@pytest.mark.slow
def test_the_official_images(data):
    file = data / "graphchallenge" / "MNIST" / "sparse-images-1024.tsv"
    official = read_features(file, ncols=1024)
    assert (official.shape, official.nvals) == ((1200, 1024), 122_713)
    here = features_from_images(read_idx(data / "mnist" / "train-images-idx3-ubyte.gz"))
    assert here.nvals == 6_374_505  # the entries of the official file
    assert here[:1200, :].new().isequal(official)
