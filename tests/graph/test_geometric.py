"""Weights of PyTorch Geometric's layers, taken from their `state_dict`, give the same answers."""

import graph_oracle as oracle
import numpy as np
import pytest
import scipy.sparse as sp
from calls import raises

import gbdnn
from gbdnn import graph

torch = pytest.importorskip("torch")
nn = pytest.importorskip("torch_geometric.nn")

pytestmark = pytest.mark.frameworks

GRAPHS = {  # of an adjacency matrix with loops, isolated nodes and hubs
    "loops": lambda A: A,
    "no loops": lambda A: A & ~np.eye(len(A), dtype=bool),
    "undirected": lambda A: A | A.T,
    "no edge": np.zeros_like,
    "one node": lambda A: A[:1, :1] & False,
}


@pytest.fixture(params=GRAPHS)
def case(request):
    """A graph in which G(i, j) is an edge from i to j, and features."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    G = sp.csr_array(GRAPHS[request.param](oracle.random_graph(rng, 60).toarray() != 0))
    return G, rng.normal(size=(G.shape[0], 12)).astype(np.float32)


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


def perceptron():
    return torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.ReLU(), torch.nn.Linear(16, 6))


@torch.no_grad()
@pytest.mark.parametrize(
    ("conv", "matrix", "options"),
    [
        (lambda: nn.GCNConv(12, 5, add_self_loops=False), "without loops", {}),
        (lambda: nn.GCNConv(12, 5, normalize=False), "transpose", {}),
        (lambda: nn.SGConv(12, 5, K=1), "symmetric", {}),
        (lambda: nn.SGConv(12, 5, K=3), "symmetric", {}),
        (lambda: nn.SGConv(12, 5, K=2, add_self_loops=False), "without loops", {}),
        (lambda: nn.SAGEConv(12, 7), "mean", {}),
        (lambda: nn.SAGEConv(12, 7, root_weight=False), "mean", {}),
        (lambda: nn.SAGEConv(12, 7, aggr="sum"), "transpose", {}),
        (lambda: nn.SAGEConv(12, 7, aggr="max"), "transpose", {"aggregate": "max"}),
        (lambda: nn.SAGEConv(12, 7, aggr="min"), "transpose", {"aggregate": "min"}),
        (lambda: nn.GINConv(perceptron(), eps=0.3), "transpose", {}),
        (lambda: nn.GINConv(perceptron(), aggr="mean"), "mean", {}),
        (lambda: nn.GINConv(perceptron(), aggr="max"), "transpose", {"aggregate": "max"}),
    ],
)
def test_the_matrix_of_each_combination_in_the_notes(case, conv, matrix, options):
    G, X = case
    A = {
        "symmetric": lambda: graph.normalized(G),
        "without loops": lambda: graph.normalized(G, self_loops=False),
        "transpose": lambda: G.T,
        "mean": lambda: graph.normalized(G, "mean"),
    }[matrix]()
    conv = conv()
    Y = graph.infer(graph.from_geometric(conv), X, A, **options)
    check(Y, conv(torch.from_numpy(X), edges(G)))


@pytest.mark.parametrize(
    ("conv", "named"),
    [
        (lambda: nn.GCNConv(4, 2, improved=True), "GCNConv with improved=True"),
        (lambda: nn.GCNConv(4, 2, flow="target_to_source"), "flow='target_to_source'"),
        (lambda: nn.SAGEConv(4, 2, normalize=True), "SAGEConv with normalize=True"),
        (lambda: nn.SAGEConv(4, 2, project=True), "SAGEConv with project=True"),
        (lambda: nn.SAGEConv(4, 2, aggr="median"), "aggr='median'"),
        (lambda: nn.GCNConv(4, 2, aggr="mean"), "GCNConv with aggr='mean'"),
        (lambda: nn.SGConv(4, 2, aggr="mean"), "SGConv with aggr='mean'"),
        (lambda: nn.SGConv(4, 2, K=0), "SGConv with K=0"),
        (lambda: nn.GINConv(torch.nn.Linear(4, 2), aggr="std"), "GINConv with aggr='std'"),
        (lambda: nn.GCNConv(4, 2, node_dim=0), "GCNConv with node_dim=0"),
    ],
)
def test_unsupported_options_are_named(conv, named):
    raises(gbdnn.errors.ArgumentError, named, graph.from_geometric, conv())


@torch.no_grad()
def test_perceptrons_of_pytorch_geometric(case):
    G, X = case
    model = nn.GIN(12, 8, 2, 3, norm="batch_norm").eval()
    model.convs[0].nn.norms[0].module.running_mean.normal_()
    Y = graph.infer(graph.from_geometric(model.convs[0]), X, G.T)
    check(Y, model.convs[0](torch.from_numpy(X), edges(G)))


class GCNConv(nn.GCNConv):
    """It has the name of the original."""


def hook(*given):
    """Do nothing."""


RELU = torch.nn.ReLU()
REFUSED = {
    "hook": (lambda m: m.register_forward_hook(hook), "has forward hooks"),
    "pre-hook": (lambda m: m.register_forward_pre_hook(hook), "has forward hooks"),
    "messages": (lambda m: m.register_message_forward_hook(hook), "has forward hooks"),
    "forward": (lambda m: setattr(m, "forward", m.forward), "has a forward of its instance"),
    "message": (lambda m: setattr(m, "message", m.message), "has a message of its instance"),
    "bias": (lambda m: setattr(m, "lin", torch.nn.Linear(4, 2)), r"GCNConv\.lin: has a bias"),
    "linear": (lambda m: m.lin.register_forward_hook(hook), r"GCNConv\.lin: .*hooks"),
    "relu": (lambda m: setattr(m, "lin", torch.nn.Sequential(m.lin, RELU)), "not one linear"),
    "lazy": (lambda m: setattr(m, "lin", nn.Linear(-1, 2)), r"GCNConv\.lin: .*no weights yet"),
    "meta": (lambda m: m.to("meta"), r"GCNConv\.lin: .*no accessible values"),
}


@pytest.mark.parametrize(("change", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_changes_that_are_not_read_are_refused(change, why):
    conv = nn.GCNConv(4, 2)
    change(conv)
    raises(gbdnn.errors.ArgumentError, why, graph.from_geometric, conv)


def test_half_precision():
    conv = nn.SAGEConv(4, 2)
    expected = graph.from_geometric(conv.bfloat16().float())[0]
    assert graph.from_geometric(conv.bfloat16())[0].layer.weights.isequal(expected.layer.weights)


def test_other_modules_are_refused():
    error, convert = gbdnn.errors.ArgumentTypeError, graph.from_geometric
    raises(error, "cannot convert GCNConv", convert, GCNConv(4, 2))
    raises(error, "cannot convert GATConv; supported", convert, nn.GATConv(4, 2))
