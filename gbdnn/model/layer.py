"""A layer of a network: weights, bias and activation, validated once and immutable."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from gbdnn.arrays.checks import as_array, as_dtype, as_flag, finite, floating, require_room
from gbdnn.arrays.labels import aligned, labels_of
from gbdnn.arrays.matrices import as_columns, as_held, dtype_of, is_graphblas, shape_of
from gbdnn.errors import ArgumentError, ShapeError
from gbdnn.model.layer_info import Activation, BiasRule, LayerInfo
from gbdnn.runtime.first_use import complete, gb, is_object
from gbdnn.runtime.forks import new_lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.arrays.sparse_rows import SparseRows

__all__ = ["Activation", "BiasLike", "BiasRule", "Layer", "Prepared"]

T = TypeVar("T")
BiasLike: TypeAlias = "float | np.ndarray | gb.Vector | gb.Matrix | list[float] | tuple[float, ...]"


class Prepared:
    """Cache of weights in the layouts that kernels need; thread-safe.

    Its pickle is empty.
    """

    def __init__(self) -> None:
        self._lock = new_lock("RLock")
        self._made: dict[tuple[Any, ...], Any] = {}

    def once(self, prepare: Callable[..., T], of: Any, *how: Any, most: int | None = None) -> T:
        """Return ``prepare(of, *how)``, not None, from a cache; `of` is the same in each call.

        Of the results of one function, only the `most` that were made last are kept.
        """
        key = prepare, *how
        with self._lock:
            prepared = self._made.get(key)
            if prepared is None:
                prepared = prepare(of, *how)
                same = [made for made in self._made if made[0] == prepare]
                if len(same) == most:
                    del self._made[same[0]]
                self._made[key] = prepared
            return prepared

    def __reduce__(self) -> tuple[Any, ...]:
        return Prepared, ()


@dataclass(frozen=True, init=False, repr=False, eq=False, kw_only=True)
class Layer(LayerInfo):
    """A layer of a sparse network: ``Y' = min(max(Y W + b, 0), clip)``.

    Parameters
    ----------
    weights : Matrix, SciPy sparse or 2-D ndarray, shape (nrows, ncols)
        ``W(i, j)`` is the edge from neuron i of the previous layer to neuron j of this one. Stored
        zeros are dropped, duplicates of a SciPy array are summed. The matrix is copied.
    bias : float, vector of length ncols or diagonal Matrix, default 0.0
        Added before the activation: a number, or one value per neuron as a sequence, a 1-D array,
        a ``graphblas.Vector`` (missing values are 0) or LAGraph's diagonal ``graphblas.Matrix``
        (all diagonal entries must be stored).
    bias_rule : {"all", "entries"}, default "all"
        ``"all"`` adds the bias to every neuron of every input; ``"entries"``, the rule of the
        challenge's reference code, only to entries of ``Y W``. Entry (i, j) is present if some k
        has both ``Y(i, k)`` and ``W(k, j)``, even if the sum cancels to 0.
    activation : {"relu", "identity"}, default "relu"
        ``max(z, 0)``, or none, as in the last layer of a trained classifier.
    clip : float, optional
        Upper limit of the activations, finite and positive; 32 in the challenge. Default: none.
    dtype : {"FP32", "FP64"} or NumPy dtype, optional
        Of weights, bias and clip. Default: that of the weights; FP32 for bool and integers, which
        must not exceed 2**24.
    copy : bool, default True
        False takes ownership of a ``graphblas.Matrix``, which must not be used afterwards, even if
        an error about its values was raised.

    Raises
    ------
    ShapeError
        The weights are not 2-D, or the bias does not have one value per column.
    ArgumentError, ArgumentTypeError
        A value is not finite or overflows in the cast, or an option is invalid.
    TooLargeError
        The row or column pointers alone would not fit into memory.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> layer = gbdnn.Layer(np.array([[1.0, 0.0], [2.0, -1.0]]), bias=[0.5, 0.0], clip=2)
    >>> layer
    Layer(2 x 2, 3 edges, FP64, bias 0 to 0.5 (all), relu, clip 2)
    """

    bias: float | np.ndarray
    """The bias: a float, or a read-only array of length ncols."""

    given_bias: float | np.ndarray
    """The bias before it was rounded to the dtype; `astype` starts from it."""

    W: gb.Matrix
    """The layer's own weights, column-wise; they must not be modified."""

    _prepared: Prepared

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
        as_flag(copy, "copy")
        bias = aligned(bias, labels_of(weights, 1), "bias", "those of the columns of the weights")
        weights = as_held(weights, "weights")
        shape = shape_of(weights, "weights")
        # A kernel may need row pointers.
        require_room(8 * shape[0], f"weights have {shape[0]} rows: the row pointers alone")
        own = floating(dtype_of(weights), "weights")
        wanted = own if wanted is None else wanted
        vector = _as_bias(bias, shape[1], wanted)
        # Validate options before the weights' values: with copy=False, these may be lost.
        # Edges and gain are set with the weights.
        super().__init__(
            shape, 0, 0.0, wanted, bias_rule=bias_rule, activation=activation, clip=clip
        )
        columns = as_columns(weights, what="weights", dtype=wanted, copy=copy)
        self._hold(columns, vector)

    @classmethod
    def assembled(cls, info: LayerInfo, columns: SparseRows, bias: float | np.ndarray) -> Layer:
        """Return the layer of ``info`` with weights and bias that are already validated.

        Takes ownership of the columns. The bias may be more precise than the dtype. `edges`, `gain`
        and the range of the bias are computed from the values.
        """
        layer = cls.__new__(cls)
        layer.__dict__.update({f.name: getattr(info, f.name) for f in fields(LayerInfo)})
        layer.__dict__["unrounded"] = info.unrounded
        layer._hold(columns, bias)
        return layer

    def _hold(self, columns: SparseRows, bias: float | np.ndarray) -> None:
        with np.errstate(under="ignore"):
            own = np.array(bias, self.dtype)
        own += self.dtype.type(0)  # -0.0 becomes 0.0, with which sums start in all kernels
        given, rounded = (
            {"lowest_bias": float(np.min(b)), "highest_bias": float(np.max(b))}
            for b in ((bias, own) if self.ncols else (0.0, 0.0))
        )
        self._set(**rounded, unrounded=self.unrounded | given, given_bias=bias)
        self._set(edges=columns.nvals, gain=_gain(columns), bias=own if own.ndim else float(own))
        self._set(W=columns.matrix(transposed=True), _prepared=Prepared())
        own.flags.writeable = False

    @property
    def weights(self) -> gb.Matrix:
        """The weights, shape (nrows, ncols): a new Matrix at each access."""
        return self.W.dup()

    def prepared(self, prepare: Callable[[Layer], T]) -> T:
        """Return ``prepare(layer)``, such as a kernel's weights, from a cache."""
        return self._prepared.once(prepare, self)

    def astype(self, dtype: Any) -> Layer:
        """Return this layer with weights, bias and clip cast to FP32 or FP64."""
        if as_dtype(dtype) == self.dtype:
            return self
        options = options_of(self) | {"clip": self.unrounded["clip"], "dtype": dtype}
        return Layer(self.W, self.given_bias, **options)

    def isequal(self, other: object) -> bool:
        """Whether `other` is a layer with the same weights, bias, rule, activation and dtype."""
        return (
            isinstance(other, Layer)
            and options_of(self) == options_of(other)
            and np.ndim(self.bias) == np.ndim(other.bias)
            and bool(np.array_equal(self.bias, other.bias))
            and bool(self.W.isequal(other.W, check_dtype=True))
        )

    def __eq__(self, other: object) -> bool:
        return self is other or self.isequal(other)

    def __hash__(self) -> int:
        return hash((self.shape, self.edges, self.activation))

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if isinstance(self.bias, np.ndarray):  # NumPy pickles no flags
            self.bias.flags.writeable = False


def options_of(layer: Layer) -> dict[str, Any]:
    """Return the options of a layer with other weights, but the same activations and dtype."""
    names = ("bias_rule", "activation", "clip", "dtype")
    return {name: getattr(layer, name) for name in names}


def _as_bias(bias: Any, ncols: int, dtype: np.dtype) -> float | np.ndarray:
    """Return the bias, which fits `dtype`, as a number or an array with one value per neuron."""
    complete(bias)
    if is_graphblas(bias):
        bias = _diagonal(bias, ncols)
    if is_object(bias) and type(bias).__module__ == "graphblas.core.vector":
        bias = bias.to_dense(fill_value=0)
    values = as_array(bias, "bias")
    if values.shape not in ((), (ncols,)):
        raise ShapeError(f"bias has shape {values.shape} but the layer has {ncols} neurons")
    finite(values.reshape(-1), dtype, "bias")
    return values.astype(np.result_type(values, np.float32)) if values.ndim else float(values)


def _diagonal(D: gb.Matrix, ncols: int) -> gb.Vector:
    """Return the biases in LAGraph's diagonal matrix."""
    D = D if isinstance(D, gb.Matrix) else D.new()
    if D.shape != (ncols, ncols):
        raise ShapeError(f"bias has shape {D.shape} but the layer has {ncols} neurons")
    diagonal = D.diag()
    if not diagonal.nvals == D.nvals == ncols:
        raise ArgumentError(
            f"bias: a Matrix must store exactly its {ncols} diagonal entries; this one stores"
            f" {D.nvals} entries, {diagonal.nvals} of them on the diagonal"
        )
    return diagonal


def _gain(columns: SparseRows) -> float:
    """Return ``max_j sum_i |W(i, j)|``, infinity if that is too large for FP64."""
    degrees = columns.degrees
    if not degrees.any():
        return 0.0
    if columns.is_iso:
        return float(degrees.max()) * abs(float(columns.values[0]))
    starts = columns.indptr.view(np.int64)[:-1][degrees > 0]
    with np.errstate(over="ignore"):
        return float(np.add.reduceat(np.abs(columns.values, dtype=np.float64), starts).max())
