"""A network: a sequence of layers that fit each other, in memory or read when requested."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, get_args, overload

import numpy as np

from gbdnn.arrays.checks import as_dtype, as_list, as_word, require_callable, whole_number
from gbdnn.arrays.matrices import is_matrix
from gbdnn.errors import ArgumentError, ArgumentTypeError, ShapeError, naming, require_kind
from gbdnn.model.layer import Layer, Prepared
from gbdnn.model.layer_info import Activation, LayerInfo, layer_table
from gbdnn.model.readers import read_all, read_cast, read_checked, read_part, reads_anew

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
        Layer k has as many rows as layer k - 1 has columns, and all have one dtype. Matrices become
        Layers.
    bias : float, or a sequence with one item (a number or a vector) per layer, optional
        Only with matrices (default: 0).
    bias_rule : {"all", "entries"}, optional
        Only with matrices (default: ``"all"``). See `Layer`.
    clip : float, optional
        Only with matrices: upper limit of each ReLU (default: none).
    last_activation : {"relu", "identity"}, optional
        Only with matrices: ``"identity"`` leaves the last layer without ReLU and clip, as in a
        trained classifier (default: ``"relu"``, as in the challenge).
    dtype : {"FP32", "FP64"} or NumPy dtype, optional
        Every layer is cast to it (default: the layers' own, which must agree).

    Raises
    ------
    ShapeError
        Two layers do not fit; the message has both shapes.
    ArgumentError
        The layers differ in dtype.

    Notes
    -----
    Layers count from 0, as in ``net[0]``. A slice is a Network too; its layers are shared, not
    copied. A network made by `lazy` reads a layer when it is requested, and does not keep it:
    ``net[k]`` reads each time, ``net.infos[k]`` never.

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
        found = _as_layers(layers, bias, bias_rule, clip, last_activation, dtype)
        self._take(tuple(found), None)

    @classmethod
    def lazy(
        cls,
        infos: Iterable[LayerInfo],
        read: LayerReader,
        *,
        reopen: Callable[[], Network] | None = None,
    ) -> Network:
        """Return a network whose layers are read when they are requested.

        Parameters
        ----------
        infos : iterable of LayerInfo
            What is known of each layer beforehand; shapes and dtypes are checked at once.
        read : callable
            ``read(k)`` returns layer k, a `Layer`; it is called repeatedly, and from several
            threads at once. The network can be pickled if the callable can.
        reopen : callable, optional
            ``reopen()`` returns this network, in any process that can read its layers: what
            workers get in place of it. Small, hashable, and one that can be pickled.

        Raises
        ------
        ShapeError, ArgumentError, ArgumentTypeError
            As `Network`. When a layer is read that is not what `infos` says, a ShapeError or a
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
        given = as_list(infos, "infos is a list of LayerInfos")
        require_callable(reopen, "reopen")
        for k, info in enumerate(given):
            require_kind(info, LayerInfo, f"layer {k}: a LayerInfo is needed")
        if not callable(read):
            raise ArgumentTypeError(f"read is a callable, not {type(read).__qualname__}")
        known = tuple(info.info for info in given)
        source = None if reopen is None else NetworkSource(reopen, range(len(known)))
        return cls._made(known, partial(read_checked, known, read), source)

    @classmethod
    def _made(
        cls,
        infos: tuple[LayerInfo, ...],
        read: LayerReader | None,
        source: NetworkSource | None = None,
    ) -> Network:
        net = cls.__new__(cls)
        net._take(infos, read, source)
        return net

    def _take(
        self,
        infos: tuple[LayerInfo, ...],
        read: LayerReader | None,
        source: NetworkSource | None = None,
    ) -> None:
        """Become the network of these layers: of what is known of them, and how to read them."""
        for k in range(1, len(infos)):
            require_fit(k, infos[k - 1], infos[k])
        self._infos, self._read, self._source = infos, read, source
        self._prepared = Prepared()

    @property
    def infos(self) -> tuple[LayerInfo, ...]:
        """What is known of each layer without reading it; in memory, the layers themselves."""
        return self._infos

    @property
    def in_memory(self) -> bool:
        """Whether the layers are in memory; if not, each is read when it is requested."""
        return self._read is None

    @property
    def reads_anew(self) -> bool:
        """Whether a layer that is read is a new one, which whoever requested it may free."""
        return reads_anew(self._read)

    @property
    def source(self) -> NetworkSource | None:
        """From where another process can read this network; None if it is in this one alone."""
        return self._source

    def loaded(self, *, progress: Callable[[int, int], object] | None = None) -> Network:
        """Return this network with all layers in memory: itself, if they are.

        Its `source` stays what it was.

        Parameters
        ----------
        progress : callable, optional
            Called as ``progress(k, count)`` when k of all layers have been read.
        """
        require_callable(progress, "progress")
        if self._read is None:
            return self
        layers = tuple(read_all(self._read, self._infos, progress))
        return Network._made(layers, None, self._source)

    @property
    def dtype(self) -> np.dtype | None:
        """The layers' dtype; None if there is no layer."""
        return self._infos[0].dtype if self._infos else None

    @property
    def shape(self) -> tuple[int, int]:
        """Neurons that the first layer reads, neurons of the last; (0, 0) if there is no layer."""
        return (self._infos[0].nrows, self._infos[-1].ncols) if self._infos else (0, 0)

    @property
    def edges(self) -> int:
        """Number of stored weights of all layers."""
        return sum(info.edges for info in self._infos)

    def prepared(self, prepare: Callable[[Network], T]) -> T:
        """Return ``prepare(net)``, made at the first call and kept."""
        return self._prepared.once(prepare, self)

    def astype(self, dtype: Any) -> Network:
        """Return this network with every layer cast to FP32 or FP64, when read if it is lazy."""
        wanted = as_dtype(dtype)
        if wanted == self.dtype:
            return self
        infos = tuple(info.astype(wanted) for info in self._infos)
        source = self._source and replace(self._source, dtype=wanted.name)
        read = None if self._read is None else partial(read_cast, self._read, wanted)
        return Network._made(infos, read, source)

    def isequal(self, other: object) -> bool:
        """Whether `other` is a network of equal layers, in the same order and dtype."""
        return (
            isinstance(other, Network)
            and len(self) == len(other)
            and all(mine.isequal(its) for mine, its in zip(self, other, strict=True))
        )

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
            here = range(len(self))[index]
            part = None if self._read is None else partial(read_part, self._read, here)
            source = self._source and replace(self._source, layers=self._source.layers[index])
            return Network._made(self._infos[index], part, source)
        if self._read is None:
            layer: Any = self._infos[index]
            return layer
        return self._read(range(len(self))[index])

    def __repr__(self) -> str:
        words = ["1 layer" if len(self) == 1 else f"{len(self)} layers"]
        if self._infos:
            words += [
                f"{self.shape[0]} inputs to {self.shape[1]} outputs",
                f"{self.edges} edges",
                self._infos[0].describe().split(", ")[1],
            ]
        if not self.in_memory:
            words.append("read when asked")
        return "\n".join([f"Network: {', '.join(words)}", *layer_table(self._infos)])


@dataclass(frozen=True, slots=True)
class NetworkSource:
    """A few hundred bytes that stand for a lazy network, equal for equal networks.

    Attributes
    ----------
    reopen : callable
        Returns the network that this one is, or is a part of.
    layers : range
        Which of its layers.
    dtype : str, optional
        What they are cast to.
    """

    reopen: Callable[[], Network]
    layers: range
    dtype: str | None = None

    def network(self) -> Network:
        """Return the network, lazy as it was."""
        net, layers = self.reopen(), self.layers
        if layers != range(len(net)):
            stop = None if layers.stop < 0 else layers.stop
            net = net[layers.start : stop : layers.step]
        return net if self.dtype is None else net.astype(self.dtype)


def require_fit(k: int, before: LayerInfo, here: LayerInfo) -> None:
    """Raise the error of a layer `k` that cannot follow the one before it."""
    if here.nrows != before.ncols:
        raise ShapeError(
            f"layer {k}: weights are {here.nrows} x {here.ncols} but the layer before it,"
            f" {before.nrows} x {before.ncols}, has {before.ncols} outputs"
        )
    if here.dtype != before.dtype:
        raise ArgumentError(
            f"layer {k} is {here.dtype} but layer {k - 1} is {before.dtype};"
            " dtype= casts all layers"
        )


def as_network(layers: Any, *, dtype: Any = None, **of_matrices: Any) -> Network:
    """Return `layers` as a Network: itself, or Layers or matrices put together.

    `of_matrices` are the options of `Network` that describe matrices; None where not given.
    """
    if not isinstance(layers, Network):
        return Network(layers, dtype=dtype, **of_matrices)
    _require_matrices("a Network; its layers", of_matrices)
    return layers if dtype is None else layers.astype(dtype)


def _as_layers(
    layers: Any, bias: Any, bias_rule: Any, clip: Any, last_activation: Any, dtype: Any
) -> list[Layer]:
    """Return the layers of a `Network`, whose options these are."""
    if is_matrix(layers) and getattr(layers, "ndim", 2) == 2:
        raise ArgumentTypeError("layers is one matrix; a list is needed: [W]")
    items = as_list(layers, "layers is a Network or a list of matrices")
    if items and all(isinstance(item, Layer) for item in items):
        given = {"bias": bias, "bias_rule": bias_rule, "clip": clip}
        _require_matrices("Layers; they", given | {"last_activation": last_activation})
        wanted = None if dtype is None else as_dtype(dtype)
        return items if wanted is None else [layer.astype(wanted) for layer in items]
    biases = _one_bias_per_layer(bias, len(items))
    last = "relu" if last_activation is None else last_activation
    as_word(last, "last_activation", get_args(Activation))
    options = {"bias_rule": "all" if bias_rule is None else bias_rule, "dtype": dtype}
    if not items or last == "identity":  # options that no layer gets are checked even so
        Layer(np.empty((0, 0)), clip=clip, **options)
    found = []
    for k, (W, b) in enumerate(zip(items, biases, strict=True)):
        if isinstance(W, Layer):
            raise ArgumentTypeError(f"layer {k} is a Layer among matrices; make all of them Layers")
        with naming(f"layer {k}"):
            if last == "identity" and k == len(items) - 1:
                found.append(Layer(W, b, activation="identity", **options))
            else:
                found.append(Layer(W, b, clip=clip, **options))
    return found


def _require_matrices(what: str, options: dict[str, Any]) -> None:
    for name, value in options.items():
        if value is not None:
            raise ArgumentTypeError(f"{name}= cannot be combined with {what} already have one")


def _one_bias_per_layer(bias: Any, layers: int) -> list[Any]:
    """Return one bias per layer; a number stands for all of them."""
    if bias is None:
        return [0.0] * layers
    if isinstance(bias, int | float | np.number) or (
        isinstance(bias, np.ndarray) and not bias.ndim
    ):
        return [bias] * layers
    if isinstance(bias, str) or not isinstance(bias, Sequence | np.ndarray):
        raise ArgumentTypeError(
            "bias= is one number, or a sequence with one item (a number or a vector) per layer,"
            f" not {type(bias).__qualname__}"
        )
    if len(bias) != layers:
        raise ShapeError(
            f"bias= has {len(bias)} items for {layers} layers: one number for all,"
            " or one item (a number or a vector) per layer"
        )
    return list(bias)
