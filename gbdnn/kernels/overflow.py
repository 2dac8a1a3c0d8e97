"""Whether an activation can leave the range of its dtype, and the error when one does.

``|Z(i, j)| <= gain * max|Y| + max|b|`` bounds every sum of a layer, partial sums too. As long as
the bound is within the dtype's range, and a clip brings it back down, nothing has to be looked at.
Where it is not, every Z is checked before ReLU and clip could hide an overflow.
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
    """Return for each layer whether a sum may overflow, from features of at most `largest`."""
    watch = []
    bound = largest
    for layer in layers:
        bound = layer.gain * bound + layer.largest_bias
        # Rounding lets a sum pass its bound by a share of some n * eps: half the range is left.
        # (A gain of 0 meets an infinite bound in NaN, which is not within the range either.)
        watch.append(not bound <= float(np.finfo(layer.dtype).max) / 2)
        if layer.clip is not None and layer.activation == "relu":
            bound = min(layer.clip, bound)  # in this order NaN becomes the clip
    return watch


def require_finite(k: int, layer: LayerInfo, z: np.ndarray) -> None:
    """Raise the error if ``Y W + b`` of layer `k`, in an array of any shape, is not finite."""
    # Both pass a NaN on.
    if z.size and not (np.isfinite(z.max()) and np.isfinite(z.min())):
        raise non_finite(k, layer)


def non_finite(k: int, layer: LayerInfo) -> NonFiniteError:
    """Return the error of a layer whose ``Y W + b`` is not finite."""
    remedy = "a clip" if layer.dtype.itemsize == 8 else "a clip, or dtype='FP64',"
    return NonFiniteError(
        f"layer {k}: Y W + b leaves the range of {layer.dtype}"
        f" (the weights' largest column sum is {layer.gain:.3g}, the bias at most"
        f" {layer.largest_bias:.3g}); {remedy} may keep it in range"
    )
