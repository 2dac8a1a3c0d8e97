"""The true categories of a challenge network, computed independently."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gbdnn.arrays.arguments import require_callable
from gbdnn.arrays.first_use import gb
from gbdnn.errors import require_kind
from gbdnn.model.network import Network
from gbdnn.optional import require

if TYPE_CHECKING:
    from collections.abc import Callable

    Progress = Callable[[int, int], object]

__all__ = ["scipy_categories"]

# Activations have some ten times as many entries: a layer of a block takes about a second.
_BLOCK_ENTRIES = 1_500_000


def scipy_categories(
    network: Network, features: gb.Matrix, *, progress: Progress | None = None
) -> np.ndarray:
    """Return the categories of a challenge network, computed by SciPy in FP64.

    Parameters
    ----------
    network : Network
        Layers with the bias rule ``"entries"``, a ReLU, and weights >= 0 (SciPy drops sums that
        cancel).
    features : Matrix, shape (inputs, neurons)
        The inputs; dead ones are dropped after each layer.
    progress : callable, optional
        Called as ``progress(k, count)`` at the beginning and after each layer of a block of inputs.

    Returns
    -------
    ndarray of int64
        0-based ids in ascending order.

    Examples
    --------
    >>> import gbdnn
    >>> from gbdnn import challenge
    >>> net = gbdnn.radixnet(1024, 6)
    >>> X = gbdnn.gallery.features_from_images(gbdnn.gallery.digits(), 1024)
    >>> found = gbdnn.categories(gbdnn.infer(net, X))
    >>> bool((challenge.scipy_categories(net, X) == found).all())
    True
    """
    require_kind(network, Network, "network is a Network")
    require_kind(features, gb.Matrix, "features is a graphblas.Matrix")
    require_callable(progress, "progress")
    if progress is not None:
        progress(0, len(network))
    sp = require("scipy.sparse", "challenge", "the check needs SciPy")
    rows, columns, values = features.to_coo()
    X = sp.csr_array((values.astype(np.float64), (rows, columns)), shape=features.shape)
    blocks = np.array_split(np.arange(features.nrows), 1 + X.nnz // _BLOCK_ENTRIES)
    found = []
    for block, alive in enumerate(blocks):
        Y = X[alive]
        for k, layer in enumerate(network):
            rows, columns, values = layer.weights.to_coo()
            W = sp.csr_array((values.astype(np.float64), (rows, columns)), shape=layer.shape)
            Z = Y @ W
            Z.data += np.broadcast_to(layer.bias, (layer.ncols,))[Z.indices]
            np.clip(Z.data, 0, layer.clip, out=Z.data)
            Z.eliminate_zeros()
            lives = np.diff(Z.indptr) > 0
            Y, alive = Z[lives], alive[lives]
            if progress is not None:
                progress(block * len(network) + k + 1, len(blocks) * len(network))
        found.append(alive)
    return np.concatenate(found)
