"""Properties that hold for any network and any features."""

from conftest import assert_answer, network
from hypothesis import given
from hypothesis import strategies as st
from networks import ANY, problems
from oracles import dense_inference


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
