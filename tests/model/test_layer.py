import copy
import pickle

import graphblas as gb
import numpy as np
import pytest
from calls import raises
from conftest import network
from oracles import case

import gbdnn
from gbdnn import Layer, Network, errors
from gbdnn.training.checkpoint import identity

W = np.array([[1.0, 0.0, 2.0], [0.0, -3.0, 0.0]])


def test_what_it_was_given_can_change_and_it_does_not():
    A, b = gb.Matrix.from_dense(W, missing_value=0), np.array([1.0, 2.0, 3.0])
    layer = Layer(A, b)
    A[0, 0] = 99
    b[0] = 99
    assert layer.weights[0, 0].new().value == 1
    assert layer.bias.tolist() == [1, 2, 3]
    layer.weights[0, 0] = 77
    assert layer.weights[0, 0].new().value == 1
    with pytest.raises(ValueError, match="read-only"):
        layer.bias[0] = 5
    with pytest.raises(AttributeError):
        layer.bias = 1.0


def test_bias_as_vector_with_gaps():
    assert Layer(W, gb.Vector.from_coo([2], [0.5], size=3)).bias.tolist() == [0, 0, 0.5]


def test_bias_as_diagonal_matrix():
    """As LAGraph has it; a neuron whose bias is missing would lose its activations there."""
    D = gb.Vector.from_dense([1.0, 0, 0.5]).diag()
    assert Layer(W, D).bias.tolist() == [1, 0, 0.5]
    assert Layer(W, D.T).bias.tolist() == [1, 0, 0.5]
    raises(gbdnn.errors.ShapeError, "3 neurons", Layer, W, D[:2, :2].new())
    del D[1, 1]
    raises(gbdnn.errors.ArgumentError, "2 of them on the diagonal", Layer, W, D)
    D[1, 1] = D[0, 1] = 1
    raises(gbdnn.errors.ArgumentError, "stores 4 entries", Layer, W, D)


@pytest.mark.parametrize(
    "other",
    [
        Layer(W, 0.5), Layer(W * 2), Layer(W[:, :2]), Layer(W, clip=1), Layer(W, dtype="FP32"),
        Layer(W, bias_rule="entries"), Layer(W, activation="identity"), "layer",
    ],
)  # fmt: skip
def test_isequal_tells_apart(other):
    assert Layer(W).isequal(Layer(W))
    assert not Layer(W).isequal(other)
    assert Layer(W) == Layer(W)
    assert hash(Layer(W)) == hash(Layer(W))
    assert Layer(W) != other


def test_gain_is_the_largest_column_sum():
    assert Layer(W).gain == 3
    assert Layer(np.array([[1.0], [-2.0]])).gain == 3
    assert Layer(np.zeros((2, 2))).gain == 0
    assert Layer(np.full((2, 1), 1e308)).gain == np.inf  # without a warning


def test_astype():
    cast = Layer(W / 3, [0.1, 0.2, 0.3], clip=0.7).astype("FP32")
    assert (cast.dtype, cast.bias.dtype) == (np.float32, np.float32)
    assert cast.clip == np.float32(0.7)
    assert cast.isequal(Layer(W / 3, [0.1, 0.2, 0.3], clip=0.7, dtype="FP32"))


def test_network_is_a_sequence():
    net = network(case(2).layers)
    assert (len(net), net.shape) == (3, (24, 20))
    assert net.edges == sum(np.count_nonzero(layer.W) for layer in case(2).layers)
    assert net[0] is next(iter(net))
    assert net[-1] is net[2]
    assert isinstance(net[1:], Network)
    assert net[1:].shape == (30, 20)
    assert net[0] in net
    with pytest.raises(IndexError):
        net[3]


def test_network_isequal():
    net, again = network(case(2).layers), network(case(2).layers)
    assert net.isequal(again)
    assert net == again
    assert hash(net) == hash(again)
    assert net not in (net[:2], "net")
    assert net.index(again[1]) == 1
    assert not net.isequal(net[:2])
    assert not net.isequal(network(case(3).layers))
    assert not net.isequal(net.astype("FP64"))
    for k in range(3):
        layers = list(net)
        layers[k] = Layer(layers[k].W, layers[k].bias, clip=9.0)
        assert not net.isequal(Network(layers))


def test_repr_groups_layers_that_read_alike():
    last = Layer(np.ones((1024, 2), "f4"), [0.5, -1], clip=1)
    net = Network([*gbdnn.gallery.radixnet(1024, 3), last])
    assert repr(net).splitlines() == [
        "Network: 4 layers, 1024 inputs to 2 outputs, 100352 edges, FP32",
        "  layer  shape        edges",
        "  0-2    1024 x 1024  32768  bias -0.3 (entries), relu, clip 32",
        "  3      1024 x 2      2048  bias -1 to 0.5 (all), relu, clip 1",
    ]
    assert repr(Network([])) == "Network: 0 layers"


@pytest.mark.parametrize("again", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])  # noqa: S301
def test_a_copy_is_immutable_too(again):
    layer = again(Layer(W, [1.0, 2.0, 3.0]))
    assert layer.isequal(Layer(W, [1.0, 2.0, 3.0]))
    with pytest.raises(ValueError, match="read-only"):
        layer.bias[0] = 5


@pytest.mark.parametrize(
    ("bias", "rule", "activation", "revives"),
    [
        (0.25, "all", "relu", True), (-0.25, "all", "relu", False),
        (-0.25, "all", "identity", True), (0.0, "all", "identity", False),
        (0.25, "entries", "relu", False), ([-1.0, 0.25], "all", "relu", True),
    ],
)  # fmt: skip
def test_an_input_without_entries_revives_by_a_bias_alone(bias, rule, activation, revives):
    layer = gbdnn.Layer(np.eye(2), bias, bias_rule=rule, activation=activation)
    assert layer.revives == revives
    assert bool(gbdnn.infer([layer], np.zeros((1, 2)), engine="sparse").nvals) == revives


def test_weights_in_the_orientation_of_pytorch_are_noticed():
    with pytest.raises(gbdnn.errors.ShapeError, match="as PyTorch stores them, or reverse"):
        gbdnn.Network([np.ones((4, 3)), np.ones((2, 4))])


def test_what_is_kept_for_reuse_is_no_state():
    """Pickles and copies made while other threads use an object would be of half of it."""
    layer = Layer(np.eye(3), 0.5)
    run = gbdnn.train([Layer(np.eye(3))], np.eye(3), [0, 1, 2], epochs=1)
    for thing, use in ((layer, "revives"), (layer.info, "revives"), (run, "network")):
        before, state = pickle.dumps(thing), thing.__reduce_ex__(4)[2]
        getattr(thing, use)
        assert pickle.dumps(thing) == before
        assert use not in state
        assert use not in vars(pickle.loads(before))  # noqa: S301
        assert identity(thing) == identity(pickle.loads(before))  # noqa: S301


def test_a_network_is_pickled_while_other_threads_use_it():
    """The pickler meets an object that uses the network, as another thread would."""

    class Using:
        def __reduce__(self):
            for info in net.infos:
                assert info.revives in (True, False)
            gbdnn.infer(net, np.eye(3))
            return list, ()

    net = gbdnn.Network([Layer(np.eye(3), k) for k in range(3)])
    for layer in net:
        vars(layer)["using"] = Using()
    found = pickle.loads(pickle.dumps(net))  # noqa: S301
    np.testing.assert_array_equal(gbdnn.compile(found)(np.eye(3)), gbdnn.compile(net)(np.eye(3)))


def test_the_gain_of_equal_negative_weights():
    """Two of them are beyond FP32, which the sparse kernel must notice."""
    W = gb.Matrix.from_coo([0, 0, 1, 1], [0, 1, 0, 1], np.float32(-3e38), nrows=2, ncols=2)
    assert Layer(W).gain == 2 * float(np.float32(3e38))
    with pytest.raises(errors.NonFiniteError):
        gbdnn.infer([W], np.ones((1, 2), "f4"), last_activation="identity", engine="sparse")
