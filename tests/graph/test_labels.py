"""Networkx graphs, pandas and xarray objects name their nodes, and the names decide."""

import numpy as np
import pytest
from calls import raises
from matrices import assert_close, assert_equal, dense

from gbdnn import errors, graph

networkx = pytest.importorskip("networkx")
pandas = pytest.importorskip("pandas")

PATH = networkx.DiGraph([("a", "b"), ("b", "c")])
X = {"a": 100.0, "b": 10.0, "c": 1.0}
LABELLED = pandas.DataFrame(networkx.to_numpy_array(PATH).T, index=list(PATH), columns=list(PATH))
BELOW = [0.0, 100.0, 10.0]  # of a, b and c: the features of the node before


def _features(nodes):
    return pandas.DataFrame({"x": [X[node] for node in nodes]}, index=list(nodes))


def test_a_normalized_graph_has_the_order_of_its_nodes():
    ordered = _features("cba").loc[list(PATH)].to_numpy()
    A = graph.normalized(PATH, "mean")
    np.testing.assert_array_equal(graph.propagate(A, ordered).ravel(), BELOW)


def test_a_networkx_graph_is_taken_by_normalized_alone():
    """Its adjacency matrix would propagate against its edges."""
    for call in (
        lambda: graph.propagate(PATH, np.ones((3, 1))),
        lambda: graph.infer([np.eye(1)], np.ones((3, 1)), PATH),
    ):
        raises(errors.ArgumentTypeError, r"A is a networkx graph; pass .*\.T", call)
    A = networkx.to_scipy_sparse_array(PATH).T  # as the error says
    np.testing.assert_array_equal(graph.propagate(A, _features("abc").to_numpy()).ravel(), BELOW)


def test_numbers_of_shuffled_rows_are_no_labels():
    shuffled = _features("abc").set_axis([1, 2, 0])
    frame = pandas.DataFrame(BEFORE)
    mask = pandas.Series([False, False, True], index=[2, 0, 1])
    for A in (BEFORE, frame, frame.set_axis([2, 0, 1]), frame.set_axis([2, 0, 1], axis=1)):
        np.testing.assert_array_equal(graph.propagate(A, shuffled).ravel(), BELOW)
        assert_equal(graph.infer([np.eye(1)], shuffled, A, nodes=mask), [[10]])


def test_labels_that_repeat_are_refused():
    A = pandas.DataFrame(np.eye(3), index=list("aab"), columns=list("aba"))
    f = _features("aab")
    same = A.set_axis(list("aab"), axis=1)
    for call in (
        lambda: graph.propagate(A, f),
        lambda: graph.spmm(A, f),
        lambda: graph.infer([np.eye(1)], f, same, nodes=["a"]),
    ):
        raises(errors.ArgumentError, r"labels of .* unique, but 'a' repeats", call)


def test_weights_of_convolutions_are_aligned():
    X = pandas.DataFrame(np.arange(6.0).reshape(3, 2), columns=["u", "v"])
    V = pandas.DataFrame([[1.0, 10], [2, 20]], index=["u", "v"], columns=["p", "q"])
    bias = pandas.Series([0.5, 0.25], index=["p", "q"])
    expected = np.maximum(BEFORE @ (X.to_numpy() @ V.to_numpy()) + X @ V + bias, 0)
    turned = V.loc[["v", "u"], ["q", "p"]]
    convolution = graph.Convolution(V, bias[::-1], self_weights=turned, dtype="FP64")
    assert_equal(graph.infer([convolution], X, BEFORE), expected)
    W = pandas.DataFrame([[1.0], [3.0]], index=["p", "q"])
    first = np.maximum(BEFORE @ X.to_numpy() @ V.to_numpy(), 0)
    for layers in ([V, W], [V[::-1], W[::-1]], [V[["q", "p"]], W]):
        assert_equal(graph.infer(layers, X, BEFORE), BEFORE @ first @ W.to_numpy())


def test_rows_that_are_only_counted_keep_their_order():
    f = _features("abc").reset_index(drop=True)
    np.testing.assert_array_equal(graph.propagate(LABELLED, f).ravel(), BELOW)
    np.testing.assert_array_equal(graph.propagate(LABELLED, f.to_numpy()).ravel(), BELOW)


def _frame(values, index):
    return pandas.DataFrame(values, index=list(index))


def _array(values, index):
    xarray = pytest.importorskip("xarray")
    return xarray.DataArray(values, dims=["node", "x"], coords={"node": list(index)})


MADE = [_frame, pytest.param(_array, marks=pytest.mark.frameworks)]
# Row and column i belong to node "abc"[i], and an edge brings the features of the node before.
BEFORE = np.eye(3, k=-1)
VALUES = np.array([[100.0], [10.0], [1.0]])


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
def test_any_two_labelled_arguments_are_aligned(made, order):
    """Nodes have names, strings or numbers, and each side may have them in another order."""
    for names in ("abc", [7, 1, 0]):
        permuted = [names[k] for k in order]
        X = made(VALUES[order], permuted)
        frame = pandas.DataFrame(BEFORE, index=list(names), columns=list(names))
        for A in (frame, frame[permuted]):
            np.testing.assert_array_equal(np.ravel(graph.propagate(A, X)), BELOW)
            assert_equal(graph.infer([np.eye(1)], X, A), np.transpose([BELOW]))
            mask = pandas.Series([name == names[2] for name in permuted], index=permuted)
            for nodes in (mask, [False, False, True]):
                assert_equal(graph.infer([np.eye(1)], X, A, nodes=nodes), [[10]])
            assert graph.infer([np.eye(1)], X, A, nodes=[]).shape == (0, 1)
            np.testing.assert_array_equal(np.ravel(graph.spmm(A, X)), BELOW)
            np.testing.assert_array_equal(graph.propagate(A, VALUES).ravel(), BELOW)


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("order", ["abc", "bca"])
def test_labelled_features_need_a_graph_with_labels(made, order):
    f = made(np.ones((3, 1)), order)
    A = graph.normalized(PATH, "mean")
    nodes = r"nodes of A \(without labels\); reindex"
    for matrix in (A, dense(A)):
        raises(errors.ArgumentError, nodes, graph.propagate, matrix, f)
        raises(errors.ArgumentError, nodes, graph.infer, [np.eye(1)], f, matrix)
        raises(errors.ArgumentError, r"columns of A \(without labels\)", graph.spmm, matrix, f)


def test_rows_and_columns_with_different_labels_are_refused():
    A = pandas.DataFrame(np.eye(3), index=list("abc"), columns=list("abd"))
    for call in (graph.normalized, lambda A: graph.propagate(A, np.ones((3, 1)))):
        raises(errors.ArgumentError, "labels of the columns differ from those", call, A)


@pytest.mark.parametrize(
    "index", [["a", "b", "d"], ["a", "b", "b"], ["a", "b"], [3, 4, 5], ["a", "b", "c", "c"]]
)
def test_other_labels_are_refused(index):
    f = pandas.DataFrame({"x": np.ones(len(index))}, index=index)
    differ = "features: the labels of the rows differ"
    raises(errors.ArgumentError, differ, graph.propagate, LABELLED, f)
    raises(errors.ArgumentError, differ, graph.infer, [np.eye(1)], f, LABELLED)


@pytest.mark.parametrize(
    "nodes",
    [["c", "b"], np.array(["c", "b"]), pandas.Series(["c", "b"]), pandas.Index(["c", "b"])],
)  # fmt: skip
def test_nodes_are_chosen_by_label(nodes):
    Y = graph.infer([np.eye(1)], _features("cab"), LABELLED, nodes=nodes)
    assert_equal(Y, [[10], [100]])


@pytest.mark.parametrize(
    ("nodes", "error", "message"),
    [
        (["a", "d"], errors.ArgumentError, "of the graph, which does not have 'd'"),
        ([0], errors.ArgumentError, "of the graph, which does not have 0"),
        ([["a"]], errors.ArgumentError, "nodes must be a Vector, a boolean mask or a list"),
        ("abc", errors.ArgumentTypeError, "nodes must be a Vector, a boolean mask or a list"),
    ],
)
def test_nodes_that_the_graph_does_not_have(nodes, error, message):
    raises(error, message, graph.infer, [np.eye(1)], _features("abc"), LABELLED, nodes=nodes)


def test_nodes_that_are_tuples():
    G = networkx.grid_2d_graph(2, 2)
    names = pandas.MultiIndex.from_tuples(list(G))
    A = pandas.DataFrame(networkx.to_numpy_array(G).T, index=names, columns=names)
    f = pandas.DataFrame(np.eye(4), index=names[::-1])
    Y = graph.infer([np.eye(4)], f, A, nodes=[(1, 1)])
    assert_equal(Y, networkx.to_numpy_array(G)[[3], ::-1])


@pytest.mark.parametrize("value", [None, "heavy", 2**70])
def test_the_error_names_the_edge_without_a_number(value):
    G = networkx.Graph([("a", "b")])
    G.add_edge("b", "c", weight=value)
    raises(errors.ArgumentTypeError, r"of edge \('b', 'c', .*\) is not a", graph.normalized, G)


def test_weights_can_be_ignored_or_another_attribute():
    G = networkx.DiGraph()
    G.add_edge("a", "c", weight=3, length=1)
    G.add_edge("b", "c", length=4)
    for weight, expected in (("weight", [0.75, 0.25]), (None, [0.5, 0.5]), ("length", [0.2, 0.8])):
        A = dense(graph.normalized(G, "mean", weight=weight))
        np.testing.assert_allclose(A[list(G).index("c")][[0, 2]], expected, rtol=1e-6)


@pytest.mark.parametrize("kind", ["Graph", "DiGraph"])
def test_graphs_without_nodes_or_edges(kind):
    G = getattr(networkx, kind)()
    assert graph.normalized(G).shape == (0, 0)
    G.add_nodes_from("abc")
    assert graph.normalized(G, "mean").nvals == 0


@pytest.mark.parametrize("value", [True, 1, 100.0, np.int8(100), np.uint8(200)])
@pytest.mark.parametrize("kind", ["MultiGraph", "MultiDiGraph"])
def test_parallel_edges_are_summed(kind, value):
    G = getattr(networkx, kind)()
    G.add_edges_from([("a", "b", {"weight": value})] * 2 + [("b", "c", {"weight": value})])
    A = float(value) * np.array([[0, 2, 0], [0, 0, 1], [0, 0, 0]])
    A += 0 if G.is_directed() else A.T
    mean = A.T / np.maximum(A.T.sum(1, keepdims=True), 1)
    assert_close(graph.normalized(G, "mean"), mean, rtol=1e-6)
