"""Networks from and to PyTorch, where it is installed: it is no part of the extra `test`."""

import copy
import itertools
from functools import partial

import numpy as np
import pytest
from calls import raises
from hypothesis import given, settings
from hypothesis import strategies as st
from matrices import assert_close, assert_equal, dense
from networks import drawn
from shell import python

import gbdnn
from gbdnn import io
from gbdnn.errors import ArgumentError, ArgumentTypeError, FormatError, ShapeError

torch = pytest.importorskip("torch")
nn = torch.nn
F = torch.nn.functional
prune = pytest.importorskip("torch.nn.utils.prune")

pytestmark = pytest.mark.frameworks

FEW = settings(max_examples=25, deadline=None)
SPARSE_WARNS = pytest.mark.filterwarnings("ignore:Sparse")


def seeded(module, seed=0):
    """Give a module's parameters values, multiples of 1/16 of both signs: sums are exact."""
    random = np.random.default_rng(seed)
    with torch.no_grad():
        for x in module.parameters():
            x.copy_(torch.from_numpy(random.integers(-16, 17, tuple(x.shape)) / 16))
    return module


def features(neurons, inputs=30, seed=1):
    return np.random.default_rng(seed).integers(-8, 17, (inputs, neurons)) / 16


def assert_computes(net, module, X):
    """`net` gives what PyTorch's own forward does, to the last bit (the sums are exact)."""
    dtype = next(module.parameters()).dtype
    with torch.no_grad():
        expected = module.eval()(torch.from_numpy(X).to(dtype)).numpy()
    assert np.count_nonzero(expected) > 3
    assert len(np.unique(expected)) > 3
    assert_equal(gbdnn.infer(net, X), expected)


def refused(source, match, error=ArgumentError, **options):
    raises(error, match, io.from_torch, source, **options)


def unreadable(path, match, form="torch"):
    raises(FormatError, match, gbdnn.load, path, form, activation="relu")


def small(*activations, dtype=None):
    sizes = [6, 9, 7, 5, 4][: len(activations) + 1]
    parts = [
        [nn.Linear(n, m, dtype=dtype), *([] if act is None else [act])]
        for (n, m), act in zip(itertools.pairwise(sizes), activations, strict=True)
    ]
    return seeded(nn.Sequential(*itertools.chain.from_iterable(parts)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("activation", "expected"),
    [
        (nn.ReLU(inplace=True), ("relu", None)), (nn.ReLU6(), ("relu", 6.0)),
        (nn.Hardtanh(0, 1.5), ("relu", 1.5)), (nn.Hardtanh(-np.inf, 0.5), ("identity", 0.5)),
        (nn.Sequential(nn.ReLU(), nn.Hardtanh(0, 2), nn.ReLU6()), ("relu", 2.0)),
        (nn.Sequential(nn.Dropout(), nn.Identity()), ("identity", None)),
        (None, ("identity", None)),
    ],
)  # fmt: skip
def test_every_activation(dtype, activation, expected):
    module = small(activation, nn.ReLU(), None, dtype=dtype)
    net = io.from_torch(module)
    assert [(x.activation, x.clip) for x in net] == [expected, ("relu", None), ("identity", None)]
    assert {x.bias_rule for x in net} == {"all"}
    assert net[0].bias.min() < 0 < net[0].bias.max()
    assert_computes(net, module, features(6))


def test_nested_without_bias_and_bare():
    inner = nn.Sequential(nn.Linear(6, 5, bias=False), nn.ReLU())
    last = nn.Sequential(nn.Sequential(nn.Linear(5, 4)))
    module = seeded(nn.Sequential(nn.Flatten(), inner, last))
    net = io.from_torch(module)
    assert net[0].bias == 0
    assert_computes(net, module, features(6))
    assert_computes(io.from_torch(module[1][0]), module[1][0], features(6))
    assert len(io.from_torch(nn.Sequential())) == 0


class Functional(nn.Module):
    """All the functions and methods that have a meaning, in a forward of its own."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(6, 6) for _ in range(4))
        self.out = nn.Linear(6, 4)
        self.relu = nn.ReLU()

    def forward(self, x, mask=None):
        x = torch.flatten(x, 1)
        x = torch.clamp(torch.relu(self.a(x)), 0, 4)
        x = F.hardtanh(F.relu(self.b(x), True), min_val=0, max_val=3.0)
        x = F.dropout(F.relu6(self.c(x)), training=self.training)
        x = self.d(x).clamp(min=0).clamp_max(5).relu_().view(-1, 6).flatten(1)
        x = self.relu(self.b(x))  # a layer twice is two layers
        return self.out(torch.clip(self.relu(self.d(x)), max=2))


def test_a_forward_of_its_own():
    module = seeded(Functional().double())
    net = io.from_torch(module)
    assert [x.clip for x in net] == [4, 3, 6, 5, None, 2, None]
    assert [x.activation for x in net] == ["relu"] * 6 + ["identity"]
    assert_computes(net, module, features(6) / 4)


ROWS = {
    "view size": lambda m, x: m.fc(x.view(x.size(0), -1)),
    "reshape size": lambda m, x: m.fc(x.reshape(x.size(0), 4)),
    "shape": lambda m, x: m.fc(torch.reshape(x, (x.shape[0], -1))),
    "of the input, later": lambda m, x: m.out(m.act(m.fc(x)).view(x.size(0), -1)),
    "twice": lambda m, x: m.out(m.fc(x.flatten(1)).view(x.size(0), -1).flatten(1)),
    "x.flatten by name": lambda m, x: m.fc(x.flatten(start_dim=1)),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_per_input_by_any_name(name):
    module = seeded(Forward(ROWS[name]))
    assert_computes(io.from_torch(module), module, features(4))


def test_nothing_of_it_changes():
    module = small(nn.ReLU(), nn.Dropout(0.9)).train()
    prune.l1_unstructured(module[0], "weight", 0.5)
    before = {key: tensor.clone() for key, tensor in module.state_dict().items()}
    state = torch.random.get_rng_state()
    io.to_torch(io.from_torch(module))
    assert module.training
    assert list(module.state_dict()) == list(before)
    assert all(torch.equal(module.state_dict()[key], before[key]) for key in before)
    assert all(x.requires_grad and x.grad is None for x in module.parameters())
    assert torch.equal(torch.random.get_rng_state(), state)
    net = io.from_torch(module)
    with torch.no_grad():
        module[0].weight_orig.zero_()
    assert net[0].edges > 0


def test_masks_are_applied_to_the_weights_of_now():
    module = small(nn.ReLU(), None)
    prune.l1_unstructured(module[0], "weight", 0.5)
    prune.random_unstructured(module[0], "bias", 2)
    prune.global_unstructured([(module[2], "weight")], prune.L1Unstructured, amount=0.9)
    with torch.no_grad():  # an optimizer's step, after which no forward has run
        module[0].weight_orig.mul_(2)
    net = io.from_torch(module)
    mask = module[0].weight_mask.numpy().T != 0
    got = dense(net[0].weights)
    assert not got[~mask].any()
    np.testing.assert_array_equal(got[mask], module[0].weight_orig.detach().numpy().T[mask])
    assert np.count_nonzero(net[0].bias == 0) >= 2
    assert net[1].edges <= 7
    assert_computes(net, module, features(6))
    assert io.from_torch(module.state_dict(), activation="relu").isequal(net)
    prune.remove(module[0], "weight")
    assert io.from_torch(module).isequal(net)


class Masked(nn.Linear):
    """A mask as a buffer and a factor that only the forward knows."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.register_buffer("mask", torch.arange(self.weight.numel()).view_as(self.weight) % 3 > 0)

    def forward(self, x):
        return F.linear(x, F.dropout(self.weight, 0.5, self.training) * self.mask, bias=self.bias)


class MaskedInPlace(Masked):
    def forward(self, x):
        self.weight.data.mul_(self.mask)
        return F.linear(x, self.weight * torch.tensor(0.5), self.bias)


@pytest.mark.parametrize("kind", [Masked, MaskedInPlace])
def test_weights_that_a_forward_computes(kind):
    for module in (seeded(kind(6, 5)), seeded(nn.Sequential(nn.Linear(6, 6), kind(6, 5)))):
        state, held = copy.deepcopy(module.state_dict()), {*vars(module)}
        net = io.from_torch(module)
        assert all(torch.equal(module.state_dict()[key], x) for key, x in state.items())
        assert {*vars(module)} == held
        assert_computes(net, module, features(6))
    module = nn.Sequential(seeded(kind(6, 5)))
    prune.l1_unstructured(module[0], "weight", 0.5)
    refused(module, "has forward hooks")
    assert type(module[0].weight) is torch.Tensor


def test_parametrizations_are_read_as_in_evaluation_mode():
    """In training mode, reading changes a buffer of spectral_norm."""
    module = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(6, 5))).train()
    state = copy.deepcopy(module.state_dict())
    net = io.from_torch(module)
    assert all(torch.equal(module.state_dict()[key], x) for key, x in state.items())
    expected = module.eval()(torch.eye(6)) - module[0].bias
    assert_close(net[0].weights, expected.detach(), atol=1e-6)


@pytest.mark.parametrize("batch", ["any", "fixed"])
def test_exported_programs(batch):
    module = small(nn.ReLU(), nn.Hardtanh(0, 2), None)
    module.insert(0, nn.Flatten())
    module.insert(3, nn.BatchNorm1d(9, eps=0.25))
    module[3].running_var.fill_(3.75)
    module[3].running_mean.fill_(0.5)
    module.append(nn.Dropout()).eval()
    sizes = ({0: torch.export.Dim("n", min=1, max=4096)},) if batch == "any" else None
    program = torch.export.export(module, (torch.ones(2, 6),), dynamic_shapes=sizes)
    for source in (program, program.module()):
        assert_computes(io.from_torch(source), module, features(6))
    changed = program.module()
    changed.register_forward_hook(lambda *given: 2 * given[2])
    refused(changed, "has forward hooks")
    refused(torch.export.export(module.train(), (torch.ones(2, 6),)), "in training mode")


@pytest.mark.parametrize("layout", ["coo", "uncoalesced", "csr", "csc", "bsr"])
@SPARSE_WARNS
def test_sparse_layouts(layout):
    module = small(nn.ReLU(), None)
    W = module[0].weight.detach() * (torch.rand(9, 6) > 0.6)
    made = {
        "coo": W.to_sparse,
        "uncoalesced": lambda: torch.sparse_coo_tensor([[0, 0, 8], [1, 1, 5]], [0.5, 1, 3], (9, 6)),
        "csr": W.to_sparse_csr,
        "csc": W.to_sparse_csc,
        "bsr": lambda: W.to_sparse_bsr((3, 2)),
    }[layout]()
    module[0].weight = nn.Parameter(made, requires_grad=False)
    for net in io.from_torch(module), io.from_torch(module.state_dict(), activation="relu"):
        assert_equal(net[0].weights, made.to_dense().numpy().T)
        assert net[0].edges == torch.count_nonzero(made.to_dense())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@SPARSE_WARNS
def test_half_precision_becomes_fp32(dtype):
    module = small(nn.ReLU6(), None)
    assert io.from_torch(copy.deepcopy(module).to(dtype)).isequal(io.from_torch(module))
    half = copy.deepcopy(module).to(dtype)
    half[0].weight = nn.Parameter(half[0].weight.detach().to_sparse_csr(), requires_grad=False)
    assert io.from_torch(half).isequal(io.from_torch(module))


def test_state_dict():
    module = small(nn.ReLU6(), nn.ReLU6(), None)
    net = io.from_torch(module)
    assert io.from_torch(module.state_dict(), activation="relu", clip=6).isequal(net)
    arrays = {key: tensor.numpy() for key, tensor in module.state_dict().items()}
    assert io.from_torch(arrays, activation="relu", clip=6).isequal(net)
    last = io.from_torch(module.state_dict(), activation="relu", last_activation="relu")[-1]
    assert last.activation == "relu"
    one = module[0]  # its keys have no prefix
    assert io.from_torch(one.state_dict(), activation="relu").isequal(io.from_torch(one))
    mixed = module.state_dict() | {"4.weight": module[4].weight.double()}
    refused(mixed, "layer 2 is float64 but layer 1 is float32", activation="relu")
    assert io.from_torch(mixed, activation="relu", dtype="FP64").dtype == np.float64


@FEW
@SPARSE_WARNS
@given(drawn(bias=0.0), st.sampled_from(["strided", "sparse_csr"]))
def test_round_trips_are_exact(net, layout):
    module = io.to_torch(net, layout=layout)
    assert io.from_torch(module).isequal(net)
    assert {str(x.weight.layout) for x in module if isinstance(x, nn.Linear)} <= {f"torch.{layout}"}
    if not net:
        return
    X = np.random.default_rng(0).standard_normal((5, net.shape[0])).astype(net.dtype)
    with torch.no_grad():
        expected = module(torch.from_numpy(X)).numpy()
    tolerance = 1e-4 if net.dtype == np.float32 else 1e-11
    assert_close(gbdnn.infer(net, X), expected, rtol=tolerance, atol=tolerance)


def test_to_torch_and_the_bias_rules():
    W = np.array([[1.0, -2.0], [0.0, 3.0]])
    net = gbdnn.Network([gbdnn.Layer(W, -0.5, bias_rule="entries"), gbdnn.Layer(W, 0.25, clip=2)])
    assert_computes(net, io.to_torch(net), features(2))
    plain = gbdnn.Layer(W, bias_rule="entries", activation="identity")
    assert io.to_torch(gbdnn.Network([plain]))[0].bias is None
    assert io.to_torch(gbdnn.Network([gbdnn.Layer(W, np.zeros(2))]))[0].bias.tolist() == [0, 0]
    for fault in {"bias": [-1.0, 0.5]}, {"bias": -1.0, "activation": "identity"}:
        bad = gbdnn.Network([net[1], gbdnn.Layer(W, bias_rule="entries", **fault)])
        message = "layer 1: the format cannot store the bias rule 'entries'"
        raises(ArgumentError, message, io.to_torch, bad)


class Forward(nn.Module):
    """A small module with the forward of a test."""

    def __init__(self, forward):
        super().__init__()
        self.fc, self.out, self.act = nn.Linear(4, 4), nn.Linear(4, 4), nn.ReLU()
        self.w = nn.Parameter(torch.ones(4))
        self.compute = forward

    def forward(self, x):
        return self.compute(self, x)


def skip(m, x):
    h = m.act(m.fc(x))
    return m.out(h) + h


def twice(x):
    return x.clamp(min=x)


class TwoInputs(nn.Module):
    def forward(self, x, y):
        return x + y


class Louder(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def hooked():
    module = small(nn.ReLU())
    module[0].register_forward_hook(lambda m, args, out: 2 * out)
    return module


UNSUPPORTED = {
    "conv": (nn.Sequential(nn.Sequential(nn.Conv2d(1, 1, 1))), r"module '0.0' \(Conv2d\)"),
    "hardtanh": (nn.Sequential(nn.Linear(4, 4), nn.Hardtanh()), r"'1' .*lower bound is -1, not 0"),
    "flatten": (nn.Sequential(nn.Flatten(0), nn.Linear(4, 4)), r"'0' \(Flatten\)"),
    "own forward": (nn.Sequential(Louder(4, 4)), "unsupported node 'mul'"),
    "hook": (hooked(), r"'0' \(Linear\): has forward hooks"),
    "meta": (nn.Linear(4, 4, device="meta"), r"'0' \(Linear\): .* no accessible values"),
    "two inputs": (TwoInputs(), "unsupported node 'y'"),
    "columns": (Forward(lambda m, x: m.fc(x.view(x.size(1), -1))), "unsupported node 'x'"),
    "swapped": (Forward(lambda m, x: m.fc(x.view(-1, x.size(0)))), r"node 'view': .*\(-1, n\)"),
    "len": (Forward(lambda m, x: m.fc(x.view(len(x), -1))), "torch.fx cannot trace its forward"),
    "skip": (Forward(skip), r"module 'act' \(ReLU\): .* used twice, as in a skip connection"),
    "bound": (Forward(lambda m, x: twice(m.fc(x))), "node 'clamp': a bound is not a number"),
    "own weights": (Forward(lambda m, x: x @ m.w), "unsupported node 'matmul'"),
    "lazy": (nn.Sequential(nn.LazyLinear(4)), r"'0' \(LazyLinear\): has no weights yet; call the"),
    "traced": (torch.jit.trace(nn.Linear(4, 4), torch.ones(1, 4)), "is TorchScript.* made from"),
    "scripted": (nn.Sequential(torch.jit.script(nn.Linear(4, 4))), "'0' .* is TorchScript"),
    "input as bias": (Forward(lambda m, x: F.linear(m.w, m.w, x)), "'linear': it reads more than"),
    "norm in training": (
        nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), r"'1' \(BatchNorm1d\): .* call eval",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("module", "message"), UNSUPPORTED.values(), ids=UNSUPPORTED.keys())
def test_unsupported_operations_are_named(module, message):
    refused(module, message)


def nan():
    module = small(nn.ReLU(), None)
    with torch.no_grad():
        module[2].weight[1, 2] = np.nan
    return module


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        (nan(), ArgumentError, r"layer 1, module '2' \(Linear\): weights: contains nan"),
        (nan().state_dict(), ArgumentError, "layer 1, '2': weights: contains nan"),
        (nn.Linear(2, 2, dtype=torch.complex64), ArgumentTypeError, "layer 0, .*complex64"),
        (nn.Sequential(nn.Linear(2, 3), nn.Linear(2, 3)), ShapeError, "layer 1: weights are"),
        (
            nn.Conv1d(1, 1, 1).state_dict(), ArgumentError,
            r"weight of 'weight': its shape is \(1, 1, 1\)",
        ),
        (
            nn.BatchNorm1d(3).state_dict(), ArgumentError,
            "unsupported parameter 'running_mean': convert the module, not its state_dict",
        ),
        ({"fc.bias": torch.ones(3)}, ArgumentError, "'fc': the weight is missing"),
        ({"w.weight_orig": torch.ones(3, 2)}, ArgumentError, "weight_orig and weight_mask"),
        ({"states": {}}, ArgumentTypeError, "'states' must be a tensor, not dict"),
        ("net.pt", ArgumentTypeError, "not str; gbdnn.load reads a file"),
    ],
)  # fmt: skip
def test_bad_sources(source, error, message):
    given = {"activation": "relu"} if isinstance(source, dict) else {}
    refused(source, message, error, **given)


def test_pytorch_is_not_imported_for_a_state_dict_of_arrays():
    code = (
        "import sys, numpy as np, gbdnn\n"
        "state = {'fc.weight': np.ones((2, 3)), 'fc.bias': np.ones(2)}\n"
        "net = gbdnn.io.from_torch(state, activation='relu')\n"
        "print(net.shape, 'torch' in sys.modules)"
    )
    assert python(code).stdout == "(3, 2) False\n"


def corrupt_weights():
    wrong = {"size": (4, 4), "check_invariants": False}
    ends, places, values = torch.tensor([0, 1, 2, 3, 9]), torch.arange(4), torch.ones(4)
    for make in (torch.sparse_csr_tensor, torch.sparse_csc_tensor):
        yield make(ends, places, values, **wrong)
    for make in (torch.sparse_bsr_tensor, torch.sparse_bsc_tensor):
        yield make(ends, places, values.reshape(4, 1, 1), **wrong)
    outside = torch.stack([torch.tensor([0, 1, 2, -1]), places])
    yield torch.sparse_coo_tensor(outside, values, is_coalesced=True, **wrong)


@pytest.mark.filterwarnings("ignore")
def test_corrupt_sparse_tensors(tmp_path):
    for tensor in corrupt_weights():
        torch.save({"a.weight": tensor}, tmp_path / "net.pt")
        for state in (
            {"a.weight": tensor},
            {"a.weight_orig": torch.eye(4), "a.weight_mask": tensor},
            {"a.weight": torch.eye(4), "a.bias": tensor},
        ):
            refused(state, "invalid sparse tensor", activation="relu")
        with pytest.raises(gbdnn.GbdnnError, match=r"net\.pt: .*sparse"):
            gbdnn.load(tmp_path / "net.pt", "torch", activation="relu")
    state = {"a.weight": torch.eye(4), "a.bias": torch.ones(4).to_sparse()}
    refused(state, "the tensor has no accessible values", activation="relu")


@pytest.mark.parametrize("content", [3, (), {"a.weight": 3}, {"model": {"a.weight": 3}}])
def test_files_without_a_state_dict(tmp_path, content):
    torch.save(content, tmp_path / "net.pt")
    unreadable(tmp_path / "net.pt", r"net\.pt: the file does not contain a state_dict of tensors")


def test_other_files(tmp_path):
    path = tmp_path / "net.pt"
    torch.save(small(nn.ReLU()), path)
    unreadable(path, r"net\.pt: not a state_dict, or damaged")
    torch.save(small(nn.ReLU()).state_dict(), path, _use_new_zipfile_serialization=False)
    unreadable(path, r"net\.pt: not a zip archive")


class Headed(nn.Module):
    """A head that is a function or a method, and something after it."""

    def __init__(self, head):
        super().__init__()
        self.linear, self.head = nn.Linear(3, 4), head

    def forward(self, x):
        return self.head(self.linear(x)) * 2


@pytest.mark.parametrize(
    "head",
    [
        nn.Softmax(dim=1), nn.LogSoftmax(dim=1), nn.Sigmoid(),
        Headed(lambda z: F.softmax(z, dim=1)), Headed(torch.sigmoid),
        Headed(lambda z: z.log_softmax(1)),
    ],
)  # fmt: skip
def test_probabilities_are_dropped_where_that_is_said(head):
    is_whole = isinstance(head, Headed)
    linear = head.linear if is_whole else nn.Linear(3, 4)
    module = head if is_whole else nn.Sequential(linear, head)
    refused(module, "pass logits=True to drop it")
    assert io.from_torch(module, logits=True) == io.from_torch(linear)
    deeper = nn.Sequential(module, nn.Linear(4, 2))
    refused(deeper, r"unsupported .*(softmax|Softmax|igmoid)", logits=True)


@pytest.mark.parametrize("part", [nn.GELU(), nn.LayerNorm(4), nn.Tanh()])
def test_errors_name_what_computes_other_models(part):
    refused(nn.Sequential(nn.Linear(3, 4), part), r"gbdnn.torch.accelerate replaces")


@pytest.mark.filterwarnings("ignore")
def test_quantized_modules_are_named():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)).eval()
    quantized = torch.ao.quantization.quantize_dynamic(model, {nn.Linear})
    with pytest.raises(ArgumentError, match=r"'0' \(Linear\): its weights are quantized") as caught:
        io.from_torch(quantized)
    assert "accelerate" not in str(caught.value)


@pytest.mark.parametrize("name", ["state_dict", "model_state_dict", "safetensors"])
def test_weights_as_people_have_them(name, tmp_path):
    """In a checkpoint with an optimizer, or in a safetensors file, also of bfloat16."""
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).to(torch.bfloat16)
    path = tmp_path / ("weights.safetensors" if name == "safetensors" else "checkpoint.pt")
    expected = io.from_torch(module.state_dict(), activation="relu")
    if name == "safetensors":
        save_file = pytest.importorskip("safetensors.torch").save_file
        save_file({"in.weight": torch.eye(3), "at.weight": torch.ones(3, 3)}, path)
        unreadable(path, r"weights.safetensors: .* no order of layers", None)
        save_file(module.state_dict(), path)
    else:
        optimizer = torch.optim.Adam(module.parameters()).state_dict()
        checkpoint = {"epoch": 3, name: module.state_dict(), "optimizer": optimizer}
        torch.save(checkpoint, path)
        assert io.from_torch(checkpoint, activation="relu") == expected
    for form in (None, "torch"):
        assert gbdnn.load(path, form, activation="relu") == expected
    assert gbdnn.load(path, activation="relu", clip=6)[0].clip == 6
    path.write_bytes(path.read_bytes()[:200])
    unreadable(path, path.name, None)


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_activations_that_a_file_does_not_contain_have_no_default(suffix, tmp_path):
    """Linear, GELU, Linear has the same state_dict as Linear, ReLU, Linear."""
    module, path = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2)), tmp_path / "net"
    state, path = module.state_dict(), path.with_suffix(suffix)
    if suffix == ".pt":
        torch.save(state, path)
    else:
        pytest.importorskip("safetensors.torch").save_file(state, path)
    for call, source in ((io.from_torch, state), (gbdnn.load, path)):
        raises(ArgumentError, r"pass activation=.*order of its keys", call, source)
    linear = gbdnn.load(path, activation="identity")
    assert [layer.activation for layer in linear] == ["identity", "identity"]
    refused(state, "activation must be", activation="gelu")
    refused(nn.Linear(2, 2), "combined with a module", ArgumentTypeError, activation="relu")


def test_other_files_of_pytorch_are_named(tmp_path):
    module, x = nn.Sequential(nn.Linear(4, 3)).eval(), torch.ones(2, 4)
    torch.jit.save(torch.jit.trace(module, x), tmp_path / "net.pt")
    torch.export.save(torch.export.export(module, (x,)), tmp_path / "net.pt2")
    for name, what in (("net.pt", "TorchScript; save"), ("net.pt2", "exported program; pass")):
        for read in (gbdnn.load, partial(gbdnn.load, format="torch")):
            raises(FormatError, rf"{name}: the file is (an )?{what}", read, tmp_path / name)


@pytest.mark.parametrize(
    ("names", "in_order"),
    [
        (["net.0", "net.2", "net.10"], True),  # positions in a Sequential
        (["fc1", "fc2", "fc3"], True),
        (["mlp3.0", "mlp3.1", "mlp3.2"], True),
        (["blocks.0.fc1", "blocks.0.fc2", "blocks.1.fc1"], True),
        (["b16", "b8", "b4"], False),  # sizes
        (["fc", "fc1", "fc2"], False),
        (["fc1", "fc01", "fc2"], False),
        (["a1.2", "a.11", "a.13"], False),
    ],
)
def test_the_order_of_safetensors_is_not_guessed(tmp_path, names, in_order):
    path = tmp_path / "net.safetensors"
    weights = [torch.full((2, 2), float(k + 1)) for k in range(3)]
    tensors = {f"{name}.weight": W for name, W in zip(names, weights, strict=True)}
    pytest.importorskip("safetensors.torch").save_file(tensors, path)
    if not in_order:
        unreadable(path, r"not numbered from 0 or 1; pass a dict")
        return
    net = gbdnn.load(path, "torch", activation="relu")
    assert [layer.weights.reduce_scalar("max").value for layer in net] == [1, 2, 3]


@pytest.mark.parametrize(
    "name",
    [
        "model-00001-of-00002.safetensors", "pytorch_model-00001-of-00002.bin",
        "model-1-of-2.pt", "model.safetensors.index.json", "pytorch_model.bin.index.json",
    ],
)  # fmt: skip
def test_a_part_of_a_set_of_files_is_no_network(tmp_path, name):
    path, state = tmp_path / name, nn.Sequential(nn.Linear(4, 8)).state_dict()
    if name.endswith("json"):
        path.write_text('{\n  "metadata": {"total_size": 1}, "weight_map": {}}\n')
    elif name.endswith("safetensors"):
        pytest.importorskip("safetensors.torch").save_file(state, path)
    else:
        torch.save(state, path)
    for form in (None, "torch"):
        unreadable(path, r"weights are in several files; read all of", form)


def test_two_networks_in_one_file(tmp_path):
    path, state = tmp_path / "net.pt", nn.Linear(3, 2).state_dict()
    with path.open("wb") as file:
        torch.save(state, file)
        torch.save(state, file)
    unreadable(path, r"bytes before or after its zip archive")


def test_a_checkpoint_with_another_name_for_its_weights(tmp_path):
    state = nn.Linear(3, 2).state_dict()
    checkpoint = {"epoch": 3, "model": state, "opt": {"state": {}, "param_groups": []}}
    torch.save(checkpoint, tmp_path / "net.pt")
    unreadable(tmp_path / "net.pt", r"pass checkpoint\['model'\], which")
    advice = r"int; pass checkpoint\['model'\]"
    refused(checkpoint, advice, ArgumentTypeError, activation="relu")
