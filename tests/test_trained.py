"""A network trained and pruned in PyTorch, and its ONNX export, on all of MNIST's test images."""

import numpy as np
import pytest
from oracles import Dense, dense_inference

import gbdnn
from gbdnn import io

torch = pytest.importorskip("torch")
nn = torch.nn
prune = pytest.importorskip("torch.nn.utils.prune")

LEARNT = 2000  # images of the 10,000 to learn from


@pytest.fixture(scope="module")
def images(data):
    pixels = io.read_idx(data / "mnist" / "t10k-images-idx3-ubyte.gz")
    return pixels.reshape(10_000, 784) / 255


@pytest.fixture(scope="module")
def labels(data):
    return io.read_idx(data / "mnist" / "t10k-labels-idx1-ubyte.gz").astype(np.int64)


@pytest.fixture(scope="module")
def trained(images, labels):
    """A network of 784-128-64-10 in double, 85 % of its weights pruned, and taught after it.

    In double no image is so near a tie that the order of a sum could turn it.
    """
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU6(), nn.Linear(64, 10)
        ).double()
        learn(model, images, labels, epochs=6)
        parts = [(part, "weight") for part in model if isinstance(part, nn.Linear)]
        prune.global_unstructured(parts, prune.L1Unstructured, amount=0.85)
        learn(model, images, labels, epochs=3)
    return model.eval()


def learn(model, images, labels, epochs):
    x, y = torch.from_numpy(images[:LEARNT]), torch.from_numpy(labels[:LEARNT])
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(epochs):
        for batch in torch.randperm(LEARNT).split(100):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimiser.step()


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
