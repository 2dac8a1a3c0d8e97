"""A network trained and pruned in PyTorch, and its ONNX export, on all of MNIST's test images."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from oracles import Dense, dense_inference

import gbdnn
from gbdnn import io

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.frameworks

_SPEC = importlib.util.spec_from_file_location(
    "trained", Path(__file__).parents[2] / "benchmarks" / "support" / "trained.py"
)
the_network = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(the_network)
LEARNT = the_network.LEARNT


@pytest.fixture(scope="module")
def images(data):
    return the_network.images(data / "mnist")


@pytest.fixture(scope="module")
def labels(data):
    return the_network.labels(data / "mnist")


@pytest.fixture(scope="module")
def trained(images, labels):
    return the_network.trained(images, labels)


@pytest.fixture(scope="module")
def scores(trained, images):
    with torch.no_grad():
        return trained(torch.from_numpy(images)).numpy()


def test_the_network_is_worth_the_test(trained, scores, labels):
    """It has learnt, it is sparse, and its biases have both signs in every layer."""
    right = scores.argmax(1) == labels
    assert right[LEARNT:].mean() > 0.8
    for k in (0, 2, 4):
        assert trained[k].bias.min() < 0 < trained[k].bias.max()
    net = io.from_torch(trained)
    assert net.edges == round(0.15 * (784 * 128 + 128 * 64 + 64 * 10))
    assert [(x.activation, x.clip) for x in net] == [
        ("relu", None),
        ("relu", 6),
        ("identity", None),
    ]


def check(net, images, scores):
    Y = gbdnn.infer(net, images)
    np.testing.assert_array_equal(gbdnn.argmax(Y), scores.argmax(1))
    np.testing.assert_allclose(Y.to_dense(fill_value=0), scores, rtol=1e-9, atol=1e-9)


def test_the_module(trained, images, scores):
    check(io.from_torch(trained), images, scores)


def test_the_state_dict(trained, images, scores):
    """It tells no limits apart: the same network but with ReLU alone, as NumPy computes it."""
    net = io.from_torch(trained.state_dict())
    dense = [
        Dense(layer.weights.to_dense(fill_value=0), layer.bias, activation=layer.activation)
        for layer in net
    ]
    check(net, images, dense_inference(dense, images))
    limits = [layer.clip for layer in io.from_torch(trained)]
    again = gbdnn.Network(
        gbdnn.Layer(x.weights, x.bias, activation=x.activation, clip=clip)
        for x, clip in zip(net, limits, strict=True)
    )
    check(again, images, scores)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the exporter
def test_the_onnx_export(trained, images, scores, tmp_path):
    pytest.importorskip("onnx")
    path = tmp_path / "net.onnx"
    # The newer exporter (dynamo=True) needs a further package.
    torch.onnx.export(trained, (torch.zeros(1, 784).double(),), str(path), dynamo=False)
    net = io.read_onnx(path)
    assert net.isequal(io.from_torch(trained))
    check(net, images, scores)


def test_back_to_pytorch(trained, images, scores):
    model = io.to_torch(io.from_torch(trained))
    with torch.no_grad():
        again = model(torch.from_numpy(images)).numpy()
    np.testing.assert_array_equal(again, scores)
