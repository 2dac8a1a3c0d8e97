"""Stores of `tests/data/stored` are read by all later versions; what was cut short is resumed.

Or refused with a sentence: by another version of gbdnn, which may compute other bits.
"""

import importlib.util
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import gbdnn
from gbdnn.distributed.executors import checkpoint
from gbdnn.io import conversion
from gbdnn.io.store import resumed

pytest.importorskip("safetensors")

DATA = Path(__file__).parents[1] / "data"
STORED = DATA / "stored"
MADE_BY = "0.1.0"


@pytest.fixture(scope="module")
def made():
    """The script that made the files."""
    spec = importlib.util.spec_from_file_location("make_stored", DATA / "make_stored.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def copied(tmp_path):
    def copy(name):
        return Path(shutil.copytree(STORED / name, tmp_path / name))

    return copy


def dense_answer(weights, X):
    """Return the answer of the network in the store, by NumPy."""
    W0, W1, W2 = weights
    hidden = X @ W0
    X = np.clip(np.where(hidden != 0, hidden - 0.25, 0), 0, 32)
    hidden = X @ W1
    bias = np.array([0, -0.5, 0.25, 0, -0.25])
    X = np.clip(np.where((X != 0).any(1)[:, None], hidden + bias, 0), 0, 32)
    return np.maximum(X @ W2, 0)


def is_refused(call, out):
    """Whether another version refuses a run, and leaves its files alone."""
    if gbdnn.__version__ == MADE_BY:
        return False
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(gbdnn.OutputError, match=re.escape(f"version: {MADE_BY}, here ")):
        call()
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    return True


def test_finished_stores_are_read(made):
    net = gbdnn.load(STORED / "network", lazy=True)
    assert net.isequal(made.network())
    assert [layer.clip for layer in net] == [32, 32, None]
    assert [layer.bias_rule for layer in net] == [layer.bias_rule for layer in made.network()]
    for layer, W in zip(net, made.weights(), strict=True):
        assert np.array_equal(layer.W.to_dense(fill_value=0), W)
    X = gbdnn.load(STORED / "features")
    assert np.array_equal(X.to_dense(fill_value=0), made.features())
    assert gbdnn.load(STORED / "categories").tolist() == [1, 5, 7]
    Y = gbdnn.load(STORED / "answer").to_dense(fill_value=0)
    assert np.array_equal(Y, dense_answer(made.weights(), made.features()))
    assert 5 < np.count_nonzero(Y) < Y.size
    assert len(np.unique(Y)) > 5


def test_an_answer_that_is_complete_is_not_computed_again(made, copied):
    out, records = copied("answer"), []
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    gbdnn.infer_to_store(
        made.network(), made.features(), out, batch=5, engine="full", stats=records.append
    )
    if gbdnn.__version__ == MADE_BY:
        assert not records
        assert before == {path.name: path.read_bytes() for path in out.iterdir()}


def test_an_answer_that_was_cut_short_is_resumed(made, copied):
    out = copied("answer_cut")
    left, done = gbdnn.io.find_unfinished(out), []
    assert (left.kind, left.done, left.total) == ("features", 6, 12)

    def call():
        return gbdnn.infer_to_store(
            made.network(), made.features(), out, engine="full",
            progress=lambda k, _: done.append(k),
        )  # fmt: skip

    if not is_refused(call, out):
        call()
        assert done == [6, 12]
        expected = gbdnn.load(STORED / "answer")
        assert gbdnn.load(out).isequal(expected, check_dtype=True)


def test_a_network_that_was_cut_short_is_resumed(made, copied):
    out = copied("network_cut")
    left, done = gbdnn.io.find_unfinished(out), []
    assert (left.kind, left.done, left.total) == ("network", 2, 3)

    def call():
        source = conversion.of_layers(made.network())
        resumed.save_layers(source, out, progress=lambda k, _: done.append(k))

    if not is_refused(call, out):
        call()
        assert done == [2, 3]
        assert gbdnn.load(out).isequal(made.network())


def test_a_streamed_run_that_was_cut_short_is_resumed(made, copied, tmp_path):
    out = copied("streamed_cut")
    left = gbdnn.io.find_unfinished(out)
    assert (left.done, left.layer, left.layers) == (0, 6, 12)
    (point,) = out.glob("*/part-*.run")
    ((layer, rows),) = checkpoint.Checkpoint(point).restore().queued
    assert (layer, rows.nrows, rows.ids.tolist()) == (6, 1, [2])
    gbdnn.save(made.large(), tmp_path / "net")
    net, X = gbdnn.load(tmp_path / "net", lazy=True), made.large_features()
    options = {"memory": made.MEMORY, "engine": "full"}

    def call():
        return gbdnn.infer_to_store(net, X, out, **options)

    if not is_refused(call, out):
        call()
        Y = gbdnn.load(out)
        assert Y.nvals
        assert Y.isequal(gbdnn.infer(net, X, **options))
