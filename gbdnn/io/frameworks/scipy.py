"""Conversion of a network to SciPy's sparse arrays."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from gbdnn.arrays.checks import as_word
from gbdnn.errors import require_kind
from gbdnn.model.network import Network
from gbdnn.runtime.first_use import gb
from gbdnn.runtime.optional import require

if TYPE_CHECKING:
    import numpy as np
    import scipy.sparse

    from gbdnn.model.layer import Layer


def to_scipy(network: Network) -> list[tuple[scipy.sparse.csc_array, float | np.ndarray]]:
    """Return the weights and biases of a network as SciPy and NumPy arrays.

    Parameters
    ----------
    network : Network
        Bias rules, activations and clips are not part of the result.

    Returns
    -------
    list of (csc_array of shape (nrows, ncols), float or ndarray of shape (ncols,))
        New arrays of the network's dtype with sorted indices, without duplicates and stored zeros.

    Raises
    ------
    ArgumentTypeError, MissingPackageError
        `network` is not a Network; SciPy is not installed.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> [(W, b)] = gbdnn.io.to_scipy(gbdnn.Network([gbdnn.Layer(np.eye(3), bias=0.5)]))
    >>> W.format, W.shape, W.nnz, b
    ('csc', (3, 3), 3, 0.5)
    """
    require_kind(network, Network, "network must be a Network")
    scipy_sparse()
    return [(as_csc(layer), copy.copy(layer.bias)) for layer in network]


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
    return require("scipy.sparse", "files", "SciPy is required")
