"""Runs that are kept, interrupted or followed: what `train` gives besides a network."""

import copy
import inspect
import math
import re
from collections import OrderedDict, deque
from functools import partial
from importlib.util import find_spec

import numpy as np
import pytest
import scipy.sparse as sp
from calls import raises
from training_cases import network, problem, same_bits

import gbdnn
from gbdnn import errors, training
from gbdnn.training import losses

pytest.importorskip("safetensors")

NET, X, Y = problem()


# -- in a file ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("optimizer", "dtype", "labels"),
    [(training.Adam(0.01, weight_decay=0.1), "FP32", True), (training.SGD(0.1), "FP64", False)],
)  # fmt: skip
def test_training_continues_from_a_file(optimizer, dtype, labels, tmp_path):
    net, X, y = problem(dtype=dtype, clip=0.7, labels=labels)
    run = gbdnn.train(
        net, X, y, epochs=3, optimizer=optimizer, validation=0.2, patience=np.inf, seed=4,
        batch_size=50, schedule=training.Stepwise((0.5,)), adjustments=training.SET(every=3),
    )  # fmt: skip
    gbdnn.training.write_run(run, tmp_path / "run")
    found = gbdnn.training.read_run(tmp_path / "run")
    assert repr(found) == repr(run)
    for name in (
        "history", "loss", "optimizer", "schedule", "batch_size", "seed", "steps", "moments_of",
        "moment_steps",
    ):  # fmt: skip
        assert getattr(found, name) == getattr(run, name)
    assert found.network.isequal(run.network)
    assert found.best.epoch == run.best.epoch
    assert same_bits(found, run)
    longer = [gbdnn.train(each, X[:200], y[:200], epochs=2) for each in (run, found)]
    assert same_bits(*longer)
    assert longer[0].steps == run.steps + 8


@pytest.mark.parametrize("name", ["run.pt", "run.PTH", "run.onnx", "run.mtx.gz"])
def test_a_run_has_no_suffix_of_a_network(name, tmp_path):
    """`gbdnn.load` would read such a file as a network."""
    run = gbdnn.train(NET, X, Y, epochs=1)
    path, calls = tmp_path / name, []
    for call in (
        lambda: gbdnn.training.write_run(run, path),
        lambda: gbdnn.train(NET, X, Y, checkpoint=path, callback=calls.append),
    ):
        raises(errors.ArgumentError, "not of a training run", call)
    assert not calls
    assert not path.exists()


def test_custom_rules_are_passed_again(tmp_path):
    class Half(training.Constant):
        def factors(self, progress):
            return np.full(len(progress), 0.5)

    run = gbdnn.train(NET, X, Y, epochs=1, schedule=Half())
    gbdnn.training.write_run(run, tmp_path / "run")
    found = gbdnn.training.read_run(tmp_path / "run")
    assert found.schedule is None
    longer = gbdnn.train(found, X, Y, epochs=1, schedule=Half())
    assert same_bits(longer, gbdnn.train(run, X, Y, epochs=1))


NEEDS_TORCH = pytest.mark.skipif(not find_spec("torch"), reason="no PyTorch")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "run"
    gbdnn.training.write_run(gbdnn.train(NET, X, Y, epochs=1), path)
    return path.read_bytes()


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: content.replace(b"seed", b"sead"),
        lambda content: content[:-5] + bytes([content[-5] ^ 1]) + content[-4:],
        lambda content: content.replace(b"gbdnn.training", b"others.trainin"),
        pytest.param(  # or weights, which PyTorch reads
            lambda content: b"\x10\0\0\0\0\0\0\0{ not json at all",
            marks=[pytest.mark.frameworks, NEEDS_TORCH],
        ),
    ],
)
def test_a_damaged_file_is_named(damage, saved, tmp_path):
    path = tmp_path / "run"
    path.write_bytes(damage(saved))
    assert path.read_bytes() != saved
    for call in (lambda: gbdnn.load(path), lambda: gbdnn.train(NET, X, Y, checkpoint=path)):
        raises(errors.FormatError, str(path), call)
    assert path.read_bytes() == damage(saved)


# -- checkpoints --------------------------------------------------------------------------------


def interrupting(epoch):
    def callback(record):
        if record.epoch == epoch:
            raise KeyboardInterrupt

    return callback


def test_an_interrupted_call_continues_with_the_same_bits(tmp_path):
    options = {
        "epochs": 7, "validation": 0.2, "patience": 5, "optimizer": training.Adam(0.01),
        "adjustments": [training.SET(every=4), training.MagnitudePruning(0.1, end=0.3, every=4)],
        "input_dropout": 0.1,
    }  # fmt: skip
    expected = gbdnn.train(NET, X, Y, **options)
    options["checkpoint"] = path = tmp_path / "run"
    for epoch in (1, 3):
        with pytest.raises(KeyboardInterrupt):
            gbdnn.train(NET, X, Y, **options, callback=interrupting(epoch))
    seen = []
    run = gbdnn.train(NET, X, Y, **options, callback=lambda now: seen.append(now.epoch))
    assert seen == [4, 5, 6]
    assert same_bits(run, expected)
    assert run.network.isequal(expected.network)
    assert [record[:7] for record in run.history] == [record[:7] for record in expected.history]
    gbdnn.training.write_run(run, tmp_path / "saved")
    gbdnn.training.write_run(gbdnn.training.read_run(path), tmp_path / "loaded")
    assert (tmp_path / "loaded").read_bytes() == (tmp_path / "saved").read_bytes()


def test_a_run_that_goes_on_has_its_own_checkpoint(tmp_path):
    begun = gbdnn.train(NET, X, Y, epochs=2)
    expected = gbdnn.train(begun, X, Y, epochs=3)
    with pytest.raises(KeyboardInterrupt):
        gbdnn.train(begun, X, Y, epochs=3, checkpoint=tmp_path / "run", callback=interrupting(3))
    assert same_bits(gbdnn.train(begun, X, Y, epochs=3, checkpoint=tmp_path / "run"), expected)


@pytest.mark.parametrize("how", ["epochs", "patience"])
def test_nothing_is_left_to_do_after_the_end(how, tmp_path):
    options = {"epochs": 2, "checkpoint": tmp_path / "run"}
    if how == "patience":  # a rate of nearly 0: no epoch is better
        still = {"validation": 0.2, "patience": 2, "optimizer": training.SGD(1e-30)}
        options |= {"epochs": 30, **still}
    run = gbdnn.train(NET, X, Y, **options)
    assert len(run.history) == {"epochs": 2, "patience": 3}[how]
    calls = []
    again = gbdnn.train(NET, X, Y, **options, callback=calls.append)
    assert (calls, again.history) == ([], run.history)
    assert again.network.isequal(run.network)


def test_a_callback_ends_a_call_and_the_next_one_goes_on(tmp_path):
    """As with a time limit: a stop is no end."""
    options = {"epochs": 5, "checkpoint": tmp_path / "run"}

    def stop(now):
        if now.epoch % 2:
            raise StopIteration

    for epochs in (2, 4):
        run = gbdnn.train(NET, X, Y, **options, callback=stop)
        assert run.stopped
        assert len(run.history) == epochs
    run = gbdnn.train(NET, X, Y, **options)
    assert not run.stopped
    assert same_bits(run, gbdnn.train(NET, X, Y, epochs=5))


class Custom:
    every = None

    def __init__(self, strength):
        self.strength = strength

    def adjust(self, layers, context):
        return layers


REFUSED = {  # by parameter of `train`: other values, and what the error says
    "network": [
        (network((37, 50, 10)), "has layers"), (network(dtype="FP32"), "float64.*float32"),
        (network(clip=2.0), "has layers.*None.*2.0"), (network(seed=1), "has weights"),
        (gbdnn.train(NET, X, Y, epochs=1), "has epochs done 0, but this call has 1"),
    ],
    "X": [(sp.csr_array(X), "has data"), (X + 1e-9, "has data")],
    "y": [(X[:, :10], "has loss .*CrossEntropy.*SquaredError"), (Y[::-1], "has data")],
    "sample_weight": [(np.arange(len(X)), "has data")],
    "validation": [(0.2, "has data"), ((X, Y), "has validation None")],
    "epochs": [(2, "has epochs 3, but this call has 2"), (5, "has epochs 3")],
    "batch_size": [(60, "has batch_size 128, but this call has 60")],
    "loss": [("binary_cross_entropy", "has loss .*CrossEntropy.*BinaryCrossEntropy")],
    "optimizer": [(training.SGD(0.1), "has optimizer .*Adam.*0.01.*but this call has .*SGD")],
    "schedule": [(training.Constant(), "has schedule .*Cosine")],
    "adjustments": [
        (training.SET(every=2), "has adjustments .*but this call has .*SET"),
        (Custom(1), "Custom"),
    ],
    "input_dropout": [(0.1, "has input_dropout")],
    "patience": [(3, "has patience|has validation")],
    "seed": [(1, "has seed 0, but this call has 1")],
    "nthreads": [(3, None)],
    "callback": [(lambda record: None, None)],
    "checkpoint": [],
}  # fmt: skip
NEEDED = {"patience": {"validation": (X, Y)}, "loss": {"y": np.eye(10)[Y]}}


@pytest.mark.parametrize("name", inspect.signature(gbdnn.train).parameters)
def test_a_checkpoint_of_another_call_is_refused(name, tmp_path):
    """A parameter that is added to `train` has to be added here, too."""
    options = {"network": NET, "X": X, "y": Y, "epochs": 3, "checkpoint": tmp_path / "run"}
    gbdnn.train(**options)
    content = options["checkpoint"].read_bytes()
    for value, message in REFUSED[name]:
        others = {name: value} | NEEDED.get(name, {})
        if message is None:
            gbdnn.train(**options | others)
            continue
        raises(errors.ArgumentError, message, gbdnn.train, **options | others)
        assert options["checkpoint"].read_bytes() == content


CYCLIC = Custom(None)
CYCLIC.strength = [CYCLIC, CYCLIC]
# Pairs of values that differ, of kinds whose attributes or `__getstate__` do not tell.
DIFFERENT = [
    ([1, {"a": np.arange(3)}], [1, {"a": np.arange(3) + 1}]), (CYCLIC, CYCLIC.strength),
    ({1, 2}, {1, 3}), (frozenset("ab"), frozenset("abc")), (b"a" * 500, b"a" * 499 + b"b"),
    (partial(max, 1), partial(max, 2)), (partial(math.hypot, 1), partial(math.dist, 1)),
    (deque([1]), deque([2])), (OrderedDict(a=1), OrderedDict(a=2)), ([1, 2], (1, 2)),
    ({1: 0}, {"1": 0}), (np.array([[1], [2, 3]], object), np.array([[1], [2, 4]], object)),
    (np.random.default_rng(0), np.random.default_rng(1)),
    (re.compile("a"), re.compile("a", re.IGNORECASE)), (np.add, np.multiply), (1, True),
    (np.float32(1), np.float64(1)), (Custom(1).adjust, Custom(2).adjust),
    (np.ma.array([1, 2], mask=[0, 1]), np.ma.array([1, 2], mask=[0, 0])),
]  # fmt: skip
ONE, OTHER = [1], [1]


@pytest.mark.parametrize("k", range(len(DIFFERENT)))
def test_a_checkpoint_distinguishes_all_that_is_not_equal(k, tmp_path):
    options = {"epochs": 1, "checkpoint": tmp_path / "run"}
    value, other = DIFFERENT[k]
    gbdnn.train(NET, X, Y, adjustments=Custom(value), **options)
    gbdnn.train(NET, X, Y, adjustments=Custom(copy.deepcopy(value)), **options)
    with pytest.raises(errors.ArgumentError, match="has adjustments"):
        gbdnn.train(NET, X, Y, adjustments=Custom(other), **options)


def test_equal_objects_may_be_one_or_two(tmp_path):
    for value in ([ONE, ONE], [ONE, OTHER]):
        gbdnn.train(NET, X, Y, epochs=1, adjustments=Custom(value), checkpoint=tmp_path / "run")


@pytest.mark.parametrize("value", [lambda x: x, (x for x in ()), partial(lambda x: x, 1)])
def test_a_checkpoint_refuses_what_it_cannot_compare(value, tmp_path):
    with pytest.raises(errors.ArgumentError, match="checkpoint= cannot compare"):
        gbdnn.train(NET, X, Y, adjustments=Custom(value), checkpoint=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("memory", [None, 1])
def test_a_checkpoint_compares_stored_features(memory, monkeypatch, tmp_path):
    if memory is not None:
        monkeypatch.setattr("gbdnn.training.data.MEMORY", memory)
    options = {"epochs": 1, "checkpoint": tmp_path / "run"}
    for name, scale in (("a", 1.0), ("b", 1.0), ("c", 1.5)):
        gbdnn.io.write_features(sp.csr_array(X * scale), tmp_path / name)
    a, b, c = (gbdnn.io.open_features(tmp_path / name)[10:] for name in "abc")
    gbdnn.train(NET, a, Y[10:], **options)
    monkeypatch.undo()  # another machine
    gbdnn.train(NET, b, Y[10:], **options)
    for other in (c, gbdnn.io.open_features(tmp_path / "a")[:-10]):
        with pytest.raises(errors.ArgumentError, match="has data"):
            gbdnn.train(NET, other, Y[10:], **options)


# -- moments ------------------------------------------------------------------------------------


class Momentum:
    learning_rate, moments = 0.01, 2

    def update(self, values, gradient, moments, learning_rate, step):
        assert step > 0
        moments[0] += gradient
        moments[1] += gradient**2
        values -= learning_rate * moments[0] / (1 + step)


def test_another_optimizer_begins_with_its_own_moments_and_step():
    """As in a call with the network alone; SGD and Momentum differ in class or number."""
    begun = gbdnn.train(NET, X, Y, epochs=2, optimizer=training.SGD(0.01))
    assert all(layer.moments[0].any() for layer in begun.layers)
    adam = training.Adam(0.01, weight_decay=0.0)
    for run in (begun, gbdnn.train(begun, X, Y, epochs=1, optimizer=Seen())):
        found = gbdnn.train(run, X, Y, epochs=2, optimizer=adam, seed=0)
        assert found.moments_of.endswith("Adam")
        assert found.moment_steps == 2 * 3
        first = gbdnn.train(run, X, Y, epochs=1, optimizer=adam, batch_size=len(X))
        # The first step of Adam is at most the learning rate.
        moved = [abs(a.weights - b.weights) for a, b in zip(first.layers, run.layers, strict=True)]
        assert 0.009 < max(map(np.max, moved)) < 0.0101


class Seen(Momentum):
    """Has as many moments as Adam, and another meaning of them."""


def test_moments_and_step_survive_divergence():
    adam = {"optimizer": training.Adam(0.01)}
    run = gbdnn.train(NET, X, Y, epochs=2, **adam)
    # Continued with the same class, the step counts on.
    assert gbdnn.train(run, X, Y, epochs=1, optimizer=training.Adam(0.02)).moment_steps == 9

    class Exploding:
        every = 2

        def adjust(self, layers, context):
            layers[0].weights[:] = np.inf
            return layers

    with pytest.raises(errors.DivergenceError) as caught:
        gbdnn.train(run, X, Y, epochs=2, adjustments=Exploding(), **adam)
    assert caught.value.run.moment_steps == run.moment_steps + 2


def test_a_saved_run_is_not_a_checkpoint(tmp_path):
    gbdnn.training.write_run(gbdnn.train(NET, X, Y, epochs=1), tmp_path / "run")
    with pytest.raises(errors.ArgumentError, match="a saved run, not a checkpoint"):
        gbdnn.train(NET, X, Y, epochs=1, checkpoint=tmp_path / "run")


def test_a_checkpoint_that_cannot_be_written_is_an_error_before_training(tmp_path):
    calls = []
    with pytest.raises(errors.OutputError, match="does not exist"):
        gbdnn.train(NET, X, Y, checkpoint=tmp_path / "no" / "run", callback=calls.append)
    assert calls == []


def test_ctrl_c_leaves_the_epochs_that_were_complete(tmp_path):
    options = {"epochs": 5, "batch_size": 50}  # 7 steps an epoch
    expected = gbdnn.train(NET, X, Y, **options)

    class Interrupting:
        every = 1
        interrupts = True

        def adjust(self, layers, context):
            if self.interrupts and context.step > 16:
                raise KeyboardInterrupt
            return layers

    options |= {"checkpoint": tmp_path / "run", "adjustments": Interrupting()}
    with pytest.raises(KeyboardInterrupt) as caught:
        gbdnn.train(NET, X, Y, **options)
    Interrupting.interrupts = False
    run = caught.value.run
    assert len(run.history) == 2
    assert [r[:7] for r in run.history] == [r[:7] for r in expected.history[: len(run.history)]]
    assert same_bits(gbdnn.train(NET, X, Y, **options), expected)


# -- what is looked at --------------------------------------------------------------------------


LEARNING = {"validation": 0.3, "optimizer": training.Adam(0.05), "batch_size": 20}


def test_the_best_epoch_is_kept_without_an_early_end():
    options = LEARNING | {"epochs": 12}
    seen = []
    last = gbdnn.train(NET, X, Y, **options, callback=lambda now: seen.append(now.network) and None)
    best = gbdnn.train(NET, X, Y, **options, patience=np.inf)
    losses = [record.validation_loss for record in last.history]
    assert 0 <= np.argmin(losses) < 11
    assert same_bits(last, best)
    assert best.best.epoch == np.argmin(losses)
    assert best.network.isequal(seen[np.argmin(losses)])
    assert last.network.isequal(seen[-1])
    assert not last.network.isequal(best.network)


def test_the_best_epoch_has_the_density_of_pruning():
    for end, every in ((0.5, 3), (0.3, 40), (0.3, 10_000)):
        pruning = training.MagnitudePruning(0.05, end=end, every=every)
        run = gbdnn.train(NET, X, Y, **LEARNING, epochs=12, patience=5, adjustments=pruning)
        losses = [record.validation_loss for record in run.history]
        edges = [record.edges for record in run.history]
        assert edges[0] > edges[-1]
        assert run.best.epoch > np.argmin(losses)  # fewer edges, greater loss
        assert run.network.edges == edges[-1]
        some = [k for k, count in enumerate(edges) if count == edges[-1]]
        assert run.best.epoch == min(some, key=losses.__getitem__)


class Removing(Custom):
    end = 0.5


def test_patience_and_adjustments_that_end_with_the_last_step():
    options = {"validation": 0.3, "patience": 2, "epochs": 8}
    run = gbdnn.train(NET, X, Y, **options, adjustments=Removing(1), optimizer=training.SGD(1e-30))
    assert (run.best.epoch, len(run.history)) == (3, 6)
    for adjustment in (training.GroupLasso(1e-3), training.MagnitudePruning(0.1, end=1)):
        with pytest.raises(errors.ArgumentError, match="patience= cannot be combined with"):
            gbdnn.train(NET, X, Y, **options, adjustments=[training.SET(), adjustment])
    Removing.end = 2
    with pytest.raises(errors.ArgumentError, match="end must be at least 0 and at most 1, not 2"):
        gbdnn.train(NET, X, Y, **options, adjustments=Removing(1))
    Removing.end = 0.5


def test_a_run_that_goes_on_knows_its_best_epoch(tmp_path):
    first = gbdnn.train(NET, X, Y, **LEARNING, epochs=12, patience=np.inf)
    worse = LEARNING | {"optimizer": training.SGD(0.5)}
    gbdnn.training.write_run(first, tmp_path / "run")
    for run in (first, gbdnn.training.read_run(tmp_path / "run")):
        for changes in ({}, {"checkpoint": tmp_path / "checkpoint"}):
            longer = gbdnn.train(run, X, Y, **worse, epochs=2, patience=np.inf, **changes)
            assert longer.history[-1].validation_loss > first.best.validation_loss
            assert longer.best.epoch == first.best.epoch
            assert longer.network.isequal(first.network)
        # With other inputs, the loss of the earlier network is another one.
        others = worse | {"validation": (X[:50], Y[:50])}
        longer = gbdnn.train(run, X, Y, **others, epochs=1, patience=np.inf)
        before = gbdnn.train(first.network, X[:50], Y[:50], epochs=1, batch_size=50).history[0]
        least = min(before.loss, longer.history[-1].validation_loss)
        assert longer.best.validation_loss == pytest.approx(least, rel=1e-12)
    assert gbdnn.train(first, X, Y, **LEARNING, epochs=1).best is None
    # Patience counts the epochs of the call.
    still = LEARNING | {"optimizer": training.SGD(1e-30)}
    longer = gbdnn.train(first, X, Y, **still, epochs=9, patience=3)
    assert len(longer.history) == len(first.history) + 3


def test_a_callback_sees_the_network_and_does_not_keep_it():
    records, infos = [], []

    def look(now):
        records.append(now)
        infos.append(gbdnn.infer(now.network, X).nvals)

    run = gbdnn.train(NET, X, Y, epochs=3, callback=look)
    assert tuple(records) == run.history
    assert isinstance(records[0], training.EpochRecord)
    assert infos[-1] == gbdnn.infer(run.network, X).nvals
    with pytest.raises(errors.ArgumentError, match="only during the callback"):
        records[-1].network  # noqa: B018
    # What else a callback returns ends nothing.
    assert len(gbdnn.train(NET, X, Y, epochs=3, callback=lambda _: True).history) == 3


@pytest.mark.parametrize("part", [None, 0.25])
def test_a_stratified_part(part):
    y = np.sort(np.random.default_rng(0).integers(0, 10, len(X)) ** 2 // 9)
    y[:2] = 9
    validation = "stratified" if part is None else ("stratified", part)
    parts = []

    class Loss(losses.CrossEntropy):
        def losses(self, answer, targets):
            parts.append(targets)
            return super().losses(answer, targets)

    gbdnn.train(NET, X, y, epochs=1, loss=Loss(), validation=validation)
    tested = parts[-1]
    assert len(tested) == round((part or 0.1) * len(X))
    counts, all_of_them = np.bincount(tested, minlength=10), np.bincount(y, minlength=10)
    assert np.abs(counts - all_of_them * len(tested) / len(X)).max() < 1
