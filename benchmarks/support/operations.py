"""Seconds of each GraphBLAS operation of the sparse kernel, layer by layer.

    Z  = Y W              mxm, plus_times
    Z  = Z(Z > -b)        select: the entries that the bias leaves positive
    Z  = Z + b            apply
    Y' = min(Z, clip)     apply

This is the kernel's order of operations for a ReLU and one bias per layer. Each call is timed until
it returns, without ``wait``; work that GraphBLAS postpones, such as sorting the rows of a product,
counts for the operation that executes it.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

import graphblas as gb
import lagraph
import numpy as np

if TYPE_CHECKING:
    from gbdnn import Network

OPERATIONS = ("mxm", "select", "apply, bias", "apply, clip")


def timed(network: Network, X: gb.Matrix, nthreads: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the seconds of the operations in each layer, and the categories.

    Parameters
    ----------
    network : Network
        Every layer has one bias, a ReLU and a clip.
    X : Matrix, shape (inputs, neurons)
        The features, computed in batches that fit into memory.
    nthreads : int
        Threads of the GraphBLAS Context.

    Returns
    -------
    seconds : ndarray, shape (layers, operations)
        In the order of `OPERATIONS`.
    categories : ndarray of int64
        Rows with an entry after the last layer.
    """
    from graphblas import binary, select, semiring

    seconds = np.zeros((len(network), len(OPERATIONS)))
    found, first = [], 0
    with gb.ss.Context(engage=False, nthreads=nthreads):
        for Y in lagraph.batches(X):
            for k, layer in enumerate(network):
                b, clip = np.float32(layer.bias), np.float32(layer.clip)
                at = [perf_counter()]
                Z = semiring.plus_times(Y @ layer.weights).new()
                at.append(perf_counter())
                Z << select.valuegt(Z, -b)
                at.append(perf_counter())
                Z << binary.plus(Z, b)
                at.append(perf_counter())
                Z << binary.min(Z, clip)
                at.append(perf_counter())
                seconds[k] += np.diff(at)
                Y = Z
            rows, _ = Y.reduce_rowwise(gb.monoid.any).new().to_coo(values=False)
            found.append(rows.astype(np.int64) + first)
            first += Y.nrows
    return seconds, np.concatenate(found)
