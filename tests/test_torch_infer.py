"""`gbdnn.torch.infer` against the dense oracle, and its errors."""

import drawn
import numpy as np
import pytest
from calls import raises

import gbdnn
from gbdnn import errors

torch = pytest.importorskip("torch")
import gbdnn.torch as gt  # noqa: E402

pytestmark = pytest.mark.frameworks

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]


@pytest.mark.parametrize("device", DEVICES)
def test_drawn_networks(device):
    """At once, and in batches of some inputs."""
    for seed in range(40):
        draw = drawn.Draw.of(seed)
        net, (X, _), memory = draw.network(), draw.features(), ["1MiB", "512MiB"][seed % 2]
        Y = gt.infer(net, X, device=device, memory=memory)
        assert np.array_equal(drawn.dense(Y), draw.expected), seed
        assert (Y.dtype, Y.nvals) == (draw.dtype, np.count_nonzero(draw.expected)), seed


@pytest.mark.parametrize("dtype", ["FP32", "FP64"])
def test_inputs_that_die_are_dropped(dtype, monkeypatch):
    """Most of them, after the first layers; the others keep their rows."""
    net = gbdnn.Network(gbdnn.gallery.radixnet(1024, 12), dtype=dtype)
    rng = np.random.default_rng(0)
    X = rng.random((200, 1024)) * (rng.random((200, 1024)) < rng.random((200, 1)))
    widths, product = [], gt.inference._Weights.applied
    monkeypatch.setattr(
        gt.inference._Weights, "applied",
        lambda self, Y: widths.append(Y.shape[1]) or product(self, Y),
    )  # fmt: skip
    found, wanted = gt.infer(net, X), gbdnn.infer(net, X, engine="sparse")
    assert 0 < wanted.reduce_rowwise().new().nvals < 150
    assert widths[0] == 200 > widths[-1]
    assert np.allclose(found.to_dense(fill_value=0), wanted.to_dense(fill_value=0), rtol=1e-5)
    assert found.nvals == wanted.nvals


def test_layers_as_matrices_and_features_of_all_kinds():
    W, X = np.eye(3), np.array([[1.0, 0, 2], [0, 0, 0]])
    for features in (X, gbdnn.infer([W], X), torch.tensor(X), X.astype("f4")):
        Y = gt.infer([W, W], features, bias=-0.5, clip=1.25, last_activation="identity")
        wanted = gbdnn.infer([W, W], X, bias=-0.5, clip=1.25, last_activation="identity")
        assert Y.isclose(wanted)
    assert gt.infer([W], X[:0]).shape == (0, 3)
    assert gt.infer([], X).isclose(gbdnn.infer([], X))
    assert gt.infer([np.zeros((3, 2))], X).nvals == 0
    assert gt.infer([W], X, dtype="FP32").dtype.name == "FP32"


def test_errors():
    W, X = np.eye(3), np.ones((2, 3))
    raises(errors.ArgumentError, "device='tpu' is not available", gt.infer, [W], X, device="tpu")
    if not torch.cuda.is_available():
        with pytest.raises(errors.ArgumentError, match="device='cuda' is not available"):
            gt.infer([W], X, device="cuda")
    raises(errors.ArgumentError, "memory=50 is too small", gt.infer, [W], X, memory=50)
    with pytest.raises(errors.ShapeError):
        gt.infer([W], np.ones((2, 4)))
    big = np.full((3, 3), 1e30, "f4")
    raises(errors.NonFiniteError, "layer 1: Y W", gt.infer, [big, big], X.astype("f4"))
    raises(errors.ArgumentError, "finite", gt.infer, [W], np.full((2, 3), np.nan))
