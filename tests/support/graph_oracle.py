"""Graph convolutions in SciPy and NumPy, FP64; imports nothing from gbdnn."""

import numpy as np
import scipy.sparse as sp


def random_graph(rng, nodes, *, edges=3.0, weights="ones"):
    """G(i, j): an edge from i to j; some nodes are isolated, a few have very many neighbours."""
    count = rng.poisson(edges * nodes) if nodes else 0
    i = rng.integers(0, max(nodes, 1), count)
    j = (rng.random(count) ** 2 * nodes).astype(int)  # the first nodes have most
    alone = rng.random(nodes) < 0.2
    keep = ~(alone[i] | alone[j]) if nodes else np.zeros(0, bool)
    values = np.ones(count) if weights == "ones" else rng.integers(1, 9, count) / 4
    G = sp.csr_array((values[keep], (i[keep], j[keep])), shape=(nodes, nodes))
    G.sum_duplicates()
    if weights == "ones":
        G.data[:] = 1
    return G


def normalized(G, kind="symmetric", loops=None):
    A = G.T.toarray().astype(float)
    if kind == "symmetric" if loops is None else loops:
        alone = A.diagonal() == 0
        A[np.diag_indices(len(A))] += alone
    d = A.sum(axis=1)
    inverse = np.divide(1, d, out=np.zeros_like(d), where=d > 0)
    if kind == "mean":
        return inverse[:, np.newaxis] * A
    return np.sqrt(inverse)[:, np.newaxis] * A * np.sqrt(inverse)


def aggregated(A, Y, how="sum"):
    if how == "sum":
        return sp.csr_array(A) @ Y
    Z = np.zeros((A.shape[0], Y.shape[1]))
    rows = sp.csr_array(A)
    for i in range(A.shape[0]):
        neighbours = rows.indices[rows.indptr[i] : rows.indptr[i + 1]]
        if len(neighbours):
            Z[i] = (np.max if how == "max" else np.min)(Y[neighbours], axis=0)
    return Z


def convolved(A, Y, W, b=0.0, *, V=None, relu=True, clip=np.inf, how="sum"):
    Z = np.zeros((len(Y), np.shape(V if W is None else W)[1])) + b
    if W is not None:
        Z += aggregated(A, Y, how) @ W
    if V is not None:
        Z += Y @ V
    return np.clip(Z, 0 if relu else -np.inf, clip)
