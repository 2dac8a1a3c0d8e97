"""`gbdnn.torch`: models with sparse linear layers, beside PyTorch's own forward."""

import copy
import math
import pickle
from collections import OrderedDict

import numpy as np
import pytest

import gbdnn
from gbdnn import errors

torch = pytest.importorskip("torch")
import gbdnn.torch as gt  # noqa: E402

nn = torch.nn
prune = pytest.importorskip("torch.nn.utils.prune")

pytestmark = pytest.mark.frameworks


def sparse(module, density=0.1, seed=0):
    """Leave few weights of every Linear; parameters and statistics are random."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for part in module.modules():
            if type(part) is nn.Linear:
                mask = torch.rand(part.weight.shape, generator=generator) < density
                part.weight.copy_(torch.randn(part.weight.shape, generator=generator) * mask)
            if isinstance(part, nn.BatchNorm1d) and part.running_mean is not None:
                part.running_mean.normal_(generator=generator)
                part.running_var.uniform_(0.5, 2, generator=generator)
                if part.affine:
                    part.weight.uniform_(-2, 2, generator=generator)
                    part.bias.normal_(generator=generator)
    return module.eval()


def equal(fast, model, *inputs, within=1e-4):
    with torch.no_grad():
        expected, found = model(*inputs), fast(*inputs)
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    assert torch.count_nonzero(expected) > min(3, expected.numel() - 1)
    scale = expected.abs().max() if expected.numel() else 1
    assert (found - expected).abs().max() <= within * scale if expected.numel() else True


def replaced(model):
    return [x.name for x in model.gbdnn_report if x.is_replaced]


# -- one layer


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(40,), (1, 40), (7, 40), (2, 3, 40), (2, 3, 5, 40), (0, 40)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_layer(dtype, shape, bias):
    linear = sparse(nn.Linear(40, 30, bias=bias, dtype=dtype))
    fast = gt.SparseLinear.from_linear(linear)
    x = torch.randn(shape, dtype=dtype)
    equal(fast, linear, x)
    equal(fast, linear, x.transpose(0, -1).contiguous().transpose(0, -1))
    assert not list(fast.parameters())


def test_weights_however_they_are_held():
    linear = sparse(nn.Linear(40, 30))
    x = torch.randn(5, 40)
    masked = copy.deepcopy(linear)
    prune.l1_unstructured(masked, "weight", amount=0.95)
    equal(gt.accelerate(masked, density=1), masked, x)
    equal(gt.SparseLinear.from_linear(masked), masked, x)
    assert gt.accelerate(masked, density=1).gbdnn_report[0].density < 0.06
    for layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_coo):
        held = copy.deepcopy(linear)
        held.weight = nn.Parameter(linear.weight.detach().to_sparse(layout=layout), False)
        equal(gt.SparseLinear.from_linear(held), linear, x)
        equal(gt.accelerate(held, density=1), linear, x)


def test_what_is_no_linear_layer_is_refused():
    with pytest.raises(
        errors.ArgumentTypeError, match=r"linear must be a torch\.nn\.Linear, not ReLU"
    ):
        gt.SparseLinear.from_linear(nn.ReLU())
    with pytest.raises(errors.ArgumentTypeError, match="linear"):
        gt.SparseLinear.from_linear(np.eye(3))
    with pytest.raises(errors.ArgumentError, match=r"float16; call model\.float\(\)"):
        gt.SparseLinear.from_linear(nn.Linear(4, 3).half())
    with pytest.raises(errors.ArgumentError, match=r"on meta"):
        gt.SparseLinear.from_linear(nn.Linear(4, 3, device="meta"))
    hooked = nn.Linear(4, 3)
    hooked.register_forward_hook(lambda *_: None)
    with pytest.raises(errors.ArgumentError, match="hooks"):
        gt.SparseLinear.from_linear(hooked)


def test_what_cannot_be_computed_is_refused():
    fast = gt.SparseLinear.from_linear(sparse(nn.Linear(4, 3)))
    x = torch.ones(2, 4)
    for bad, error, match in (
        (x.double(), errors.ArgumentError, r"supports torch\.float32 tensors on the CPU"),
        (x.half(), errors.ArgumentError, "float16"),
        (x.to("meta"), errors.ArgumentError, "on meta"),
        (x[:, :3], errors.ShapeError, r"must have shape \(\.\.\., 4\), not \(2, 3\)"),
        (torch.tensor(1.0), errors.ShapeError, r"not \(\)"),
        (x.clone().requires_grad_(), errors.ArgumentError, "do not support gradients"),
        (x * math.nan, errors.ArgumentError, "nan"),
    ):
        with pytest.raises(error, match=match):
            fast(bad)
    with torch.no_grad():
        fast(x.clone().requires_grad_())
    with pytest.raises(errors.ArgumentError, match=r"model\.eval\(\)"):
        fast.train()(x)


# -- models


def test_a_chain_is_one_network():
    model = sparse(
        nn.Sequential(
            nn.Linear(30, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Dropout(), nn.Linear(40, 50),
            nn.ReLU6(), nn.Linear(50, 20), nn.Hardtanh(0, 2), nn.Identity(), nn.Softmax(-1),
            nn.Linear(20, 10),
        ), 0.3,
    )  # fmt: skip
    before = copy.deepcopy(model.state_dict())
    fast = gt.accelerate(model, density=1)
    assert [(x.name, x.shape) for x in fast.gbdnn_report] == [("0", "30-40-50-20"), ("10", "20-10")]
    assert len(next(iter(fast.children())).network) == 3
    equal(fast, model, torch.randn(50, 30))
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    with pytest.raises(TypeError):
        fast[0]  # what it would be is not what it was
    with pytest.raises(errors.ArgumentError, match="BatchNorm"):
        fast.state_dict()


@pytest.mark.parametrize("norm", [{}, {"affine": False}, {"track_running_stats": False}])
def test_norms(norm):
    """By their running means; those that have none stay PyTorch's."""
    model = sparse(nn.Sequential(nn.Linear(30, 40, bias=False), nn.BatchNorm1d(40, **norm)), 0.3)
    fast = gt.accelerate(model, density=1)
    assert fast.gbdnn_report[0].is_replaced
    assert any(isinstance(x, nn.BatchNorm1d) for x in fast.modules()) == ("track" in str(norm))
    equal(fast, model, torch.randn(50, 30))
    if "track" not in str(norm):
        X = torch.randn(50, 30)
        Y = gbdnn.infer(gbdnn.io.from_torch(model), X.numpy()).to_dense(fill_value=0)
        with torch.no_grad():
            np.testing.assert_allclose(Y, model(X).numpy(), atol=1e-4)


def test_the_cost_model_leaves_dense_and_small_layers():
    model = nn.Sequential(nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh())
    model.append(nn.Linear(512, 8))
    sparse(model[2], 0.05)
    fast = gt.accelerate(model.eval())
    assert replaced(fast) == ["2"]
    dense = "dense products take less time"
    assert [x.why for x in fast.gbdnn_report] == [dense, "", dense]
    assert str(fast.gbdnn_report).splitlines()[2].split() == [
        "2", "512-512", f"{100 * fast.gbdnn_report[1].density:.1f}", "%", "gbdnn",
    ]  # fmt: skip
    assert replaced(gt.accelerate(model, density=0)) == []
    assert str(gt.accelerate(nn.Tanh().eval()).gbdnn_report) == "no linear layer"


class Block(nn.Module):
    """A transformer's feed-forward part, with a skip."""

    def __init__(self, width=24):
        super().__init__()
        self.norm, self.act = nn.LayerNorm(width), nn.GELU()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(self.act(self.up(self.norm(x))))


class Tied(nn.Module):
    """One module at two places, and a weight that another function reads."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(12, 12)
        self.again = self.first
        self.read = nn.Linear(12, 12)

    def forward(self, x):
        return nn.functional.linear(self.again(torch.tanh(self.first(x))), self.read.weight)


def test_a_block_with_a_skip():
    model = sparse(nn.Sequential(Block(), Block()))
    fast = gt.accelerate(model, density=1)
    assert replaced(fast) == ["0.up", "0.down", "1.up", "1.down"]
    equal(fast, model, torch.randn(2, 7, 24))
    assert all(isinstance(x, nn.Linear) for x in (model[0].up, model[1].down))


def test_shared_modules_and_weights_that_are_read():
    model = sparse(Tied(), 0.5)
    fast = gt.accelerate(model, density=1)
    assert fast.first is fast.again
    assert replaced(fast) == ["first", "read"]
    equal(fast, model, torch.randn(5, 12))
    linear = nn.Linear(12, 12)
    for parts in ([linear, nn.ReLU(), linear], [linear, linear], [linear, nn.Tanh(), linear]):
        model = sparse(nn.Sequential(*parts), 0.5)
        equal(gt.accelerate(model, density=1), model, torch.randn(5, 12))


@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_an_encoder(activation):
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation=activation)
    model = sparse(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
    fast = gt.accelerate(model, density=1)
    assert replaced(fast) == [f"layers.{k}.linear{n}" for k in (0, 1) for n in (1, 2)]
    equal(fast, model, torch.randn(3, 9, 32))
    mask = torch.zeros(3, 9, dtype=torch.bool)
    mask[0, 5:] = True
    with torch.no_grad():
        found, expected = (
            m(torch.ones(3, 9, 32), src_key_padding_mask=mask) for m in (fast, model)
        )
    torch.testing.assert_close(found[1:], expected[1:], atol=1e-4, rtol=1e-4)


def test_layers_with_hooks_stay():
    model = sparse(nn.Sequential(nn.Linear(9, 9), nn.ReLU(), nn.Linear(9, 9), nn.ReLU()))
    seen = []
    model[2].register_forward_hook(lambda *_: seen.append(1))
    fast = gt.accelerate(model, density=1)
    assert replaced(fast) == ["0"]
    assert fast.gbdnn_report[1].why == "it has hooks"
    equal(fast, model, torch.randn(4, 9))
    assert len(seen) == 2
    whole = sparse(nn.Sequential(nn.Linear(9, 9), nn.ReLU(), nn.Linear(9, 9)))
    whole.register_forward_hook(lambda *_: seen.append(1))
    fast = gt.accelerate(whole, density=1)
    assert replaced(fast) == ["0", "2"]
    equal(fast, whole, torch.randn(4, 9))


def test_state_dict_pickle_and_copies():
    inner = nn.Sequential(nn.Linear(24, 9), nn.ReLU(), nn.Linear(9, 5))
    model = sparse(nn.Sequential(Block(), inner))
    fast = gt.accelerate(model, density=1)
    state = fast.state_dict()
    assert state.keys() == model.state_dict().keys()
    again = nn.Sequential(Block(), copy.deepcopy(inner))
    again.load_state_dict(state)
    x = torch.randn(6, 24)
    equal(again.eval(), model, x)
    for other in (pickle.loads(pickle.dumps(fast)), copy.deepcopy(fast)):  # noqa: S301
        equal(other, model, x)
    with pytest.raises(RuntimeError, match="load them into the original model"):
        fast.load_state_dict(model.state_dict())


def test_an_example_puts_back_what_is_slower(monkeypatch):
    model = sparse(nn.Sequential(nn.Linear(9, 9), nn.Tanh(), nn.Linear(9, 9), nn.ReLU(), Block(9)))
    x = torch.randn(4, 9)
    times = iter([(2e-6, 1e-6), (1e-6, 3e-6), (1e-6, 2e-6), (5e-6, 1e-6)])
    monkeypatch.setattr(gt, "_seconds", lambda *_: next(times))
    fast = gt.accelerate(model, x, density=1)
    assert [(x.name, x.is_replaced, x.why) for x in fast.gbdnn_report] == [
        ("0", False, "2 us, PyTorch 1 us"), ("2", True, "1 us, PyTorch 3 us"),
        ("4.up", True, "1 us, PyTorch 2 us"), ("4.down", False, "5 us, PyTorch 1 us"),
    ]  # fmt: skip
    equal(fast, model, x)
    monkeypatch.undo()
    for example in (x, (x,), {"input": x}):
        equal(gt.accelerate(model, example, density=1), model, x)
    single = sparse(nn.Linear(9, 9))
    monkeypatch.setattr(gt, "_seconds", lambda *_: (2.0, 1.0))
    assert type(gt.accelerate(single, x, density=1)) is nn.Linear


@pytest.mark.parametrize("names", ["012", "abc"])
def test_a_chain_that_is_put_back_keeps_its_names(names, monkeypatch):
    parts = nn.Linear(7, 64), nn.ReLU(), nn.LayerNorm(64)
    model = sparse(nn.Sequential(OrderedDict(zip(names, parts, strict=True))))
    monkeypatch.setattr(gt, "_seconds", lambda *_: (2.0, 1.0))
    for given in (model, sparse(nn.Sequential(model, nn.Tanh())), model[:2].eval()):
        fast = gt.accelerate(given, torch.randn(1, 7), density=1.0)
        assert not replaced(fast)
        assert list(fast.state_dict()) == list(given.state_dict())
        fast.load_state_dict(given.state_dict())
        equal(fast, given, torch.randn(4, 7))


def test_wrong_calls():
    with pytest.raises(errors.ArgumentTypeError, match="model"):
        gt.accelerate(np.eye(3))
    with pytest.raises(errors.ArgumentError, match=r"model\.eval\(\) first"):
        gt.accelerate(nn.Linear(3, 3))
    for density in (-0.1, 2, math.nan):
        with pytest.raises(errors.ArgumentError, match="density"):
            gt.accelerate(nn.Linear(3, 3).eval(), density=density)
    with pytest.raises(errors.ArgumentTypeError, match="density"):
        gt.accelerate(nn.Linear(3, 3).eval(), density="few")


# -- random models


class Skip(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return x + self.inner(x)


class Twice(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.a = self.b = inner

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))


def random_model(random, width, depth):
    """A nested model of `width` inputs and outputs."""
    parts, here = [], width
    for _ in range(random.integers(1, 5)):
        kind = random.integers(0, 9)
        if kind < 4:
            to = int(random.integers(1, 30))
            parts.append(nn.Linear(here, to, bias=bool(random.integers(0, 2))))
            here = to
        elif kind < 7 or not depth:
            options = [nn.ReLU(), nn.ReLU6(), nn.Hardtanh(0, 3), nn.Dropout(), nn.Tanh(), nn.GELU(),
                       nn.LayerNorm(here), nn.Identity(), nn.Hardtanh(-1, 1)]  # fmt: skip
            parts.append(options[random.integers(0, len(options))])
        else:
            inner = random_model(random, here, depth - 1)
            parts.append([Skip, Twice, nn.Sequential][kind - 7 + random.integers(0, 2)](inner))
    parts.append(nn.Linear(here, width))
    return nn.Sequential(*parts)


def test_random_models():
    counts = 0
    for seed in range(30):
        random = np.random.default_rng(seed)
        torch.manual_seed(seed)
        width = int(random.integers(1, 30))
        model = sparse(random_model(random, width, 2), random.uniform(0.05, 1), seed).double()
        fast = gt.accelerate(model, density=1 if random.integers(0, 2) else 0.5)
        counts += len(replaced(fast))
        shape = [int(n) for n in random.integers(0 if seed % 9 == 0 else 1, 5, seed % 4)]
        x = torch.randn(*shape, width, dtype=torch.float64)
        with torch.no_grad():
            expected, found = model(x), fast(x)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6, msg=str(seed))
    assert counts > 30
