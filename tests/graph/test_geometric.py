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


def check(Y, expected):
    expected = expected.numpy()
    assert (Y.dtype, Y.shape) == ("FP32", expected.shape)
    atol = 1e-5 * max(float(np.abs(expected).max(initial=0)), 1e-6)
    np.testing.assert_allclose(Y.to_dense(fill_value=0), expected, atol=atol)


@torch.no_grad()
def test_gcn(case):
    G, X = case
    first, last = nn.GCNConv(12, 20), nn.GCNConv(20, 5)
    for conv in (first, last):
        torch.nn.init.normal_(conv.bias)
    layers = [*graph.from_geometric(first, activation="relu"), *graph.from_geometric(last)]
    Y = graph.infer(layers, X, graph.normalized(G))
    check(Y, last(torch.relu(first(torch.from_numpy(X), edges(G))), edges(G)))


@torch.no_grad()
def test_gcn_with_weights_of_edges(case):
    G, X = case
    G = G.astype(np.float32)
    G.data = np.random.default_rng(0).uniform(0.1, 2, G.nnz).astype(np.float32)
    conv = nn.GCNConv(12, 5, bias=False)
    Y = graph.infer(graph.from_geometric(conv), X, graph.normalized(G))
    check(Y, conv(torch.from_numpy(X), edges(G), torch.from_numpy(G.tocoo().data)))


@torch.no_grad()
@pytest.mark.parametrize("hops", [1, 3])
def test_sgc(case, hops):
    G, X = case
    conv = nn.SGConv(12, 5, K=hops)
    Y = graph.infer(graph.from_geometric(conv), X, graph.normalized(G))
    check(Y, conv(torch.from_numpy(X), edges(G)))


@torch.no_grad()
@pytest.mark.parametrize("how", ["mean", "max", "sum"])
@pytest.mark.parametrize("own", [True, False])
def test_sage(case, how, own):
    G, X = case
    conv = nn.SAGEConv(12, 7, aggr=how, root_weight=own)
    A = G.T if how == "sum" else graph.normalized(G, "mean")
    aggregate = "max" if how == "max" else "sum"
    Y = graph.infer(graph.from_geometric(conv), X, A, aggregate=aggregate)
    check(Y, conv(torch.from_numpy(X), edges(G)))


@torch.no_grad()
@pytest.mark.parametrize(
    ("conv", "matrix", "options"),
    [
        (lambda: nn.GCNConv(12, 5, add_self_loops=False), "without loops", {}),
        (lambda: nn.SGConv(12, 5, K=2, add_self_loops=False), "without loops", {}),
        (lambda: nn.GCNConv(12, 5, normalize=False), "transpose", {}),
        (lambda: nn.SAGEConv(12, 5, aggr="min"), "transpose", {"aggregate": "min"}),
        (lambda: nn.GINConv(torch.nn.Linear(12, 5), aggr="mean"), "mean", {}),
        (lambda: nn.GINConv(torch.nn.Linear(12, 5), aggr="max"), "transpose", {"aggregate": "max"}),
    ],
)
def test_the_matrix_of_each_combination_in_the_notes(case, conv, matrix, options):
    G, X = case
    A = {
        "without loops": lambda: graph.normalized(G, self_loops=False),
        "transpose": lambda: G.T,
        "mean": lambda: graph.normalized(G, "mean"),
    }[matrix]()
    conv = conv()
    Y = graph.infer(graph.from_geometric(conv), X, A, **options)
    check(Y, conv(torch.from_numpy(X), edges(G)))


@torch.no_grad()
@pytest.mark.parametrize("activation", ["identity", "relu"])
def test_gin(case, activation):
    G, X = case
    perceptron = torch.nn.Sequential(
        torch.nn.Linear(12, 16), torch.nn.ReLU(), torch.nn.Linear(16, 6)
    )
    conv = nn.GINConv(perceptron, eps=0.3)
    Y = graph.infer(graph.from_geometric(conv, activation=activation), X, G.T)
    expected = conv(torch.from_numpy(X), edges(G))
    check(Y, torch.relu(expected) if activation == "relu" else expected)


@pytest.mark.parametrize(
    ("conv", "named"),
    [
        (lambda: nn.GCNConv(4, 2, improved=True), "GCNConv with improved=True"),
        (lambda: nn.GCNConv(4, 2, flow="target_to_source"), "flow='target_to_source'"),
        (lambda: nn.SAGEConv(4, 2, normalize=True), "SAGEConv with normalize=True"),
        (lambda: nn.SAGEConv(4, 2, project=True), "SAGEConv with project=True"),
        (lambda: nn.SAGEConv(4, 2, aggr="median"), "aggr='median'"),
        (lambda: nn.GCNConv(4, 2, aggr="mean"), "GCNConv with aggr='mean'"),
        (lambda: nn.GCNConv(4, 2, aggr="max"), "GCNConv with aggr='max'"),
        (lambda: nn.SGConv(4, 2, aggr="mean"), "SGConv with aggr='mean'"),
        (lambda: nn.SGConv(4, 2, K=0), "SGConv with K=0"),
        (lambda: nn.GINConv(torch.nn.Linear(4, 2), aggr="std"), "GINConv with aggr='std'"),
        (lambda: nn.GCNConv(4, 2, node_dim=0), "GCNConv with node_dim=0"),
    ],
)
def test_unsupported_options_are_named(conv, named):
    with pytest.raises(gbdnn.errors.ArgumentError, match=named):
        graph.from_geometric(conv())


def test_other_modules_are_refused():
    with pytest.raises(gbdnn.errors.ArgumentTypeError, match="cannot convert GATConv; supported"):
        graph.from_geometric(nn.GATConv(4, 2))
