"""Resize images like the challenge's: one long strip, interpolated as a Fourier series.

N images of h x w pixels, side by side, form a periodic picture of h x N w pixels. Its Fourier
series is evaluated at n x N n points. The frequencies are k = -m/2 ... m/2 - 1 for an even m. The
first one has no counterpart of opposite sign, so the result is complex; its absolute value is used.

The strip is never transformed as a whole. With V the images interpolated vertically, row by row,

    Z(p, j) = 1/N sum_f e(f p / N) sum_x e(f t / N) D(t) sum_q e(-f q / N) V(q, x)

at column j of image p, where t = j/n - x/w, e(a) = exp(2 pi i a), and D(t) = 1/w sum_k e(k t) is
the interpolation matrix of one image. This is a transform over the images, a small product for each
of N frequencies, and the inverse transform. V is real except for a part of rank one (the imaginary
part of the vertical D), which is handled as one additional row; so half of the frequencies suffice.

More than 256 images are padded with blank ones to a number without prime factors above 5, which is
several times as fast to transform: 1,797 become 1,800; the challenge's 60,000 is such a number.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from gbdnn.runtime.threads import available, share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_ROWS = 4  # rows of the resized images interpolated vertically at a time
_IMAGES = 256  # images examined at a time when rows are ordered by their expected maximum
_EXACT = 256  # number of images up to which none is added
_COLUMNS = 64  # columns of a row transformed at a time
_AT_ONCE = 4096  # frequencies interpolated at a time, to fit the caches
_FEW = 1 << 16  # numbers transformed by one thread in the time that a second one needs to start


class Strip:
    """Spectrum of images that are placed side by side.

    The images are n x height x width finite real numbers, with a maximum > 0; negative values count
    as 0. They are resized to `side` x `side` pixels.
    """

    def __init__(self, images: NDArray, side: int) -> None:
        self._images, height, width = images.shape
        self.count = self._images if self._images <= _EXACT else _smooth(self._images)
        self.side = side
        down, self._across = _interpolation(height, side), _interpolation(width, side)
        self._down = np.ascontiguousarray(down.real)
        f = np.arange(self.count // 2 + 1) / self.count
        self._phases = np.exp(2j * np.pi / side * np.arange(side)[:, None] * f)
        twist = np.exp(-2j * np.pi / width * np.arange(width)[:, None] * f)
        self._spectrum = np.empty((height, width, len(f)), np.complex128)
        scale = float(images.max())
        for y in range(height):
            lines = np.maximum(images[:, y].T.astype(np.float64) / scale, 0)
            np.multiply(np.fft.rfft(lines, self.count, axis=1), twist, out=self._spectrum[y])
        down32 = self._down.astype(np.float32)
        self._promise = np.zeros(side)  # approximate maximum of each row, at whole columns
        for start in range(0, self._images, _IMAGES):
            some = images[start : start + _IMAGES].swapaxes(0, 1).reshape(height, -1)
            magnitudes = np.abs(down32 @ np.maximum(some / scale, 0).astype(np.float32))
            np.maximum(self._promise, magnitudes.max(axis=1), out=self._promise)
        # the imaginary part of `down` is outer(weights, lone)
        lone = down.imag[np.abs(down.imag).max(axis=1).argmax()]
        self._weights = down.imag @ lone / max(lone @ lone, np.finfo(float).tiny)
        self._lone = list(self._along(np.tensordot(lone, self._spectrum, 1)))

    def ink(self, threshold: float) -> NDArray[np.uint8]:
        """Return the points whose value is at least `threshold` (below 1) times the maximum.

        The result has shape side x side x ceil(images / 8), with images as bits (``np.packbits``).
        """
        ink = np.empty((self.side, self.side, -(-self._images // 8)), np.uint8)
        # the maximum is known at the end; earlier rows are thresholded again if it has grown
        peak, cut = 0.0, np.full(self.side, np.inf)
        for y, columns, squares in self._squares(np.argsort(-self._promise, kind="stable")):
            peak = max(peak, float(squares.max()))
            cut[y] = min(cut[y], peak)
            ink[y, columns] = np.packbits(squares >= threshold**2 * peak, axis=1)
        for y, columns, squares in self._squares(np.flatnonzero(cut < peak)):
            ink[y, columns] = np.packbits(squares >= threshold**2 * peak, axis=1)
        return ink

    def share_for(self, density: float) -> float:
        """Return the threshold at which a fraction `density` of all points is ink."""
        rows = self._squares(np.arange(self.side))
        squares = np.concatenate([part.ravel() for _, _, part in rows])
        return float(np.sqrt(np.quantile(squares, 1 - density) / squares.max()))

    def _squares(self, rows: NDArray[np.intp]) -> Iterator[tuple[int, slice, NDArray]]:
        """Yield a row, a range of its columns, and |Z|^2 there, columns x images."""
        height, width, frequencies = self._spectrum.shape
        flat = self._spectrum.view(np.float64).reshape(height, -1)
        for start in range(0, len(rows), _ROWS):
            some = rows[start : start + _ROWS]
            spectra = (self._down[some] @ flat).view(np.complex128)
            spectra = spectra.reshape(len(some), width, frequencies)
            for y, spectrum in zip(some.tolist(), spectra, strict=True):
                weight = self._weights[y]
                along = zip(self._along(spectrum), self._lone, strict=True)
                for (columns, real, imag), (_, more_imag, less_real) in along:
                    real -= weight * less_real
                    real *= real
                    rest = weight * more_imag
                    rest += imag
                    rest *= rest
                    real += rest
                    yield y, columns, real[:, : self._images]

    def _along(self, spectrum: NDArray) -> Iterator[tuple[slice, NDArray, NDArray]]:
        """Yield columns, the real part there, and the imaginary part, equal for all images."""
        for start in range(0, self.side, _COLUMNS):
            columns = slice(start, min(start + _COLUMNS, self.side))
            Z = self._interpolated(columns, spectrum)
            Z *= self._phases[columns]
            imag = Z[:, :1].imag / self.count  # of frequency 0, which the transform drops
            yield columns, self._transformed(Z), imag

    def _interpolated(self, columns: slice, spectrum: NDArray) -> NDArray:
        """Return the spectra of the given columns."""
        across, frequencies = self._across[columns], spectrum.shape[1]
        if frequencies <= _AT_ONCE:  # starting BLAS's threads would take longer
            return np.einsum("cx,xf->cf", across, spectrum)
        Z = np.empty((len(across), frequencies), np.complex128)
        for f in range(0, frequencies, _AT_ONCE):
            np.matmul(across, spectrum[:, f : f + _AT_ONCE], out=Z[:, f : f + _AT_ONCE])
        return Z

    def _transformed(self, Z: NDArray) -> NDArray:
        """Return the values of all images in the given columns, from their spectra."""
        values = np.empty((len(Z), self.count))
        nthreads = available() if Z.size > _FEW else 1

        def transform(parts: Iterator[int]) -> None:
            for k in parts:
                values[k::nthreads] = np.fft.irfft(Z[k::nthreads], self.count, axis=1)

        share(nthreads, deque(range(nthreads)), transform)
        return values


def _smooth(n: int) -> int:
    """Return the smallest number >= n without prime factors above 5."""
    while True:
        rest = n
        for factor in (2, 3, 5):
            while rest % factor == 0:
                rest //= factor
        if rest == 1:
            return n
        n += 1


def _interpolation(length: int, side: int) -> NDArray[np.complex128]:
    """Return D(i / side - x / length), side x length."""
    m = min(length, side)
    k = np.arange(m) - m // 2
    at = np.exp(2j * np.pi / side * np.outer(np.arange(side), k))
    return at @ np.exp(-2j * np.pi / length * np.outer(k, np.arange(length))) / length
