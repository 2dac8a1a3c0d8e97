"""Weights of PyTorch Geometric's layers, taken from their `state_dict`, give the same answers."""

import numpy as np
import pytest
import scipy.sparse as sp

import gbdnn
from gbdnn import graph

torch = pytest.importorskip("torch")
nn = pytest.importorskip("torch_geometric.nn")

pytestmark = pytest.mark.frameworks

GRAPHS = ["directed", "undirected", "loops", "isolated", "hub", "one node", "no edge"]


def made(kind, seed):
    """Edges i to j, and features."""
    rng = np.random.default_rng(seed)
    nodes = 1 if kind == "one node" else int(rng.integers(20, 120))
    count = 0 if kind in ("one node", "no edge") else 4 * nodes
    i, j = rng.integers(0, nodes // 2 if kind == "isolated" else nodes, (2, count))
    if kind == "hub":
        i, j = np.append(i, np.arange(nodes)), np.append(j, np.full(nodes, 3))
    if kind != "loops":
        i, j = i[i != j], j[i != j]
    G = sp.csr_array((np.ones(len(i)), (i, j)), shape=(nodes, nodes), dtype=bool)
    G = (G + G.T).tocsr() if kind == "undirected" else G
    return G, rng.normal(size=(nodes, 12)).astype(np.float32)


@pytest.fixture(params=[(kind, seed) for seed, kind in enumerate(GRAPHS)], ids=str)
def case(request):
    torch.manual_seed(request.param[1])
    return made(*request.param)


def edges(G):
    return torch.from_numpy(np.array(G.nonzero()))


def weights(module):
    """The parameters by name, a Linear's transposed: inputs x outputs."""
    arrays = {name: each.numpy() for name, each in module.state_dict().items()}
    return {name: each.T if each.ndim == 2 else each for name, each in arrays.items()}


def check(Y, expected):
    expected = expected.numpy()
    assert Y.dtype == "FP32"
    assert Y.shape == expected.shape
    atol = 1e-5 * max(float(np.abs(expected).max(initial=0)), 1e-6)
    np.testing.assert_allclose(Y.to_dense(fill_value=0), expected, atol=atol)


@torch.no_grad()
def test_gcn(case):
    G, X = case
    first, last = nn.GCNConv(12, 20), nn.GCNConv(20, 5)
    for conv in (first, last):
        torch.nn.init.normal_(conv.bias)
    layers = [
        gbdnn.Layer(weights(first)["lin.weight"], weights(first)["bias"]),
        gbdnn.Layer(weights(last)["lin.weight"], weights(last)["bias"], activation="identity"),
    ]
    Y = graph.infer(layers, X, graph.normalized(G))
    check(Y, last(torch.relu(first(torch.from_numpy(X), edges(G))), edges(G)))


@torch.no_grad()
def test_gcn_with_weights_of_edges(case):
    G, X = case
    G = G.astype(np.float32)
    G.data = np.random.default_rng(0).uniform(0.1, 2, G.nnz).astype(np.float32)
    conv = nn.GCNConv(12, 5)
    W = gbdnn.Layer(weights(conv)["lin.weight"], activation="identity")
    Y = graph.infer([W], X, graph.normalized(G))
    check(Y, conv(torch.from_numpy(X), edges(G), torch.from_numpy(G.tocoo().data)))


@torch.no_grad()
def test_sgc(case):
    G, X = case
    conv = nn.SGConv(12, 5, K=3)
    W, b = weights(conv)["lin.weight"], weights(conv)["lin.bias"]
    S = graph.propagate(graph.normalized(G), X, hops=3)
    Y = gbdnn.infer([gbdnn.Layer(W, b, activation="identity")], S)
    check(Y, conv(torch.from_numpy(X), edges(G)))


@torch.no_grad()
@pytest.mark.parametrize("how", ["mean", "max"])
def test_sage(case, how):
    G, X = case
    conv = nn.SAGEConv(12, 7, aggr=how)
    W = weights(conv)
    layer = graph.Convolution(
        W["lin_l.weight"], W["lin_l.bias"], self_weights=W["lin_r.weight"], activation="identity"
    )
    A = graph.normalized(G, "mean")
    Y = graph.infer([layer], X, A, aggregate="max" if how == "max" else "sum")
    check(Y, conv(torch.from_numpy(X), edges(G)))


@torch.no_grad()
def test_gin(case):
    G, X = case
    perceptron = torch.nn.Sequential(
        torch.nn.Linear(12, 16), torch.nn.ReLU(), torch.nn.Linear(16, 6)
    )
    conv = nn.GINConv(perceptron, eps=0.3)
    W, eps = weights(conv), float(conv.eps)
    own = (1 + np.float32(eps)) * W["nn.0.weight"]
    layers = [
        graph.Convolution(W["nn.0.weight"], W["nn.0.bias"], self_weights=own),
        graph.Convolution(
            None, W["nn.2.bias"], self_weights=W["nn.2.weight"], activation="identity"
        ),
    ]
    Y = graph.infer(layers, X, G.T)
    check(Y, conv(torch.from_numpy(X), edges(G)))
