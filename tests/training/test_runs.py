"""Runs that are kept, interrupted or followed: what `train` gives besides a network."""

import dataclasses
import json

import numpy as np
import pytest
from test_training import data, network, same_bits

import gbdnn
from gbdnn import training
from gbdnn.io.store.index import INDEX, encode

pytest.importorskip("safetensors")

NET = network()
X, Y = data(NET)


def stored(run, tmp_path):
    gbdnn.save(run, tmp_path / "kept")
    return gbdnn.load(tmp_path / "kept")


# -- in a store ---------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [True, False], ids=["labels", "values"])
@pytest.mark.parametrize("dtype", ["FP32", "FP64"])
@pytest.mark.parametrize("optimizer", [training.Adam(0.01, weight_decay=0.1), training.SGD(0.1)])
def test_a_run_comes_back_with_all_that_going_on_needs(optimizer, dtype, labels, tmp_path):
    net = network(dtype=dtype, clip=0.7)
    X, y = data(net, labels=labels)
    run = gbdnn.train(
        net, X, y, epochs=3, optimizer=optimizer, validation=0.2, keep="best", seed=4,
        batch_size=50, schedule=training.Stepwise((0.5,)), adjustments=training.SET(every=3),
    )  # fmt: skip
    found = stored(run, tmp_path)
    assert gbdnn.io.store.store_kind(tmp_path / "kept") == "training"
    assert repr(found) == repr(run)
    assert found.history == run.history
    for name in ("loss", "optimizer", "schedule", "batch_size", "seed", "steps"):
        assert getattr(found, name) == getattr(run, name)
    assert found.network.isequal(run.network)
    assert found.best.epoch == run.best.epoch
    assert same_bits(found, run)
    # Another day, more epochs, other inputs.
    longer = [gbdnn.train(each, X[:200], y[:200], epochs=2) for each in (run, found)]
    assert same_bits(*longer)
    assert longer[0].steps == run.steps + 8


def test_a_run_without_epochs_or_options(tmp_path):
    run = gbdnn.train(NET, X, Y, epochs=0)
    found = stored(dataclasses.replace(run, optimizer=None, schedule=None), tmp_path)
    assert (found.optimizer, found.history, found.loss) == (None, (), training.CrossEntropy())
    assert found.network.isequal(run.network)


def test_parts_of_ones_own_are_not_kept(tmp_path):
    class Mine(training.Cosine):
        pass

    run = gbdnn.train(NET, X, Y, epochs=1, schedule=Mine())
    with pytest.raises(gbdnn.ArgumentError, match="a schedule of one's own, Mine"):
        gbdnn.save(run, tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda index: index["run"]["history"][0].pop(),
        lambda index: index["run"]["layers"].pop(),
        lambda index: index["run"]["layers"][0].update(shape=[30, 20]),
        lambda index: index["run"]["layers"][0].update(dtype="float16"),
        lambda index: index["run"].pop("stopped"),
        lambda index: index["run"].update(more=1),
        lambda index: index["optimizer"].update(kind="Momentum"),
        lambda index: index["optimizer"]["options"].update(beta3=1),
        lambda index: index["optimizer"]["options"].update(learning_rate=-1),
        lambda index: index["arrays"].pop("0.edges"),
        lambda index: index["arrays"].update({"0.bias": ["float32", 7]}),
        lambda index: index["state"]["tensors"].pop("0.edges"),
        lambda index: index.pop("seed"),
        lambda index: index.pop("run"),
        lambda index: index.update(state=3),
        lambda index: index.update(steps="many"),
    ],
)
def test_a_store_that_was_written_by_others(change, tmp_path):
    gbdnn.save(gbdnn.train(NET, X, Y, epochs=2), tmp_path / "kept")
    path = tmp_path / "kept" / INDEX
    index = json.loads(path.read_text())
    change(index)
    for name in ("format", "version", "checksum", "kind"):
        index.pop(name)
    path.write_bytes(encode("training", index.pop("shards"), index))
    with pytest.raises(gbdnn.FormatError, match="kept"):
        gbdnn.load(tmp_path / "kept")


# -- Ctrl-C -------------------------------------------------------------------------------------


def interrupting(epoch):
    def callback(record):
        if record.epoch == epoch:
            raise KeyboardInterrupt

    return callback


@pytest.mark.parametrize("where", ["callback", "progress"])
def test_ctrl_c_leaves_the_epochs_that_were_complete(where, tmp_path):
    options = {"epochs": 5, "batch_size": 50, "optimizer": training.Adam(0.01)}
    expected = gbdnn.train(NET, X, Y, **options)

    def progress(done, _):
        if done > 16:  # of 7 steps an epoch
            raise KeyboardInterrupt

    stop = {"callback": interrupting(2)} if where == "callback" else {"progress": progress}
    path = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt) as caught:
        gbdnn.train(NET, X, Y, **options, **stop, checkpoint=path)
    run = caught.value.run
    assert len(run.history) in ((3,) if where == "callback" else (2, 3, 4))
    assert [r[:7] for r in run.history] == [r[:7] for r in expected.history[: len(run.history)]]
    seen = []
    again = gbdnn.train(NET, X, Y, **options, checkpoint=path, callback=seen.append)
    assert [record.epoch for record in seen] == list(range(len(run.history), 5))
    assert same_bits(again, expected)


def test_ctrl_c_before_the_first_epoch_ends_leaves_no_checkpoint(tmp_path):
    def progress(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        gbdnn.train(NET, X, Y, epochs=3, checkpoint=tmp_path / "run", progress=progress)
    assert caught.value.run.history == ()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"epochs": 4}, "another epochs:"),
        ({"seed": 1}, "another seed, X, validation X:"),
        ({"optimizer": training.SGD(0.1)}, "another optimizer:"),
        ({"min_delta": 0.1}, "another min_delta:"),
        ({"validation": (X[:50], Y[:50])}, "another X, validation X, validation y, validation s"),
        ({"sample_weight": Y + 1}, "another sample_weight, validation sample_weight:"),
        ({"schedule": training.Constant(), "batch_size": 60}, "another schedule, batch_size:"),
    ],
)
def test_a_checkpoint_that_does_not_fit_names_what_differs(change, name, tmp_path):
    options = {"epochs": 3, "validation": 0.2, "patience": 2, "checkpoint": tmp_path / "run"}
    gbdnn.train(NET, X, Y, **options)
    with pytest.raises(gbdnn.FormatError, match=name):
        gbdnn.train(NET, X, Y, **options | change)


# -- what is looked at --------------------------------------------------------------------------


def test_the_best_epoch_is_kept_without_patience():
    options = {"epochs": 12, "validation": 0.3, "optimizer": training.Adam(0.05), "batch_size": 20}
    seen = []
    last = gbdnn.train(NET, X, Y, **options, callback=lambda now: seen.append(now.network) and None)
    best = gbdnn.train(NET, X, Y, **options, keep="best")
    losses = [record.validation_loss for record in last.history]
    assert 0 <= np.argmin(losses) < 11
    assert same_bits(last, best)
    assert best.best.epoch == np.argmin(losses)
    assert best.network.isequal(seen[np.argmin(losses)])
    assert last.network.isequal(seen[-1])
    assert not last.network.isequal(best.network)


def test_a_callback_sees_the_network_and_does_not_keep_it():
    records, infos = [], []

    def look(now):
        records.append(now)
        infos.append(gbdnn.infer(now.network, X).nvals)

    run = gbdnn.train(NET, X, Y, epochs=3, callback=look)
    assert tuple(records) == run.history
    assert isinstance(records[0], training.EpochRecord)
    assert infos[-1] == gbdnn.infer(run.network, X).nvals
    with pytest.raises(gbdnn.ArgumentError, match="the epoch is over"):
        records[-1].network  # noqa: B018


def test_min_delta():
    options = {"epochs": 40, "validation": 0.3, "patience": 2, "optimizer": training.Adam(0.001)}
    some = gbdnn.train(NET, X, Y, **options, min_delta=0.02)
    losses = [record.validation_loss for record in some.history]
    best, since = np.inf, 0
    for count, loss in enumerate(losses, 1):
        best, since = (loss, 0) if loss < best - 0.02 else (best, since + 1)
        assert (since == 2) == (count == len(losses))
    assert some.best.validation_loss == best
    assert len(losses) < len(gbdnn.train(NET, X, Y, **options).history)


@pytest.mark.parametrize("part", [None, 0.25])
def test_a_stratified_part(part):
    y = np.sort(np.random.default_rng(0).integers(0, 10, len(X)) ** 2 // 9)
    y[:2] = 9
    validation = "stratified" if part is None else ("stratified", part)
    parts = []

    class Loss(training.CrossEntropy):
        def losses(self, answer, targets):
            parts.append(targets)
            return super().losses(answer, targets)

    gbdnn.train(NET, X, y, epochs=1, loss=Loss(every_label=False), validation=validation)
    (tested,) = parts
    assert len(tested) == round((part or 0.1) * len(X))
    counts, all_of_them = np.bincount(tested, minlength=10), np.bincount(y, minlength=10)
    assert np.abs(counts - all_of_them * len(tested) / len(X)).max() < 1


def test_a_label_that_is_left_to_validation_alone_is_a_warning():
    y = np.where(Y == 9, 8, Y)
    y[17] = 9
    for seed in range(40):
        order = np.random.default_rng([seed, 99]).permutation(len(X))
        if 17 in order[: round(0.2 * len(X))]:
            with pytest.warns(RuntimeWarning, match="label 9 is not among"):
                gbdnn.train(NET, X, y, epochs=1, validation=0.2, seed=seed)
            return
    raise AssertionError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": "first"}, "keep is 'last' or 'best'"),
        ({"keep": "best"}, "keep: there is no validation"),
        ({"validation": "random"}, "validation is 'stratified'"),
        ({"validation": ("stratified", 2)}, "validation is a number"),
        ({"min_delta": -1, "validation": 0.2, "patience": 2}, "min_delta"),
    ],
)
def test_what_has_no_meaning(options, message):
    with pytest.raises(gbdnn.ArgumentError, match=message):
        gbdnn.train(NET, X, Y, **options)
    with pytest.raises(gbdnn.ArgumentError, match="for labels"):
        gbdnn.train(NET, X, np.eye(10)[Y], validation="stratified")


@pytest.mark.parametrize(
    "optimizer",
    [training.SGD(3), training.SGD(100), training.SGD(1e4), training.Adam(1), training.Adam(1e4)],
    ids=repr,
)
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_learning_rate_that_is_far_too_large(optimizer, kind):
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    net = training.erdos_renyi([64, 256, 128, 10], 0.1, dtype=kind)
    with pytest.raises(gbdnn.DivergenceError, match="learning rate smaller than") as caught:
        gbdnn.train(net, digits.data / 16, digits.target, epochs=20, optimizer=optimizer)
    assert all(np.isfinite(layer.weights).all() for layer in caught.value.run.layers)


def test_neurons_that_were_dead_before_are_no_divergence():
    """One layer has weights of 0 alone: that is no learning rate's doing."""
    layers = [gbdnn.Layer(np.zeros((37, 20)), 0.0), gbdnn.Layer(np.ones((20, 10)), 0.0)]
    run = gbdnn.train(layers, X, Y, epochs=2)
    assert len(run.history) == 2
