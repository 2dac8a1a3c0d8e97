from itertools import pairwise

import graph_oracle as oracle
import graphblas as gb
import numpy as np
import pytest
import scipy.sparse as sp
from calls import raises
from drawn import FORMS, same, seeds
from patches import pieces

import gbdnn
from gbdnn import errors, graph
from gbdnn.engine.plan import ENGINES
from gbdnn.kernels import gather


def weights(rng, shape, density):
    return rng.normal(size=shape) * (rng.random(shape) < density) / np.sqrt(shape[0])


class Case:
    """A random graph with features, layers of every kind, and what comes out."""

    def __init__(self, seed, dtype=np.float64, how="sum"):
        rng = np.random.default_rng(seed)
        self.nodes, self.how = int(rng.choice([*rng.integers(1, 90, 3), 150])), how
        self.A = oracle.random_graph(rng, self.nodes, edges=rng.uniform(1, 6)).T.toarray()
        self.G, self.kind = None, ["mean", "symmetric"][seed % 2]
        if seed % 3:
            self.G = oracle.random_graph(rng, self.nodes, edges=rng.uniform(1, 6))
            self.A = oracle.normalized(self.G, self.kind)
        self.A = sp.csr_array(self.A)
        widths = rng.integers(1, 40, 4)
        self.X = rng.normal(size=(self.nodes, widths[0])).astype("f4").astype(dtype)
        self.layers, self.expected = [], self.X.astype(float)
        for k, shape in enumerate(pairwise(widths)):
            W = weights(rng, shape, rng.choice([0.2, 1.0])).astype(dtype)
            V = weights(rng, shape, rng.choice([0.2, 1.0])).astype(dtype)
            b = rng.normal(size=shape[1]).astype(dtype) if rng.random() < 0.7 else 0.25
            relu, clip = k < 2 or rng.random() < 0.5, rng.choice([None, 1.5])
            kind = rng.choice(["layer", "both", "own"], p=[0.4, 0.4, 0.2])
            options = {"activation": "relu" if relu else "identity", "clip": clip}
            of_oracle = {"relu": relu, "clip": clip or np.inf, "how": how}
            if kind == "layer":
                self.layers.append(gbdnn.Layer(W, b, **options))
                V = None
            elif kind == "both":
                self.layers.append(graph.Convolution(W, b, self_weights=V, **options))
            else:
                self.layers.append(graph.Convolution(None, b, self_weights=V, **options))
                W = None
            self.expected = oracle.convolved(self.A, self.expected, W, b, V=V, **of_oracle)
        self.rng = rng

    def check(self, Y, rows=slice(None)):
        dtype, expected = self.X.dtype, self.expected[rows]
        assert (Y.dtype, Y.shape) == ("FP32" if dtype == np.float32 else "FP64", expected.shape)
        assert not (Y.to_coo()[2] == 0).any(), "a zero is stored"
        tolerance = 1e-11 if dtype == np.float64 else 1e-5
        scale = max(1.0, float(np.abs(expected).max(initial=0)))
        np.testing.assert_allclose(Y.to_dense(fill_value=0), expected, atol=tolerance * scale)


@pytest.fixture(params=["auto", "graphblas"])
def engine(request):
    return request.param


def matrix(A):
    return gb.Matrix.from_dense(A.toarray(), missing_value=0)


def columnwise(A):
    held = matrix(A)
    held.ss.config["format"] = "by_col"
    return held


def pending(A):
    """Entries that were deleted and are set again."""
    held, changed = matrix(A), A.tocoo()
    changed = [*zip(changed.row[:3], changed.col[:3], changed.data[:3], strict=True)]
    for i, j, _ in changed:
        del held[i, j]
    for i, j, value in changed:
        held[i, j] = value
    return held


def one_value(A):
    return gb.unary.one(matrix(A)).new()


def drawn_call(seed, folder):
    """A graph, layers, features and options of any kind; also hops without layers."""
    rng = np.random.default_rng(seed)
    how = str(rng.choice(["sum", "max", "min"]))
    case = Case(seed, rng.choice([np.float32, np.float64]), how)
    kinds = [sp.csr_array, sp.csc_array, matrix, columnwise, lambda A: matrix(A.T).T, pending]
    of_ones = [*kinds, lambda A: A.astype(bool), lambda A: matrix(A).dup("INT8"), one_value]
    if case.G is not None:
        G = of_ones[rng.integers(len(of_ones))](case.G)
        found = graph.normalized(G, case.kind).to_dense(fill_value=0)
        np.testing.assert_allclose(found, case.A.toarray(), rtol=1e-5)
    kinds = of_ones if (case.A.data == 1).all() else kinds
    A = kinds[rng.integers(len(kinds))]
    name, form = FORMS[rng.integers(len(FORMS))]
    given, A = form(case.X), A(case.A)
    if rng.random() < 0.2:
        gbdnn.io.write_features(given, folder / str(seed))
        name, given = "stored", gbdnn.io.open_features(folder / str(seed))
    ids = rng.integers(0, case.nodes, 7)
    mask = np.isin(np.arange(case.nodes), ids)
    vector = gb.Vector.from_coo(np.arange(case.nodes), mask)
    all_rows, chosen = slice(None), np.flatnonzero(mask)
    nodes, rows = [
        (None, all_rows), (None, all_rows), (None, all_rows), (ids, ids), (mask, chosen),
        (vector, chosen), ([], chosen[:0]),
    ][rng.integers(7)]  # fmt: skip
    options = {"engine": str(rng.choice(ENGINES)), "aggregate": how}
    memory = [None, None, 1 << 13, 1 << 15, 1 << 20][rng.integers(5)]
    options |= {"memory": memory} if memory else {}
    expected, hops, records = [case.X.astype(float)], int(rng.integers(4)), []
    for _ in range(hops):
        expected.append(oracle.aggregated(case.A, expected[-1], how))
    with pytest.MonkeyPatch.context() as patch:
        if rng.random() < 0.5:  # pieces of rows, and shares of small products
            for limit, value in {"PIECE": 500, "SHARE": 4, "HEAVY": 8}.items():
                patch.setattr(gather, limit, value)
            pieces(patch)
        try:
            found = [
                graph.infer(case.layers, given, A, nodes=nodes, nthreads=n, **options)
                for n in (1, 3, 8)
            ]
            whole = graph.infer(case.layers, given, A, callback=records.append, **options)
            for n in (1, 3):
                S = graph.propagate(A, given, hops=hops, all_hops=True, nthreads=n, **options)
                S = S if isinstance(S, np.ndarray) else S.to_dense(fill_value=0, dtype=S.dtype)
                within = 1e-9 if S.dtype == np.float64 else 1e-4
                np.testing.assert_allclose(S, np.hstack(expected), rtol=within, atol=within)
        except errors.ArgumentError as error:
            if "a block of" in str(error):
                return False
            raise
    for Y in found:
        case.check(Y, rows)
        # With few rows, GraphBLAS may split a sum over threads.
        assert options["engine"] in ("graphblas", "sparse") or Y.isequal(found[0]), seed
    assert name == "stored" or same(given, form(case.X)), seed
    case.check(whole)
    assert gbdnn.per_layer(records)["entries"][-1] == whole.nvals, seed
    expected = case.expected[rows]
    return 0 < np.count_nonzero(expected) < expected.size


@pytest.mark.parametrize("count", [None, pytest.param(5000, marks=pytest.mark.slow)])
def test_drawn_calls(count, tmp_path):
    found = [drawn_call(seed, tmp_path) for seed in seeds("graph", count)]
    assert sum(found) > len(found) / 5


def test_a_node_of_many_edges_starts_at_its_own_row(monkeypatch):
    """Of Y V, to which its neighbours are added."""
    monkeypatch.setattr(gather, "HEAVY", 8)
    monkeypatch.setattr(gather, "SHARE", 4)
    rng, A = np.random.default_rng(0), np.eye(30)
    A[17] = 1
    X, W, V = (weights(rng, shape, 1.0) for shape in ((30, 5), (5, 5), (5, 5)))
    Y = graph.infer([graph.Convolution(W, self_weights=V)], X, A, engine="fused")
    expected = oracle.convolved(A, X, W, V=V)
    np.testing.assert_allclose(Y.to_dense(fill_value=0), expected, atol=1e-12)


def test_some_nodes_look_at_what_they_read_alone():
    A = gb.Matrix.from_coo([0, 1, 2], [1, 2, 2], [1.0, np.inf, 1.0])
    X = np.array([[1.0], [2.0], [np.nan]])
    assert graph.infer([np.eye(1)], X, A, nodes=[0]).to_dense(fill_value=0).item() == 2
    with pytest.raises(errors.ArgumentError, match="features: contains nan"):
        graph.infer([np.eye(1)], X, A, nodes=[2])
    raises(errors.ArgumentError, "A: contains inf", graph.infer, [np.eye(1)], X, A, nodes=[1])


def test_a_network_and_bare_matrices():
    case = Case(5)
    W = weights(case.rng, (case.X.shape[1], 4), 1.0)
    expected = oracle.convolved(case.A, case.X, W)
    for layers in (gbdnn.Network([gbdnn.Layer(W)]), [W], [gb.Matrix.from_dense(W)]):
        Y = graph.infer(layers, case.X, case.A)
        np.testing.assert_allclose(Y.to_dense(fill_value=0), expected, atol=1e-12)
    single = graph.infer([W], case.X, case.A, dtype="FP32")
    assert single.dtype == "FP32"
    np.testing.assert_allclose(single.to_dense(fill_value=0), expected, atol=1e-5)
    alone = graph.infer([graph.Convolution(self_weights=W)], case.X, case.A, dtype="FP32")
    np.testing.assert_allclose(alone.to_dense(fill_value=0), np.maximum(case.X @ W, 0), atol=1e-5)
    assert graph.infer([], case.X, case.A, dtype="FP32").dtype == "FP32"
    X = case.X.copy()
    Y = graph.infer([], X, case.A)
    assert Y.isequal(gb.Matrix.from_dense(case.X))
    X[:] = 7
    assert Y.isequal(gb.Matrix.from_dense(case.X)), "the answer shares memory with the features"


@pytest.mark.parametrize("shape", [(0, 2, 3), (3, 0, 2), (3, 2, 0), (1, 1, 1)])
def test_nothing(shape, engine):
    nodes, before, after = shape
    W, X, A = np.ones((before, after)), np.ones((nodes, before)), gb.Matrix(float, nodes, nodes)
    Y = graph.infer([graph.Convolution(W, 1.0, self_weights=W)], X, A, engine=engine)
    assert Y.shape == (nodes, after)
    assert (Y.to_dense(fill_value=0) == 1 + before).all()


@pytest.mark.parametrize("width", [2, 1])
@pytest.mark.parametrize("density", [0.1, 1.0])
def test_overflow_names_the_layer(engine, width, density):
    big = np.zeros((4, 4 * width), np.float32)
    big[:, : 1 + int(3 * density)] = 1e30
    back = np.ones((4 * width, 4), np.float32)
    A, X = np.ones((3, 3)), np.ones((3, 4), np.float32)
    layers = [gbdnn.Layer(big, clip=2e30), back, gbdnn.Layer(big, clip=1)]
    raises(errors.NonFiniteError, "layer 2: Y W", graph.infer, layers, X, A, engine=engine)


def test_errors():
    A, X, W = np.eye(3), np.ones((3, 2)), np.ones((2, 2))
    for error, text, call in (
        (errors.ArgumentError, r"a block of \d+ (nodes|features) at layer",
         lambda: graph.infer([W], X, A, memory=10)),
        (errors.ShapeError, "A must be square, not 3 x 2", lambda: graph.infer([W], X, X)),
        (errors.ShapeError, "are 2 x 3 but A, 3 x 3, has 3", lambda: graph.infer([W], X.T, A)),
        (errors.ShapeError, "the features are 3 x 2 but layer 0, 5 x 1, reads 5",
         lambda: graph.infer([np.ones((5, 1))], X, A)),
        (errors.ShapeError, "layer 1: weights are 3 x 2", lambda: graph.infer([W, X], X, A)),
        (errors.ArgumentError, "nodes contains 3", lambda: graph.infer([W], X, A, nodes=[3])),
        (errors.ArgumentError, "nodes contains -1", lambda: graph.infer([W], X, A, nodes=[-1, 1])),
        (errors.ShapeError, r"nodes is a mask of shape \(2,\) but A has 3 nodes",
         lambda: graph.infer([W], X, A, nodes=[True, False])),
        (errors.ShapeError, "nodes is a Vector of size 2 but A has 3 nodes",
         lambda: graph.infer([W], X, A, nodes=gb.Vector(bool, 2))),
        (errors.ArgumentError, "layer 0: .* require bias_rule='all'",
         lambda: graph.infer([gbdnn.Layer(W, 1, bias_rule="entries")], X, A)),
        (errors.ArgumentTypeError, "needs weights, self_weights=", graph.Convolution),
        (errors.ShapeError, "self_weights= is 3 x 2 but the weights are 2 x 2",
         lambda: graph.Convolution(W, self_weights=X)),
        (errors.ArgumentError, "self_weights= is float32 but the weights are float64",
         lambda: graph.Convolution(W, self_weights=W.astype(np.float32))),
    ):  # fmt: skip
        raises(error, text, call)


def test_entries_rule_where_it_is_the_same():
    layer = gbdnn.Layer(np.eye(2), -0.25, bias_rule="entries")
    Y = graph.infer([layer], np.ones((2, 2)), np.eye(2, k=1))
    assert Y.to_dense(fill_value=0).tolist() == [[0.75, 0.75], [0, 0]]
