"""Inference: the activations of every input after every layer.

    Z   = Y W                      plus_times
    Z  += b                        on every neuron, or on the entries of Z: the bias rule
    Y'  = min(max(Z, 0), clip)     ReLU with an upper limit

Rows of Y are inputs, columns are neurons. J. Kepner, S. Alford, V. Gadepally et al., "Sparse Deep
Neural Network Graph Challenge", HPEC 2019, equations 1 to 4; T. Davis, M. Aznaveh, S. Kolodziej,
"Write Quick, Run Fast: Sparse Deep Neural Network in 20 Minutes of Development Time via
SuiteSparse:GraphBLAS", HPEC 2019.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import graphblas as gb

from gbdnn.errors import ShapeError
from gbdnn.forms import sparse
from gbdnn.matrices import as_dtype, as_matrix, shape_of
from gbdnn.metrics import LayerStats
from gbdnn.network import as_network
from gbdnn.overflow import Watch
from gbdnn.threads import engaged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gbdnn.layer import BiasLike, BiasRule, Layer
    from gbdnn.matrices import MatrixLike
    from gbdnn.network import Network

__all__ = ["infer"]


def infer(
    layers: Network | Iterable[Layer] | Iterable[MatrixLike],
    features: MatrixLike,
    *,
    bias: BiasLike | Sequence[BiasLike] | None = None,
    bias_rule: BiasRule | None = None,
    clip: float | None = None,
    dtype: Any = None,
    nthreads: int | None = None,
    callback: Callable[[LayerStats], object] | None = None,
) -> gb.Matrix:
    """Return the activations of a sparse network's last layer.

    Parameters
    ----------
    layers : Network, list of Layer, or list of matrices of shape (neurons before, neurons)
        Bare matrices (graphblas, SciPy sparse, 2-D NumPy) become Layers with a ReLU and the
        `bias`, `bias_rule` and `clip` given here; a Network has its own.
    features : Matrix, SciPy sparse or 2-D ndarray, shape (inputs, neurons of the first layer)
        One row per input.
    bias : float, or a sequence with one item (a number or a vector) per layer, optional
        Only with bare matrices; 0 by default.
    bias_rule : {"all", "entries"}, optional
        Only with bare matrices; ``"all"`` by default. See `Layer`.
    clip : float, optional
        Only with bare matrices: upper limit of the activations; none by default.
    dtype : {"FP32", "FP64"} or NumPy dtype, optional
        What to compute in. By default the weights decide: FP32 and FP64 stay, bool and integers
        become FP32. Features are cast to it.
    nthreads : int, optional
        Threads for this call. By default the engaged GraphBLAS Context and configuration decide.
    callback : callable, optional
        Called with a `LayerStats` after each layer, in the caller's thread. What it raises ends
        the inference and reaches the caller.

    Returns
    -------
    graphblas.Matrix, shape (inputs, neurons of the last layer)
        A new matrix, rows in the order of the inputs; it stores no zero. Without layers, the
        features.

    Raises
    ------
    ShapeError
        Layers do not fit each other, or the features do not fit the first layer.
    ArgumentError, ArgumentTypeError
        A value or an option has no meaning: NaN or infinity, ``nthreads=0``, layers of different
        dtypes, ``bias=`` beside a Network.
    NonFiniteError
        ``Y W + b`` overflowed or became NaN; the message names the layer.

    Notes
    -----
    Every layer computes ``Y = min(max(Y W + b, 0), clip)`` [1]_. Nothing that is passed in is
    changed, and GraphBLAS's settings are afterwards what they were before.

    References
    ----------
    .. [1] J. Kepner et al., "Sparse Deep Neural Network Graph Challenge", HPEC 2019,
       arXiv:1909.05631.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> W = np.array([[0.5, 0.0], [1.0, -1.0]])
    >>> X = np.array([[2.0, 0.0], [0.0, 3.0], [0.0, 0.0]])
    >>> Y = gbdnn.infer([W, W], X, bias=-0.25, clip=2)
    >>> Y.to_dense(fill_value=0)
    array([[0.125, 0.   ],
           [0.75 , 0.   ],
           [0.   , 0.   ]])
    >>> gbdnn.categories(Y)
    array([0, 1])
    """
    net = as_network(layers, bias=bias, bias_rule=bias_rule, clip=clip, dtype=dtype)
    with engaged(nthreads):
        Y = _as_features(features, net, dtype)
        watch = Watch(Y)
        for k, layer in enumerate(net):
            started = perf_counter()
            Y = sparse.advance(Y, layer, layer.prepared(sparse.prepare), watch.before(k, layer, Y))
            watch.after(layer)
            if callback is not None:
                Y.wait()
                callback(_stats(k, Y, perf_counter() - started))
        Y.wait()
    return Y


def _as_features(features: MatrixLike, net: Network, dtype: Any) -> gb.Matrix:
    """Return the features in the network's dtype, or say why they do not fit."""
    nrows, ncols = shape_of(features, "features")
    if len(net) and ncols != net[0].nrows:
        raise ShapeError(
            f"features are {nrows} x {ncols} but layer 0, {net[0].nrows} x {net[0].ncols},"
            f" reads {net[0].nrows} neurons"
        )
    wanted = net.dtype if dtype is None else as_dtype(dtype)
    return as_matrix(features, what="features", dtype=wanted)


def _stats(k: int, Y: gb.Matrix, seconds: float) -> LayerStats:
    live = Y.reduce_rowwise(gb.monoid.any).new().nvals
    return LayerStats(
        layer=k,
        block=0,
        inputs=Y.nrows,
        live=int(live),
        entries=int(Y.nvals),
        form="sparse",
        seconds=seconds,
    )
