"""One network, called again and again: arrays in, arrays out, as little as can be in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from gbdnn.arrays.checks import as_array, as_nthreads, as_word
from gbdnn.engine.answer import DenseAnswer
from gbdnn.engine.choice import Engine
from gbdnn.engine.run import infer_network
from gbdnn.engine.shallow import is_shallow, run_shallow
from gbdnn.engine.sources import DenseRows
from gbdnn.errors import ArgumentError, ArgumentTypeError, ShapeError, require_kind
from gbdnn.kernels import costs
from gbdnn.kernels.fused import FUSED
from gbdnn.model.network import Network, as_network
from gbdnn.runtime.threads import engaged

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.model.layer import Activation, BiasLike, BiasRule, Layer

__all__ = ["CompiledNetwork"]  # compile is a name of gbdnn


class CompiledNetwork:
    """A network that is ready to be called with arrays; `gbdnn.compile` makes one.

    Threads may call it at once. A pickle holds the network alone, and is prepared anew.

    Parameters
    ----------
    network : Network
        In memory, with a layer or more.
    nthreads : int, optional
        Threads of a call.
    engine : {"auto", "graphblas", "fused", "sparse", "full"}, default "auto"
        As for `gbdnn.compile`.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> run = gbdnn.compile([np.array([[0.5, 0.0], [1.0, -1.0]])], nthreads=1)
    >>> run
    CompiledNetwork(2 to 2, float64, nthreads=1)
    >>> run(np.array([[2.0, 0.5], [0.0, 3.0]]))
    array([[1.5, 0. ],
           [3. , 0. ]])
    """

    def __init__(self, network: Network, nthreads: int | None, engine: Engine = "auto") -> None:
        require_kind(network, Network, "network: a Network is needed")
        self.network, self.nthreads = network, as_nthreads(nthreads)
        as_word(engine, "engine", get_args(Engine))
        self.engine = engine
        self._dtype = network.dtype or np.dtype(np.float32)
        self._nrows, self._ncols = network.shape
        self._is_shallow = engine in ("auto", "fused") and is_shallow(network)
        if self._is_shallow and engine == "fused":
            FUSED.load(self._dtype)
        elif self._is_shallow:
            self._is_shallow = FUSED.has_loaded(self._dtype)
        if self._is_shallow:
            # Prepares all ways: single inputs, blocks, wide blocks.
            for inputs in (1, costs.SINGLES + 1, 256 // self._dtype.itemsize):
                self(np.zeros((inputs, self._nrows), self._dtype))

    def __call__(self, x: Any, *, out: np.ndarray | None = None) -> np.ndarray:
        """Return the activations of the last layer.

        Parameters
        ----------
        x : array_like, shape (inputs, neurons of the first layer) or (neurons of the first layer,)
            Features; one input may be a vector.
        out : ndarray, optional
            Of the answer's shape and the network's dtype, C-ordered, and not the memory of `x`:
            where the answer is written. After an error its values are arbitrary.

        Returns
        -------
        ndarray, shape (inputs, neurons of the last layer) or (neurons of the last layer,)
            `out`, or a new array of the network's dtype.

        Raises
        ------
        ShapeError
            The features do not fit the first layer.
        ArgumentError, ArgumentTypeError
            A value is not finite, or not a real number; `out` cannot take the answer.
        NonFiniteError
            ``Y W + b`` overflowed; the message names the layer.
        """
        x = as_array(x, "features") if type(x) is not np.ndarray else x
        rows = x[np.newaxis] if x.ndim == 1 else x
        if rows.ndim != 2 or rows.shape[1] != self._nrows:
            raise ShapeError(
                f"features have shape {x.shape}; inputs x {self._nrows}, or {self._nrows} for one"
                " input, are needed"
            )
        shape = len(rows), self._ncols
        values = None if out is None else self._writable(out, x, shape[2 - x.ndim :]).reshape(shape)
        if not self._is_shallow:
            Y = infer_network(self.network, rows, engine=self.engine, nthreads=self.nthreads)
            found = Y.to_dense(fill_value=0, dtype=self._dtype)
            if values is None:
                values = found
            else:
                values[:] = found
        else:
            answer = DenseAnswer(*shape, self._dtype, values=values, with_present=False)
            if len(rows):
                X = DenseRows(rows, self._dtype)
                run_shallow(self.network, X, answer, nthreads=self.nthreads)
            values = answer.values
        if out is not None:
            return out
        return values[0] if x.ndim == 1 else values

    def _writable(self, out: Any, x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Return an array that can take an answer of this shape, or raise."""
        require_kind(out, np.ndarray, "out: an array is needed")
        if out.shape != shape:
            raise ShapeError(f"out has shape {out.shape}; the answer has {shape}")
        if out.dtype != self._dtype or not out.flags.carray:
            raise ArgumentError(f"out: a C-ordered, writable array of {self._dtype} is needed")
        if np.may_share_memory(out, x):
            raise ArgumentError("out: its memory is that of the features")
        return out

    def __repr__(self) -> str:
        threads = "" if self.nthreads is None else f", nthreads={self.nthreads}"
        engine = "" if self.engine == "auto" else f", engine={self.engine!r}"
        return f"CompiledNetwork({self._nrows} to {self._ncols}, {self._dtype}{threads}{engine})"

    def __reduce__(self) -> tuple[Any, ...]:
        return CompiledNetwork, (self.network, self.nthreads, self.engine)


def compile(  # noqa: A001
    layers: Network | Iterable[Layer] | Iterable[MatrixLike],
    *,
    bias: BiasLike | Sequence[BiasLike] | None = None,
    bias_rule: BiasRule | None = None,
    clip: float | None = None,
    last_activation: Activation | None = None,
    dtype: Any = None,
    engine: Engine = "auto",
    nthreads: int | None = None,
) -> CompiledNetwork:
    """Return a network that is ready to be called with arrays.

    The work of the first call of `infer` is done here: machine code is loaded, or compiled (some
    seconds, once per machine), and weights are prepared for it. A call of compiled code returns an
    array and creates no GraphBLAS object.

    Parameters
    ----------
    layers : Network, list of Layer, or list of matrices
        As for `infer`; a lazy network is loaded.
    bias, bias_rule, clip, last_activation, dtype
        As for `infer`.
    engine : {"auto", "graphblas", "fused", "sparse", "full"}, default "auto"
        As for `infer`. ``"auto"`` and ``"fused"`` use the kernel compiled by numba; if it is not
        available, ``"auto"`` calls `infer`, as the other engines do.
    nthreads : int, optional
        Threads of each call, -1 for all cores (default: those of the engaged GraphBLAS Context, or
        of the configuration). A call with few inputs takes one.

    Returns
    -------
    CompiledNetwork

    Raises
    ------
    ShapeError, ArgumentError, ArgumentTypeError
        As `infer`, for layers and options.
    MissingPackageError
        ``engine="fused"`` and numba is missing or not supported.

    Notes
    -----
    An input's answer has the same bits whatever the number of inputs in a call, and those of
    `infer` with ``engine="fused"`` wherever that does not reorder neurons: it may from 2,048 inputs
    on, in networks of more than 32 layers, or with `callback`, ``deduplicate=True`` or little
    `memory`. There, answers agree within rounding. A network with a layer that the fused kernel
    cannot compute (a positive bias under the rule ``"entries"``) goes through `infer`.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> run = gbdnn.compile([np.array([[0.5, 0.0], [1.0, -1.0]])], bias=-0.25)
    >>> run([2.0, 0.5])
    array([1.25, 0.  ])
    >>> run(np.eye(2)).tolist()
    [[0.25, 0.0], [0.75, 0.0]]
    """
    with engaged(as_nthreads(nthreads)):
        net = as_network(
            layers, bias=bias, bias_rule=bias_rule, clip=clip, last_activation=last_activation,
            dtype=dtype,
        ).loaded()  # fmt: skip
    if not len(net):
        raise ArgumentTypeError("layers: there is none to compile")
    return CompiledNetwork(net, nthreads, engine)


def __dir__() -> list[str]:
    """List the public names only."""
    return list(__all__)
