"""Properties that hold for any network and any features."""

import graphblas as gb
from conftest import assert_answer, network
from hypothesis import given
from hypothesis import strategies as st
from networks import ANY, problems
from oracles import dense_inference

import gbdnn


class Expected:
    """What assert_answer wants, without the demands on a handmade case."""

    def __init__(self, layers, X):
        self.Y = dense_inference(layers, X)
        self.exact = True


@given(problems(), st.sampled_from(["FP32", "FP64"]))
@ANY
def test_the_oracle_agrees(infer, problem, dtype):
    layers, X = problem
    assert_answer(infer(network(layers, dtype), X), Expected(layers, X), dtype)


@ANY
@given(problems(), st.randoms(use_true_random=False))
def test_permuted_inputs_permute_the_answer(infer, problem, random):
    layers, X = problem
    net = network(layers)
    order = list(range(len(X)))
    random.shuffle(order)
    Y = infer(net, X)
    assert infer(net, X[order]).isequal(Y[order, :].new())


@ANY
@given(problems(), st.integers(0, 40))
def test_split_inputs_stack_to_the_whole(infer, problem, at):
    layers, X = problem
    net = network(layers)
    at = min(at, len(X))
    parts = [infer(net, part) for part in (X[:at], X[at:])]
    whole = infer(net, X)
    stacked = gb.Matrix(whole.dtype, *whole.shape)
    stacked[:at, :] = parts[0]
    stacked[at:, :] = parts[1]
    assert stacked.isequal(whole)


@ANY
@given(problems(), st.integers(0, 4))
def test_layers_in_two_goes_are_layers_in_one(infer, problem, at):
    layers, X = problem
    net = network(layers)
    halfway = infer(net[:at], X, dtype="FP32")
    assert infer(net[at:], halfway, dtype="FP32").isequal(infer(net, X))


@given(problems(rules=["entries"]))
def test_a_dead_input_stays_dead_under_entries(problem):
    layers, X = problem
    net = network(layers)
    stats = []
    gbdnn.infer(net, X, callback=stats.append)
    live = [int((X != 0).any(axis=1).sum()), *gbdnn.inference.per_layer(stats)["alive"].tolist()]
    assert live == sorted(live, reverse=True)
