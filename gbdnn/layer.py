"""One layer of a network: weights, bias and activation, checked once and never changed."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, get_args

import graphblas as gb
import numpy as np

from gbdnn.errors import ArgumentError, ArgumentTypeError, ShapeError
from gbdnn.matrices import (
    as_array,
    as_compressed,
    as_dtype,
    dtype_of,
    finite,
    floating,
    import_arrays,
    require_room,
    shape_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from gbdnn.matrices import MatrixLike

__all__ = ["Activation", "BiasLike", "BiasRule", "Layer"]

T = TypeVar("T")
BiasRule = Literal["all", "entries"]
Activation = Literal["relu", "identity"]
BiasLike: TypeAlias = "float | np.ndarray | gb.Vector | list[float] | tuple[float, ...]"


class Layer:
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
        _one_of("bias_rule", bias_rule, get_args(BiasRule))
        _one_of("activation", activation, get_args(Activation))
        wanted = None if dtype is None else as_dtype(dtype)
        self._shape = shape_of(weights, "weights")
        # A form may want them by rows.
        require_room(8 * self._shape[0], f"weights: {self._shape[0]} rows: row pointers alone")
        own = floating(dtype_of(weights), "weights")
        self._dtype = own if wanted is None else wanted
        # All that can be refused without the weights' values: with copy=False these may be lost.
        self._bias = _as_bias(bias, self._shape[1], self._dtype)
        self._clip = _as_clip(clip, self._dtype)
        arrays = as_compressed(
            weights, what="weights", dtype=self._dtype, orientation="columnwise", copy=copy
        )
        self._edges = len(arrays.indices)
        self._gain = arrays.largest_sum()
        self._W = import_arrays(arrays, *self._shape, "columnwise")
        self._bias_rule: BiasRule = bias_rule
        self._activation: Activation = activation
        self._prepared: dict[Callable[[Layer], Any], Any] = {}

    @property
    def weights(self) -> gb.Matrix:
        """The weights, shape (nrows, ncols): a new Matrix at each access."""
        return self._W.dup()

    @property
    def bias(self) -> float | np.ndarray:
        """The bias: a float, or a read-only array of length ncols."""
        return self._bias

    @property
    def bias_rule(self) -> BiasRule:
        """Where the bias is added: ``"all"`` or ``"entries"``."""
        return self._bias_rule

    @property
    def activation(self) -> Activation:
        """``"relu"`` or ``"identity"``."""
        return self._activation

    @property
    def clip(self) -> float | None:
        """The upper limit of the activations, or None."""
        return self._clip

    @property
    def dtype(self) -> np.dtype:
        """float32 or float64, for weights, bias, clip and activations alike."""
        return self._dtype

    @property
    def shape(self) -> tuple[int, int]:
        """Neurons of the layer before, neurons of this one."""
        return self._shape

    @property
    def nrows(self) -> int:
        """Neurons of the layer before."""
        return self._shape[0]

    @property
    def ncols(self) -> int:
        """Neurons of this layer."""
        return self._shape[1]

    @property
    def edges(self) -> int:
        """Number of stored weights."""
        return self._edges

    @property
    def gain(self) -> float:
        """``max_j sum_i |W(i, j)|``: no sum exceeds this times the largest activation."""
        return self._gain

    @cached_property
    def highest_bias(self) -> float:
        """The largest bias of a neuron; 0 if there is no neuron."""
        return float(np.max(self._bias, initial=-np.inf)) if self.ncols else 0.0

    @cached_property
    def largest_bias(self) -> float:
        """The largest absolute bias of a neuron; 0 if there is no neuron."""
        return float(np.max(np.abs(self._bias), initial=0.0))

    @cached_property
    def revives(self) -> bool:
        """Whether an input without entries can leave this layer with some.

        Under ``entries`` none can; under ``all`` it takes a bias that the activation lets through.
        """
        if self._bias_rule == "entries":
            return False
        return self.highest_bias > 0 if self._activation == "relu" else self.largest_bias > 0

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
            self._bias,
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
            and np.ndim(self._bias) == np.ndim(other._bias)
            and bool(np.array_equal(self._bias, other._bias))
            and bool(self._W.isequal(other._W, check_dtype=True))
        )

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_prepared": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if isinstance(self._bias, np.ndarray):  # NumPy pickles no flags
            self._bias.flags.writeable = False

    def __repr__(self) -> str:
        return f"Layer({self.nrows} x {self.ncols}, {self.describe()})"

    def describe(self) -> str:
        """Return edges, dtype, bias, activation and clip in a few words."""
        words = [f"{self.edges} edges", gb.dtypes.lookup_dtype(self._dtype).name]
        if isinstance(self._bias, float):
            words.append(f"bias {self._bias:g} ({self._bias_rule})")
        else:
            low, high = (self._bias.min(), self._bias.max()) if self.ncols else (0.0, 0.0)
            words.append(f"bias {low:g} to {high:g} ({self._bias_rule})")
        words.append(self._activation)
        if self._clip is not None:
            words.append(f"clip {self._clip:g}")
        return ", ".join(words)


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        listed = " or ".join(repr(a) for a in allowed)
        raise ArgumentError(f"{name} is {listed}, not {value!r}")


def _as_bias(bias: Any, ncols: int, dtype: np.dtype) -> float | np.ndarray:
    if type(bias).__module__.startswith("graphblas.core.vector"):
        bias = bias.to_dense(fill_value=0)
    values = as_array(bias, "bias")
    if values.ndim == 0:
        return float(finite(values.reshape(1), dtype, "bias")[0])
    if values.shape != (ncols,):
        raise ShapeError(f"bias has shape {values.shape} but the layer has {ncols} neurons")
    vector = finite(values, dtype, "bias")
    vector.flags.writeable = False
    return vector


def _as_clip(clip: float | None, dtype: np.dtype) -> float | None:
    if clip is None:
        return None
    if isinstance(clip, bool) or not isinstance(clip, int | float | np.integer | np.floating):
        raise ArgumentTypeError(f"clip is a number or None, not {clip!r}")
    value = as_array(clip, "clip")
    if not (np.isfinite(value) and value > 0):
        raise ArgumentError(f"clip is finite and > 0, or None for no limit; not {value}")
    limit = float(finite(value.reshape(1), dtype, "clip")[0])
    if limit == 0:
        raise ArgumentError(f"clip: {value} becomes 0 as {dtype}")
    return limit
