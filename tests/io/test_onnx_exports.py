"""Files as exporters write them: read with ONNX Runtime's answers, or refused by the operator."""

import itertools
import logging
import re

import numpy as np
import pytest

import gbdnn

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.frameworks

INPUTS = 6
X = np.random.default_rng(5).normal(size=(60, INPUTS)).astype(np.float32)


def require_equal(path, logits):
    """Compare a file's answers with ONNX Runtime's; probabilities by those of the sums."""
    net = gbdnn.io.read_onnx(path, logits=logits)
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
    with pytest.raises(gbdnn.ArgumentError, match=rf"\({operator}\)"):
        gbdnn.io.read_onnx(path)
    if operator in ("Softmax", "LogSoftmax", "Sigmoid"):
        require_equal(path, logits=True)


HIDDEN = {"relu": ((8,), (8, 5)), "identity": ((5,),), "tanh": ((5,),), "logistic": ((5,),)}
MODELS = [
    (kind, activation, hidden, scaler)
    for kind, (activation, sizes), scaler in itertools.product(
        ("binary", "classes", "labels", "regression"), HIDDEN.items(), ("", "standard", "range")
    )
    for hidden in sizes
    if activation == "relu" or not scaler
]


@pytest.mark.parametrize(("kind", "activation", "hidden", "scaler"), MODELS)
def test_scikit_learn(tmp_path, kind, activation, hidden, scaler):
    to_onnx = pytest.importorskip("skl2onnx").to_onnx
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, StandardScaler

    targets = {
        "binary": X.sum(axis=1) > 0, "classes": np.digitize(X[:, 0], [-0.5, 0.5]),
        "labels": (X[:, :3] > 0).astype(int), "regression": X @ np.arange(1.0, 7.0),
    }  # fmt: skip
    make = MLPRegressor if kind == "regression" else MLPClassifier
    model = make(hidden_layer_sizes=hidden, activation=activation, max_iter=300, random_state=1)
    before = {"": [], "standard": [StandardScaler()], "range": [MinMaxScaler()]}[scaler]
    model = make_pipeline(*before, model).fit(X, targets[kind])
    path = tmp_path / "net.onnx"
    onnx.save(to_onnx(model, X[:1]), str(path))
    head = {"binary": "Sigmoid", "classes": "Softmax", "labels": "Sigmoid", "regression": None}
    operator = {"tanh": "Tanh", "logistic": "Sigmoid"}.get(activation, head[kind])
    if kind == "labels" and activation in ("relu", "identity"):
        try:
            require_read(path, operator)
        except gbdnn.FormatError as error:
            # What skl2onnx says of the labels' shape is refused by ONNX's own checker.
            if "op_type:Cast" not in str(error):
                raise
    elif activation == "logistic":
        with pytest.raises(gbdnn.ArgumentError, match=r"\(Sigmoid\)"):
            gbdnn.io.read_onnx(path, logits=True)
    else:
        require_read(path, operator)


def modules():
    """Return PyTorch modules by name, with the operator for which they are refused."""
    from torch import nn

    def between(*middle):
        return nn.Sequential(nn.Linear(6, 8), *middle, nn.Linear(8, 4))

    class Skip(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 4)

        def forward(self, x):
            return self.two(x + self.one(x).relu())

    return {
        "one": (nn.Linear(6, 4), None),
        "no bias": (nn.Linear(6, 4, bias=False), None),
        "relu": (between(nn.ReLU()), None),
        "relu6": (between(nn.ReLU6()), None),
        "hardtanh": (between(nn.Hardtanh(0, 2)), None),
        "dropout": (between(nn.ReLU(), nn.Dropout()), None),
        "norm, relu": (between(nn.BatchNorm1d(8), nn.ReLU()), None),
        "relu, norm": (between(nn.ReLU(), nn.BatchNorm1d(8)), None),
        "norm first": (nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 4)), None),
        "flatten": (nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.ReLU()), None),
        "softmax": (nn.Sequential(nn.Linear(6, 4), nn.Softmax(dim=1)), "Softmax"),
        "log softmax": (nn.Sequential(nn.Linear(6, 4), nn.LogSoftmax(dim=1)), "LogSoftmax"),
        "sigmoid": (nn.Sequential(nn.Linear(6, 4), nn.Sigmoid()), "Sigmoid"),
        "tanh": (between(nn.Tanh()), "Tanh"),
        "gelu": (between(nn.GELU()), "Gelu|Div|Erf|Mul"),
        "layer norm": (between(nn.LayerNorm(8)), "LayerNormalization"),
        "leaky": (between(nn.LeakyReLU()), "LeakyRelu"),
        "skip": (Skip(), "a skip"),
    }


NAMES = [
    "one", "no bias", "relu", "relu6", "hardtanh", "dropout", "norm, relu", "relu, norm",
    "norm first", "flatten", "softmax", "log softmax", "sigmoid", "tanh", "gelu", "layer norm",
    "leaky", "skip",
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "dynamo"), [*((name, False) for name in NAMES), ("one", True), ("norm, relu", True)]
)
def test_pytorch(tmp_path, name, dynamo):
    torch = pytest.importorskip("torch")
    if dynamo:
        pytest.importorskip("onnxscript")
    torch.manual_seed(3)
    module, operator = modules()[name]
    for each in module.modules():
        if isinstance(each, torch.nn.BatchNorm1d):
            with torch.no_grad():
                each.running_mean.normal_()
                each.running_var.uniform_(0.5, 2)
    path = tmp_path / "net.onnx"
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    torch.onnx.export(
        module.eval(), (torch.from_numpy(X),), str(path), dynamo=dynamo, verbose=False
    )
    if operator in ("LogSoftmax",):
        with pytest.raises(gbdnn.ArgumentError, match=r"LogSoftmax"):
            gbdnn.io.read_onnx(path)
        sums = gbdnn.infer(gbdnn.io.read_onnx(path, logits=True), X).to_dense(fill_value=0)
        with torch.no_grad():
            np.testing.assert_allclose(sums, module[0](torch.from_numpy(X)), rtol=1e-4, atol=1e-5)
    elif operator in (None, "Softmax", "Sigmoid"):
        require_read(path, operator)
    else:
        with pytest.raises(gbdnn.ArgumentError) as raised:
            gbdnn.io.read_onnx(path)
        assert re.search(rf"\(({operator})\)|: {operator};", str(raised.value))


def test_every_module_is_tried():
    pytest.importorskip("torch")
    assert list(modules()) == NAMES
