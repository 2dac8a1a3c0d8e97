"""`gbdnn.torch.accelerate`: the result is a snapshot of the model in evaluation mode."""

import copy
import gc
import io
import math
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from calls import raises
from machines import using

from gbdnn import errors

torch = pytest.importorskip("torch")
import gbdnn.torch as gt  # noqa: E402
from gbdnn.torch.accelerated import AcceleratedChain  # noqa: E402

nn = torch.nn
prune = pytest.importorskip("torch.nn.utils.prune")

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::torch.jit.TracerWarning"),
]

WIDTH = 256
NO_GRADIENT = "compute no gradients; train the original model"


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
            if isinstance(part, nn.BatchNorm1d):
                for x in (*part.parameters(), *part.buffers()):
                    x.copy_(0.5 + torch.rand(x.shape, generator=generator))
    return module.eval()


def random(*shape, dtype=torch.float32, seed=1):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def inputs(**options):
    return random(7, WIDTH, **options)  # one sequence, for attention


def chains(model):
    return [name for name, x in model.named_modules() if isinstance(x, AcceleratedChain)]


def equal(found, expected, within=1e-4):
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    scale = max(expected[expected.isfinite()].abs().tolist(), default=1.0)
    torch.testing.assert_close(found, expected, rtol=0, atol=within * scale, equal_nan=True)


def same(call, fast, model, within=1e-4):
    """Compare the outcome of a call: equal tensors, or an error where the original has one."""
    try:
        expected = call(model)
    except Exception as error:  # noqa: BLE001, RUF100 -- whatever PyTorch raises
        raises(type(error), None, call, fast)
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
    """One module in two places, and one weight in two modules."""

    def __init__(self):
        super().__init__()
        self.first = self.again = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, WIDTH, bias=False)
        self.head.weight = self.first.weight

    def forward(self, x):
        return self.head(self.again(torch.tanh(self.first(x))))


class Shared(nn.Module):
    """A Sequential whose layer another module holds, too."""

    def __init__(self):
        super().__init__()
        self.whole = nn.Sequential(linear(), nn.ReLU(), linear())
        self.part = self.whole[0]

    def forward(self, x):
        return self.part(torch.tanh(self.whole(x)))


def linear(**options):
    return nn.Linear(WIDTH, WIDTH, **options)


def masked():
    """Its `weight` was last computed before an optimizer changed `weight_orig`."""
    model = sparse(nn.Sequential(linear(), nn.Tanh(), linear(), nn.ReLU(), linear()))
    for k, name in ((0, "weight"), (2, "weight"), (2, "bias")):
        prune.random_unstructured(model[k], name, 0.5)
    with torch.no_grad():
        model[0].weight_orig.mul_(2)
    return model


def parametrized():
    model = sparse(nn.Sequential(linear(), nn.ReLU(), linear()))
    nn.utils.parametrizations.weight_norm(model[0])
    return model.eval()


def doubled(_module, _args, output):
    return 2 * output


def trained():
    """Layers that were sparse when they were trained."""
    torch.manual_seed(0)
    layers = [gt.SparseLinear(WIDTH, WIDTH, density=0.05) for _ in range(2)]
    return gt.SparseSequential(layers[0], nn.ReLU(), layers[1])


def encoder_layer(**options):
    return nn.TransformerEncoderLayer(WIDTH, 4, 512, batch_first=True, **options)


def chain():
    return sparse(nn.Sequential(linear(), nn.ReLU(), linear(), nn.Tanh(), linear(), nn.ReLU6()))


MODULES = {
    "linear": (lambda: sparse(linear()), [""]),
    "masked": (masked, ["0", "2-4"]),
    "parametrized": (parametrized, ["0-2"]),
    "tied": (lambda: sparse(Tied()), ["first", "head"]),
    "shared": (lambda: sparse(Shared()), ["whole.0-2", "part"]),
    "trained": (trained, ["0-2"]),
    "chain": (chain, ["0-2", "4-5"]),
    "nested": (
        lambda: sparse(nn.Sequential(nn.Sequential(linear(), nn.ReLU()), Block(), linear())),
        ["0.0-1", "1.up", "1.down", "2"]),
    "encoder": (
        lambda: sparse(nn.TransformerEncoder(encoder_layer(activation="gelu"), 2)),
        [f"layers.{k}.linear{n}" for k in (0, 1) for n in (1, 2)]),
    "dropout": (
        lambda: sparse(nn.Sequential(nn.Dropout(), linear(), nn.ReLU(), nn.Dropout(), linear())),
        ["1-4"]),
}  # fmt: skip
CONTEXTS = {}


def context(function):
    CONTEXTS[function.__name__] = function
    return function


@context
def other_inputs(fast, model):
    wide = random(4, 2 * WIDTH)
    given = [random(WIDTH, 6).T, random(5, 2, WIDTH).transpose(0, 1), wide[::2, ::2]]
    given += [random(1, WIDTH).expand(6, WIDTH), torch._neg_view(random(3, WIDTH))]
    given += [random(0, WIDTH), random(2, 0, WIDTH), random(5, WIDTH + 1), torch.tensor(1.0)]
    given += [inputs(dtype=x) for x in (torch.float64, torch.bfloat16, torch.float16)]
    shapes = (), (1,), (7,), (2, 5), (2, 3, 5), (256,), (3, 256)
    given += [random(*shape, WIDTH) for shape in shapes]
    given += [inputs().to("meta"), inputs().to_sparse(), nn.Parameter(inputs(), False)]
    for value in (math.nan, math.inf, -math.inf, 3e38):
        given.append(inputs())
        given[-1][0, :9] = value
    for grad in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with grad():
            for x in given:
                same(lambda m, x=x: m(x), fast, model)
    with torch.no_grad():
        same(lambda m: m(inputs().requires_grad_()), fast, model)


@context
def dtypes(fast, model):
    for dtype, within in ((torch.float64, 1e-6), (torch.bfloat16, 0.05), (torch.float16, 0.02)):
        one, other = copy.deepcopy(fast).to(dtype), gt.accelerate(model, density=0).to(dtype)
        same(lambda m, dtype=dtype: m(inputs().to(dtype)), one, other, within)
        same(lambda m: m(inputs()), one, other, within)  # of another dtype
        same(lambda m: m.float()(inputs()), one, other, max(within, 1e-4))  # the rounded weights
    equal(copy.deepcopy(fast).to("cpu")(inputs()), fast(inputs()))


@context
def copies(fast, model):
    expected = fast(inputs())
    equal(copy.deepcopy(fast)(inputs()), expected)
    equal(copy.copy(fast)(inputs()), expected)
    equal(gt.accelerate(fast)(inputs()), expected)
    equal(pickle.loads(pickle.dumps(fast))(inputs()), expected)  # noqa: S301
    file = io.BytesIO()
    torch.save(fast, file)
    file.seek(0)
    equal(torch.load(file, weights_only=False)(inputs()), expected)


@context
def training(fast, model):
    for call in (lambda: fast.train(), lambda: fast(inputs().requires_grad_()).sum().backward()):
        raises(errors.ArgumentError, NO_GRADIENT, call)
    assert not any(x.requires_grad for x in fast.eval().parameters())
    equal(fast(inputs()), model(inputs()))


@context
def state_dict(fast, model):
    state, original = fast.state_dict(), model.state_dict()
    assert len(state) < len(original)
    assert all(torch.equal(x, original[key]) for key, x in state.items())
    fast.load_state_dict(state)
    for strict in (True, False):
        with pytest.raises(RuntimeError, match="load no weights; load them into the original"):
            fast.load_state_dict(original, strict=strict)
    equal(fast(inputs()), model(inputs()))


@context
def compiled(fast, model):
    torch._dynamo.reset()
    program = torch.compile(fast, fullgraph=True, backend="aot_eager")
    for grad in (torch.no_grad, torch.enable_grad, torch.inference_mode):
        with grad():
            equal(program(inputs()), model(inputs()))
    with pytest.raises(errors.ArgumentError, match=NO_GRADIENT):
        torch.compile(fast, backend="aot_eager")(inputs().requires_grad_())


@context
def exported(fast, model):
    for strict in (False, True):
        program = torch.export.export(fast, (inputs(),), strict=strict)
        assert "gbdnn.network" in program.graph_module.code
        file = io.BytesIO()
        torch.export.save(program, file)
        file.seek(0)
        loaded = torch.export.load(file).module()
        for seed in (1, 2):
            equal(loaded(inputs(seed=seed)), model(inputs(seed=seed)))
        with pytest.raises(RuntimeError, match="backward through gbdnn"):
            loaded(inputs().requires_grad_()).sum().backward()


class Doubling(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        return 2 * found if function is nn.functional.linear else found


@context
def transformed(fast, model):
    """PyTorch computes with dense weights where operations are recorded or changed."""
    from torch.fx.experimental.proxy_tensor import make_fx

    x = random(3, 7, WIDTH)
    with torch.no_grad():
        same(lambda m: torch.vmap(m)(x), fast, model)
        same(lambda m: torch.func.jvp(m, (x[0],), (x[1],))[1], fast, model)
        same(lambda m: torch.func.functionalize(m)(x[0]), fast, model)
        equal(make_fx(fast)(x[0])(x[1]), model(x[1]))
        equal(torch.jit.trace(fast, x[0])(x[1]), model(x[1]))
        if "Transformer" not in str(model):
            equal(torch.fx.symbolic_trace(fast)(x[1]), model(x[1]))
        with torch.device("cpu"):
            equal(fast(x[0]), model(x[0]))
        with Doubling():
            same(lambda m: m(x[0]), fast, model)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            same(lambda m: m(x[0]), fast, model, 0.05)
    raises(errors.ArgumentError, NO_GRADIENT, torch.func.grad(lambda y: fast(y).sum()), x[0])


@context
def threads(fast, model):
    """And modules of `DataParallel`, which copies them by `replicate`."""
    expected, replica = model(inputs()), fast._replicate_for_data_parallel()

    def call(k):
        torch.set_num_threads((1, 3, 8)[k % 3])
        return (replica if k % 2 else fast)(inputs())

    before = torch.get_num_threads()
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(call, range(24)):
            equal(found, expected)
    torch.set_num_threads(before)


class Answers(torch.utils.data.Dataset):
    def __init__(self, model):
        self.model = model

    def __len__(self):
        return 4

    def __getitem__(self, k):
        return self.model(inputs(seed=k))


@context
def workers(fast, model):
    for given in (fast, copy.deepcopy(fast)):  # compiled, and not yet
        options = {"num_workers": 2, "multiprocessing_context": "fork", "timeout": 60}
        for k, found in enumerate(torch.utils.data.DataLoader(Answers(given), **options)):
            equal(found[0], model(inputs(seed=k)))


# Contexts that take seconds have few modules by default.
FEW = dict.fromkeys(("compiled", "exported"), ("chain", "parametrized"))
CASES = [
    pytest.param(module, name, marks=[pytest.mark.slow] * (module not in FEW.get(name, MODULES)))
    for module in MODULES
    for name in CONTEXTS
]


@pytest.mark.parametrize(("module", "name"), CASES)
def test_matrix(module, name):
    make, expected = MODULES[module]
    torch.manual_seed(0)
    model = make()
    fast = gt.accelerate(model)
    assert chains(fast) == expected
    CONTEXTS[name](fast, copy_of(model))


def copy_of(model):
    """Return a dense model in evaluation mode, whose parameters require no gradient."""
    if isinstance(model, gt.SparseSequential):
        parts = [x.to_dense() if isinstance(x, gt.SparseLinear) else x for x in model]
        model = nn.Sequential(*parts)
    return model.eval().requires_grad_(False)


# -- nothing that happens to the model changes the copy


def stepped(optimizer, **options):
    """Return a function that trains a model for a step."""

    def change(model):
        with torch.enable_grad():
            model.train()(inputs()).mul(random(WIDTH)).sum().backward()
        getattr(torch.optim, optimizer)(model.parameters(), lr=0.1, **options).step()

    return change


CHANGES = {
    "fused Adam": stepped("Adam", fused=True), "in place": lambda m: m[0].weight.mul_(0.5),
    "data": lambda m: m[0].weight.data.mul_(0.5),
    "storage": lambda m: m[0].weight.untyped_storage().fill_(0),
    "NumPy": lambda m: np.negative(x := m[0].weight.detach().numpy(), out=x),
    "new parameter": lambda m: setattr(m[2], "weight", nn.Parameter(0.5 * m[2].weight)),
    "swapped tensors": lambda m: torch.utils.swap_tensors(
        m[0].weight, nn.Parameter(0.5 * m[0].weight.detach())),
    "hooks": lambda m: [x.register_forward_hook(doubled) for x in m],
    "state_dict": lambda m: m.load_state_dict({k: 0.5 * x for k, x in m.state_dict().items()}),
    "other module": lambda m: m[7].weight.zero_(),
    "statistics": lambda m: m[1].running_mean.add_(1), "eps": lambda m: setattr(m[1], "eps", 9.0),
    "mode": lambda m: m.train(), "forward": lambda m: setattr(m[0], "forward", lambda x: 2 * x),
    "pruned": lambda m: prune.random_unstructured(m[0], "weight", 0.9),
    "container": lambda m: m.__delitem__(0), "emptied": lambda m: m.to_empty(device="cpu"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_ways_to_change_a_model(name):
    parts = linear(), nn.BatchNorm1d(WIDTH), linear(), nn.Tanh(), linear(), nn.ReLU6()
    model = sparse(nn.Sequential(*parts, nn.Dropout(), nn.LayerNorm(WIDTH)))
    fast = gt.accelerate(model)
    assert chains(fast) == ["0-2", "4-6"]
    torch._dynamo.reset()
    programs = (
        fast, torch.compile(fast, backend="eager"), torch.export.export(fast, (inputs(),)).module(),
    )  # fmt: skip
    with torch.no_grad():
        before, other = [x(inputs()) for x in programs], model(inputs())
        equal(before[0], other)
        CHANGES[name](model)
        if name != "emptied":  # which may not compute
            assert not torch.equal(model(inputs()), other)
        for program, expected in zip(programs, before, strict=True):
            assert torch.equal(program(inputs()), expected)


def test_the_model_is_not_changed():
    model = chain().train()
    model[0].weight.grad = torch.ones_like(model[0].weight)
    state, held = copy.deepcopy(model.state_dict()), [*model.parameters()]
    for part in gt.accelerate(model).modules():
        for x in (*vars(part).values(), *part.parameters()):
            if isinstance(x, torch.Tensor):
                x.zero_()
    assert all(torch.equal(x, state[key]) for key, x in model.state_dict().items())
    assert all(x is y and x.requires_grad for x, y in zip(model.parameters(), held, strict=True))
    assert all(part.training for part in model.modules())
    stepped("SGD")(model)


# -- chains


def test_batch_norm_is_merged_for_two_dimensions_only():
    """PyTorch normalises the second axis."""
    model = sparse(nn.Sequential(nn.Linear(256, 512), nn.BatchNorm1d(512)))
    fast = gt.accelerate(model)
    equal(fast(random(512, 256)), model(random(512, 256)).detach())
    for shape in ((4, 512, 256), (256,)):
        raises(errors.ShapeError, r"must have shape \(inputs, features\)", fast, random(*shape))
    for options in ({"affine": False}, {"track_running_stats": False}):
        norm = nn.BatchNorm1d(256, **options)
        model = sparse(nn.Sequential(linear(), norm, nn.ReLU(), linear(), nn.ReLU(), norm))
        equal(gt.accelerate(model)(inputs()), model(inputs()).detach())


def test_a_merged_sequential_has_no_single_modules():
    fast = gt.accelerate(chain())
    for call in (lambda: fast[0], lambda: fast[:2], lambda: [*fast]):
        raises(errors.ArgumentError, r"computes several modules as one", call)
    raises(AttributeError, None, fast.get_submodule, "0")
    assert not hasattr(fast.get_submodule("0-2"), "weight")
    assert len(gt.accelerate(sparse(nn.Sequential(linear(), nn.Tanh())))) == 2


def test_the_cost_model_leaves_dense_and_small_layers():
    model = nn.Sequential(nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh())
    model.append(nn.Linear(512, 8))
    sparse(model[2])
    assert chains(gt.accelerate(model)) == ["2"]
    assert chains(gt.accelerate(model, density=0)) == []
    assert chains(gt.accelerate(model, density=1)) == ["0", "2", "4"]
    fast = gt.accelerate(model, density=0.5)
    assert "(2): AcceleratedChain(512-512, density=0.05" in str(fast)
    equal(fast(random(3, 512)), model(random(3, 512)).detach())
    mixed = nn.Sequential(linear(), nn.ReLU(), linear(), nn.ReLU(), linear(), nn.ReLU(), linear())
    sparse(sparse(mixed)[4], 0.6)
    fast = gt.accelerate(mixed, density=0.3)
    assert chains(fast) == ["0-3", "6"]
    equal(fast(inputs()), mixed(inputs()).detach())


def test_what_pytorch_computes():
    """Layers that gbdnn cannot compute are copies."""
    Custom = type("Custom", (nn.Linear,), {})
    other_forward, infinite, subclass = linear(), linear(), linear()
    other_forward.forward = other_forward.forward
    other_forward.register_forward_hook(doubled)
    Subclass = type("Subclass", (torch.Tensor,), {"__deepcopy__": lambda self, memo: self})
    subclass.weight = nn.Parameter(subclass.weight.detach().as_subclass(Subclass))
    infinite.weight.data[0, 0] = math.inf
    quantized = torch.ao.quantization.quantize_dynamic(nn.Sequential(linear()).eval())[0]
    parts = [nn.utils.weight_norm(linear()), other_forward, Custom(WIDTH, WIDTH), infinite]
    parts += [subclass, quantized, torch.jit.trace(linear(), inputs())]
    others = [linear().half(), linear(device="meta"), nn.MultiheadAttention(8, 2)]
    model = nn.ModuleList([*parts, *others])
    fast = gt.accelerate(model, density=1)
    assert not chains(fast)
    for k in range(len(parts)):
        equal(fast[k](inputs()), model[k].eval()(inputs()).detach())


def test_weights_that_are_sparse_tensors():
    x = inputs()
    for layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_coo):
        model = sparse(linear())
        held = copy.deepcopy(model)
        held.weight = nn.Parameter(model.weight.detach().to_sparse(layout=layout), False)
        fast = gt.accelerate(held)
        assert chains(fast) == [""]
        equal(fast(x), model(x).detach())
        same(lambda m: m(x), gt.accelerate(held, density=0), held)
        assert torch.equal(fast.weight.to_dense(), model.weight)  # models may read them
        assert torch.equal(fast.bias, model.bias)


def test_more_modules_than_torch_compile_compiles():
    """It leaves the others to Python, and what they call to itself."""
    torch._dynamo.reset()
    for k in range(10):
        model = sparse(nn.Linear(WIDTH, WIDTH + k)).requires_grad_(False)
        equal(torch.compile(gt.accelerate(model), backend="aot_eager")(inputs()), model(inputs()))


def test_memory_is_released():
    fast = gt.accelerate(linear(), density=1)
    fast(inputs())
    held = weakref.ref(fast), weakref.ref(fast._numbers)
    assert not [*fast.parameters()]
    del fast
    gc.collect()
    assert [x() for x in held] == [None, None]


def test_wrong_calls():
    raises(errors.ArgumentTypeError, "model", gt.accelerate, np.eye(3))
    for density in (-0.1, 2, math.nan, "few"):
        with pytest.raises((errors.ArgumentError, errors.ArgumentTypeError), match="density"):
            gt.accelerate(nn.Linear(3, 3), density=density)
    fast = gt.accelerate(torch.fx.symbolic_trace(sparse(nn.Sequential(linear(), nn.Tanh()))))
    assert chains(fast) == ["0"]
    for call in (lambda: fast(np.ones((2, 256), np.float32)), lambda: torch.jit.script(fast)):
        raises((TypeError, RuntimeError), None, call)


# -- models that others define


def test_padded_sequences():
    torch.manual_seed(0)
    model = sparse(nn.TransformerEncoder(encoder_layer(), 2)).requires_grad_(False)
    fast = gt.accelerate(model)
    mask = torch.zeros(3, 9, dtype=torch.bool)
    mask[0, 5:] = True
    x = random(3, 9, WIDTH)
    for grad in (torch.no_grad, torch.enable_grad):
        with grad():
            equal(fast(x, src_key_padding_mask=mask), model(x, src_key_padding_mask=mask))
    equal(fast(x, mask=torch.zeros(9, 9)), model(x, mask=torch.zeros(9, 9)))


def test_transformers():
    transformers = pytest.importorskip("transformers")
    ids = torch.arange(14).reshape(2, 7)
    sizes = {"d_model": WIDTH, "d_ff": 512, "num_layers": 2, "num_heads": 4, "vocab_size": 99}
    t5 = sparse(transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes)))
    fast = gt.accelerate(t5)
    assert "encoder.block.0.layer.1.DenseReluDense.wo" in chains(fast)
    given = {"input_ids": ids, "decoder_input_ids": ids[:, :3]}
    with torch.no_grad():
        equal(fast(**given).logits, t5(**given).logits)
        given = {"max_length": 5, "decoder_start_token_id": 0}
        assert torch.equal(fast.generate(ids, **given), t5.generate(ids, **given))


class OnGraph(nn.Module):
    """Reads a sparse buffer, which deepcopy of PyTorch does not copy."""

    def __init__(self):
        super().__init__()
        self.register_buffer("A", torch.eye(4).to_sparse().coalesce())

    def forward(self, x):
        return torch.sparse.mm(self.A, x)


@torch.no_grad()
def test_sparse_buffers_are_copied():
    model, x = nn.Sequential(OnGraph()), torch.ones(4, 3)
    fast = gt.accelerate(model)
    model[0].A.values().mul_(2)
    assert torch.equal(model(x), 2 * x)
    assert torch.equal(fast(x), x)
