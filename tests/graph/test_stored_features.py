"""Features in a store that do not fit into `memory=` are read in groups of columns."""

import re

import numpy as np
import pytest

import gbdnn
from gbdnn import graph
from gbdnn.errors import ArgumentError

NODES, FEATURES = 900, 7


@pytest.fixture
def problem(tmp_path):
    """A graph with a node without neighbours, features in memory, and the same in a store."""
    pytest.importorskip("safetensors")
    pytest.importorskip("xxhash")
    rng = np.random.default_rng(0)
    A = rng.random((NODES, NODES)) * (rng.random((NODES, NODES)) < 0.01)
    A[5] = 0
    X = rng.normal(size=(NODES, FEATURES)) * (rng.random((NODES, FEATURES)) < 0.7)
    gbdnn.io.write_features(X, tmp_path / "X")
    return A, X, gbdnn.io.open_features(tmp_path / "X")


def least(call):
    """The memory that a call needs, by its error."""
    with pytest.raises(ArgumentError, match="too small: a block of 1 feature") as error:
        call(memory=1)
    return int(re.search(r"pass memory=(\d+)", str(error.value))[1])


@pytest.mark.parametrize("nthreads", [1, 3])
@pytest.mark.parametrize("aggregate", ["sum", "max"])
@pytest.mark.parametrize("columns", [1, 3])
def test_propagate(problem, aggregate, columns, nthreads):
    A, X, stored = problem
    for more in ({"hops": 2}, {"hops": 2, "all_hops": True}, {"hops": 0}):
        options = more | {"aggregate": aggregate, "nthreads": nthreads}

        def call(memory, options=options):
            return graph.propagate(A, stored, memory=memory, **options)

        expected = graph.propagate(A, X, **options)
        found = call(columns * least(call)).to_dense(fill_value=0)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("aggregate", ["sum", "max"])
@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("engine", ["auto", "graphblas", "fused"])
def test_infer(problem, engine, aggregate, columns):
    """Also with weights of the node's own features; later layers fit."""
    A, X, stored = problem
    rng = np.random.default_rng(1)
    W, V = rng.normal(size=(2, FEATURES, FEATURES))
    V *= rng.random(V.shape) < 0.5
    last = graph.Convolution(rng.normal(size=(FEATURES, 2)), activation="identity")
    layers = [graph.Convolution(W, 0.1, self_weights=V), last]

    def call(memory):
        return graph.infer(layers, stored, A, memory=memory, engine=engine, aggregate=aggregate)

    assert least(call) == 2 * NODES * 8
    expected = graph.infer(layers, X, A, engine=engine, aggregate=aggregate)
    found = call(2 * NODES * 8 * columns)
    assert found.isclose(expected, rel_tol=1e-9, abs_tol=1e-12)
    assert expected.nvals > NODES
