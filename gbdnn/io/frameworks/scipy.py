"""SciPy's sparse arrays in memory, as a `Network` and back."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from gbdnn.arrays.checks import as_list, as_word
from gbdnn.arrays.matrices import is_matrix
from gbdnn.errors import ArgumentTypeError, require_kind
from gbdnn.model.network import Network
from gbdnn.runtime.first_use import gb
from gbdnn.runtime.optional import require

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    import scipy.sparse

    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.model.layer import Activation, BiasLike, BiasRule, Layer


def from_scipy(
    layers: Iterable[MatrixLike | tuple[MatrixLike, BiasLike | None]],
    *,
    bias: BiasLike | Sequence[BiasLike] | None = None,
    bias_rule: BiasRule = "all",
    clip: float | None = None,
    last_activation: Activation = "relu",
    dtype: Any = None,
) -> Network:
    """Make a network of matrices, or of pairs of weights and bias.

    Parameters
    ----------
    layers : iterable of matrices, or of pairs ``(W, b)``
        `W` of shape (nrows, ncols), SciPy sparse, 2-D ndarray or ``graphblas.Matrix``: ``W(i, j)``
        is the edge from neuron i to neuron j. `b` is a number, a vector of length ncols, or None
        for no bias. All of them are copied.
    bias : float, or sequence with one item per layer, optional
        For matrices that are not in pairs: one number, or a number or a vector per layer.
    bias_rule : {"all", "entries"}, default "all"
        See `Layer`.
    clip : float, optional
        Upper limit of every ReLU; default: no limit.
    last_activation : {"relu", "identity"}, default "relu"
        Of the last layer; ``"identity"`` (without clip) as in a trained classifier. All others
        have a ReLU.
    dtype : {"FP32", "FP64"} or NumPy dtype, optional
        Default: that of the weights, which must agree.

    Returns
    -------
    Network

    Raises
    ------
    ShapeError
        Two layers, or a layer and its bias, do not fit; the message names the layer.
    ArgumentError
        A value is NaN or infinite (the layer is named), or an option is invalid.
    ArgumentTypeError
        Something is not a matrix, complex, or there is a `bias` beside pairs.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, gbdnn
    >>> W = sp.csr_array(np.array([[1.0, 0.0], [2.0, -1.0]]))
    >>> gbdnn.io.from_scipy([(W, [0.5, 0.0]), (W, None)], last_activation="identity")
    Network: 2 layers, 2 inputs to 2 outputs, 6 edges, FP64
      layer  shape  edges
      0      2 x 2      3  bias 0 to 0.5 (all), relu
      1      2 x 2      3  bias 0 (all), identity
    """
    require_activation(last_activation)
    if is_matrix(layers):
        raise ArgumentTypeError("layers is one matrix; a list is needed: [W]")
    items = as_list(layers, "layers is a list of matrices or of pairs (W, b)")
    pairs = [isinstance(item, tuple | list) and len(item) == 2 for item in items]
    if any(pairs):
        if bias is not None:
            raise ArgumentTypeError("bias= beside pairs (W, b): they have their own")
        bias = [0.0 if not p or x[1] is None else x[1] for p, x in zip(pairs, items, strict=True)]
        items = [x[0] if p else x for p, x in zip(pairs, items, strict=True)]
    return Network(
        items, bias=bias, bias_rule=bias_rule, clip=clip, last_activation=last_activation,
        dtype=dtype,
    )  # fmt: skip


def to_scipy(net: Network) -> list[tuple[scipy.sparse.csc_array, float | np.ndarray]]:
    """Return a network's weights and biases as SciPy and NumPy arrays.

    Parameters
    ----------
    net : Network
        Its bias rules, activations and clips are not in the result.

    Returns
    -------
    list of (csc_array of shape (nrows, ncols), float or ndarray of shape (ncols,))
        New arrays of the network's dtype, indices sorted, no duplicates, no stored zeros.

    Raises
    ------
    ArgumentTypeError, MissingPackageError
        `net` is not a Network; SciPy is not installed.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> [(W, b)] = gbdnn.io.to_scipy(gbdnn.Network([gbdnn.Layer(np.eye(3), bias=0.5)]))
    >>> W.format, W.shape, W.nnz, b
    ('csc', (3, 3), 3, 0.5)
    """
    require_kind(net, Network, "net: a Network is needed")
    scipy_sparse()
    return [(as_csc(layer), copy.copy(layer.bias)) for layer in net]


def as_csc(layer: Layer) -> scipy.sparse.csc_array:
    """Return a layer's weights as a new CSC array with sorted indices."""
    W = gb.io.to_scipy_sparse(layer.weights, "csc")
    W.sort_indices()
    return W


def require_activation(last: object) -> None:
    """Raise ArgumentError unless `last` is an activation."""
    as_word(last, "last_activation", ("relu", "identity"))


def scipy_sparse() -> Any:
    """Return the package scipy.sparse, or raise MissingPackageError."""
    return require("scipy.sparse", "files", "SciPy is needed")
