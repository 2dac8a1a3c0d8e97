"""Dense features through shallow networks in a single window; compiled networks."""

import gc
import pickle
import warnings

import graphblas as gb
import numpy as np
import pytest
import scipy.sparse as sp
from calls import raises
from conftest import network
from networks import pruned

import gbdnn
from gbdnn import errors
from gbdnn.kernels import costs, fused_shares
from gbdnn.kernels.compiled import table
from gbdnn.kernels.full import FullWeights
from gbdnn.kernels.fused_run import CompiledRun
from gbdnn.kernels.sparse import SparseWeights


def inputs(count, neurons, seed=1):
    random = np.random.default_rng(seed)
    return random.normal(0.3, 1, (count, neurons)).astype("f4")


MIXED = pruned((50, 97, 33, 120, 10), (0.05, 0.9, 0.3, 0.6))


def close(found, expected):
    scale = max(1.0, np.abs(expected).max(initial=0))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * scale)


def test_an_answer_larger_than_the_memory_takes_the_general_run():
    net, X = network(pruned((20, 700), (0.5,))), inputs(900, 20)
    for memory, is_single in (("4MiB", True), ("2MiB", False)):
        plan = gbdnn.plan(net, X, memory=memory, engine="fused")
        assert plan.is_single_window == is_single


@pytest.fixture
def now(monkeypatch, on):
    """Threads divide the neurons of any layer; helpers stay while `now` does not increase."""
    clock = [0.0]
    on("Zen 5, 8 cores")
    monkeypatch.setattr(costs, "SHARE", 1e-9)
    monkeypatch.setattr(costs, "THREAD", 1.0)
    monkeypatch.setattr(fused_shares, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(fused_shares, "_ALONE", 0)
    return clock


@pytest.fixture
def helped(monkeypatch, now):
    """Whether each call had help."""
    calls, begin = [], fused_shares._Job.begin
    job = fused_shares._Job
    monkeypatch.setattr(job, "begin", lambda *of: calls.append(begin(*of)) or calls[-1])
    return calls


def layouts(weights=()):
    """Bytes of all prepared weights, apart from the networks' own, by identity."""
    gc.collect()
    kinds = (table.FusedLayer, FullWeights, SparseWeights)
    return {
        id(each): sum(array.nbytes for array in each.arrays.values())
        if isinstance(each, table.FusedLayer)
        else each.W.nvals * (8 + each.W.dtype.np_type.itemsize)
        for each in gc.get_objects()
        if type(each) in kinds and not any(each[0] is W for W in weights)
    }


def test_prepared_weights_take_up_to_five_times_the_bytes_of_a_network(now, monkeypatch):
    """Of all kernels, after calls with any number of inputs; the page of resources says so."""
    random, before = np.random.default_rng(0), layouts()
    monkeypatch.setattr(costs, "reordering_pays", lambda inputs: inputs > 500)
    shapes = [(700, 700)] * 3
    net = gbdnn.Network([random.normal(size=n) * (random.random(n) < 0.05) for n in shapes])
    found = []
    for _ in range(2):
        for engine in ("auto", "full", "sparse", "auto"):
            for count in (1, 20, 300, 600):
                X = random.random((count, 700))
                for options in ({"nthreads": 1}, {"nthreads": 3, "callback": id}, {"nthreads": 3}):
                    gbdnn.infer(net, X, engine=engine, **options)
        after = layouts([layer.W for layer in net])
        found.append(sum(after[key] for key in after.keys() - before.keys()))
    own = net.edges * (8 + net.dtype.itemsize)
    assert 2 * own < max(found) <= 5 * own


def test_helpers_take_part_if_calls_follow_each_other(now, helped):
    run, x = gbdnn.compile(network(MIXED), nthreads=3), inputs(1, 50)
    helped.clear()
    for later in (1.0, 1.0, 1e-4, 1e-4, 1.0, 1e-4):
        now[0] += later
        run(x)
    assert helped == [False, False, True, True, False, True]


@pytest.mark.parametrize(("count", "size", "expected"), [
    (1, 6, [1, 0, 0, 1]), (1, 0, [1, 1, 1, 1]), (20, 0, [1, 0, 0, 1]),
])  # fmt: skip
@pytest.mark.parametrize("nthreads", [1, 3])
def test_weights_are_fetched_early_after_other_work(
    count, size, expected, nthreads, now, monkeypatch
):
    """By one input also if they are larger than the caches; the bits are the same."""
    cold, compute = [], fused_shares._Job.compute
    monkeypatch.setattr(costs, "LARGE", size)
    run, X = gbdnn.compile(network(MIXED), nthreads=nthreads), inputs(count, 50)
    answer = run(X)
    monkeypatch.setattr(
        fused_shares._Job, "compute", lambda job, n: cold.append(job.first.cold) or compute(job, n)
    )
    for later in (1.0, 1e-4, 1e-4, 1.0):
        now[0] += later
        np.testing.assert_array_equal(run(X), answer)
    assert cold == expected


@pytest.mark.parametrize(("count", "short", "runs"), [(20, 1e7, 0), (20, 0, 1), (200, 1e7, 1)])
def test_few_inputs_on_one_thread_need_no_run(count, short, runs, monkeypatch):
    """Unless they take so long that a signal has to be seen on the way."""
    monkeypatch.setattr(costs, "SHORT", short)
    made, advance = [], CompiledRun.advance
    monkeypatch.setattr(CompiledRun, "advance", lambda *of: made.append(1) or advance(*of))
    gbdnn.infer(network(MIXED), inputs(count, 50), nthreads=1)
    assert len(made) == runs


def test_helpers_rest_if_calls_with_them_take_longer(monkeypatch, now, helped):
    """Other threads use their cores: each time, more calls do without."""
    slower, plain = [0.5], fused_shares._Job.compute
    monkeypatch.setattr(fused_shares, "_ALONE", 16)

    def timed(job, count):
        now[0] += 1e-5 * (slower[0] if count > 1 else 1)
        return plain(job, count)

    monkeypatch.setattr(fused_shares._Job, "compute", timed)
    run, x = gbdnn.compile(network(MIXED), nthreads=3), inputs(1, 50)
    expected = run(x)
    helped.clear()
    for _ in range(40):
        np.testing.assert_array_equal(run(x), expected)
    assert helped == 15 * [False] + 25 * [True]
    slower[0] = 1.5
    while helped[-1]:
        run(x)
    for resting in (16, 64):
        helped.clear()
        for _ in range(resting + 8):
            np.testing.assert_array_equal(run(x), expected)
        assert helped == (resting - 1) * [False] + 8 * [True] + [False]
    slower[0] = 0.5
    for _ in range(300):
        run(x)
    assert all(helped[-40:])


@pytest.mark.parametrize(("name", "most"), [("container, one core", 1), ("Apple M", 4)])
def test_no_more_threads_share_neurons_than_there_are_cores(name, most, now, on):
    """More would wait for each other on the same core."""
    on(name)
    for count in (1, 16):
        plan = gbdnn.plan(network(MIXED), inputs(count, 50), nthreads=8)
        assert plan.sizes.threads_each == most


@pytest.mark.parametrize("count", [1, 20])
def test_an_overflow_in_any_share_of_a_layer(count, now):
    """A clip hides it. The sum is of a neuron in the first, a middle or the last share."""
    layers = [gbdnn.Layer(2 * np.eye(50, dtype="f4"), clip=1.0)] * 2
    run = gbdnn.compile(layers, nthreads=3)
    for at in (0, 25, 49):
        X = np.zeros((count, 50), "f4")
        X[-1, at] = 3e38
        raises(errors.NonFiniteError, "layer 0", run, X)
    assert run(np.ones((count, 50))).all()


@pytest.mark.parametrize("neurons", [65_536, 65_537, 70_000])
def test_a_single_input_of_a_layer_with_neurons_beyond_16_bits(neurons):
    W = sp.random_array((20, neurons), density=0.01, rng=np.random.default_rng(0), dtype="f4")
    x = inputs(1, 20)
    expected = np.maximum(x @ W.toarray(), 0)
    assert np.count_nonzero(expected[0, 65_500:])
    close(gbdnn.compile([W])(x), expected)


def test_what_does_not_fit_the_dtype_is_refused():
    run = gbdnn.compile(network(MIXED))
    X = np.zeros((3, 50))
    X[1, 2] = 1e300
    raises(errors.ArgumentError, r"1e\+300 in row .* does not fit", run, X)
    raises(errors.ArgumentTypeError, "complex", run, X.astype(complex))
    raises(errors.ArgumentTypeError, "real numbers", run, [["a"] * 50])


# compile


def test_a_compiled_network():
    net = network(MIXED)
    run = gbdnn.compile(net, nthreads=2)
    assert repr(run) == "CompiledNetwork(50 to 10, float32, nthreads=2)"
    assert run.network is net
    x = inputs(1, 50)[0]
    assert run(x).shape == (10,)
    np.testing.assert_array_equal(run(x), run(x[np.newaxis])[0])
    np.testing.assert_array_equal(run(x.tolist()), run(x))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(run))(x), run(x))  # noqa: S301
    forced = gbdnn.compile(net, nthreads=2, engine="fused")
    assert repr(pickle.loads(pickle.dumps(forced))) == repr(forced)  # noqa: S301
    first = run(x)
    kept = first.copy()
    run(-x)
    np.testing.assert_array_equal(first, kept)


def test_a_compiled_network_writes_the_dead(on):
    on("Zen 4, 2 cores")
    run = gbdnn.compile([gbdnn.Layer(np.ones((64, 64), "f4"), clip=1.0)] * 2, nthreads=1)
    X = np.ones((256, 64), "f4")
    X[1::2] = 0
    np.testing.assert_array_equal(run(X, out=np.full((256, 64), np.nan, "f4")), X)


def test_an_array_that_cannot_take_the_answer():
    run, X, frozen = gbdnn.compile([np.eye(3, dtype="f4")]), *np.ones((2, 4, 3), "f4")
    frozen.flags.writeable = False
    shapes = r"out has shape \(3, 3\) but the result has \(4, 3\)"
    for out, error, match in (
        (np.ones((3, 3), "f4"), errors.ShapeError, shapes),
        (np.ones(3, "f4"), errors.ShapeError, r"but the result has \(4, 3\)"),
        (np.ones((4, 3)), errors.ArgumentError, "of float32"),
        (np.ones((3, 4), "f4").T, errors.ArgumentError, "C-ordered"),
        (frozen, errors.ArgumentError, "writable"),
        (X, errors.ArgumentError, "out must not share memory"),
        ([[0] * 3] * 4, errors.ArgumentTypeError, "out must be an ndarray"),
    ):
        raises(error, match, run, X, out=out)
    np.testing.assert_array_equal(X, 1)


@pytest.mark.parametrize("shape", [(49,), (3, 49), (2, 3, 50), ()])
def test_a_compiled_network_refuses_what_does_not_fit(shape):
    run = gbdnn.compile(network(MIXED))
    raises(errors.ShapeError, r"\(inputs, 50\), or \(50,\) for one input", run, np.zeros(shape))


@pytest.mark.frameworks
@pytest.mark.parametrize("engine", ["auto", "graphblas"])
def test_a_compiled_network_takes_the_features_of_infer(engine, tmp_path):
    """And infer takes those of a compiled network: lists, Series and single inputs."""
    pandas, torch = pytest.importorskip("pandas"), pytest.importorskip("torch")
    X = np.array([[2.0, 0.0, 1.0], [0.0, 3.0, 0.5]])
    W = np.array([[0.5, 0.0], [1.0, -1.0], [0.25, 2.0]])
    run = gbdnn.compile([W], bias=-0.25, engine=engine)
    expected = np.maximum(X @ W - 0.25, 0)
    A, tensor = gb.Matrix.from_dense(X), torch.from_numpy(X.copy())
    gbdnn.io.write_features(X, tmp_path / "X")
    stored = gbdnn.io.open_features(tmp_path / "X")
    rows = [gb.Vector.from_dense(x, missing_value=0) for x in X]
    many = [
        X, X.tolist(), tuple(X.tolist()), list(X), pandas.DataFrame(X), tensor, A, A.T.new().T,
        A @ gb.Matrix.from_dense(np.eye(3)), sp.csr_array(X), sp.coo_array(X), stored, stored[:],
        rows, X.astype(np.float32), np.asfortranarray(X),
    ]  # fmt: skip
    single = [X[0], X[0].tolist(), pandas.Series(X[0]), tensor[0], rows[0], 1.0 * rows[0]]
    for given in many:
        np.testing.assert_array_equal(run(given), expected)
        Y = gbdnn.infer([W], given, bias=-0.25)
        np.testing.assert_array_equal(Y.to_dense(fill_value=0), expected)
    for given in single:
        np.testing.assert_array_equal(run(given), expected[0])
        Y = gbdnn.infer([W], given, bias=-0.25)
        np.testing.assert_array_equal(Y.to_dense(fill_value=0).ravel(), expected[0])
    for call in (run, lambda X: gbdnn.infer([W], X)):
        raises(errors.ArgumentTypeError, "features", call, tensor.requires_grad_())
    with pytest.raises(errors.ArgumentTypeError, match="bias must be an array of numbers"):
        gbdnn.Layer(W, bias=torch.ones(2, requires_grad=True))
    raises(errors.ArgumentTypeError, r"pass \[X\]", gbdnn.infer_batches, [W], X)


@pytest.mark.frameworks
def test_errors_name_what_converts_a_model(tmp_path):
    torch, linear = pytest.importorskip("torch"), pytest.importorskip("sklearn.neural_network")
    X, y = np.random.default_rng(0).random((20, 3)), np.arange(20) % 2
    module = torch.nn.Sequential(torch.nn.Linear(3, 2))
    net = gbdnn.training.erdos_renyi([3, 2], 0.5)
    model = gbdnn.sklearn.SparseClassifier((4,), epochs=1).fit(X, y)
    other = linear.MLPClassifier((4,), max_iter=1)
    with warnings.catch_warnings(action="ignore"):
        other.fit(X, y)
    for given, remedy in (
        (module, "gbdnn.io.from_torch"), (module.state_dict(), "gbdnn.io.from_torch"),
        ("net.onnx", "gbdnn.load"), (tmp_path, "gbdnn.load"), (model, "attribute network_"),
        (gbdnn.train(net, X, y, epochs=1), "attribute network"), (other, "bias=intercepts_"),
        (gbdnn.compile(net), "attribute network"),
    ):  # fmt: skip
        for call in (
            gbdnn.compile, gbdnn.Network, lambda given: gbdnn.infer(given, X),
            lambda given: gbdnn.infer_batches(given, [X]),
            lambda given: gbdnn.infer_to_store(given, X, tmp_path / "Y"),
            lambda given: gbdnn.graph.infer(given, X, np.eye(20)),
        ):  # fmt: skip
            raises(errors.ArgumentTypeError, remedy, call, given)


def test_a_network_without_layers_is_not_compiled():
    raises(errors.ArgumentTypeError, "without layers", gbdnn.compile, [])


def deep():
    """A network of 40 layers in which inputs live, and sums are not exact."""
    random = np.random.default_rng(3)
    n = 48, 48
    layers = [(random.random(n) < 0.3) * random.normal(0.02, 0.37, n) for _ in range(40)]
    return gbdnn.Network([gbdnn.Layer(W, clip=4.0, dtype="FP32") for W in layers])


def test_the_bits_of_infer_where_neurons_keep_their_order():
    """As `compile` promises: up to 2,047 inputs whatever the depth, and in up to 32 layers."""
    net, X = deep(), inputs(2048, 48)
    for part, count in ((net, 2047), (net, 300), (net[:32], 2048)):
        run = gbdnn.compile(part)
        expected = run(X[:count])
        assert 0.1 < (expected > 0).mean() < 0.9
        found = gbdnn.infer(part, X[:count], engine="fused").to_dense(fill_value=0)
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(run(X[:1]), expected[:1])


@pytest.mark.parametrize("nthreads", [1, 3, 8])
@pytest.mark.parametrize("dtype", ["FP32", "FP64"])
def test_a_block_of_large_features_is_checked_among_others_that_are_not(dtype, nthreads):
    """By `infer` and by `compile`; all rows are written once, with the bits of single inputs."""
    random = np.random.default_rng(0)
    W = np.where(random.random((40, 30)) < 0.3, random.normal(size=(40, 30)), 0)
    net = gbdnn.Network([gbdnn.Layer(W, 0.1, clip=4.0, dtype=dtype)])
    X = np.where(random.random((900, 40)) < 0.1, random.random((900, 40)), 0).astype(net.dtype)
    X[500, 3] = 1e20
    expected = np.concatenate([gbdnn.compile(net, nthreads=1)(x[np.newaxis]) for x in X])
    np.testing.assert_array_equal(gbdnn.compile(net, nthreads=nthreads)(X), expected)
    Y = gbdnn.infer(net, X, nthreads=nthreads)
    np.testing.assert_array_equal(Y.to_dense(fill_value=0), expected)
