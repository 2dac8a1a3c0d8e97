"""A graph convolution: weights for neighbour features and for a node's own features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gbdnn.arrays.labels import aligned, aligned_weights, labels_of
from gbdnn.errors import ArgumentError, ArgumentTypeError, ShapeError, naming
from gbdnn.kernels.kernel import starts_at_bias
from gbdnn.model.layer import Layer
from gbdnn.model.network import Network, as_items, as_network, dtypes_for

if TYPE_CHECKING:
    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.model.layer import Activation, BiasLike

__all__ = ["Convolution", "as_convolutions"]


class Convolution:
    """A graph convolution: ``Y' = min(max(A Y W + Y V + b, 0), clip)``.

    Parameters
    ----------
    weights : Matrix, SciPy sparse or 2-D ndarray, shape (features before, features), optional
        W, applied to aggregated neighbour features. Without it, the layer is ``Y V + b``.
    bias : float or vector of length features, default 0.0
        As for `gbdnn.Layer`.
    self_weights : Matrix, SciPy sparse or 2-D ndarray of the same shape, optional
        V, applied to a node's own features.
    activation, clip, dtype
        As for `gbdnn.Layer`.

    Attributes
    ----------
    layer : Layer
        Layer of W (of V without W) with bias, activation and clip.
    self_weights : Layer or None
        Layer of V if there is also a W.
    gathers : bool
        Whether there is a W.

    Raises
    ------
    ShapeError, ArgumentError, ArgumentTypeError
        As for `gbdnn.Layer`; or W and V differ in shape or dtype, or both are missing.

    Examples
    --------
    >>> import numpy as np
    >>> from gbdnn import graph
    >>> graph.Convolution(np.ones((3, 2)), self_weights=np.eye(3, 2), bias=0.5)
    Convolution(3 x 2, 6 edges, FP64, bias 0.5 (all), relu, self_weights 2 edges)
    """

    def __init__(
        self,
        weights: MatrixLike | None = None,
        bias: BiasLike = 0.0,
        *,
        self_weights: MatrixLike | None = None,
        activation: Activation = "relu",
        clip: float | None = None,
        dtype: Any = None,
    ) -> None:
        self.gathers, self.self_weights = weights is not None, None
        first = self_weights if weights is None else weights
        if first is None:
            raise ArgumentTypeError("a convolution needs weights, self_weights= or both")
        self.layer = Layer(first, bias, activation=activation, clip=clip, dtype=dtype)
        if self.gathers and self_weights is not None:
            with naming("self_weights"):
                for axis in (0, 1):
                    labels = labels_of(first, axis)
                    self_weights = aligned(
                        self_weights, labels, "weights", "those of the weights", axis=axis
                    )
                self.self_weights = Layer(self_weights, activation="identity", dtype=dtype)
            mine, other = self.self_weights, self.layer
            if mine.shape != other.shape:
                raise ShapeError(
                    f"self_weights= is {mine.nrows} x {mine.ncols} but the weights are"
                    f" {other.nrows} x {other.ncols}"
                )
            if mine.dtype != other.dtype:
                raise ArgumentError(
                    f"self_weights= is {mine.dtype} but the weights are {other.dtype}; pass dtype="
                )

    @classmethod
    def of(cls, layer: Layer) -> Convolution:
        """Return the convolution ``A Y W + b`` of a layer, without a copy."""
        made = cls.__new__(cls)
        made.layer, made.self_weights, made.gathers = layer, None, True
        return made

    def astype(self, dtype: Any) -> Convolution:
        """Return this convolution with all weights cast to FP32 or FP64."""
        made = Convolution.of(self.layer.astype(dtype))
        made.self_weights = self.self_weights and self.self_weights.astype(dtype)
        made.gathers = self.gathers
        return made

    def __repr__(self) -> str:
        mine = self.self_weights
        own = "" if mine is None else f", self_weights {mine.edges} edges"
        alone = "" if self.gathers else ", self_weights only"
        shape = f"{self.layer.nrows} x {self.layer.ncols}"
        return f"Convolution({shape}, {self.layer.describe()}{own}{alone})"


def as_convolutions(layers: Any, features: Any, dtype: Any) -> list[Convolution]:
    """Return the convolutions of a Network or list after checking that they fit each other.

    `features` decide the dtype if all layers are matrices of bool and integers.
    """
    if isinstance(layers, Network):
        convolutions = [Convolution.of(layer) for layer in as_network(layers, dtype=dtype)]
    else:
        convolutions = []
        items = aligned_weights(as_items(layers, "a Network or list of Convolutions"), features)
        dtypes = dtypes_for([getattr(item, "layer", item) for item in items], features, dtype)
        for k, (item, kind) in enumerate(zip(items, dtypes, strict=True)):
            with naming(f"layer {k}"):
                if isinstance(item, Layer):
                    item = Convolution.of(item)
                elif not isinstance(item, Convolution):
                    item = Convolution(item, dtype=kind)
                convolutions.append(item if dtype is None else item.astype(dtype))
        Network([convolution.layer for convolution in convolutions])  # raises if they do not fit
    for k, convolution in enumerate(convolutions):
        if not starts_at_bias(convolution.layer) and 0 not in convolution.layer.shape:
            raise ArgumentError(
                f"layer {k}: graph convolutions require bias_rule='all' if a bias is positive or"
                " the layer has no ReLU"
            )
    return convolutions
