import graph_oracle as oracle
import graphblas as gb
import networkx
import numpy as np
import pytest
import scipy.sparse as sp
from calls import raises
from matrices import assert_close, assert_equal, dense

from gbdnn import errors, graph

KINDS = ["symmetric", "mean"]


@pytest.fixture
def G():
    found = oracle.random_graph(np.random.default_rng(3), 60, weights="quarters")
    assert (found.toarray().sum(axis=0) == 0).any()
    assert found.diagonal().any()
    assert (found.toarray() != found.T.toarray()).any()
    return found


@pytest.mark.parametrize("loops", [None, True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_the_oracle(G, kind, loops):
    A = graph.normalized(G, kind, self_loops=loops)
    assert (A.dtype, A.ss.orientation) == ("FP64", "rowwise")
    assert_close(A, oracle.normalized(G, kind, loops), rtol=1e-12)
    single = graph.normalized(G, kind, self_loops=loops, dtype="FP32")
    assert single.dtype == "FP32"
    assert_close(single, oracle.normalized(G, kind, loops), rtol=1e-5)


def test_direction():
    """An edge from 0 to 1 brings features of 0 to 1."""
    G = gb.Matrix.from_coo([0], [1], 1.0, nrows=2, ncols=2)
    X = np.array([[5.0], [7.0]])
    A = graph.normalized(G, self_loops=True)
    assert dense(A)[1, 0] == pytest.approx(1 / np.sqrt(2))
    assert dense(A)[0, 1] == 0
    # 0 gathers nothing: its degree is 0, and so is what it sends
    assert graph.normalized(G, self_loops=False).nvals == 0
    assert graph.propagate(graph.normalized(G, "mean"), X).tolist() == [[0], [5]]
    assert graph.propagate(G.T, X).tolist() == [[0], [5]]


def test_an_iso_weight_counts_as_if_it_were_stored_for_each_edge():
    rows, columns = [0, 1, 2], [1, 2, 1]
    iso = gb.Matrix.from_coo(rows, columns, 0.25, nrows=3, ncols=3)
    each = gb.Matrix.from_coo(rows, columns, [0.25, 0.25, 0.5], nrows=3, ncols=3)
    each[2, 1] = 0.25
    assert iso.ss.is_iso
    assert_equal(graph.normalized(iso), dense(graph.normalized(each)))


def test_stored_zeros_are_no_edges():
    G = gb.Matrix.from_coo([0, 2], [1, 1], [1.0, 0.0], nrows=3, ncols=3)
    assert graph.normalized(G, "mean").nvals == 1


def test_errors():
    raises(errors.ShapeError, "G must be square, not 2 x 3", graph.normalized, np.ones((2, 3)))
    for x, message in ((-2, "weights must be at least 0, not -2"), (np.nan, "G: contains nan")):
        raises(errors.ArgumentError, message, graph.normalized, np.array([[0.0, x], [1, 0]]))


def test_a_weight_that_no_edge_has():
    G = networkx.Graph([(0, 1, {"length": 2.0}), (1, 2)])
    with pytest.raises(errors.ArgumentError, match="no edge has the attribute weight='no such'"):
        graph.normalized(G, "mean", weight="no such")
    for weight in ("length", "weight", None):  # edges without it have weight 1
        assert graph.normalized(G, "mean", weight=weight).nvals == 4


@pytest.mark.parametrize("kind", ["mean", "symmetric"])
def test_weights_whose_sum_leaves_their_dtype(kind):
    """The sum of two weights of 2e38 is infinite in FP32, that of two of 1e308 in FP64."""
    G = np.array([[0, 0, 2e38], [0, 0, 2e38], [2e38, 2e38, 0]], "f4")
    found = graph.normalized(G, kind, self_loops=False)
    expected = oracle.normalized(sp.csr_array(G.astype(float)), kind, loops=False)
    assert found.dtype == "FP32"
    assert_close(found, expected, rtol=1e-6)
    with pytest.raises(errors.ArgumentError, match="the weights at node 2 add up to infinity"):
        graph.normalized((G > 0) * 1e308, kind, self_loops=False)
