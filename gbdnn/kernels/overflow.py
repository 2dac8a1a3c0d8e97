"""Bounds on activations, and the error if a sum leaves the range of its dtype.

``|Z(i, j)| <= gain * max|Y| + max|b|`` bounds every sum of a layer, including partial sums. While
the bound, after clipping, is within the range, nothing is checked. Otherwise every Z is checked
before ReLU and clip could hide an overflow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gbdnn.errors import NonFiniteError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gbdnn.model.layer_info import LayerInfo

__all__ = ["may_overflow", "non_finite", "require_finite"]


def may_overflow(layers: Sequence[LayerInfo], largest: float) -> list[bool]:
    """Return for each layer whether a sum may overflow, for features of at most `largest`."""
    watch = []
    bound = largest
    for layer in layers:
        bound = layer.gain * bound + layer.largest_bias
        # Rounding may exceed the bound by a factor of about 1 + n eps, so half the range is used.
        # (Gain 0 times an infinite bound is NaN, which is not within the range either.)
        watch.append(not bound <= float(np.finfo(layer.dtype).max) / 2)
        if layer.clip is not None and layer.activation == "relu":
            bound = min(layer.clip, bound)  # with this order of arguments, NaN becomes the clip
    return watch


def require_finite(k: int, layer: LayerInfo, z: np.ndarray) -> None:
    """Raise an error if ``Y W + b`` of layer `k`, an array of any shape, is not finite."""
    # max and min return NaN if there is one.
    if z.size and not (np.isfinite(z.max()) and np.isfinite(z.min())):
        raise non_finite(k, layer)


def non_finite(k: int, layer: LayerInfo) -> NonFiniteError:
    """Return the error of a layer whose ``Y W + b`` is not finite."""
    remedy = "set a clip for the layers before it" if k else "pass smaller features"
    remedy += " or use dtype='FP64'" if layer.dtype.itemsize == 4 else ""
    return NonFiniteError(f"layer {k}: Y W + b overflows {layer.dtype}; {remedy}")
