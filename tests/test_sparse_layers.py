"""`gbdnn.torch.SparseLinear` and `SparseSequential`: as a dense layer with a mask, in any loop."""

import copy
import io
import math
import os
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from multiprocessing import get_context

import graphblas as gb
import numpy as np
import pytest
import scipy.sparse
from calls import raises

import gbdnn
from gbdnn.errors import ArgumentError, ArgumentTypeError, ShapeError

torch = pytest.importorskip("torch")
import gbdnn.torch as gt  # noqa: E402
from gbdnn.kernels import costs, fused_shares, together, trainable  # noqa: E402
from gbdnn.torch import passes  # noqa: E402

nn, F = torch.nn, torch.nn.functional
prune = pytest.importorskip("torch.nn.utils.prune")

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning"),
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta"),
]


@pytest.fixture(autouse=True)
def fixed():
    threads = torch.get_num_threads()
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


def layer(n, m, *, dtype=torch.float64, bias=True, density=0.3):
    """A layer whose outputs have different numbers of edges, and one has none."""
    mask = torch.rand(m, n) < density * torch.linspace(0.2, 1.8, m)[:, None]
    mask[m // 2] = False
    return gt.SparseLinear(n, m, bias, mask=mask, dtype=dtype)


def network(*sizes, kind=gt.SparseSequential, **options):
    parts = [part for n, m in pairwise(sizes) for part in (layer(n, m, **options), nn.ReLU())]
    return kind(*parts[:-1])


def dense_of(model):
    """The same modules with masked dense weights."""
    made = nn.Sequential(*(copy.deepcopy(x) for x in model))
    for k, part in enumerate(made):
        if isinstance(part, gt.SparseLinear):
            made[k] = part.to_dense()
    return made


def masks(model):
    return [x.weight.detach().to_dense() != 0 for x in model if isinstance(x, gt.SparseLinear)]


def at_edges(part, weight):
    """Values of a dense weight in the order of the layer's values."""
    rows = torch.arange(part.out_features).repeat_interleave(part.crow_indices.diff())
    return weight[rows, part.col_indices.long()]


def patterns_of(part):
    return [*passes._known[part.col_indices].edges.values()]


def near(found, expected):
    within = 1e-4 if found.dtype == torch.float32 else 1e-10
    torch.testing.assert_close(found, expected, rtol=within, atol=within)


HELD = [
    torch.clone, lambda x: x.T.contiguous().T, lambda x: x.repeat_interleave(2, -1)[..., ::2],
    torch._neg_view, lambda x: x[..., :1].expand(x.shape),
]  # fmt: skip


def agrees(model, shape, dtype=torch.float64, held=torch.clone):
    """Compare outputs and all gradients with those of dense layers, for inputs in any memory."""
    dense = dense_of(model)
    model.zero_grad()
    x = held(torch.randn(*shape, dtype=dtype)).requires_grad_()
    y, z = model(x), dense(x)
    near(y, z)
    d = torch.randn_like(z)
    near(*(torch.autograd.grad(each, x, d, retain_graph=True)[0] for each in (y, z)))
    y.backward(d)
    z.backward(d)
    for part, other in zip(model, dense, strict=True):
        if isinstance(part, gt.SparseLinear):
            near(part.values.grad, at_edges(part, other.weight.grad))
            if part.bias is not None:
                near(part.bias.grad, other.bias.grad)


def drawn_network(seed):
    """Compare outputs, gradients and steps of a model, whose parts follow each other in any way.

    Return whether edges were computed by panel.
    """
    random, has_panels = np.random.default_rng(seed), False
    torch.manual_seed(seed)
    torch.set_num_threads(int(random.choice([1, 3, 8])))
    dtype = [torch.float32, torch.float64][random.integers(2)]
    sizes = random.choice([1, 2, 7, 16, 17, 40, 60, 130], random.integers(2, 6)).tolist()
    options = {"dtype": dtype, "bias": random.random() < 0.7}
    options["density"] = float(random.choice([0.05, 0.3, 1.0]))
    parts = []
    for n, m in pairwise(sizes):
        after = [[nn.ReLU()], [nn.ReLU()], [nn.Tanh()], []][random.integers(4)]
        parts += [layer(n, m, **options), *after]
    model = [gt.SparseSequential, nn.Sequential][random.integers(2)](*parts)
    with pytest.MonkeyPatch.context() as patch:
        if random.random() < 0.3:  # edges by panel have another order than values
            patch.setattr(trainable.costs, "training_panel_rows", lambda edges, n, m: 16)
            patch.setattr(passes, "_PANELS", int(random.choice([1, 15])))  # not in small batches
        for is_first in (True, False):
            batch = [(0,), (1,), (17,), (300,), (), (2, 3), (2, 1, 3), (2, 0)][random.integers(8)]
            held = HELD[random.integers(len(HELD)) if len(batch) == 1 else 0]
            agrees(model, (*batch, sizes[0]), dtype, held)
            if 0 not in batch:
                has_panels |= any(each.positions is not None for each in patterns_of(model[0]))
            if is_first and 0 not in batch and dtype == torch.float64:
                steps_agree(model, torch.randn(*batch, sizes[0], dtype=dtype), random.integers(3))
            for part in model:  # a pattern of other edges, whose weights are 0
                if isinstance(part, gt.SparseLinear) and random.random() < 0.5:
                    part.rewire(0.5)
    return has_panels


def steps_agree(model, x, kind):
    """Compare some steps of an optimizer with those of dense layers whose gradients are masked."""
    dense, kept = dense_of(model), masks(model)
    for net in (model, dense):
        net.zero_grad()
        optimizer = [
            lambda p: torch.optim.SGD(p, 0.01, momentum=0.9, weight_decay=0.1),
            lambda p: torch.optim.Adam(p, 0.01, fused=True),
            lambda p: torch.optim.AdamW(p, 0.01),
        ][kind](net.parameters())  # fmt: skip
        for _ in range(4):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            if net is dense:
                linear = [part for part in net if isinstance(part, nn.Linear)]
                for part, mask in zip(linear, kept, strict=True):
                    part.weight.grad *= mask
            optimizer.step()
    near(model(x), dense(x))


@pytest.mark.parametrize("count", [80, pytest.param(5000, marks=pytest.mark.slow)])
def test_drawn_networks_equal_dense_ones(count):
    """With the first seed in GBDNN_SEED, or 0."""
    first, panels = int(os.environ.get("GBDNN_SEED", "0")), 0
    for seed in range(first, first + count):
        try:
            panels += drawn_network(seed)
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
    assert panels > count / 20


@pytest.mark.parametrize("batch", [1, 3, 16, 17])
def test_inputs_that_fill_a_cache_line_do_not_overflow(batch):
    """Zeros in place of inputs would become infinite, and infinity times 0 NaN."""
    parts = [gt.SparseLinear(1, 1, density=1) for _ in range(3)]
    with torch.no_grad():
        for part, value, bias in zip(parts, (-3e38, 3e38, 1.0), (3e38, 0.0, 0.0), strict=True):
            part.values.fill_(value)
            part.bias.fill_(bias)
    model = gt.SparseSequential(parts[0], nn.ReLU(), parts[1], nn.ReLU(), parts[2])
    dense, x = dense_of(model), torch.ones(batch, 1)
    model(x).sum().backward()
    dense(x).sum().backward()
    for part, other in zip(parts, dense[::2], strict=True):
        assert torch.equal(part.values.grad, other.weight.grad[0])


@pytest.mark.parametrize("is_own", [True, False])
def test_threads_do_not_change_results(monkeypatch, is_own):
    monkeypatch.setattr(passes, "_WORK", 1)  # every call has work for all threads
    if is_own:
        monkeypatch.setattr(together, "openmp_team", lambda _: None)
    found = []
    for threads in (1, 3, 8):
        torch.manual_seed(1)
        torch.set_num_threads(threads)
        model = network(60, 50, 40, dtype=torch.float32)
        x = torch.randn(200, 60).requires_grad_()
        model(x).square().sum().backward()
        found.append([x.grad, *(y.grad for y in model.parameters())])
        (edges,) = patterns_of(model[0])
        assert next(iter(edges.plans.values())).threads == threads
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@pytest.fixture
def helped(monkeypatch):
    """Numbers of threads of calls that take helpers rather than PyTorch's threads."""
    if not together._libgomp():
        pytest.skip("PyTorch has no libgomp")
    found, prepared = [], together._Team.prepared

    def noted(team, threads, **options):
        found.append(threads)
        return prepared(team, threads, **options)

    monkeypatch.setattr(together._Team, "prepared", noted)
    return found


def test_passes_take_the_threads_of_pytorch_where_there_are_enough(monkeypatch, helped):
    monkeypatch.setattr(passes, "_WORK", 1)
    torch.set_num_threads(3)
    model = network(20, 30, 7)
    agrees(model, (40, 20))
    assert not helped
    for other in (5, 2):  # another team than PyTorch's, if PyTorch uses another OpenMP
        helped.clear()
        monkeypatch.setattr(torch, "get_num_threads", lambda n=other: n)
        model.zero_grad()
        agrees(model, (40, 20))
        assert set(helped) == {other}


def test_calls_take_most_threads_of_pytorch_or_helpers(monkeypatch, helped):
    """Blocks, shares of a block, single inputs, and training steps; other threads take helpers."""
    for name in ("SHARE", "HAND_OVER", "THREAD"):
        monkeypatch.setattr(costs, name, 1.0)
    torch.set_num_threads(3)
    random = np.random.default_rng(0)
    net = gbdnn.Network([random.normal(size=(50, 50)).astype("f4")] * 2)

    def call(threads):
        run, found = gbdnn.compile(net, nthreads=threads), []
        for count in (1, 30, 400):
            X = random.random((count, 50)).astype("f4")
            expected = gbdnn.infer(net, X, nthreads=1).to_dense(fill_value=0)
            found += [np.array_equal(run(X), expected) for _ in range(3)]
        gbdnn.train(net, X, X, epochs=1, nthreads=threads)
        return all(found)

    monkeypatch.setattr(fused_shares._Job, "begin", lambda *_: True)
    assert call(3)
    assert call(2)
    assert not helped
    assert call(4)  # more than PyTorch has
    assert 4 in helped
    helped.clear()
    with ThreadPoolExecutor(1) as other:  # it would get a team of its own
        assert other.submit(call, 3).result()
    assert 3 in helped


def test_a_forked_process_has_threads_of_its_own(monkeypatch):
    monkeypatch.setattr(passes, "_WORK", 1)
    torch.set_num_threads(3)
    model, x = network(20, 30, 7).requires_grad_(False), torch.randn(40, 20, dtype=torch.float64)
    expected = model(x)

    def compute():
        sys.exit(0 if torch.equal(model(x), expected) and not together.openmp_team(3) else 3)

    process = get_context("fork").Process(target=compute)
    process.start()
    process.join(60)
    process.kill()
    assert process.exitcode == 0


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_an_input_that_is_not_finite_has_no_finite_output(value):
    model, x = network(20, 30, 7), torch.randn(5, 20, dtype=torch.float64)
    x[2] = value
    found, expected = model(x), dense_of(model)(x)
    assert found[2].isnan().any()
    others = torch.arange(5) != 2
    near(found[others], expected[others])


def test_several_graphs_at_once():
    """Passes forward and backward in any order; one graph is used twice."""
    model = network(20, 30, 7)
    dense, inputs = dense_of(model), torch.randn(3, 33, 20, dtype=torch.float64)
    for net in (model, dense):
        first, second = net(inputs[0]), net(inputs[1])
        first.square().sum().backward(retain_graph=True)
        net(inputs[2]).square().sum().backward()
        second.square().sum().backward()
        first.square().sum().backward()
    near(model[0].bias.grad, dense[0].bias.grad)
    near(model[0].values.grad, at_edges(model[0], dense[0].weight.grad))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_activations_that_are_not_finite_have_a_gradient(value):
    model, x = network(20, 30, 7), torch.randn(5, 20, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        model[0].bias[3] = value
    dense, found = dense_of(model), []
    for each in (model, dense):
        each(x).sum().backward()
        found.append((each[0].bias.grad, x.grad.clone()))
        x.grad = None
    assert found[1][0][3] != 0
    for one, other in zip(*found, strict=True):
        near(one, other)


def test_gradients_without_memory():
    model, x = network(20, 30, 7), torch.randn(5, 20, dtype=torch.float64, requires_grad=True)
    for relu in (False, True):
        y = gt.SparseSequential(*model, *[nn.ReLU()] * relu)(x)
        y.backward(torch._efficientzerotensor(y.shape, dtype=y.dtype))
    assert not x.grad.any()


def test_copies_and_checkpoints():
    model = network(20, 30, 7)
    x = torch.randn(5, 20, dtype=torch.float64)
    expected = model(x)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):  # noqa: S301
        assert torch.equal(other(x), expected)
    with torch.no_grad():
        model[0].values.mul_(2)
    assert not torch.equal(model(x), expected)
    file.seek(0)
    model.load_state_dict(torch.load(file))
    assert torch.equal(model(x), expected)
    made = partial(gt.SparseLinear, 20, 30, density=0.2, dtype=torch.float64)
    other, same = made(), made()
    same(x)
    same.load_state_dict(other.state_dict())  # another pattern of the same size
    assert torch.equal(same(x), other(x))
    empty = made(device="meta")
    raises(ArgumentError, "meta", empty, x)
    empty.to_empty(device="cpu").load_state_dict(other.state_dict())
    assert torch.equal(empty(x), other(x))
    empty.double().float()
    near(empty(x.float()), other(x).float())
    assert gt.SparseLinear(20, 30, mask=torch.ones(30, 20), device="meta").values.shape == (600,)
    with torch.inference_mode():
        same = made()
        for _ in range(2):
            near(same(x), x @ same.weight.to_dense().T + same.bias)
            same.rewire(0.5)


@pytest.mark.parametrize("reentrant", [True, False])
def test_activation_checkpoints(reentrant):
    model, found = network(20, 30, 7), []
    x = torch.randn(5, 20, dtype=torch.float64).requires_grad_()
    checkpointed = partial(torch.utils.checkpoint.checkpoint, model, use_reentrant=reentrant)
    for call in (model, checkpointed):
        model.zero_grad()
        call(x).square().sum().backward()
        found.append(model[0].values.grad.clone())
    assert torch.equal(*found)


def test_compiled_graphs():
    model = network(20, 30, 7, kind=nn.Sequential)
    model.append(gt.SparseSequential(layer(7, 9), nn.ReLU()))
    torch._dynamo.reset()
    program = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = torch.randn(5, 20, dtype=torch.float64).requires_grad_()
    found = []
    for call in (program, model):
        model.zero_grad()
        y = call(x)
        y.square().sum().backward()
        found.append([y, x.grad.clone(), model[0].values.grad.clone()])
        x.grad = None
    for one, other in zip(*found, strict=True):
        near(one, other)


@pytest.mark.parametrize("batch", [0, 1, 5, 40, 100])
def test_shapes_without_data_are_those_of_results(batch):
    parts = layer(20, 30), layer(30, 7)
    x = torch.randn(batch, 20, dtype=torch.float64)
    names = "values", "bias", "crow_indices", "col_indices"
    values, biases, crow, col = ([getattr(x, name).detach() for x in parts] for name in names)
    lists = crow, col, [True, False]
    out, memory = passes._operator(x, values, biases, *lists)
    check = partial(torch.library.opcheck, test_utils="test_faketensor")
    check(passes._operator, (x, values, biases, *lists))
    check(passes._back_operator, (out, memory, values, *lists, 20, True))


def test_what_is_not_supported_is_an_error():
    part = layer(20, 7)
    x = torch.randn(5, 20, dtype=torch.float64)
    for call in (lambda: torch.vmap(part)(x), lambda: torch.jit.trace(part, x)):
        raises(ArgumentError, r"neither torch\.func", call)
    y = x.requires_grad_()
    with pytest.raises(ArgumentError, match="neither create_graph=True"):
        torch.autograd.grad(part(y).sum(), y, create_graph=True)
    for call in (
        lambda: torch.autograd.functional.jacobian(part, y, vectorize=True),
        lambda z: torch.vmap(lambda d: torch.autograd.grad(z, y, d))(z.new_ones(2, *z.shape)),
    ):
        with pytest.raises(ArgumentError, match="nor is_grads_batched=True"):
            call(*[part(y)] * call.__code__.co_argcount)
    for wrong, kind, match in (
        (x.float(), ArgumentError, "float32"), (x.to("meta"), ArgumentError, "meta"),
        (x[:, 1:], ShapeError, r"\(5, 19\), expected \(\.\.\., 20\)"),
        (x[0, 0], ShapeError, r"\(\), expected"),
        (x.to_sparse(), ArgumentError, "CPU"),
    ):  # fmt: skip
        raises(kind, match, part, wrong.detach())
    raises(ArgumentError, "float16", copy.deepcopy(part).half(), x.detach().half())
    part.col_indices[0] = 99
    raises(ArgumentError, "col_indices", part, x)
    for at, wrong in (3, 0), (3, 10**15), (-1, -1), (0, 1):
        part = layer(20, 7)
        part.crow_indices[at] = wrong
        raises(ArgumentError, "not those of a CSR matrix", part, x)
    for name, match in (("values", "values have shape"), ("bias", "bias has shape")):
        part = layer(20, 7)
        setattr(part, name, nn.Parameter(getattr(part, name)[1:].detach()))
        raises(ShapeError, match, part, x)
    with pytest.raises(ShapeError, match="7 outputs, the next one has 6 inputs"):
        gt.SparseSequential(layer(20, 7), layer(6, 5))(x)


def test_wrong_arguments():
    for part in (layer(3, 2), network(3, 2)):
        raises(ArgumentTypeError, "must be a tensor, not ndarray", part, np.ones((4, 3)))
    for options in ({}, {"density": 0.5, "mask": torch.ones(3, 4)}):
        raises(ArgumentError, "either density or mask", gt.SparseLinear, 4, 3, **options)
    raises(ShapeError, r"\(4, 3\), expected \(3, 4\)", gt.SparseLinear, 4, 3, mask=torch.ones(4, 3))
    part = gt.SparseLinear(4, 3, density=0.5)
    for call in (lambda x: gt.SparseLinear(4, 3, density=x), part.rewire,
                 lambda x: gt.SparseLinear.from_dense(nn.Linear(4, 3), x)):  # fmt: skip
        for wrong in (-0.1, 1.5, math.nan):
            raises(ArgumentError, r"density|fraction", call, wrong)
    raises(ArgumentError, "score must be 'random' or 'gradient'", part.rewire, 0.5, "magnitude")
    part(torch.ones(2, 4)).sum().backward()
    part(torch.ones(2, 4))
    raises(ArgumentError, "needs a backward pass since the last call", part.rewire, 0.5, "gradient")


def test_dense_and_back():
    linear = nn.Linear(20, 9).eval()
    with torch.no_grad():
        linear.weight[:, 3:] = 0
    part = gt.SparseLinear.from_dense(linear)
    assert len(part.values) == 27
    assert not part.training
    assert not part.to_dense().training
    assert torch.equal(part.to_dense().weight, linear.weight)
    assert torch.equal(part.weight.to_dense(), linear.weight)
    assert part.weight.values().data_ptr() == part.values.data_ptr()
    some = gt.SparseLinear.from_dense(linear, density=0.1)
    assert len(some.values) == 18
    assert some.values.abs().min() >= linear.weight[linear.weight != 0].abs().sort().values[9]
    for kind in (nn.Sequential, gt.SparseSequential):
        model = kind(part, nn.ReLU(), gt.SparseLinear(9, 4, density=0.5))
        Y = gbdnn.infer(gbdnn.io.from_torch(model), np.ones((2, 20), np.float32))
        near(torch.from_numpy(Y.to_dense(fill_value=0)).float(), model(torch.ones(2, 20)).detach())


@pytest.mark.parametrize("batch", [5, 300])
@pytest.mark.parametrize("score", ["random", "gradient"])
def test_rewiring(score, batch):
    model = network(20, 40, 30, 7)
    part = model[2]
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    dense = dense_of(model)
    x = torch.randn(batch, 20, dtype=torch.float64)
    for each in (model, dense):
        each(x).square().sum().backward()
    optimizer.step()
    before = part.weight.detach().to_dense()
    moments, slopes = (torch.zeros_like(before) for _ in range(2))
    moments[before != 0] = optimizer.state[part.values]["exp_avg"]
    slopes[before != 0] = part.values.grad
    part.rewire(0.25, score, [optimizer])
    nnz, count = len(part.values), int(0.25 * len(part.values))
    rows = torch.arange(30).repeat_interleave(part.crow_indices.diff())
    now = torch.zeros_like(before, dtype=torch.bool)
    now[rows, part.col_indices.long()] = True
    assert now.sum() == nnz  # no edge twice
    old = before != 0
    new, dropped = now & ~old, old & ~now
    assert new.sum() == dropped.sum() == count
    assert before[dropped].abs().max() <= before[old & now].abs().min()
    if score == "gradient":
        sizes = dense[2].weight.grad.abs()
        assert sizes[new].min() >= sizes[~old & ~new].max()
    after, carried, left = (torch.zeros_like(before) for _ in range(3))
    after[now], carried[now] = part.values.detach(), optimizer.state[part.values]["exp_avg"]
    left[now] = part.values.grad
    assert torch.equal(after, before * (old & now))
    assert torch.equal(carried, moments * (old & now))
    assert torch.equal(left, slopes * (old & now))
    y = torch.randn(5, 40, dtype=torch.float64)
    near(part(y), y @ after.T + part.bias)
    model(x).sum().backward()
    model(x)
    raises(ArgumentError, "needs a backward pass", model[2].rewire, 0.1, "gradient")
    model(x[:0]).sum().backward()
    model[2].rewire(0.1, "gradient")  # all gradients are 0
    full = gt.SparseLinear(4, 3, density=1)
    full.rewire(0.5)  # there is no free place
    assert len(full.values) == 12


def test_gradients_of_all_weights_are_those_of_all_uses():
    """Of layers called twice or tied, with several passes of one graph, whatever is in between."""
    model = network(20, 20, 20, 7)
    model[2] = model[0]

    def same(part):
        (edges,) = patterns_of(part)
        near(at_edges(part, torch.from_numpy(edges.dense_gradient())), part.values.grad)

    x, y = torch.randn(2, 5, 20, dtype=torch.float64)
    for begins in (False, True):
        model.zero_grad()
        whole, begin = model(x), model[:3](y.requires_grad_())
        for each in (begin, whole) if begins else (whole, begin):
            each.square().sum().backward()
        for part in (model[0], model[4]):
            same(part)
    out = model(x)
    for _ in range(3):
        model.zero_grad()
        out.square().sum().backward(retain_graph=True)
        same(model[0])
        assert len(patterns_of(model[0])[0].uses) == 2  # and no buffers of earlier passes
    model[4](x)
    raises(ArgumentError, "needs a backward pass", model[4].rewire, 0.1, "gradient")
    model.zero_grad()
    first, second = model(x), model(y)
    first.square().sum().backward()
    model[:3](x).square().sum().backward()  # other layers keep their passes
    second.square().sum().backward()
    same(model[4])


@pytest.mark.parametrize("name", ["col_indices", "crow_indices"])
@pytest.mark.parametrize("change", ["data", "numpy"])
def test_changes_of_indices_that_pytorch_does_not_count(name, change):
    mask = torch.zeros(2, 9, dtype=torch.bool)
    mask[0, [0, 1, 5]] = mask[1, [7, 8]] = True
    part, x = gt.SparseLinear(9, 2, mask=mask), torch.randn(5, 9)
    part(x)
    wanted = torch.tensor([0, 2, 5] if name == "crow_indices" else [0, 2, 6, 7, 8])
    held = getattr(part, name)
    (held.data if change == "data" else torch.from_numpy(held.numpy())).copy_(wanted)
    dense = part.to_dense()
    near(part(x), dense(x))
    part(x).square().sum().backward()
    dense(x).square().sum().backward()
    near(part.values.grad, at_edges(part, dense.weight.grad))


def test_hooks_leave_the_run():
    model = network(20, 30, 20, 7)
    x = torch.randn(5, 20, dtype=torch.float64)
    expected, seen = model(x), []
    hooks = [model[2].register_forward_hook(lambda *given: seen.append(given[2].shape)),
             model[1].register_forward_pre_hook(lambda *given: seen.append(1)),
             model[4].register_full_backward_hook(lambda *given: seen.append(2))]  # fmt: skip
    y = model(x)
    near(y, expected)
    y.sum().backward()
    assert seen == [1, (5, 20), 2]
    for hook in hooks:
        hook.remove()
    register = nn.modules.module
    for call in register.register_module_forward_hook, register.register_module_full_backward_hook:
        seen.clear()
        hook = call(lambda *given: seen.append(given[0]))
        y = model(x.requires_grad_())
        near(y, expected)
        y.sum().backward()
        hook.remove()
        assert {*seen} == {*model, model}


def test_autocast_computes_in_the_dtype_of_the_layer():
    part = layer(20, 7, dtype=torch.float32)
    x = torch.randn(5, 20)
    with torch.autocast("cpu", torch.bfloat16):
        full, half, negated = part(x), part(x.bfloat16()), part(torch._neg_view(x))
    assert torch.equal(full, part(x))
    assert torch.equal(negated, part(-x))
    assert torch.equal(half, part(x.bfloat16().float()))


# -- weights that PyTorch computes, patterns of others


def test_pruned_weights_are_those_of_the_last_step():
    """Of a Linear that is converted, and of a sparse layer."""
    linear, part = nn.Linear(20, 9), layer(20, 9, dtype=torch.float32)
    for module, key in ((linear, "weight"), (linear, "bias"), (part, "values"), (part, "bias")):
        prune.l1_unstructured(module, key, 0.5)
        with torch.no_grad():
            getattr(module, f"{key}_orig").mul_(2)
    x = torch.randn(5, 20)
    for module, made in ((linear, gt.SparseLinear.from_dense(linear)), (part, part.to_dense())):
        near(made(x), module(x))
    with torch.no_grad():
        part.values_orig.mul_(2)
    dense, net = part.weight.to_dense(), gbdnn.io.from_torch(part)
    near(F.linear(x, dense, part.bias), part(x))
    near(torch.from_numpy(gbdnn.infer(net, x.numpy()).to_dense(fill_value=0)).float(), part(x))
    raises(ArgumentError, "values are computed", part.rewire, 0.1)


@pytest.mark.parametrize("change", ["weight_norm", "spectral_norm", "orthogonal"])
def test_parametrized_weights_are_those_of_the_last_step(change):
    linear = getattr(nn.utils.parametrizations, change)(nn.Linear(9, 9))
    optimizer = torch.optim.Adam(linear.parameters(), 0.1)
    for _ in range(3):
        linear(torch.randn(5, 9)).square().sum().backward()
        optimizer.step()
    part = gt.SparseLinear.from_dense(linear)
    near(part(x := torch.randn(5, 9)), linear.eval()(x))


def test_masks_may_be_sparse():
    """And a density needs no dense scores, which would take 64 GiB here."""
    array = np.array([[0.0, 2, 0], [-1, 0, 3]])
    given = [torch.tensor(array), torch.tensor(array) != 0, torch.tensor(array).to_sparse_csr()]
    given += [array, scipy.sparse.csr_array(array), gb.Matrix.from_dense(array, missing_value=0)]
    for mask in given:
        part = gt.SparseLinear(3, 2, mask=mask)
        assert part.crow_indices.tolist() == [0, 1, 3]
        assert part.col_indices.tolist() == [1, 0, 2]
    wide = gt.SparseLinear(1 << 24, 1000, density=2 / (1 << 24))
    assert (wide.crow_indices.diff() == 2).all()
    assert wide.col_indices.max() > 1 << 23
    assert len(set(wide.col_indices.tolist())) > 1900


class Masked(nn.Linear):
    def forward(self, x):
        return F.linear(x, self.weight.tril(), self.bias)


def test_modules_whose_weights_are_not_those_of_a_linear():
    hooked, lazy = nn.Linear(4, 4), nn.LazyLinear(4)
    hooked.register_forward_hook(lambda *given: 2 * given[2])
    masked = Masked(4, 4)
    for module, why in ((hooked, "hooks"), (lazy, "no weights yet"), (masked, "a Masked is not")):
        raises(ArgumentError, why, gt.SparseLinear.from_dense, module)


@pytest.mark.parametrize("assign", [False, True])
def test_a_state_with_another_pattern(assign):
    part, other = layer(20, 9), layer(20, 9, density=0.6)
    optimizer, x = torch.optim.Adam(part.parameters()), torch.randn(5, 20, dtype=torch.float64)
    part(x).sum().backward()
    part.load_state_dict(other.state_dict(), assign=assign)
    assert torch.equal(part(x), other(x))
    if not assign:  # the parameter is still the optimizer's
        part(x).sum().backward()
        optimizer.step()
        assert not torch.equal(part(x), other(x))


def test_a_state_that_does_not_fit_changes_nothing():
    part, state = layer(20, 9), layer(20, 9, density=0.6).state_dict()
    x = torch.randn(5, 20, dtype=torch.float64)
    before = part(x)
    for wrong in (
        {key: y for key, y in state.items() if key != "values"},
        {key: y for key, y in state.items() if key != "col_indices"},
        state | {"values": state["values"][1:]},
        state | {"crow_indices": state["crow_indices"][1:]},
        layer(21, 9).state_dict(), layer(20, 8).state_dict(), layer(20, 10).state_dict(),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="values and indices do not fit"):
            nn.Sequential(part).load_state_dict({f"0.{k}": y for k, y in wrong.items()})
        assert torch.equal(part(x), before)


def pattern(part):
    return part.weight.detach().to_sparse_coo().coalesce().indices().T.tolist()


def rewired(rank, file, results):
    """Train and rewire a layer with DistributedDataParallel, by other inputs and random numbers."""
    dist = torch.distributed
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    torch.manual_seed(0)
    part = gt.SparseLinear(20, 9, density=0.3)
    model = nn.parallel.DistributedDataParallel(part)
    torch.manual_seed(rank)
    optimizer = torch.optim.Adam(model.parameters())
    for score in ("random", "gradient"):
        model(torch.randn(8, 20)).square().sum().backward()
        optimizer.step()
        gradient = patterns_of(part)[0].dense_gradient()
        before = pattern(part)
        raises(ArgumentError, "needs process_group=", part.rewire, 0.3, score, [optimizer])
        part.rewire(0.3, score, [optimizer], process_group=dist.group.WORLD)
        after = pattern(part)
    states = part.state_dict(), optimizer.state_dict()["state"][0]
    torch.save((states, before, after, torch.from_numpy(gradient)), results[rank])
    dist.destroy_process_group()


def test_rewiring_in_two_processes(tmp_path):
    results = [tmp_path / "0.pt", tmp_path / "1.pt"]
    torch.multiprocessing.spawn(rewired, (tmp_path / "rendezvous", results), nprocs=2)
    (states, before, after, gradient), (others, _, _, other) = map(torch.load, results)
    for held, expected in zip(states, others, strict=True):
        assert all(torch.equal(x, expected[key]) for key, x in held.items())
    sizes = (gradient + other).abs()
    new = [i for i in after if i not in before]
    least = min(sizes[i, j] for i, j in new)
    assert len(new) == int(0.3 * len(before))
    free = [(i, j) for i in range(9) for j in range(20) if [i, j] not in before + new]
    assert least >= max(sizes[i, j] for i, j in free)
