"""Compiled networks: callables that map NumPy arrays to NumPy arrays with low latency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.checks import as_nthreads, as_word
from gbdnn.arrays.matrices import as_dense
from gbdnn.arrays.sources import DenseRows, as_source
from gbdnn.engine.plan import ENGINES, Engine
from gbdnn.engine.run import infer_network
from gbdnn.engine.shallow import run_shallow
from gbdnn.engine.sizes import NetworkFacts, sharing, single_window
from gbdnn.errors import ArgumentError, ArgumentTypeError, ShapeError, require_kind
from gbdnn.kernels import costs
from gbdnn.kernels.compiled.loading import functions, required
from gbdnn.kernels.fused_shares import Singles
from gbdnn.model.network import Network, as_network
from gbdnn.runtime.threads import engaged, restored

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.model.layer import Activation, BiasLike, BiasRule, Layer


class CompiledNetwork:
    """A callable that maps NumPy arrays to NumPy arrays, made by `gbdnn.compile`.

    It is thread-safe. Its pickle contains only the network, which is compiled again at the first
    call after loading.

    Parameters
    ----------
    network : Network
        In memory, with at least one layer.
    nthreads : int, optional
        As for `gbdnn.compile`.
    engine : {"auto", "graphblas", "fused", "full", "sparse"}, default "auto"
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
        require_kind(network, Network, "network must be a Network")
        as_word(engine, "engine", ENGINES)
        self._hold(network, as_nthreads(nthreads), engine)
        self._prepare()

    def _hold(self, network: Network, nthreads: int | None, engine: Engine) -> None:
        self.network, self.nthreads, self.engine = network, nthreads, engine
        self._dtype = network.dtype or np.dtype(np.float32)
        self._nrows, self._ncols = network.shape
        self._is_shallow: bool | None = None  # until it is prepared

    def _prepare(self) -> None:
        """Prepare what calls need."""
        self._facts = self.network.prepared(NetworkFacts.of)
        is_fused = self.engine in ("auto", "fused") and self._facts.is_exact
        if self.engine == "fused":
            required(self._dtype)
        self._is_shallow = is_fused and functions(self._dtype) is not None
        if self._is_shallow:
            self._singles = self.network.prepared(Singles)
            # Prepare all paths: single inputs, blocks, wide blocks.
            for inputs in (1, costs.SINGLES + 1, 256 // self._dtype.itemsize):
                self(np.zeros((inputs, self._nrows), self._dtype))

    def __call__(self, x: Any, *, out: np.ndarray | None = None) -> np.ndarray:
        """Return the activations of the last layer.

        Parameters
        ----------
        x : array, Matrix or other features, shape (inputs, neurons of the first layer)
            As for `infer`. A 1-D array or a Vector is one input, whose result is 1-D.
        out : ndarray, optional
            Receives the result. C-ordered, with the shape of the result and the dtype of the
            network, not sharing memory with `x`. Its values are undefined after an error.

        Returns
        -------
        ndarray, shape (inputs, neurons of the last layer) or (neurons of the last layer,)
            `out`, or a new array of the network's dtype.

        Raises
        ------
        ShapeError, ArgumentError, ArgumentTypeError, NonFiniteError
            As for `infer`, or `out` is invalid.
        """
        if self._is_shallow is None:
            self._prepare()
        x = as_dense(x, "features", self._dtype) if type(x) is not np.ndarray else x
        rows = x[np.newaxis] if x.ndim == 1 else x
        if rows.ndim != 2 or rows.shape[1] != self._nrows:
            remedy = f"; reshape({len(x)}, -1) gives each input a row" if x.ndim > 2 else ""
            raise ShapeError(
                f"features must have shape (inputs, {self._nrows}), or ({self._nrows},) for one"
                f" input, not {x.shape}{remedy}"
            )
        shape = len(rows), self._ncols
        values = None if out is None else self._writable(out, x, shape[2 - x.ndim :]).reshape(shape)
        if not self._is_shallow:
            X = as_source(rows, self._dtype)
            Y = infer_network(self.network, X, engine=self.engine, nthreads=self.nthreads)
            dense = Y.to_dense(fill_value=0, dtype=self._dtype)
            if values is None:
                values = dense
            else:
                values[:] = dense
        else:
            values = np.empty(shape, self._dtype) if values is None else values
            X = DenseRows(rows, self._dtype)
            if X.nrows <= costs.SINGLES:
                self._singles.run(X, values, sharing(self._facts, X.nrows, self.nthreads))
            else:
                sizes = single_window(self._facts, X.nrows, self.nthreads)
                run_shallow(self.network, X, values, sizes=sizes)
        if out is not None:
            return out
        return values[0] if x.ndim == 1 else values

    def _writable(self, out: Any, x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Return `out` if a result of this shape can be written to it, or raise."""
        require_kind(out, np.ndarray, "out must be an ndarray")
        if out.shape != shape:
            raise ShapeError(f"out has shape {out.shape} but the result has {shape}")
        if out.dtype != self._dtype or not out.flags.carray:
            raise ArgumentError(f"out must be a C-ordered, writable array of {self._dtype}")
        if np.may_share_memory(out, x):
            raise ArgumentError("out must not share memory with the features")
        return out

    def __repr__(self) -> str:
        threads = "" if self.nthreads is None else f", nthreads={self.nthreads}"
        engine = "" if self.engine == "auto" else f", engine={self.engine!r}"
        return f"CompiledNetwork({self._nrows} to {self._ncols}, {self._dtype}{threads}{engine})"

    def __reduce__(self) -> tuple[Any, ...]:
        # An error here would leave a worker of multiprocessing.Pool without an answer.
        return _unprepared, (self.network, self.nthreads, self.engine)


def _unprepared(network: Network, nthreads: int | None, engine: Engine) -> CompiledNetwork:
    """Return a compiled network that is prepared at its first call."""
    made = CompiledNetwork.__new__(CompiledNetwork)
    made._hold(network, nthreads, engine)
    return made


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
    """Return a callable that maps NumPy arrays to NumPy arrays with microsecond latency.

    Prepares the weights for compiled kernels, so that calls create no GraphBLAS objects.

    Parameters
    ----------
    layers : Network, list of Layer, or list of matrices
        As for `infer`; a lazy network is loaded.
    bias, bias_rule, clip, last_activation, dtype
        As for `infer`.
    engine : {"auto", "graphblas", "fused", "full", "sparse"}, default "auto"
        As for `infer`. Only ``"auto"`` and ``"fused"`` use compiled code; the other engines call
        `infer`, and so does ``"auto"`` on processors without compiled kernels.
    nthreads : int, optional
        As for `infer`. A call with few inputs uses several threads only if its layers take several
        microseconds each and it closely follows another call.

    Returns
    -------
    CompiledNetwork

    Raises
    ------
    ShapeError, ArgumentError, ArgumentTypeError
        As for `infer`.
    MissingPackageError
        ``engine="fused"``, and there are no compiled kernels for this processor.

    Notes
    -----
    The result for an input has the same bits for any number of inputs per call. It has the same
    bits as that of ``infer(..., engine="fused")`` unless that reorders neurons, as it may with
    2,048 inputs or more, more than 32 layers, `callback`, ``deduplicate=True`` or little `memory`.
    A positive bias under the rule ``"entries"`` needs the sparse kernel, so calls use `infer`.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> run = gbdnn.compile([np.array([[0.5, 0.0], [1.0, -1.0]])], bias=-0.25)
    >>> run([2.0, 0.5])
    array([1.25, 0.  ])
    >>> run(np.eye(2)).tolist()
    [[0.25, 0.0], [0.75, 0.0]]
    """
    with restored(), engaged(as_nthreads(nthreads)):
        net = as_network(
            layers, bias=bias, bias_rule=bias_rule, clip=clip, last_activation=last_activation,
            dtype=dtype,
        ).loaded()  # fmt: skip
    if not len(net):
        raise ArgumentTypeError("cannot compile a network without layers")
    return CompiledNetwork(net, nthreads, engine)
