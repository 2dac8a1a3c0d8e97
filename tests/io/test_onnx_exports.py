"""Files as exporters write them: read with ONNX Runtime's answers, or refused by the operator."""

import logging
import re
import warnings

import numpy as np
import pytest
from calls import raises
from matrices import assert_close

import gbdnn
from gbdnn import errors

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch")
nn = torch.nn

pytestmark = pytest.mark.frameworks

INPUTS = 6
X = np.random.default_rng(5).normal(size=(60, INPUTS)).astype(np.float32)


def require_equal(path, logits):
    """Compare a file's answers with ONNX Runtime's; probabilities by those of the sums."""
    net = gbdnn.load(path, "onnx", logits=logits)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    found = gbdnn.infer(net, X).to_dense(fill_value=0).astype(np.float64)
    expected = session.run(None, {session.get_inputs()[0].name: X})[-1]
    if isinstance(expected, list):  # of a map for each input
        expected = np.array([list(each.values()) for each in expected])
    if logits:
        expected = expected.astype(np.float64)
        if found.shape[1] == 1:
            found, expected = 1 / (1 + np.exp(-found)), expected[:, -1:]
        elif np.allclose(expected.sum(axis=1), 1, atol=1e-4):
            found = np.exp(found - found.max(axis=1, keepdims=True))
            found /= found.sum(axis=1, keepdims=True)
        else:
            found = 1 / (1 + np.exp(-found))
    assert np.ptp(expected) > 1e-3
    np.testing.assert_allclose(found, expected.reshape(found.shape), rtol=2e-4, atol=2e-5)


def require_read(path, operator):
    """Read a file, without its probabilities; one with `operator` is refused by that name."""
    if operator is None:
        require_equal(path, logits=False)
        return
    raises(errors.ArgumentError, rf"operator {operator} ", gbdnn.load, path, "onnx")
    if operator in ("Softmax", "LogSoftmax", "Sigmoid"):
        require_equal(path, logits=True)


@pytest.mark.parametrize(
    ("kind", "activation", "operator"),
    [
        ("classes", "relu", "Softmax"), ("classes", "tanh", "Tanh"), ("binary", "relu", "Sigmoid"),
        ("regression", "relu", None), ("scaled regression", "identity", None),
    ],
)  # fmt: skip
def test_scikit_learn(tmp_path, kind, activation, operator):
    to_onnx = pytest.importorskip("skl2onnx").to_onnx
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    targets = {
        "binary": X.sum(axis=1) > 0, "classes": np.digitize(X[:, 0], [-0.5, 0.5]),
        "regression": X @ np.arange(1.0, 7.0),
    }  # fmt: skip
    make = MLPRegressor if "regression" in kind else MLPClassifier
    model = make(hidden_layer_sizes=(8, 5), activation=activation, max_iter=30, random_state=1)
    model = make_pipeline(StandardScaler(), model) if "scaled" in kind else model
    with warnings.catch_warnings(action="ignore"):  # of convergence
        model.fit(X, targets[kind.removeprefix("scaled ")])
    path = tmp_path / "net.onnx"
    onnx.save(to_onnx(model, X[:1]), str(path))
    require_read(path, operator)


def modules():
    """Return PyTorch modules by name, with the operator for which they are refused."""

    def between(*middle):
        return nn.Sequential(nn.Linear(6, 8), *middle, nn.Linear(8, 4))

    class Clamped(nn.Module):
        def __init__(self, low, high):
            super().__init__()
            self.linear, self.bounds = nn.Linear(6, 4), {"min": low, "max": high}

        def forward(self, x):
            return torch.clamp(self.linear(x), **self.bounds)

    class Skip(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 4)

        def forward(self, x):
            return self.two(x + self.one(x).relu())

    return {
        "one": (nn.Linear(6, 4), None), "no bias": (nn.Linear(6, 4, bias=False), None),
        "relu": (between(nn.ReLU()), None), "relu6": (between(nn.ReLU6()), None),
        "hardtanh": (between(nn.Hardtanh(0, 2)), None),
        "dropout": (between(nn.ReLU(), nn.Dropout()), None),
        "norm, relu": (between(nn.BatchNorm1d(8), nn.ReLU()), None),
        "relu, norm": (between(nn.ReLU(), nn.BatchNorm1d(8)), None),
        "norm first": (nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 4)), None),
        "flatten": (nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.ReLU()), None),
        "softmax": (nn.Sequential(nn.Linear(6, 4), nn.Softmax(dim=1)), "Softmax"),
        "sigmoid": (nn.Sequential(nn.Linear(6, 4), nn.Sigmoid()), "Sigmoid"),
        "tanh": (between(nn.Tanh()), "Tanh"), "gelu": (between(nn.GELU()), "Gelu|Div|Erf|Mul"),
        "layer norm": (between(nn.LayerNorm(8)), "LayerNormalization"),
        "leaky": (between(nn.LeakyReLU()), "LeakyRelu"), "skip": (Skip(), "a skip"),
        "at most": (Clamped(None, 0.5), None), "between": (Clamped(0.0, 0.25), None),
    }  # fmt: skip


MODULES = modules()


# The current exporter writes a clamp as Max and Min with a constant.
DYNAMO = ("norm, relu", "at most", "between")


@pytest.mark.parametrize(
    ("name", "dynamo"), [(x, False) for x in MODULES] + [(x, True) for x in DYNAMO]
)
def test_pytorch(tmp_path, name, dynamo):
    if dynamo:
        pytest.importorskip("onnxscript")
    torch.manual_seed(3)
    module, operator = MODULES[name]
    for each in module.modules():
        if isinstance(each, torch.nn.BatchNorm1d):
            with torch.no_grad():
                each.running_mean.normal_()
                each.running_var.uniform_(0.5, 2)
    path = tmp_path / "net.onnx"
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    given = module.eval(), (torch.from_numpy(X),), str(path)
    torch.onnx.export(*given, dynamo=dynamo, verbose=False)
    if operator in (None, "Softmax", "Sigmoid"):
        require_read(path, operator)
    else:
        with pytest.raises(errors.ArgumentError) as raised:
            gbdnn.load(path, "onnx")
        assert re.search(rf"operator ({operator}) |{operator}", str(raised.value))


class Viewed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 4), nn.Linear(4, 2)

    def forward(self, x):
        y = self.first(x.view(x.shape[0], -1))
        return self.second(y.view(y.size(0), -1))


def test_a_view_of_the_shape_of_the_input(tmp_path):
    """The legacy exporter computes it by Shape, Gather, Unsqueeze and Concat."""
    module, X = Viewed(), torch.rand((5, 2, 3), generator=torch.Generator().manual_seed(0))
    file = tmp_path / "net.onnx"
    with warnings.catch_warnings(action="ignore"):
        options = {"input_names": ["x"], "dynamic_axes": {"x": [0]}}
        torch.onnx.export(module, (X,), file, dynamo=False, **options)
    Y = gbdnn.infer(gbdnn.load(file, "onnx"), X.reshape(5, 6))
    assert_close(Y, module(X).detach(), rtol=1e-5, atol=1e-6)


class Masked(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.register_buffer("mask", (torch.rand(sizes[::-1]) < 0.3).float())

    def forward(self, x):
        return nn.functional.linear(x, self.weight * self.mask, self.bias)


@pytest.mark.parametrize("dynamo", [False, True])
def test_masks_larger_than_the_exporter_folds(tmp_path, dynamo):
    pytest.importorskip("onnxscript")
    module, file = nn.Sequential(Masked(INPUTS, 400), nn.ReLU(), Masked(400, 200)), tmp_path / "net"
    with warnings.catch_warnings(action="ignore"):
        torch.onnx.export(module, (torch.from_numpy(X),), file, dynamo=dynamo, verbose=False)
    require_equal(file, logits=False)
