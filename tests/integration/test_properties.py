"""Properties that hold for any network and any features."""

import itertools

import graphblas as gb
import numpy as np
from conftest import assert_answer, network
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracles import Dense, dense_inference

import gbdnn

# What the fixture `infer` sets up holds for all examples alike. It has 15 values: each of them gets
# fewer examples.
ANY = settings(
    max_examples=settings().max_examples * 2 // 5,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@st.composite
def problems(draw, rules=("all", "entries"), max_layers=4):
    """A network of any shape, and features, whose sums are exact in FP32.

    Values are multiples of 1/8 per layer; inner layers have a ReLU and a clip, which bound them.
    """
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = draw(st.lists(st.integers(1, 20), min_size=2, max_size=max_layers + 1))
    density = draw(st.sampled_from([0.1, 0.3, 0.8]))
    layers = []
    for k, (n, m) in enumerate(itertools.pairwise(sizes)):
        last = k == len(sizes) - 2
        W = random.integers(-8, 16, (n, m)) / 8 * (random.random((n, m)) < density)
        b = draw(
            st.one_of(
                st.sampled_from([0.0, -0.25, 0.25]),
                st.just(random.integers(-3, 4, m) / 8),
            )
        )
        layers.append(
            Dense(
                W,
                b,
                draw(st.sampled_from(rules)),
                draw(st.sampled_from(["relu", "identity"] if last else ["relu"])),
                draw(st.sampled_from([None, 1.5, 8.0] if last else [1.5, 2.0, 8.0])),
            )
        )
    inputs = draw(st.integers(1, 40))
    X = (
        random.integers(0, 8, (inputs, sizes[0]))
        / 4
        * (random.random((inputs, sizes[0])) < density)
    )
    return layers, X


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
