"""Whether an activation can leave the range of its dtype, and the error when one does.

``|Z(i, j)| <= gain * max|Y| + max|b|`` bounds every sum of a layer, partial sums too. As long as
the bound is within the dtype's range, and a clip brings it back down, nothing has to be looked at.
Where it is not, the largest activation is measured, and if that does not settle it, Z itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import graphblas as gb
import numpy as np

from gbdnn.errors import NonFiniteError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gbdnn.layer import Layer

__all__ = ["Watch"]


class Watch:
    """Follows the bound on ``max|Y|`` through the layers.

    Parameters
    ----------
    Y : Matrix
        The features.
    """

    def __init__(self, Y: gb.Matrix) -> None:
        self._bound = largest(Y)
        # Rounding lets a sum pass its bound by a share of some n * eps: half the range is left.
        self._limit = float(np.finfo(Y.dtype.np_type).max) / 2

    def before(self, k: int, layer: Layer, Y: gb.Matrix) -> Callable[[gb.Matrix], None] | None:
        """Return what to call with the layer's Z, or None if Z cannot overflow."""
        if self._reach(layer) > self._limit:
            self._bound = largest(Y)
        if self._reach(layer) <= self._limit:
            return None

        def require_finite(Z: gb.Matrix) -> None:
            if any_nonfinite(Z):
                raise NonFiniteError(
                    f"layer {k}: Y W + b leaves the range of {layer.dtype}: activations up to"
                    f" {self._bound:.3g} meet weights of gain {layer.gain:.3g}"
                    " (the largest column sum of |W|)"
                )

        return require_finite

    def after(self, layer: Layer) -> None:
        """Take note that `layer` has been computed."""
        self._bound = self._reach(layer)
        if layer.clip is not None and layer.activation == "relu":
            self._bound = min(self._bound, layer.clip)

    def _reach(self, layer: Layer) -> float:
        return layer.gain * self._bound + layer.largest_bias


def largest(Y: gb.Matrix) -> float:
    """Return ``max|Y|``, 0 for a matrix without entries."""
    return float(Y.apply(gb.unary.abs).new().reduce_scalar(gb.monoid.max).get(0.0))


def any_nonfinite(Z: gb.Matrix) -> bool:
    """Whether an entry of Z is NaN or infinite."""
    return any(
        Z.apply(test).new().reduce_scalar(gb.monoid.lor).get(False)
        for test in (gb.unary.isinf, gb.unary.isnan)
    )
