"""`gbdnn.torch.accelerate`: the result behaves as the original in every context of PyTorch."""

import copy
import dataclasses
import gc
import io
import math
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from machines import using

import gbdnn
from gbdnn import errors

torch = pytest.importorskip("torch")
import gbdnn.torch as gt  # noqa: E402
from gbdnn.torch import accelerated, replacing  # noqa: E402

nn = torch.nn
prune = pytest.importorskip("torch.nn.utils.prune")

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::torch.jit.TracerWarning"),
]

copied_model = replacing._copied
WIDTH = 256


@pytest.fixture(autouse=True)
def machine():
    """Which layers of this width gain depends on the processor."""
    with using("Zen 4, 2 cores"):
        yield


def sparse(module, density=0.05, seed=0):
    """Leave few weights of every Linear; parameters and statistics are random."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, nn.Linear):
                mask = torch.rand(part.weight.shape, generator=generator) < density
                part.weight.copy_(torch.randn(part.weight.shape, generator=generator) * mask)
                part.weight /= math.sqrt(density * part.in_features)
            if isinstance(part, nn.BatchNorm1d) and part.running_mean is not None:
                part.running_mean.normal_(generator=generator)
                part.running_var.uniform_(0.5, 2, generator=generator)
                part.eps = 0.25
                if part.affine:
                    part.weight.uniform_(-2, 2, generator=generator)
                    part.bias.normal_(generator=generator)
    return module.eval()


def random(*shape, dtype=torch.float32, seed=1):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def replaced(model):
    return [x.name for x in model.gbdnn_report if x.is_replaced]


def equal(found, expected, within=1e-4):
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    scale = max(expected[expected.isfinite()].abs().tolist(), default=1.0)
    torch.testing.assert_close(found, expected, rtol=0, atol=within * scale, equal_nan=True)


def same(call, fast, model, within=1e-4):
    """Compare the outcome of a call: equal tensors, or an error where the original has one."""
    try:
        expected = call(model)
    except Exception as error:  # noqa: BLE001, RUF100 -- whatever PyTorch raises
        with pytest.raises(type(error)):
            call(fast)
        return
    equal(call(fast), expected, within)


# -- modules of the matrix


class Block(nn.Module):
    """A residual block with LayerNorm and GELU."""

    def __init__(self, width=WIDTH):
        super().__init__()
        self.norm, self.act = nn.LayerNorm(width), nn.GELU()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(self.act(self.up(self.norm(x))))


class Tied(nn.Module):
    """One module in two places, one weight in two modules, and a weight that is read."""

    def __init__(self):
        super().__init__()
        self.first = self.again = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, WIDTH, bias=False)
        self.head.weight = self.first.weight

    def forward(self, x):
        x = self.head(self.again(torch.tanh(self.first(x))))
        return nn.functional.linear(x, self.first.weight)


class Named(nn.Sequential):
    """A subclass of Sequential with an attribute."""

    scale = 2.0

    def forward(self, x):
        return self.scale * super().forward(x)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.down = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.down(self.attention(x, x, x)[0])


def linear(**options):
    return nn.Linear(WIDTH, WIDTH, **options)


def masked():
    model = sparse(nn.Sequential(linear(), nn.Tanh(), linear(), nn.ReLU(), linear()))
    for k in (0, 2):
        prune.random_unstructured(model[k], "weight", 0.5)
    prune.random_unstructured(model[2], "bias", 0.5)
    return model


def parametrized():
    model = sparse(nn.Sequential(linear(), nn.ReLU(), linear()))
    nn.utils.parametrizations.weight_norm(model[0])
    return model.eval()


def encoder_layer(**options):
    return nn.TransformerEncoderLayer(WIDTH, 4, 512, batch_first=True, **options)


MODULES = {
    "linear": (linear, 1),
    "masked": (masked, 3),
    "parametrized": (parametrized, 1),
    "tied": (Tied, 2),
    "sequential": (lambda: nn.Sequential(linear(), nn.ReLU(), linear(), nn.ReLU6(), linear()), 3),
    "nested": (lambda: nn.Sequential(nn.Sequential(linear(), nn.ReLU()), Block(), linear()), 4),
    "subclass": (lambda: Named(linear(), nn.ReLU(), linear()), 2),
    "encoder": (lambda: nn.TransformerEncoder(encoder_layer(activation="gelu"), 2), 4),
    "attention": (Attention, 1),
    "batch norm": (
        lambda: nn.Sequential(linear(bias=False), nn.BatchNorm1d(WIDTH), nn.ReLU(), linear()), 2),
    "gelu": (lambda: nn.Sequential(linear(), nn.GELU(), linear(), nn.Hardtanh(0, 1)), 2),
    "dropout": (lambda: nn.Sequential(linear(), nn.ReLU(), nn.Dropout(), linear()), 2),
}  # fmt: skip
CONTEXTS = {}


def context(function):
    CONTEXTS[function.__name__] = function
    return function


@pytest.fixture
def pair(request):
    """The accelerated model and the original."""
    make, count = MODULES[request.param]
    torch.manual_seed(0)
    model = make()
    model = model if request.param in ("masked", "parametrized") else sparse(model)
    fast = gt.accelerate(model)
    assert len(replaced(fast)) == count
    return fast, model


def inputs():
    return random(7, WIDTH)  # one sequence, for attention


@context
def ranks(fast, model):
    for shape in ((), (1,), (7,), (2, 5), (2, 3, 5), (256,), (3, 256)):
        x = random(*shape, WIDTH)
        for grad in (torch.no_grad, torch.inference_mode, torch.enable_grad):
            with grad():
                same(lambda m, x=x: m(x), fast, model)


@context
def other_sizes(fast, model):
    for x in (random(0, WIDTH), random(2, 0, WIDTH), random(5, WIDTH + 1), torch.tensor(1.0)):
        same(lambda m, x=x: m(x), fast, model)


@context
def not_contiguous(fast, model):
    wide = random(4, 2 * WIDTH)
    given = [random(WIDTH, 6).T, random(5, 2, WIDTH).transpose(0, 1), wide[::2, ::2]]
    given += [random(1, WIDTH).expand(6, WIDTH), torch._neg_view(random(3, WIDTH))]
    for x in given:
        same(lambda m, x=x: m(x), fast, model)


@context
def not_finite(fast, model):
    for value in (math.nan, math.inf, -math.inf, 3e38):
        x = inputs()
        x[0, :9] = value
        same(lambda m, x=x: m(x), fast, model)


@context
def dtypes(fast, model):
    for dtype, within in ((torch.float64, 1e-9), (torch.bfloat16, 0.05), (torch.float16, 0.02)):
        one, other = (
            copy.deepcopy(fast).to(dtype),
            copy.deepcopy(copied_model(model)).to(dtype),
        )
        same(lambda m, dtype=dtype: m(inputs().to(dtype)), one, other, within)
        same(lambda m: m(inputs()), one, other, within)  # of another dtype
        same(lambda m: m.float()(inputs()), one, other)  # the rounded weights


@context
def training(fast, model):
    def trained(m):
        torch.manual_seed(3)
        return copy.deepcopy(copied_model(m)).train()(inputs())

    same(trained, fast, model)


@context
def copies(fast, model):
    expected = model(inputs())
    equal(copy.deepcopy(fast)(inputs()), expected)
    equal(copy.copy(fast)(inputs()), expected)
    try:
        pickled = pickle.dumps(fast)
    except Exception as error:  # noqa: BLE001, RUF100 -- parametrized modules cannot be pickled
        with pytest.raises(type(error)):
            pickle.dumps(model)
        return
    equal(pickle.loads(pickled)(inputs()), expected)  # noqa: S301
    file = io.BytesIO()
    torch.save(fast, file)
    file.seek(0)
    equal(torch.load(file, weights_only=False)(inputs()), expected)


@context
def state_dict(fast, model):
    state, original = fast.state_dict(), model.state_dict()
    assert list(state) == list(original)
    assert all(torch.equal(state[key], x) for key, x in original.items())
    other = copied_model(model)
    with torch.no_grad():
        for x in other.parameters():
            x.mul_(0.5)
    for assign in (False, True):  # both ways, and the new weights count
        fast.load_state_dict(copy.deepcopy(other.state_dict()), assign=assign)
        equal(fast(inputs()), other(inputs()))
        other.load_state_dict(original)
        equal(other(inputs()), model(inputs()))
        fast.load_state_dict(copy.deepcopy(original))
        equal(fast(inputs()), model(inputs()))


@context
def interface(fast, model):
    names = [name for name, _ in model.named_modules()]
    assert [name for name, _ in fast.named_modules()] == names
    assert [n for n, _ in fast.named_parameters()] == [n for n, _ in model.named_parameters()]
    assert [n for n, _ in fast.named_buffers()] == [n for n, _ in model.named_buffers()]
    assert next(fast.parameters()).device.type == "cpu"
    for name in names:
        ours, theirs = fast.get_submodule(name), model.get_submodule(name)
        assert isinstance(ours, type(theirs)) or "parametrized" in str(type(theirs)).lower()
        attributes = {x for x in dir(theirs) if not x.startswith("_")}
        assert attributes <= set(dir(ours)) | {"weight", "bias"}
        if isinstance(theirs, nn.Linear):
            assert ours.weight.dtype == theirs.weight.dtype
            assert torch.equal(ours.weight, theirs.weight)
            assert (ours.in_features, ours.out_features) == theirs.weight.shape[::-1]
            assert (ours.bias is None) == (theirs.bias is None)


@context
def tracing(fast, model):
    with torch.no_grad():
        program = torch.jit.trace(fast, inputs())
        for seed in (1, 2):
            x = random(7, WIDTH, seed=seed)
            equal(program(x), model(x))
        graph = torch.fx.symbolic_trace(fast) if "Transformer" not in str(model) else fast
        equal(graph(inputs()), model(inputs()))


def through_onnx(model, dynamo):
    """Return ONNX Runtime's results for two inputs."""
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    file = io.BytesIO()
    if dynamo:
        torch.onnx.export(model, (inputs(),), dynamo=True, verbose=False).save(file)
    else:
        torch.onnx.export(model, (inputs(),), file, dynamo=False, opset_version=17)
    session = runtime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    (name,) = (x.name for x in session.get_inputs())
    found = [session.run(None, {name: random(7, WIDTH, seed=k).numpy()})[0] for k in (1, 2)]
    return torch.from_numpy(np.stack(found))


@context
def scripting(fast, model):
    same(lambda m: torch.jit.script(m)(inputs()), fast, model)


@context
def onnx(fast, model):
    for dynamo in (True, False):
        same(lambda m, dynamo=dynamo: through_onnx(m, dynamo), fast, model)


@context
def compiled(fast, model):
    torch._dynamo.reset()
    program = torch.compile(fast, fullgraph=True, backend="aot_eager")
    for grad in (torch.no_grad, torch.enable_grad, torch.inference_mode):
        with grad():
            equal(program(inputs()), model(inputs()))
    gradients = []
    for each in (program, model):
        x = inputs().requires_grad_()
        each(x).mul(random(WIDTH)).sum().backward()
        gradients.append(x.grad)
    equal(*gradients)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        same(lambda m: m(inputs()), program, model, 0.05)


@context
def exported(fast, model):
    for strict in (False, True):
        program = torch.export.export(fast, (inputs(),), strict=strict)
        file = io.BytesIO()
        torch.export.save(program, file)
        file.seek(0)
        loaded = torch.export.load(file).module()
        with torch.no_grad():
            for seed in (1, 2):
                x = random(7, WIDTH, seed=seed)
                equal(loaded(x), model(x))


@context
def autocast(fast, model):
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        same(lambda m: m(inputs()), fast, model, 0.05)


@context
def gradients(fast, model):
    def gradient(m):
        x = inputs().requires_grad_()
        m(x).mul(random(WIDTH)).sum().backward()
        return x.grad

    same(gradient, fast, model)
    other = copied_model(model).requires_grad_()

    def trained(m):
        m.zero_grad()
        m(inputs()).mul(random(WIDTH)).sum().backward()
        return torch.cat([x.grad.flatten() for x in m.parameters() if x.grad is not None])

    same(trained, fast.requires_grad_(), other)


@context
def transforms(fast, model):
    x = random(3, 4, WIDTH)
    with torch.no_grad():
        same(lambda m: torch.vmap(m)(x), fast, model)
        same(lambda m: torch.func.jvp(m, (x[0],), (x[1],))[1], fast, model)
        same(lambda m: torch.func.grad(lambda y: m(y).mul(random(WIDTH)).sum())(x[0]), fast, model)
        other = {key: 0.5 * value for key, value in model.named_parameters()}
        same(lambda m: torch.func.functional_call(m, other, x[0]), fast, model)
        same(lambda m: m(x[0]), fast, model)
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x[0], x[1])
            same(lambda m: torch.autograd.forward_ad.unpack_dual(m(dual)).tangent, fast, model)


@context
def hooks(fast, model):
    model = copied_model(model)
    seen = []
    for m in (fast, model):
        for name, part in m.named_modules():
            if isinstance(part, nn.Linear | nn.ReLU) and "attention" not in name:
                part.register_forward_hook(lambda part, args, out: 2 * out)
                part.register_forward_pre_hook(lambda part, args: seen.append(type(part)))
    equal(fast(inputs()), model(inputs()))
    half = len(seen) // 2
    assert len(seen) == 2 * half > 0


@context
def threads(fast, model):
    expected = model(inputs())

    def call(k):
        torch.set_num_threads(1 + k % 3)
        return fast(inputs())

    before = torch.get_num_threads()
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(call, range(16)):
            equal(found, expected)
    for count in (1, 3, 8):
        torch.set_num_threads(count)
        equal(fast(inputs()), expected)
    torch.set_num_threads(before)


class Answers(torch.utils.data.Dataset):
    def __init__(self, model):
        self.model = model

    def __len__(self):
        return 4

    def __getitem__(self, k):
        with torch.no_grad():
            return self.model(random(7, WIDTH, seed=k))


@context
def workers(fast, model):
    loader = torch.utils.data.DataLoader(
        Answers(fast), num_workers=2, multiprocessing_context="fork", timeout=60
    )
    for k, found in enumerate(loader):
        equal(found[0], model(random(7, WIDTH, seed=k)).detach())


# Contexts that take seconds have few modules by default.
FEW = dict.fromkeys(("compiled", "exported"), ("nested", "parametrized", "attention"))
FEW["onnx"] = ("nested", "attention")
CASES = [
    pytest.param(module, name, marks=[pytest.mark.slow] * (module not in FEW.get(name, MODULES)))
    for module in MODULES
    for name in CONTEXTS
]


@pytest.mark.parametrize(("pair", "name"), CASES, indirect=["pair"])
def test_matrix(pair, name):
    CONTEXTS[name](*pair)


# -- fusion


def chain():
    return sparse(nn.Sequential(linear(), nn.ReLU(), linear(), nn.Tanh(), linear(), nn.ReLU6()))


def bits(fast, model, x):
    """Whether a result has bits that PyTorch's has not: gbdnn computed it."""
    with torch.no_grad():
        equal(fast(x), model(x))
        return not torch.equal(fast(x), model(x))


def test_chains_and_their_children():
    model = chain()
    model[3] = nn.Hardtanh(-1, 1).eval()  # ends a chain: its lower limit is not 0
    fast = gt.accelerate(model)
    assert [(x.name, x.why) for x in fast.gbdnn_report] == [
        ("0", "fused: 0 to 2"), ("2", "fused: 0 to 2"), ("4", "fused: 4 to 5"),
    ]  # fmt: skip
    assert isinstance(fast, nn.Sequential)
    assert len(fast) == 6
    assert isinstance(fast[4], nn.Linear)
    y, z = inputs(), inputs()
    for ours, theirs in zip(fast, model, strict=True):  # each computes its own layer
        y, z = ours(y), theirs(z)
        equal(y, z)
    for part in (slice(2), slice(1, 5), slice(None, None, 2), slice(0, 0)):
        equal(fast[part](inputs()), model[part](inputs()))
    equal((fast + model[:2])(inputs()), (model + model[:2])(inputs()))


def test_changes_of_a_container():
    for change in (
        lambda m: m.append(linear()),
        lambda m: m.insert(1, nn.Tanh()),
        lambda m: m.__setitem__(1, nn.Tanh()),
        lambda m: m.__delitem__(0),
        lambda m: setattr(m[5], "max_val", 0.25),
        lambda m: setattr(m[0], "bias", None),
        lambda m: prune.random_unstructured(m[0], "weight", 0.5),
        lambda m: nn.utils.parametrizations.weight_norm(m[2]),
        lambda m: m[0].half().float(),
        lambda m: m.pop(-1),
        lambda m: setattr(m[0], "forward", lambda x: 2 * x),
        lambda m: setattr(m[1], "forward", lambda x: 2 * x),
        lambda m: m.__imul__(2),
    ):
        model = chain()
        fast, model = gt.accelerate(model), copied_model(model)
        equal(fast(inputs()), model(inputs()))
        for m in (fast, model):
            torch.manual_seed(5)
            with torch.no_grad():
                change(m)
            m.eval()
        equal(fast(inputs()), model(inputs()))


def test_hooks_on_children_and_on_all_modules():
    model = chain()
    fast = gt.accelerate(model)
    for register in (
        lambda m, f: m[1].register_forward_hook(f),
        lambda m, f: m[2].register_forward_pre_hook(f),
        lambda m, f: torch.nn.modules.module.register_module_forward_hook(f),
    ):
        counts = []
        for m in (fast, model):
            seen = []
            hook = register(m, lambda part, *_, seen=seen: seen.append(part))
            equal(m(inputs()), model(inputs()))
            hook.remove()
            counts.append(len(seen))
        assert counts[0] > 0
        assert bits(fast, model, inputs())


def test_batch_norm_is_merged_for_two_dimensions_only():
    """PyTorch normalises the second axis."""
    model = sparse(nn.Sequential(nn.Linear(256, 512), nn.BatchNorm1d(512)))
    fast = gt.accelerate(model)
    for shape in ((4, 512, 256), (4, 256), (512, 256), (256,)):
        same(lambda m, shape=shape: m(random(*shape)), fast, model)
    assert not [x for x in fast.gbdnn_report if not x.is_replaced]
    other = sparse(nn.Sequential(nn.Linear(256, 512), nn.BatchNorm1d(20)))
    equal(gt.accelerate(other)(random(4, 20, 256)), other(random(4, 20, 256)))
    for options in ({"affine": False}, {"track_running_stats": False}):
        norm = nn.BatchNorm1d(256, **options)
        model = sparse(nn.Sequential(linear(), norm, nn.ReLU(), linear(), nn.ReLU(), norm))
        equal(gt.accelerate(model)(inputs()), model(inputs()))


def test_from_torch_reads_the_result():
    for model in (chain()[:3].eval(), sparse(nn.Sequential(linear(), nn.BatchNorm1d(256)))):
        fast = gt.accelerate(model)
        for m in (fast, gt.accelerate(model, keep_dense=False)):
            Y = gbdnn.infer(gbdnn.io.from_torch(m), inputs().numpy()).to_dense(fill_value=0)
            np.testing.assert_allclose(Y, model(inputs()).detach().numpy(), atol=1e-4)


# -- decisions and reports


def test_the_cost_model_leaves_dense_and_small_layers():
    model = nn.Sequential(nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh())
    model.append(nn.Linear(512, 8))
    sparse(model[2])
    fast = gt.accelerate(model.eval())
    assert replaced(fast) == ["2"]
    dense = "dense products take less time"
    assert [x.why for x in fast.gbdnn_report] == [dense, "", dense]
    assert str(fast.gbdnn_report).splitlines()[2].split() == [
        "2", "512-512", f"{100 * fast.gbdnn_report[1].density:.1f}", "%", "gbdnn",
    ]  # fmt: skip
    assert replaced(gt.accelerate(model, density=0)) == []
    assert replaced(gt.accelerate(model, density=1)) == ["0", "2", "4"]
    assert str(gt.accelerate(nn.Tanh().eval()).gbdnn_report).split()[0] == "module"
    unchanged = gt.accelerate(nn.Sequential(linear(), nn.ReLU(), linear()).eval())
    assert [type(x) for x in unchanged.modules()] == [nn.Sequential, nn.Linear, nn.ReLU, nn.Linear]
    assert [x.why for x in unchanged.gbdnn_report] == [dense, dense]


class Custom(nn.Linear):
    pass


class Subclass(torch.Tensor):
    def __deepcopy__(self, memo):
        return self


def test_why_a_layer_stays():
    """One line for each layer."""
    normed = nn.utils.parametrizations.weight_norm(linear())
    with pytest.warns(FutureWarning):
        older = nn.utils.weight_norm(linear())
    replaced_forward = linear()
    replaced_forward.forward = replaced_forward.forward
    infinite, subclass = linear(), linear()
    subclass._parameters["weight"] = subclass.weight.detach().as_subclass(Subclass)
    model = nn.ModuleList(
        [normed, older, replaced_forward, linear().half(), linear(device="meta"), Custom(256, 256),
         nn.MultiheadAttention(8, 2), infinite, subclass, ]
    )  # fmt: skip
    with torch.no_grad():
        infinite.weight[0, 0] = math.inf
    rows = gt.accelerate(model.eval(), density=1).gbdnn_report
    assert [x.name for x in rows] == ["0", "1", "2", "3", "4", "5", "6.out_proj", "7", "8"]
    whys = ["ParametrizedLinear", "computes its", "computes its", r"float16", "on meta", "Custom",
            "NonDynamically", "inf", "Subclass"]  # fmt: skip
    for row, why in zip(rows, whys, strict=True):
        assert why in row.why
        assert not row.is_replaced


def test_hooks_that_exist_are_called():
    model = chain()
    model[0].register_forward_hook(lambda part, args, out: out + 1)
    seen = []
    model[4].register_forward_pre_hook(lambda part, args: seen.append(args[0].shape))
    fast = gt.accelerate(model)
    assert not seen  # accelerate calls no hook
    assert replaced(fast) == ["0", "2", "4"]
    equal(fast(inputs()), model(inputs()))


def test_an_example_puts_back_what_is_slower(monkeypatch):
    model = sparse(nn.Sequential(linear(), nn.ReLU(), linear(), Block(), linear()))
    x = inputs()
    # The times of gbdnn and PyTorch: for the chain, then for each layer.
    times = iter([2e-6, 1e-6, 1e-6, 3e-6, 2e-6, 1e-6, 2e-6, 3e-6, 3e-6, 4e-6, 5e-6, 1e-6])
    rounds = ((ours, theirs) for ours, theirs in zip(times, times, strict=True) for _ in range(15))
    flat = (each for pair in rounds for each in pair)
    monkeypatch.setattr(replacing, "timeit", lambda *_, **__: next(flat))
    fast = gt.accelerate(model, x)
    assert [(x.name, x.is_replaced, x.why) for x in fast.gbdnn_report] == [
        ("0", True, "1 us, PyTorch 3 us"), ("2", False, "2 us, PyTorch 1 us"),
        ("3.up", True, "2 us, PyTorch 3 us"), ("3.down", True, "3 us, PyTorch 4 us"),
        ("4", False, "5 us, PyTorch 1 us"),
    ]  # fmt: skip
    equal(fast(x), model(x))
    monkeypatch.undo()
    for example in (x, (x,), {"input": x}):
        equal(gt.accelerate(model, example)(x), model(x))


class Counting(nn.Module):
    """Its output depends on the number of calls."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * self.calls


@dataclasses.dataclass
class Output:
    logits: object


class Wrapped(nn.Sequential):
    """Its output is in a dataclass."""

    def forward(self, x):
        return Output([super().forward(x)])


@pytest.mark.parametrize("kind", [nn.Sequential, Wrapped])
def test_an_example_compares_the_outputs(kind):
    with pytest.raises(errors.ArgumentError, match="output differs by up to"):
        gt.accelerate(sparse(kind(linear(), Counting())), inputs())


def test_a_wrong_result_is_not_used(monkeypatch):
    """Whatever the reason."""
    call = accelerated.CompiledNetwork.__call__
    monkeypatch.setattr(
        accelerated.CompiledNetwork, "__call__", lambda run, x: 1.001 * call(run, x)
    )
    fast = gt.accelerate(chain())
    assert [x.why for x in fast.gbdnn_report] == ["the results differ by more than rounding"] * 3
    assert not replaced(fast)


def test_calls_compile_nothing(monkeypatch):
    """Not even the first one, so that it may happen in a forked process."""
    models = [chain(), masked(), sparse(Block()), sparse(encoder_layer()), sparse(linear())]
    fasts = [gt.accelerate(model) for model in models]
    monkeypatch.setattr(accelerated, "Chain", None)
    monkeypatch.setattr(accelerated, "CompiledNetwork", None)
    for fast, model in zip(fasts, models, strict=True):
        assert bits(fast, model, inputs())


def test_the_result_is_accelerated_again():
    model = chain()
    fast = gt.accelerate(model)
    with torch.no_grad():
        fast[0].weight.data.mul_(2)  # which PyTorch does not count
        model[0].weight.mul_(2)
    again = gt.accelerate(fast)
    assert bits(again, model, inputs())
    assert again.gbdnn_report == gt.accelerate(model).gbdnn_report
    with torch.no_grad():
        for x in again.parameters():
            x.normal_()
    again = gt.accelerate(again)
    assert not replaced(again)
    assert not any(isinstance(x, accelerated.AcceleratedLinear) for x in again.modules())
    dropped = gt.accelerate(model, keep_dense=False)
    assert bits(gt.accelerate(dropped), model, inputs())


def test_inference_mode():
    model = chain()
    with torch.inference_mode():
        fast = gt.accelerate(model)
        assert bits(fast, model, inputs())
        fast.load_state_dict({k: 2 * x for k, x in model.state_dict().items()}, assign=True)
        before = fast(inputs())
        fast[0].weight.zero_()  # inference tensors have no counter
        assert not torch.equal(fast(inputs()), before)
        program = torch.compile(fast, backend="aot_eager")
        equal(program(inputs()), fast(inputs()))
        fast = gt.accelerate(model)
        one, other = copy.deepcopy(fast).double(), copy.deepcopy(model).double()
        equal(one(inputs().double()), other(inputs().double()), 1e-9)


def test_memory_is_released():
    fast = gt.accelerate(chain())
    fast(inputs())
    with torch.no_grad():
        torch.compile(fast, backend="aot_eager")(inputs())
    modules = [weakref.ref(x) for x in fast.modules()]
    weights = [weakref.ref(x) for x in fast.parameters()]
    del fast
    torch._dynamo.reset()
    gc.collect()
    assert not [x for x in (*modules, *weights) if x() is not None]


def test_wrong_calls():
    with pytest.raises(errors.ArgumentTypeError, match="model"):
        gt.accelerate(np.eye(3))
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout()).eval()
    model[1].train()
    with pytest.raises(errors.ArgumentError, match=r"1 is in training .* model\.eval\(\)"):
        gt.accelerate(model)
    with pytest.raises(errors.ArgumentError, match="model is in training"):
        gt.accelerate(nn.Linear(3, 3))
    for density in (-0.1, 2, math.nan):
        with pytest.raises(errors.ArgumentError, match="density"):
            gt.accelerate(nn.Linear(3, 3).eval(), density=density)
    with pytest.raises(errors.ArgumentTypeError, match="density"):
        gt.accelerate(nn.Linear(3, 3).eval(), density="few")
    with pytest.raises(errors.ArgumentTypeError, match=r"example must be .*, not ndarray"):
        gt.accelerate(nn.Linear(3, 3).eval(), np.ones((2, 3), np.float32))
    for made in (
        torch.jit.trace(linear(), inputs()),
        torch.export.export(linear(), (inputs(),)).module(),
    ):
        with pytest.raises(errors.ArgumentError, match="pass the module that it was made from"):
            gt.accelerate(made)
    fast = gt.accelerate(torch.fx.symbolic_trace(sparse(nn.Sequential(linear(), nn.Tanh()))))
    assert replaced(fast) == ["0"]
    fast = gt.accelerate(sparse(linear()))
    with pytest.raises(TypeError):
        fast(np.ones((2, 256), np.float32))


# -- changes of weights that PyTorch does not count


def stepped(optimizer, **options):
    """Return a function that trains a model for a step."""

    def change(model):
        model.requires_grad_()
        with torch.enable_grad():
            model(inputs()).mul(random(WIDTH)).sum().backward()
        getattr(torch.optim, optimizer)(model.parameters(), lr=0.1, **options).step()
        model.zero_grad()

    return change


def one_row(model):
    """A step of an optimizer that leaves the numbers that a call compares."""
    model.requires_grad_()
    with torch.enable_grad():
        model[0](inputs())[:, 3].sum().backward()
    torch.optim.SGD(model.parameters(), 0.1, fused=True).step()


def through_numpy(model):
    view = model[0].weight.detach().numpy()
    view *= 0.5


def swapped(model):
    torch.utils.swap_tensors(model[0].weight, nn.Parameter(0.5 * model[0].weight.detach()))


def by_vector(model):
    vector = nn.utils.parameters_to_vector(model.parameters())
    nn.utils.vector_to_parameters(0.5 * vector, model.parameters())


CHANGES = {
    "fused Adam": stepped("Adam", fused=True), "foreach Adam": stepped("Adam", foreach=True),
    "plain SGD": stepped("SGD", foreach=False), "fused step of a row": one_row,
    "in place": lambda m: m[0].weight.mul_(0.5),
    "one row": lambda m: m[0].weight[3].fill_(1.0),
    "data in place": lambda m: m[0].weight.data.mul_(0.5),
    "data added": lambda m: setattr(m[0].weight, "data", m[0].weight.data.add_(0.01)),
    "data replaced": lambda m: setattr(m[0].weight, "data", 0.5 * m[0].weight.data),
    "NumPy": through_numpy,
    "new parameter": lambda m: setattr(m[2], "weight", nn.Parameter(0.5 * m[2].weight)),
    "swapped tensors": swapped, "vector": by_vector,
    "state_dict": lambda m: m.load_state_dict({k: 0.5 * x for k, x in m.state_dict().items()}),
    "bias": lambda m: m[2].bias.zero_(), "bias data": lambda m: m[2].bias.data.mul_(0.5),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("is_compiled", [False, True])
def test_ways_to_change_weights(name, is_compiled):
    if is_compiled and name == "swapped tensors":
        pytest.skip("PyTorch does not swap a parameter that a compiled graph refers to")
    model = chain()
    fast, model = gt.accelerate(model), copied_model(model)
    run = torch.compile(fast, backend="aot_eager") if is_compiled else fast
    with torch.no_grad():
        before = run(inputs())
        for m in (fast, model):
            CHANGES[name](m)
        assert not torch.allclose(run(inputs()), before, rtol=0, atol=1e-3)
        equal(run(inputs()), model(inputs()))


class Doubling(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        return 2 * found if function is nn.functional.linear else found


def test_function_modes():
    model = chain()
    fast = gt.accelerate(model)
    with torch.no_grad(), Doubling():
        found, expected = fast(inputs()), model(inputs())
    equal(found, expected)
    assert not torch.allclose(expected, model(inputs()))
    with torch.device("cpu"):  # is a mode, too
        assert bits(fast, model, inputs())


PEFT = {
    "unmerged": lambda m: None, "merged": lambda m: m.merge_adapter(),
    "safely merged": lambda m: m.merge_adapter(safe_merge=True),
    "unmerged again": lambda m: (m.merge_adapter(), m(inputs()), m.unmerge_adapter()),
    "disabled": lambda m: m.disable_adapter_layers(), "unloaded": lambda m: m.merge_and_unload(),
}  # fmt: skip


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("name", PEFT)
def test_adapters(name, first):
    """Added to the accelerated model, or there before."""
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, target_modules=["0", "2"], init_lora_weights=False)

    def adapted(model):
        torch.manual_seed(1)
        return peft.get_peft_model(model, config).eval()

    plain = chain()
    model = adapted(copy.deepcopy(plain))
    fast = gt.accelerate(adapted(plain)) if first else adapted(gt.accelerate(plain))
    assert any(isinstance(x, accelerated.AcceleratedLinear) for x in fast.modules())
    with torch.no_grad():
        equal(fast(inputs()), model(inputs()))
        changed = [PEFT[name](m) for m in (fast, model)]
        pair = changed if name == "unloaded" else (fast, model)
        equal(*(m(inputs()) for m in pair))


def test_quantized_layers_are_named():
    model = nn.Sequential(torch.ao.quantization.quantize_dynamic(nn.Sequential(linear()).eval())[0])
    model.append(sparse(linear())).eval()
    model[0]._packed_params.train()  # as PyTorch leaves it
    fast = gt.accelerate(model)
    assert [x.why for x in fast.gbdnn_report] == ["its weights are quantized", ""]
    assert replaced(fast) == ["1"]
    equal(fast(inputs()), model(inputs()))


def test_density_is_that_of_each_layer():
    model = nn.Sequential(linear(), nn.ReLU(), linear(), nn.ReLU(), linear(), nn.ReLU(), linear())
    sparse(model[:4].append(model[6]))
    sparse(model[4], 0.6)
    fast = gt.accelerate(model.eval(), density=0.3)
    assert replaced(fast) == ["0", "2", "6"]
    rows = fast.gbdnn_report
    assert rows[2].why == "too dense"
    assert rows[0].why == rows[1].why == "fused: 0 to 3"
    assert bits(fast, model, inputs())
    assert type(gt.accelerate(fast, density=0.3)[4]) is nn.Linear


def test_restore():
    model = nn.Sequential(*chain(), masked(), sparse(encoder_layer())).eval()
    for options in ({}, {"keep_dense": False}):
        fast = gt.accelerate(model, **options)
        plain = gt.restore(fast)
        assert [type(x) for x in plain.modules()] == [type(x) for x in model.modules()]
        assert type(fast) is not nn.Sequential
        if not options:
            assert list(plain.state_dict()) == list(model.state_dict())
            assert [vars(x).keys() for x in plain.modules()] == [
                vars(x).keys() for x in model.modules()
            ]
        assert not any(x.is_meta for x in plain.parameters())
        assert plain[-1].activation_relu_or_gelu == model[-1].activation_relu_or_gelu
        with torch.no_grad():
            equal(plain(inputs()), model(inputs()))
            assert torch.equal(plain[0](inputs()), model[0](inputs()))
    with pytest.raises(errors.ArgumentTypeError, match="model"):
        gt.restore(np.eye(3))


# -- weights


def test_weights_that_are_sparse_tensors():
    x = inputs()
    for layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_coo):
        model = sparse(linear())
        held = copy.deepcopy(model)
        held.weight = nn.Parameter(model.weight.detach().to_sparse(layout=layout), False)
        fast = gt.accelerate(held)
        equal(fast(x), model(x))
        assert replaced(fast) == [""]
        fast.weight = held.weight  # PyTorch computes it, if it can
        same(lambda m: m(x), fast, held)


def test_masks_stay():
    model = masked()
    fast = gt.accelerate(model)
    assert prune.is_pruned(fast[0])
    for m in (fast, model):
        torch.manual_seed(2)
        prune.random_unstructured(m[0], "weight", 0.5)
        prune.remove(m[2], "weight")
    equal(fast(inputs()), model(inputs()))
    assert list(fast.state_dict()) == list(model.state_dict())


def test_no_dense_weights():
    model = sparse(nn.Sequential(linear(), nn.ReLU(), linear(), Block(), linear()))
    prune.random_unstructured(model[4], "weight", 0.5)
    fast = gt.accelerate(model, keep_dense=False)
    assert bits(fast, model, inputs())
    assert "keep_dense=False" in repr(fast)
    assert fast[0].weight.is_meta
    assert sum(x.nbytes for x in fast.parameters() if not x.is_meta) < 20_000
    for other in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):  # noqa: S301
        assert bits(other, model, inputs())
    match = r"needs the dense weight, which accelerate\(keep_dense=False\) dropped"
    for call in (
        lambda: fast(inputs().requires_grad_()),
        lambda: torch.jit.trace(fast, inputs()),
        lambda: torch.vmap(fast)(random(2, 3, 256)),
        lambda: fast(math.inf * inputs()),
        lambda: fast.half()(inputs().half()),
    ):
        with pytest.raises(errors.ArgumentError, match=match):
            call()
    model = chain()
    fast = gt.accelerate(model, keep_dense=False)
    for key, x in model.state_dict().items():
        assert torch.equal(fast.state_dict()[key], x)
    other = sparse(chain(), seed=5)
    for assign in (False, True):
        fast.load_state_dict(other.state_dict(), assign=assign)
        assert fast[0].weight.is_meta
        assert bits(fast, other, inputs())
        fast.load_state_dict(model.state_dict())
        assert bits(fast, model, inputs())
    with pytest.raises(RuntimeError, match="size mismatch"):
        fast.load_state_dict(nn.Sequential(nn.Linear(3, 3)).state_dict(), strict=False)
    assert bits(fast, model, inputs())


# -- models that others define


def test_padded_sequences():
    torch.manual_seed(0)
    model = sparse(nn.TransformerEncoder(encoder_layer(), 2))
    fast = gt.accelerate(model)
    mask = torch.zeros(3, 9, dtype=torch.bool)
    mask[0, 5:] = True
    x = random(3, 9, WIDTH)
    for grad in (torch.no_grad, torch.enable_grad):
        with grad():
            equal(fast(x, src_key_padding_mask=mask),
                copied_model(model)(x, src_key_padding_mask=mask))  # fmt: skip
    equal(fast(x, mask=torch.zeros(9, 9)), model(x, mask=torch.zeros(9, 9)))


def test_transformers():
    transformers = pytest.importorskip("transformers")
    ids = torch.arange(14).reshape(2, 7)
    config = transformers.T5Config(
        d_model=WIDTH, d_ff=512, num_layers=2, num_heads=4, vocab_size=99
    )
    t5 = sparse(transformers.T5ForConditionalGeneration(config))
    for options in ({}, {"keep_dense": False}):
        fast = gt.accelerate(t5, **options)
        assert "encoder.block.0.layer.1.DenseReluDense.wo" in replaced(fast)
        given = {"input_ids": ids, "decoder_input_ids": ids[:, :3]}
        with torch.no_grad():
            equal(fast(**given).logits, t5(**given).logits)
            given = {"max_length": 5, "decoder_start_token_id": 0}
            assert torch.equal(fast.generate(ids, **given), t5.generate(ids, **given))


@pytest.mark.parametrize("keep_dense", [True, False])
def test_save_pretrained(tmp_path, keep_dense):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=WIDTH, intermediate_size=512, num_hidden_layers=1, num_attention_heads=4,
        vocab_size=99,
    )  # fmt: skip
    bert = sparse(transformers.BertModel(config))
    gt.accelerate(bert, density=1, keep_dense=keep_dense).save_pretrained(tmp_path)
    found = transformers.BertModel.from_pretrained(tmp_path)
    assert all(torch.equal(found.state_dict()[k], x) for k, x in bert.state_dict().items())
