"""A network: a sequence of layers, in memory or read on demand."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, TypeVar, get_args, overload

import numpy as np

from gbdnn.arrays.checks import (
    as_dtype,
    as_list,
    as_word,
    require_callable,
    whole_number,
    without_scalar,
)
from gbdnn.arrays.labels import aligned_weights
from gbdnn.arrays.matrices import as_features, as_held, dtype_of, is_matrix
from gbdnn.errors import ArgumentError, ArgumentTypeError, ShapeError, naming, require_kind
from gbdnn.model.layer import Layer, Prepared
from gbdnn.model.layer_info import Activation, LayerInfo, layer_rows
from gbdnn.model.readers import read_all, read_checked
from gbdnn.model.tables import Table

if TYPE_CHECKING:
    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.model.layer import BiasLike
    from gbdnn.model.layer_info import BiasRule
    from gbdnn.model.readers import LayerReader

T = TypeVar("T")


class Network(Sequence[Layer]):
    """An immutable sequence of layers in which each fits the one before it.

    Parameters
    ----------
    layers : iterable of Layer, or of matrices of shape (neurons before, neurons)
        Layer k has as many rows as layer k - 1 has columns. Matrices become Layers with a ReLU;
        the next four options apply only to them.
    bias : float, or a sequence with one item per layer, optional
        An item is a number, a vector or a diagonal Matrix, as for `Layer`. Default: 0.
    bias_rule : {"all", "entries"}, optional
        See `Layer`. Default: ``"all"``.
    clip : float, optional
        Upper limit of the activations. Default: none.
    last_activation : {"relu", "identity"}, optional
        ``"identity"``: no ReLU and no clip in the last layer, as in a trained classifier. Default:
        ``"relu"``.
    dtype : {"FP32", "FP64"} or NumPy dtype, optional
        Dtype to which all layers are cast. Default: that of the layers, which must agree. Matrices
        of bool and integers take that of the other matrices, else FP32.

    Raises
    ------
    ShapeError
        Two layers do not fit each other; the message contains both shapes.
    ArgumentError
        The layers differ in dtype.

    Notes
    -----
    A slice is a Network that shares the layers. A lazy network reads layer k at each access to
    ``net[k]``; ``net.infos[k]`` has its properties without reading it. ``==`` is `isequal`.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> net = gbdnn.Network([gbdnn.Layer(np.eye(3)), gbdnn.Layer(np.ones((3, 2)), clip=1)])
    >>> net
    Network: 2 layers, 3 inputs to 2 outputs, 9 edges, FP64
      layer  shape  edges
      0      3 x 3      3  bias 0 (all), relu
      1      3 x 2      6  bias 0 (all), relu, clip 1
    >>> net[1:].shape
    (3, 2)
    >>> matrices = [np.eye(3), np.ones((3, 2))]
    >>> gbdnn.Network(matrices, bias=-0.5, last_activation="identity")[1]
    Layer(3 x 2, 6 edges, FP64, bias -0.5 (all), identity)
    """

    def __init__(
        self,
        layers: Iterable[Layer] | Iterable[MatrixLike],
        *,
        bias: BiasLike | Sequence[BiasLike] | None = None,
        bias_rule: BiasRule | None = None,
        clip: float | None = None,
        last_activation: Activation | None = None,
        dtype: Any = None,
    ) -> None:
        self._take(_as_layers(layers, None, dtype, bias, bias_rule, clip, last_activation), None)

    @classmethod
    def lazy(
        cls,
        infos: Iterable[LayerInfo],
        read: LayerReader,
        *,
        reopen: Callable[[], Network] | None = None,
    ) -> Network:
        """Return a network whose layers are read on demand.

        Parameters
        ----------
        infos : iterable of LayerInfo
            The properties of each layer; shapes and dtypes are checked immediately.
        read : callable
            ``read(k)`` returns layer k as a `Layer`. It is called repeatedly and from several
            threads. The network can be pickled if `read` can.
        reopen : callable, optional
            ``reopen()`` returns this network in another process; it is sent to workers instead of
            the network. It must be small, hashable and picklable.

        Raises
        ------
        ShapeError, ArgumentError, ArgumentTypeError
            As for `Network`. Reading a layer that differs from `infos` raises a ShapeError or
            FormatError that names the layer.

        Examples
        --------
        >>> import numpy as np, gbdnn
        >>> weights = [np.eye(3), np.ones((3, 2))]
        >>> infos = [gbdnn.Layer(W).info for W in weights]
        >>> net = gbdnn.Network.lazy(infos, lambda k: gbdnn.Layer(weights[k]))
        >>> net.in_memory, net.loaded().in_memory
        (False, True)
        """
        given = as_list(infos, "infos must be a list of LayerInfos")
        require_callable(reopen, "reopen")
        for k, info in enumerate(given):
            require_kind(info, LayerInfo, f"infos: item {k} must be a LayerInfo")
        if not callable(read):
            raise ArgumentTypeError(f"read must be callable, not {type(read).__qualname__}")
        known = tuple(info.info for info in given)
        source = NetworkSource(reopen, range(len(known)))
        return cls._made(known, partial(read_checked, known, read), source)

    @classmethod
    def _made(
        cls,
        infos: tuple[LayerInfo, ...],
        read: partial[Layer] | None,
        source: NetworkSource | None = None,
    ) -> Network:
        net = cls.__new__(cls)
        net._take(infos, read, source)
        return net

    def _take(
        self,
        infos: tuple[LayerInfo, ...],
        read: partial[Layer] | None,
        source: NetworkSource | None = None,
    ) -> None:
        """Set the layers' properties and how to read them."""
        for k in range(1, len(infos)):
            require_fit(k, infos[k - 1], infos[k])
        self._infos, self._read, self._source = infos, read, source
        self._prepared = Prepared()

    @property
    def infos(self) -> tuple[LayerInfo, ...]:
        """The properties of each layer; for a network in memory the layers themselves."""
        return self._infos

    @property
    def in_memory(self) -> bool:
        """Whether the layers are in memory; otherwise each is read on demand."""
        return self._read is None

    @property
    def source(self) -> NetworkSource | None:
        """How another process can read this network; None if it cannot."""
        return self._source if self._source and self._source.reopen else None

    def loaded(self, *, progress: Callable[[int, int], object] | None = None) -> Network:
        """Return this network with all layers in memory; itself if they already are.

        Calls ``progress(k, count)`` after each layer: k of count layers have been read. The
        attribute ``source`` does not change.
        """
        require_callable(progress, "progress")
        if self._read is None:
            return self
        layers = tuple(read_all(self.__getitem__, self._infos, progress))
        return Network._made(layers, None, self._source)

    @property
    def dtype(self) -> np.dtype | None:
        """Dtype of the layers; None for a network without layers."""
        return self._infos[0].dtype if self._infos else None

    @property
    def shape(self) -> tuple[int, int]:
        """Number of inputs of the first layer, neurons of the last; (0, 0) without layers."""
        return (self._infos[0].nrows, self._infos[-1].ncols) if self._infos else (0, 0)

    @property
    def edges(self) -> int:
        """Number of stored weights of all layers."""
        return sum(info.edges for info in self._infos)

    def prepared(self, prepare: Callable[..., T], *how: Any, most: int | None = None) -> T:
        """Return ``prepare(net, *how)`` from a cache of at most `most` results of `prepare`."""
        return self._prepared.once(prepare, self, *how, most=most)

    def astype(self, dtype: Any) -> Network:
        """Return this network with all layers cast to FP32 or FP64; lazy layers when read."""
        wanted = as_dtype(dtype)
        if wanted == self.dtype:
            return self
        infos = tuple(info.astype(wanted) for info in self._infos)
        source = self._source
        source = source and replace(source, dtypes=(*source.dtypes, wanted.name))
        return Network._made(infos, self._read, source)

    def isequal(self, other: object) -> bool:
        """Whether `other` is a network of equal layers, in the same order and dtype."""
        return (
            isinstance(other, Network)
            and len(self) == len(other)
            and all(mine.isequal(its) for mine, its in zip(self, other, strict=True))
        )

    def __eq__(self, other: object) -> bool:
        return self is other or self.isequal(other)

    def __hash__(self) -> int:
        return hash(tuple(info.shape for info in self._infos))

    def __len__(self) -> int:
        return len(self._infos)

    @overload
    def __getitem__(self, index: int) -> Layer: ...
    @overload
    def __getitem__(self, index: slice) -> Network: ...
    def __getitem__(self, index: int | slice) -> Layer | Network:
        if not isinstance(index, slice):
            index = whole_number(index, "index")
        if isinstance(index, slice):
            source = self._source and replace(self._source, layers=self._source.layers[index])
            return Network._made(self._infos[index], self._read, source)
        layer: Any
        if self._read is None or self._source is None:
            layer = self._infos[index]
        else:
            layer = self._read(self._source.layers[index])
            with naming(f"layer {index % len(self)}"):
                layer = reduce(Layer.astype, self._source.dtypes, layer)
        return layer

    def __repr__(self) -> str:
        return str(self._table())

    def _repr_html_(self) -> str:
        return self._table().html()

    def _table(self) -> Table:
        words = ["1 layer" if len(self) == 1 else f"{len(self)} layers"]
        if self._infos:
            words += [
                f"{self.shape[0]} inputs to {self.shape[1]} outputs",
                f"{self.edges} edges",
                self._infos[0].describe().split(", ")[1],
            ]
        if not self.in_memory:
            words.append("read on demand")
        header = ("layer", "shape", "edges", "")
        return Table(f"Network: {', '.join(words)}", header, layer_rows(self._infos))


@dataclass(frozen=True, slots=True)
class NetworkSource:
    """The layers of a lazy network, and how another process opens it; equal for equal networks.

    Attributes
    ----------
    reopen : callable, optional
        Returns the network, or one of which it is a slice.
    layers : range
        The layers of the slice.
    dtypes : tuple of str
        The dtypes to which they are cast, one after the other.
    """

    reopen: Any
    layers: range
    dtypes: tuple[str, ...] = ()

    def network(self) -> Network:
        """Return the lazy network."""
        net, layers = self.reopen(), self.layers
        if layers != range(len(net)):
            stop = None if layers.stop < 0 else layers.stop
            net = net[layers.start : stop : layers.step]
        return reduce(Network.astype, self.dtypes, net)


def require_fit(k: int, before: LayerInfo, here: LayerInfo) -> None:
    """Raise an error if layer `k` does not fit the previous layer."""
    if here.nrows != before.ncols:
        is_turned = here.ncols == before.nrows
        advice = "transpose the weights, as PyTorch stores them, or reverse their order"
        raise ShapeError(
            f"layer {k}: weights are {here.nrows} x {here.ncols} but layer {k - 1},"
            f" {before.nrows} x {before.ncols}, has {before.ncols} outputs"
            f"{f'; {advice}' * is_turned}"
        )
    if here.dtype != before.dtype:
        raise ArgumentError(
            f"layer {k} is {here.dtype} but layer {k - 1} is {before.dtype};"
            " pass dtype= to cast all layers"
        )


def as_network(
    layers: Any, *, features: Any = None, dtype: Any = None, **of_matrices: Any
) -> Network:
    """Return a Network, or the Network of Layers or matrices.

    `of_matrices` are the options of `Network` for matrices, or None. `features` decide the dtype if
    all matrices contain bool and integers.
    """
    if not isinstance(layers, Network):
        return Network._made(_as_layers(layers, features, dtype, **of_matrices), None)
    _require_matrices("a Network; its layers", of_matrices)
    return layers if dtype is None else layers.astype(dtype)


def dtypes_for(weights: Sequence[Any], features: Any, dtype: Any) -> list[Any]:
    """Return the option ``dtype=`` for the layer of each of the weights, matrices or Layers.

    Without `dtype`, bool and integers take the dtype of the other weights, else that of features in
    FP32 or FP64, else FP32.
    """
    own = []
    for k, x in enumerate(weights):
        with naming(f"layer {k}"):
            own.append(_dtype_or_none(as_held(x, "weights")))
    if dtype is not None or any(known is None for known in own):
        return [dtype] * len(own)
    deciding = next((known for known in own if known.kind == "f"), None)
    if deciding is None and features is not None:
        deciding = _dtype_or_none(as_features(features, "features"))
    whole = np.dtype(np.float64 if deciding == np.float64 else np.float32)
    return [whole if known.kind in "biu" else None for known in own]


def _dtype_or_none(x: Any) -> Any:
    """Return the dtype of weights or features; None for invalid ones."""
    is_known = is_matrix(x) or isinstance(x, Layer) or hasattr(x, "sparse_rows")
    return dtype_of(x) if is_known and getattr(x, "dtype", None) is not None else None


def _as_layers(
    layers: Any, features: Any, dtype: Any, bias: Any = None, bias_rule: Any = None,
    clip: Any = None, last_activation: Any = None,
) -> tuple[Layer, ...]:  # fmt: skip
    """Return the layers of a `Network` with these options."""
    items = as_items(layers)
    if items and all(isinstance(item, Layer) for item in items):
        given = {"bias": bias, "bias_rule": bias_rule, "clip": clip}
        _require_matrices("Layers; they", given | {"last_activation": last_activation})
        return tuple(layer if dtype is None else layer.astype(dtype) for layer in items)
    biases = _one_bias_per_layer(bias, len(items))
    last = "relu" if last_activation is None else last_activation
    as_word(last, "last_activation", get_args(Activation))
    options: dict[str, Any] = {"bias_rule": "all" if bias_rule is None else bias_rule}
    if not items or last == "identity":  # validates options that no layer uses
        Layer(np.empty((0, 0)), clip=clip, dtype=dtype, **options)
    for k, W in enumerate(items):
        if isinstance(W, Layer):
            raise ArgumentTypeError(
                f"layer {k} is a Layer but others are matrices; pass only Layers or only matrices"
            )
        if isinstance(getattr(W, "layer", None), Layer):
            raise ArgumentTypeError(
                f"layer {k} is a graph convolution; call gbdnn.graph.infer, which has no plan"
            )
    items, layers = aligned_weights(items, features), []
    dtypes = dtypes_for(items, features, dtype)
    for k, (W, b, kind) in enumerate(zip(items, biases, dtypes, strict=True)):
        ends = last == "identity" and k == len(items) - 1
        form = {"activation": "identity"} if ends else {"clip": clip}
        with naming(f"layer {k}"):
            layers.append(Layer(W, b, dtype=kind, **form, **options))
    return tuple(layers)


def as_items(x: Any, what: str = "a Network or a list of matrices") -> list[Any]:
    """Return a list of layers; for models of other kinds, raise an error that names a remedy."""
    is_torch = isinstance(x, Mapping) or hasattr(x, "state_dict")
    for applies, remedy in (
        (is_matrix(x) and getattr(x, "ndim", 2) == 2, "pass a list of matrices, [W]"),
        (isinstance(x, str | os.PathLike), "read it with gbdnn.load"),
        (isinstance(getattr(x, "network", None), Network), "pass its attribute network"),
        (hasattr(type(x), "network_"), "pass its attribute network_"),
        (hasattr(x, "coefs_"), "pass coefs_, with bias=intercepts_, last_activation='identity'"),
        (is_torch, "convert it with gbdnn.io.from_torch"),
    ):
        if applies:
            raise ArgumentTypeError(f"layers must be {what}, not {type(x).__qualname__}; {remedy}")
    return as_list(x, f"layers must be {what}")


def _require_matrices(what: str, options: dict[str, Any]) -> None:
    for name, value in options.items():
        if value is not None:
            raise ArgumentTypeError(f"{name}= cannot be combined with {what} already have one")


def _one_bias_per_layer(bias: Any, layers: int) -> list[Any]:
    """Return one bias per layer; a number is used for all layers."""
    bias = without_scalar(bias)
    if bias is None:
        return [0.0] * layers
    if isinstance(bias, int | float | np.number) or (
        isinstance(bias, np.ndarray) and not bias.ndim
    ):
        return [bias] * layers
    if isinstance(bias, str) or not isinstance(bias, Sequence | np.ndarray):
        raise ArgumentTypeError(
            "bias= must be a number, or a sequence with one item (a number or a vector) per layer,"
            f" not {type(bias).__qualname__}"
        )
    if len(bias) != layers:
        raise ShapeError(
            f"bias= has {len(bias)} items for {layers} layers; pass one number for all layers,"
            " or one item (a number or a vector) per layer"
        )
    return list(bias)
