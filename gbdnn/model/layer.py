"""One layer of a network: weights, bias and activation, checked once and never changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from gbdnn.arrays.matrices import (
    as_compressed,
    as_dtype,
    dtype_of,
    floating,
    import_arrays,
    require_room,
    shape_of,
)
from gbdnn.model.bias import BiasLike
from gbdnn.model.layer_info import Activation, BiasRule, LayerInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    import graphblas as gb

    from gbdnn.arrays.matrices import MatrixLike

__all__ = ["Activation", "BiasLike", "BiasRule", "Layer"]

T = TypeVar("T")


class Layer(LayerInfo):
    """A layer of a sparse network: ``Y' = min(max(Y W + b, 0), clip)``.

    Parameters
    ----------
    weights : Matrix, SciPy sparse or 2-D ndarray, shape (nrows, ncols)
        ``W(i, j)`` is the edge from neuron i of the layer before to neuron j of this one. Stored
        zeros are ignored, duplicates of a SciPy array are summed. It is copied.
    bias : float or vector of length ncols, default 0.0
        Added before the activation: one number for all neurons or one per neuron (a sequence, a
        1-D array or a ``graphblas.Vector``, in which what is not stored is 0).
    bias_rule : {"all", "entries"}, default "all"
        Where the bias is added: to every neuron of every input (ordinary mathematics), or to the
        entries present in ``Y W`` (the challenge's reference code). An entry (i, j) is present if
        some k has both ``Y(i, k)`` and ``W(k, j)``, even if the sum cancels to 0.
    activation : {"relu", "identity"}, default "relu"
        ``max(z, 0)``, or nothing (the last layer of a trained classifier).
    clip : float, optional
        Upper limit of the activations, finite and > 0; none by default, 32 in the challenge.
    dtype : {"FP32", "FP64"} or NumPy dtype, optional
        Weights, bias and clip are cast to it. By default the weights decide: FP32 and FP64 stay,
        bool and integers become FP32.
    copy : bool, default True
        False lets the layer take over a ``graphblas.Matrix``, which must not be used afterwards;
        not after an error about its values either.

    Raises
    ------
    ShapeError
        The weights are not 2-D, or the bias vector has not one value per column.
    ArgumentError
        A value is NaN or infinite, overflows in the cast, or an option has no meaning.
    ArgumentTypeError
        An argument is of a kind that has no meaning here.
    TooLargeError
        The weights have more rows or columns than memory has room for.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> layer = gbdnn.Layer(np.array([[1.0, 0.0], [2.0, -1.0]]), bias=[0.5, 0.0], clip=2)
    >>> layer
    Layer(2 x 2, 3 edges, FP64, bias 0 to 0.5 (all), relu, clip 2)
    """

    def __init__(
        self,
        weights: MatrixLike,
        bias: BiasLike = 0.0,
        *,
        bias_rule: BiasRule = "all",
        activation: Activation = "relu",
        clip: float | None = None,
        dtype: Any = None,
        copy: bool = True,
    ) -> None:
        wanted = None if dtype is None else as_dtype(dtype)
        shape = shape_of(weights, "weights")
        # A form may want them by rows.
        require_room(8 * shape[0], f"weights: {shape[0]} rows: row pointers alone")
        own = floating(dtype_of(weights), "weights")
        # All that can be refused without the weights' values: with copy=False these may be lost.
        super().__init__(
            shape,
            bias,
            edges=0,
            gain=0.0,
            dtype=own if wanted is None else wanted,
            bias_rule=bias_rule,
            activation=activation,
            clip=clip,
        )
        arrays = as_compressed(
            weights, what="weights", dtype=self._dtype, orientation="columnwise", copy=copy
        )
        self._edges = len(arrays.indices)
        self._gain = arrays.largest_sum()
        self._W = import_arrays(arrays, *self._shape, "columnwise")
        self._prepared: dict[Callable[[Layer], Any], Any] = {}

    @classmethod
    def assembled(cls, info: LayerInfo, W: gb.Matrix, *, edges: int, gain: float) -> Layer:
        """Return the layer of an info with weights that are column-wise and known to be right.

        ``W`` becomes the layer's own, ``edges`` and ``gain`` are what it was found to have. Nothing
        is checked: for sources that have done it.
        """
        layer = cls.__new__(cls)
        found = {"_bias": info.bias, "_edges": edges, "_gain": gain}
        layer.__dict__.update(info._known() | found)
        layer._W = W
        layer._prepared = {}
        return layer

    @property
    def weights(self) -> gb.Matrix:
        """The weights, shape (nrows, ncols): a new Matrix at each access."""
        return self._W.dup()

    def prepared(self, prepare: Callable[[Layer], T]) -> T:
        """Return ``prepare(layer)``, made at the first call and kept: a form's own weights."""
        if prepare not in self._prepared:
            self._prepared[prepare] = prepare(self)
        found: T = self._prepared[prepare]
        return found

    def astype(self, dtype: Any) -> Layer:
        """Return this layer with weights, bias and clip cast to FP32 or FP64."""
        if as_dtype(dtype) == self._dtype:
            return self
        return Layer(
            self._W,
            self.bias,
            bias_rule=self._bias_rule,
            activation=self._activation,
            clip=self._clip,
            dtype=dtype,
        )

    def isequal(self, other: object) -> bool:
        """Whether `other` is a layer with the same weights, bias, rule, activation and dtype."""
        return (
            isinstance(other, Layer)
            and self._dtype == other._dtype
            and self._bias_rule == other._bias_rule
            and self._activation == other._activation
            and self._clip == other._clip
            and np.ndim(self.bias) == np.ndim(other.bias)
            and bool(np.array_equal(self.bias, other.bias))
            and bool(self._W.isequal(other._W, check_dtype=True))
        )

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_prepared": {}}
