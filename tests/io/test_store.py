"""Stores: what is loaded is what was saved, or an error says what is damaged."""

import gc
import json
import os
import pickle
import re
import signal
import stat
import subprocess
import sys
import tempfile
import weakref
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import graphblas as gb
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import gbdnn
from gbdnn import FormatError, Layer, MissingFileError, Network, OutputError, ShapeError
from gbdnn.arrays.matrices import as_rows
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.io.store import features, require_storable, shards, writer
from gbdnn.io.store.index import encode


def bits(layer):
    W = layer.W.ss.export("csc", sort=True)
    arrays = [W["indptr"], W["row_indices"], W["values"], np.asarray(layer.bias)]
    described = (layer.shape, layer.edges, layer.gain, str(layer.dtype), layer.describe())
    return [(a.dtype, a.tobytes()) for a in arrays], W.get("is_iso", False), described, layer.clip


def assert_same(net, saved):
    assert len(net) == len(saved)
    for k, layer in enumerate(saved):
        assert bits(net[k]) == bits(layer)
        assert net.infos[k].gain == layer.gain
        assert net.infos[k].describe() == layer.describe()
        assert net.infos[k].largest_bias == layer.largest_bias
        assert net.infos[k].lowest_bias == layer.lowest_bias


@st.composite
def networks(draw):
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    wide = 32 if dtype is np.float32 else 64
    numbers = st.floats(width=wide, allow_nan=False, allow_infinity=False)
    sizes = draw(st.lists(st.integers(0, 6), min_size=1, max_size=5))
    layers = []
    for n, m in pairwise(sizes):
        places = draw(st.sets(st.integers(0, max(n * m - 1, 0)), max_size=n * m)) if n * m else ()
        rows, cols = np.divmod(np.array(sorted(places), int), max(m, 1))
        nonzero = numbers.filter(bool)
        if draw(st.booleans()):
            value = dtype(draw(nonzero))
            W = gb.Matrix.from_coo(rows, cols, value, nrows=n, ncols=m, dtype=dtype)
        else:
            values = draw(st.lists(nonzero, min_size=len(rows), max_size=len(rows)))
            W = gb.Matrix.from_coo(rows, cols, np.array(values, dtype), nrows=n, ncols=m)
        bias = draw(numbers | st.lists(numbers, min_size=m, max_size=m))
        layers.append(
            Layer(
                W,
                bias,
                bias_rule=draw(st.sampled_from(["all", "entries"])),
                activation=draw(st.sampled_from(["relu", "identity"])),
                clip=draw(st.none() | st.floats(2.0**-100, 2.0**100, width=32)),
                dtype=dtype,
            )
        )
    return Network(layers)


@given(networks(), st.sampled_from([0, 200, writer.SHARD_BYTES]))
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_networks_round_trip(net, shard_bytes):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "SHARD_BYTES", shard_bytes)
        gbdnn.save(net, folder)
        found = gbdnn.load(folder, lazy=True)
        assert_same(found, net)
        assert found.isequal(net)
        assert_same(found.loaded(), net)
        assert_same(pickle.loads(pickle.dumps(found)), net)  # noqa: S301
        if shard_bytes == 0 and len(net):
            assert len(list(Path(folder).iterdir())) == len(net) + 1


@st.composite
def matrices(draw):
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    wide = 32 if dtype is np.float32 else 64
    n, m = draw(st.integers(0, 12)), draw(st.integers(0, 5))
    values = st.floats(width=wide, allow_nan=False, allow_infinity=False) | st.just(0.0)
    if draw(st.booleans()):
        values = st.sampled_from([0.0, 1.0])
    dense = np.array(draw(st.lists(values, min_size=n * m, max_size=n * m)), dtype)
    return dense.reshape(n, m)


@given(matrices(), st.integers(1, 9), st.integers(1, 7))
def test_features_round_trip(dense, part, batch):
    expected = gb.Matrix.from_dense(dense, missing_value=0)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(features, "PART", part)
        gbdnn.save(expected, folder)
        assert gbdnn.load(folder).isequal(expected, check_dtype=True)
        blocks = [dense[i : i + batch] for i in range(0, len(dense), batch)]
        gbdnn.io.write_features(iter(blocks), folder, ncols=dense.shape[1], dtype=dense.dtype)
        stored = gbdnn.io.open_features(folder)
        assert (stored.shape, stored.nvals, stored.dtype) == (
            dense.shape, expected.nvals, dense.dtype,
        )  # fmt: skip
        assert stored.matrix().isequal(expected, check_dtype=True)
        for start in range(len(dense) + 1):
            for stop in (start, start + 1, start + 3, None):
                rows = stored[start:stop].matrix().to_dense(fill_value=0)
                np.testing.assert_array_equal(rows, dense[start:stop])
        again = [X.matrix().to_dense(fill_value=0) for X in stored.batches(batch)]
        assert len(again) == len(blocks)
        assert all(np.array_equal(a, b) for a, b in zip(again, blocks, strict=True))


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_categories_round_trip(ids):
    with tempfile.TemporaryDirectory() as folder:
        gbdnn.save(np.array(ids, np.int64), folder)
        found = gbdnn.load(folder, lazy=True)
        assert found.dtype == np.int64
        assert found.tolist() == ids


@given(matrices(), st.integers(1, 9))
def test_pieces_joined_are_the_whole(dense, most):
    block = as_rows(dense, what="block")
    parts = list(block.parts(most))
    assert all(p.nrows == 1 or p.nvals <= most for p in parts)
    assert all(p.nrows <= most for p in parts)
    whole = SparseRows.collected(parts, len(dense), block.nvals, block.ncols, dense.dtype)
    again = SparseRows.joined(parts) if parts else whole
    for name in ("indptr", "columns", "values", "ids"):
        assert getattr(whole, name).tolist() == getattr(block, name).tolist()
        assert getattr(again, name).tolist() == getattr(block, name).tolist()
    assert block.sparse_rows(0, len(dense)).indptr.tolist() == block.indptr.tolist()


@pytest.mark.parametrize(
    ("values", "is_iso"),
    [
        ([[2], [2, 2], [2]], True), ([[2], [], [2]], True), ([[2], [3], [2]], False),
        ([[2, 2], [3, 3], []], False), ([[2], [3, 4], [5]], False), ([[], [], []], False),
        ([[], [3, 4], [5]], False),
    ],
)  # fmt: skip
def test_blocks_of_one_value_are_joined(values, is_iso):
    blocks = []
    for row in values:
        one = len(set(row)) == 1
        blocks.append(
            SparseRows(
                np.array([0, len(row)], "u8"),
                np.arange(len(row), dtype="u8"),
                np.array(row[:1] if one else row, "f8"),
                3,
            )
        )
    flat = [x for row in values for x in row]
    joined = SparseRows.collected(blocks, 3, len(flat), 3, np.dtype("f8"))
    assert joined.is_iso == is_iso
    assert joined.values.tolist() == flat


def test_one_value_is_stored_once_and_stays_one(tmp_path):
    net = gbdnn.radixnet(1024, 6)
    gbdnn.save(net, tmp_path)
    assert sum(p.stat().st_size for p in tmp_path.iterdir()) < 4.3 * net.edges
    assert gbdnn.load(tmp_path)[5].weights.ss.is_iso
    X = gb.Matrix.from_coo([0, 5], [1, 2], True, nrows=7, ncols=3)
    gbdnn.save(X, tmp_path)
    assert gbdnn.load(tmp_path).ss.is_iso


def test_scipy_and_numpy_features(tmp_path):
    X = np.array([[0, 2, 0], [1, 0, 0]])
    gbdnn.save(sp.csc_array(X), tmp_path)
    assert gbdnn.load(tmp_path).to_dense(fill_value=0).tolist() == X.tolist()
    gbdnn.save(X, tmp_path)
    assert gbdnn.load(tmp_path).dtype == "FP32"


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (5, TypeError, "not int"), ("net", TypeError, "not str"), ({}, TypeError, "not dict"),
        ([np.eye(2)], TypeError, "layer 0: a Layer is needed, not ndarray"),
        (np.array([0.5]), TypeError, "categories: dtype float64"),
        (np.array([2**63], "u8"), ValueError, "is not an id"),
        (np.eye(2) * np.nan, ValueError, "nan"),
        ([Layer(np.ones((2, 3))), Layer(np.ones((2, 3)))], ShapeError, "layer 1: weights are 2 x"),
        ([Layer(np.eye(2)), Layer(np.eye(2, dtype="f4"))], ValueError, "layer 1 is float32 but"),
    ],
)  # fmt: skip
def test_what_cannot_be_saved(tmp_path, x, error, message):
    with pytest.raises(error, match=message) as caught:
        gbdnn.save(x, tmp_path / "new")
    assert isinstance(caught.value, gbdnn.GbdnnError)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("batches", "options", "error", "message"),
    [
        ([], {}, ValueError, "give ncols="),
        ([np.eye(2), np.eye(3)], {}, ShapeError, "batch 1: has 3 columns; the features have 2"),
        ([np.eye(2)], {"ncols": 3}, ShapeError, "batch 0: has 2 columns; the features have 3"),
        ([np.eye(2, dtype="f4"), np.eye(2)], {}, ValueError, "batch 1 is float64 but the first"),
        (np.eye(2), {}, TypeError, "a list is needed"),
        (["X"], {}, TypeError, "batch 0: a graph"),
    ],
)
def test_batches_that_make_no_features(tmp_path, batches, options, error, message):
    with pytest.raises(error, match=message):
        gbdnn.io.write_features(batches, tmp_path / "new", **options)
    assert list(tmp_path.iterdir()) == []


# Streaming


def test_layers_are_written_one_by_one(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "SHARD_BYTES", 1 << 16)
    alive, most = weakref.WeakSet(), 0

    def layers():
        nonlocal most
        for _ in range(20):
            layer = Layer(np.eye(50), bias=np.arange(50.0))
            alive.add(layer.W)
            gc.collect()
            most = max(most, len(alive))
            yield layer
            del layer

    gc.freeze()  # what is there before need not be looked at each time
    try:
        gbdnn.save(layers(), tmp_path)
    finally:
        gc.unfreeze()
    assert most == 1
    net = gbdnn.load(tmp_path, lazy=True)
    assert len(net) == 20
    assert_same(net, [Layer(np.eye(50), bias=np.arange(50.0))] * 20)


def test_many_small_batches_take_steps_in_proportion(tmp_path, monkeypatch):
    """Steps are counted: the sizes of blocks that are asked for."""
    steps = []
    plain = SparseRows.nrows

    def counted(rows):
        steps.append(rows)
        return plain.fget(rows)

    monkeypatch.setattr(SparseRows, "nrows", property(counted))
    found = []
    for count in (100, 400):
        steps.clear()
        gbdnn.io.write_features((np.ones((1, 3)) for _ in range(count)), tmp_path / str(count))
        found.append(len(steps))
    assert found[1] < 5 * found[0]
    monkeypatch.undo()
    assert gbdnn.load(tmp_path / "400").nvals == 1200


def test_shards_are_what_the_package_writes(tmp_path):
    from safetensors.numpy import load_file, save_file

    values = {
        "c": np.arange(5, dtype=np.uint32), "b": np.empty(0, np.float32),
        "a": np.arange(3, dtype=np.float32), "d": np.arange(7, dtype=np.int64) - 3,
        "e": np.linspace(0, 1, 9), "f": np.array([2**63], np.uint64),
    }  # fmt: skip
    header, size = shards.write_shard(tmp_path / "ours", values, None)
    save_file(values, tmp_path / "theirs")
    assert (tmp_path / "ours").read_bytes().startswith(header)
    assert (tmp_path / "ours").stat().st_size == size
    ours, theirs = load_file(tmp_path / "ours"), load_file(tmp_path / "theirs")
    assert set(ours) == set(theirs) == set(values)
    for name, array in values.items():
        assert ours[name].dtype == theirs[name].dtype == array.dtype
        np.testing.assert_array_equal(ours[name], array)
        at = json.loads(header[8:])[name]["data_offsets"][0]
        assert at % array.itemsize == len(header) % 8 == 0


def test_shards_are_filled(tmp_path, monkeypatch):
    net = gbdnn.radixnet(1024, 6)
    one = 4 * (1025 + 32768) + 4
    monkeypatch.setattr(writer, "SHARD_BYTES", 2 * one)
    gbdnn.save(net, tmp_path)
    sizes = [p.stat().st_size for p in tmp_path.glob("*.safetensors")]
    assert len(sizes) == 3
    assert max(sizes) < 2 * one + 2000
    assert gbdnn.load(tmp_path).isequal(net)


def test_a_lazy_network_is_saved_and_told_of(tmp_path):
    told = []
    lazy = gbdnn.radixnet(1024, 4, lazy=True)
    gbdnn.save(lazy, tmp_path / "a", progress=lambda k, count: told.append((k, count)))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    gbdnn.save(gbdnn.load(tmp_path / "a"), tmp_path / "b")
    gbdnn.save(gbdnn.load(tmp_path / "b"), tmp_path / "b")
    told.clear()
    gbdnn.save(iter(lazy), tmp_path / "c", progress=lambda k, count: told.append((k, count)))
    assert told[-1] == (4, None)
    for name in "abc":
        assert gbdnn.load(tmp_path / name).isequal(lazy)


def test_infer_from_a_store(tmp_path):
    net = gbdnn.radixnet(1024, 8)
    X = sp.random_array((50, 1024), density=0.3, rng=np.random.default_rng(1)).astype(bool)
    gbdnn.save(net, tmp_path / "net")
    gbdnn.save(X, tmp_path / "X")
    Y = gbdnn.infer(gbdnn.load(tmp_path / "net"), gbdnn.load(tmp_path / "X"), dtype="FP64")
    assert Y.nvals
    assert Y.isequal(gbdnn.infer(net, X, dtype="FP64"))


def test_reads_from_many_threads(tmp_path):
    net = gbdnn.radixnet(1024, 12)
    gbdnn.save(net, tmp_path)
    found = gbdnn.load(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda k: found[k % 12].isequal(net[k % 12]), range(100)))


# Features as a run reads them


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """Random features, and a store of them in parts of 40 rows, a shard a part."""
    monkeypatch.setattr(features, "PART", 40)
    monkeypatch.setattr(writer, "SHARD_BYTES", 0)
    rng = np.random.default_rng(5)
    X = np.zeros((1000, 1024), np.float32)
    X[np.arange(1000), rng.integers(0, 1024, 1000)] = rng.integers(1, 16, 1000) / -16
    gbdnn.save(X, tmp_path / "X")
    return X, tmp_path / "X"


def test_infer_takes_a_store_of_features(parts, tmp_path):
    X, folder = parts
    W = sp.random_array((1024, 50), density=0.2, rng=np.random.default_rng(1), dtype=np.float32)
    net = Network([Layer(-W, 0.25), Layer(np.ones((50, 7), np.float32))])
    expected = gbdnn.infer(net, X)
    stored = gbdnn.io.open_features(folder)
    assert expected.nvals
    assert (stored.nrows, stored.ncols, stored.nvals) == (1000, 1024, 1000)
    assert stored.largest == np.abs(X).max()
    for options in (
        {},
        {"engine": "full"},
        {"engine": "fused"},
        {"engine": "sparse"},
        {"nthreads": 1},
    ):
        assert gbdnn.infer(net, stored, **options).isclose(expected, rel_tol=1e-6)
    Y = gbdnn.infer(net, stored, dtype="FP64")
    assert Y.isclose(gbdnn.infer(net, X, dtype="FP64"))
    with pytest.raises(ShapeError, match="1024"):
        gbdnn.infer(net[1:], stored)


def test_ranges_are_read_when_asked_for(parts):
    X, folder = parts
    stored = gbdnn.io.open_features(folder)
    for path in folder.glob("shard-*"):
        path.unlink()
    assert stored[10:30].nrows == stored[-30:-10].nrows == 20
    assert [rows.nrows for rows in stored.batches(300)] == [300, 300, 300, 100]
    with pytest.raises(MissingFileError, match="part 0: "):
        stored[10:30].matrix()
    for wrong in (3, slice(0, 4, 2), (slice(0, 2), slice(None)), slice("a", None)):
        with pytest.raises(gbdnn.ArgumentTypeError):
            stored[wrong]
    with pytest.raises(gbdnn.ArgumentError, match="inputs"):
        stored.batches(0)
    assert X.shape == stored.shape


def test_rows_in_sparse_form(parts):
    X, folder = parts
    stored = gbdnn.io.open_features(folder)
    for start, stop in [(0, 0), (0, 1000), (39, 40), (40, 41), (10, 20), (35, 95), (999, 1000)]:
        rows = stored.sparse_rows(start, stop)
        assert (rows.nrows, rows.ncols, rows.dtype) == (stop - start, 1024, np.float32)
        assert rows.ids.tolist() == list(range(start, stop))
        np.testing.assert_array_equal(rows.matrix().to_dense(fill_value=0), X[start:stop])


def test_rows_in_sparse_form_from_many_threads(parts):
    X, folder = parts
    stored = gbdnn.io.open_features(folder)

    def read(k):
        start = k * 37 % 960
        rows = stored.sparse_rows(start, start + 40).matrix().to_dense(fill_value=0)
        return np.array_equal(rows, X[start : start + 40])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(300)))


def test_only_the_rows_that_are_asked_for_are_read(parts, monkeypatch):
    X, folder = parts
    shard(folder, 7).unlink()
    stored = gbdnn.io.open_features(folder)
    assert stored.largest == np.abs(X).max()
    assert stored.sparse_rows(0, 280).nvals == 280
    assert stored.sparse_rows(320, 1000).nvals == 680
    with pytest.raises(MissingFileError, match="part 7: "):
        stored.sparse_rows(300, 301)


def test_an_index_without_the_largest_values(parts):
    X, folder = parts
    rewritten(folder, lambda fields: [part.pop("largest") for part in fields["parts"]])
    stored = gbdnn.io.open_features(folder)
    assert stored.largest == np.inf
    net = Network([Layer(np.ones((1024, 3), np.float32), 1.0)])
    assert gbdnn.infer(net, stored).isequal(gbdnn.infer(net, X))


def test_a_wrong_largest_value_is_damage(parts):
    _, folder = parts
    rewritten(folder, lambda fields: fields["parts"][3].update(largest=2.0**-10))
    with pytest.raises(FormatError, match="part 3: a value of"):
        gbdnn.io.open_features(folder).matrix()
    rewritten(folder, lambda fields: fields["parts"][3].update(largest="x"))
    with pytest.raises(FormatError, match=r"parts\[3\].largest is a finite number, not 'x'"):
        gbdnn.io.open_features(folder)


# Damage

NET = Network(
    [
        Layer(np.eye(40), 0.25, clip=2),
        Layer(np.arange(1.0, 1601).reshape(40, 40), np.arange(40.0)),
        Layer(np.eye(40)),
    ]
)


@pytest.fixture
def store(tmp_path, monkeypatch):
    """NET in a store, a shard a layer."""
    monkeypatch.setattr(writer, "SHARD_BYTES", 0)
    gbdnn.save(NET, tmp_path / "net")
    return tmp_path / "net"


def shard(store, k):
    (found,) = store.glob(f"shard-*-{k:05}.safetensors")
    return found


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 0x01
    path.write_bytes(data)


def assert_layer_1_is_damaged(store, error=FormatError):
    net = gbdnn.load(store, lazy=True)
    assert net[0].isequal(NET[0])
    assert net[2].isequal(NET[2])
    with pytest.raises(error, match="layer 1: ") as caught:
        net[1]
    assert str(shard_name := re.escape(str(store))) in re.escape(str(caught.value)), shard_name
    with pytest.raises(error, match="layer 1: "):
        net.loaded()
    return str(caught.value)


@pytest.mark.parametrize("share", np.linspace(0, 1, 41))
def test_a_flipped_byte_in_a_shard(store, share):
    path = shard(store, 1)
    flip(path, int(share * (path.stat().st_size - 1)))
    message = assert_layer_1_is_damaged(store)
    assert path.name in message


def test_every_flipped_byte_in_a_header_is_found(store):
    padded = 0
    for k in range(3):
        path = shard(store, k)
        whole = path.read_bytes()
        header = shards.header_of(path)
        padded += header.endswith(b" ")
        for at in range(len(header)):
            flip(path, at)
            with pytest.raises(FormatError, match=f"layer {k}: "):
                gbdnn.load(store, lazy=True)[k]
            path.write_bytes(whole)
    assert padded, "no header has a byte that means nothing"


def test_a_flipped_byte_is_not_looked_for_without_verify(store):
    path = shard(store, 1)
    flip(path, len(shards.header_of(path)) + 8 * 700)  # the last bit of a value
    assert not gbdnn.load(store, verify=False, lazy=True)[1].isequal(NET[1])


def test_every_flipped_byte_in_the_index_is_found(store):
    index = store / "index.json"
    whole = index.read_bytes()
    for at in range(len(whole)):
        flip(index, at)
        with pytest.raises(FormatError, match=r"index\.json: "):
            gbdnn.load(store)
        index.write_bytes(whole)
    assert gbdnn.load(store).isequal(NET)


@pytest.mark.parametrize("left", [0, 4, 8, 100, 1000, -1])
def test_a_shard_that_is_cut_off(store, left):
    path = shard(store, 1)
    path.write_bytes(path.read_bytes()[:left])
    assert "bytes, not" in assert_layer_1_is_damaged(store)


def test_a_shard_that_is_cut_off_after_it_was_opened(store):
    net = gbdnn.load(store, lazy=True)
    assert net[1].isequal(NET[1])
    os.truncate(shard(store, 1), 5000)
    with pytest.raises(FormatError, match=r"layer 1: .* has 5000 bytes"):
        net[1]


def test_a_cut_off_index(store):
    index = store / "index.json"
    whole = index.read_bytes()
    for left in (0, 1, 30, len(whole) // 2, len(whole) - 1):
        index.write_bytes(whole[:left])
        with pytest.raises(FormatError, match=r"index\.json: "):
            gbdnn.load(store)


def test_a_missing_shard(store):
    shard(store, 1).unlink()
    assert "the shard is missing" in assert_layer_1_is_damaged(store, MissingFileError)


def test_two_shards_exchanged(store):
    a, b = shard(store, 0), shard(store, 2)
    a.rename(store / "x")
    b.rename(a)
    (store / "x").rename(b)
    net = gbdnn.load(store, lazy=True)
    with pytest.raises(FormatError, match="layer 0: "):
        net[0]
    assert net[1].isequal(NET[1])


def test_a_newer_version(store):
    index = store / "index.json"
    index.write_text(index.read_text().replace('"version": 1,', '"version": 2,'))
    with pytest.raises(FormatError, match=r"version 2 of the format; .* up to 1: upgrade gbdnn"):
        gbdnn.load(store)


def rewritten(store, change):
    """The store with another index, as a program that got something wrong would write it."""
    index = store / "index.json"
    fields = json.loads(index.read_text())
    change(fields)
    for name in ("format", "version", "checksum"):
        del fields[name]
    index.write_bytes(encode(fields.pop("kind"), fields.pop("shards"), fields))


def layer_1(**options):
    return lambda fields: fields["layers"][1].update(options)


def matrix_1(**options):
    return lambda fields: fields["layers"][1]["binsparse"].update(options)


@pytest.mark.parametrize(
    "change",
    [
        layer_1(clip=-1), layer_1(clip="2"), layer_1(bias="0"), layer_1(bias={"lowest": 0}),
        layer_1(bias_rule="x"), layer_1(activation=None), layer_1(gain=-1), layer_1(gain="x"),
        layer_1(binsparse=None), matrix_1(shape=[40]), matrix_1(shape=[40, 41]),
        matrix_1(shape=[40, -40]), matrix_1(format="CSR"), matrix_1(number_of_stored_values=1.0),
        matrix_1(data_types={}), lambda f: f.pop("layers"), lambda f: f.update(layers=3),
        lambda f: f.update(kind="pickle"), lambda f: f.update(kind=[]),
        lambda f: f.update(shards=[{}]), lambda f: f["layers"].pop(1) and f["layers"].append(0),
        layer_1(shard="../x.safetensors"), layer_1(shard=5), layer_1(shard="x.safetensors"),
        layer_1(tensors={}), matrix_1(shape=[3]), matrix_1(shape="ab"), matrix_1(shape=[None, 3]),
        matrix_1(shape=[40.0, 40]), matrix_1(shape=["40", "40"]), matrix_1(shape=[True, True]),
        matrix_1(number_of_stored_values="1600"), layer_1(gain=10**400),
        lambda f: f["shards"][0].update(bytes="7"), lambda f: f["shards"][0].update(bytes=7.5),
        lambda f: f["shards"].append(f["shards"][0]), lambda f: f["shards"][0].pop("file"),
        lambda f: f["layers"][1]["tensors"]["values"].update(xxh3_64=3),
    ],
)  # fmt: skip
def test_an_index_that_is_wrong_is_told_when_loading(store, change):
    rewritten(store, change)
    with pytest.raises(FormatError, match=re.escape(str(store))):
        gbdnn.load(store)


@pytest.mark.parametrize(
    "change",
    [
        layer_1(gain=1.0), matrix_1(number_of_stored_values=1599),
        layer_1(bias={"lowest": 0.0, "highest": 1.0}),
        matrix_1(data_types={
            "pointers_to_1": "uint64", "indices_1": "uint32", "values": "float64"}),
        matrix_1(data_types={
            "pointers_to_1": "uint32", "indices_1": "uint32", "values": "iso[float64]"}),
    ],
)  # fmt: skip
def test_an_index_that_is_wrong_is_told_when_reading(store, change):
    rewritten(store, change)
    assert_layer_1_is_damaged(store)


@pytest.mark.parametrize(
    ("indptr", "indices", "values", "fault"),
    [
        ([0, 2, 1, 3], [0, 1, 1], [1, 1, 1], "the pointers do not ascend"),
        ([1, 1, 2, 3], [0, 1, 1], [1, 1, 1], "the pointers do not ascend"),
        ([0, 1, 2, 2], [0, 1, 1], [1, 1, 1], "the pointers do not ascend"),
        ([0, 1, 2, 3], [0, 1, 3], [1, 1, 1], "an index of 3, of 3"),
        ([0, 1, 3, 3], [0, 2, 1], [1, 1, 1], "indices do not ascend"),
        ([0, 1, 3, 3], [0, 2, 2], [1, 1, 1], "indices do not ascend"),
        ([0, 0, 2, 3], [0, 1, 1], [1, 0, 1], "a zero is stored"),
        ([0, 0, 2, 3], [0, 1, 1], [1, np.nan, 1], "a value is nan"),
    ],
)
def test_arrays_that_are_wrong(tmp_path, indptr, indices, values, fault):
    arrays = SparseRows(np.array(indptr, "u8"), np.array(indices, "u8"), np.array(values, "f4"), 3)
    with writer.Writer(tmp_path) as new:
        entry = gbdnn.io.store.network.write_arrays(new, "0", arrays, "CSC", (3, 3))
        options = {"bias": 0, "bias_rule": "all", "activation": "relu", "clip": None, "gain": 2.0}
        new.finish("network", {"layers": [entry | options]})
    net = gbdnn.load(tmp_path, lazy=True)
    with pytest.raises(FormatError, match=f"layer 0: {fault}"):
        net[0]


def test_damaged_features_name_the_part(tmp_path, monkeypatch):
    monkeypatch.setattr(features, "PART", 20)
    monkeypatch.setattr(writer, "SHARD_BYTES", 0)
    gbdnn.save(np.eye(50), tmp_path)
    path = shard(tmp_path, 1)
    flip(path, path.stat().st_size - 1)
    stored = gbdnn.io.open_features(tmp_path)
    assert stored[0:20].matrix().nvals == 20
    assert stored[40:50].matrix().nvals == 10
    with pytest.raises(FormatError, match="part 1: "):
        stored[15:25].matrix()
    with pytest.raises(FormatError, match="part 1: "):
        gbdnn.load(tmp_path, lazy=True)
    gbdnn.save(NET, tmp_path)
    with pytest.raises(FormatError, match="holds 'network', not features"):
        gbdnn.io.open_features(tmp_path)


def test_damaged_categories(tmp_path):
    gbdnn.save(np.arange(5), tmp_path)
    flip(shard(tmp_path, 0), -1)
    with pytest.raises(FormatError, match="categories: ids: is damaged"):
        gbdnn.load(tmp_path)


# Whole or not at all


def listing(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, OSError])
@pytest.mark.parametrize("before", [True, False])
def test_a_failure_leaves_the_old_state(tmp_path, monkeypatch, error, before):
    monkeypatch.setattr(writer, "SHARD_BYTES", 0)
    folder = tmp_path / "net"
    if before:
        gbdnn.save(NET, folder)
    old = listing(folder) if before else None

    def layers():
        yield Layer(np.ones((5, 5)))
        yield Layer(np.ones((5, 5)))
        raise error

    with pytest.raises(error) as caught:
        gbdnn.save(layers(), folder)
    assert type(caught.value) is error
    assert (listing(folder) == old) if before else (not folder.exists())


@pytest.mark.parametrize("name", ["rename", "replace"])
def test_ctrl_c_at_any_rename(store, monkeypatch, name):
    def stop(*args):
        raise KeyboardInterrupt

    old = listing(store)
    with monkeypatch.context() as patch:
        patch.setattr(Path, name, stop)
        with pytest.raises(KeyboardInterrupt):
            gbdnn.save(NET[:2], store)
    assert listing(store) == old


def test_ctrl_c_right_after_the_index_was_replaced(store, monkeypatch):
    replace = Path.replace

    def stop(path, target):
        replace(path, target)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", stop)
        with pytest.raises(KeyboardInterrupt):
            gbdnn.save(NET[:2], store)
    assert gbdnn.load(store).isequal(NET[:2])


def test_a_full_disk(store, monkeypatch):
    old = listing(store)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match=r"cannot be written: .*No space left"):
        gbdnn.save(NET, store)
    assert listing(store) == old


KILLED = """
import sys, time, numpy as np, gbdnn
from gbdnn.io.store import writer
writer.SHARD_BYTES = 0
def layers():
    for k in range(3):
        yield gbdnn.Layer(np.ones((5, 5)))
    print("half", flush=True)
    time.sleep(3600)
gbdnn.save(layers(), sys.argv[1])
"""


def killed(folder):
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(folder)], stdout=subprocess.PIPE, env=os.environ
    )
    try:
        assert process.stdout.readline() == b"half\n"
        with pytest.raises(OutputError, match="another process is writing"):
            gbdnn.save(NET, folder)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()


def test_a_killed_process_leaves_the_old_state(store):
    old = listing(store)
    killed(store)
    left = {p.name for p in store.iterdir()} - set(old)
    assert left, "nothing was left behind: the test does not see the middle of a save"
    assert gbdnn.load(store).isequal(NET)
    gbdnn.save(NET[:1], store)
    assert gbdnn.load(store).isequal(NET[:1])
    assert len(list(store.iterdir())) == 2


def test_a_killed_process_leaves_no_store_where_there_was_none(tmp_path):
    killed(tmp_path)
    with pytest.raises(MissingFileError, match=r"index\.json, .* never finished"):
        gbdnn.load(tmp_path)
    gbdnn.save(NET, tmp_path)
    assert gbdnn.load(tmp_path).isequal(NET)
    assert len(list(tmp_path.iterdir())) == 2


def test_orphans_go_and_strangers_stay(store):
    (store / "shard-0123456789abcdef-00000.safetensors").write_bytes(b"orphan")
    (store / "README.txt").write_text("mine")
    (store / "model.safetensors").write_text("mine")
    gbdnn.save(NET[:1], store)
    names = {p.name for p in store.iterdir()}
    assert len(names) == 4
    assert {"README.txt", "model.safetensors", "index.json"} <= names


def test_the_old_store_can_be_read_while_the_new_one_is_written(store):
    net = gbdnn.load(store, lazy=True)

    def layers():
        for layer in net:
            assert gbdnn.load(store).isequal(NET)
            yield layer

    gbdnn.save(layers(), store)
    assert gbdnn.load(store).isequal(NET)
    assert net[0].isequal(NET[0])  # mapped, though its name is gone
    unread = pickle.loads(pickle.dumps(net))  # noqa: S301
    with pytest.raises(MissingFileError, match=r"layer 0: .*saved anew, load it again"):
        unread[0]


def test_folders_that_are_no_store(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "data.txt").write_text("mine")
    with pytest.raises(OutputError, match="is not empty and not a store"):
        gbdnn.save(NET, tmp_path / "full")
    (tmp_path / "full" / "index.json").write_text('{"format": "other"}')
    with pytest.raises(OutputError, match="is not empty and not a store"):
        gbdnn.save(NET, tmp_path / "full")
    assert (tmp_path / "full" / "data.txt").read_text() == "mine"
    with pytest.raises(FormatError, match="not the index of a store"):
        gbdnn.load(tmp_path / "full")
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(OutputError, match="cannot be written"):
        gbdnn.save(NET, file)
    assert file.read_text() == "mine"
    with pytest.raises(FormatError, match="of which format"):
        gbdnn.load(file)
    with pytest.raises(MissingFileError, match="the folder does not exist"):
        gbdnn.load(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(MissingFileError, match=r"expected a store's index\.json"):
        gbdnn.load(tmp_path / "empty")


def test_shards_have_the_permissions_of_open(tmp_path):
    old = os.umask(0o022)
    try:
        gbdnn.save(NET, tmp_path / "net")
    finally:
        os.umask(old)
    assert {stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "net").iterdir()} == {0o644}


# Where and how stores are opened


ELSEWHERE = """
import pickle, sys
X, net = pickle.load(sys.stdin.buffer)
print(X.matrix().nvals, net[1].edges)
"""


def test_a_relative_path_is_that_of_the_moment_of_opening(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    gbdnn.save(NET, "net")
    gbdnn.save(np.eye(40), Path("X"))
    net, X = gbdnn.load("net", lazy=True), gbdnn.io.open_features(Path("X"))
    monkeypatch.chdir(tmp_path / "there")
    opened = pickle.dumps((X, net))
    told = subprocess.run([sys.executable, "-c", ELSEWHERE], input=opened, stdout=subprocess.PIPE)
    assert told.stdout.split() == [b"40", b"%d" % NET[1].edges]
    assert X[3:5].matrix().nvals == 2
    assert net.isequal(NET)

    def layers():
        monkeypatch.chdir(tmp_path / "here")
        yield from NET
        monkeypatch.chdir(tmp_path)

    gbdnn.save(layers(), "new")
    assert gbdnn.load(tmp_path / "there" / "new").isequal(NET)


def test_pickled_features_do_not_carry_a_part(tmp_path):
    gbdnn.save(np.ones((300, 300)), tmp_path)
    stored = gbdnn.io.open_features(tmp_path)
    assert stored[1:2].matrix().nvals == 300
    data = pickle.dumps(stored)
    assert len(data) < 5000
    assert pickle.loads(data)[1:2].matrix().isequal(stored[1:2].matrix())  # noqa: S301


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"])
def test_names_that_no_folder_can_have(tmp_path, name):
    with pytest.raises(MissingFileError, match=r"does not exist|File name too long"):
        gbdnn.load(tmp_path / name)
    for write in (lambda: gbdnn.save(NET, tmp_path / name), lambda: require_storable(name)):
        with pytest.raises(OutputError, match="cannot be written"):
            write()


def test_what_is_only_asked_for_is_not_made(tmp_path):
    (tmp_path / "there").mkdir()
    for path in ("net", "a/b/net", "there/a/net"):
        require_storable(tmp_path / path)
    with pytest.raises(RuntimeError):
        gbdnn.save(failing_layers(), tmp_path / "a" / "b" / "net")
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


def failing_layers():
    yield Layer(np.eye(3))
    raise RuntimeError


@pytest.mark.parametrize("before", [True, False])
def test_ctrl_c_at_the_beginning_leaves_no_lock(tmp_path, monkeypatch, before):
    folder, mkdir = tmp_path / "net", Path.mkdir
    if before:
        gbdnn.save(NET, folder)

    def stop(path, *args, **kwargs):
        if path.name.endswith(".tmp"):
            raise KeyboardInterrupt
        mkdir(path, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", stop)
        with pytest.raises(KeyboardInterrupt):
            gbdnn.save(NET, folder)
    assert folder.exists() == before
    gbdnn.save(NET, folder)
    assert gbdnn.load(folder).isequal(NET)


# Other programs


def test_the_page_reads_a_layer_without_gbdnn(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "store.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert "gbdnn" not in code.replace("gbdnn.store", "")
    gbdnn.save(NET, tmp_path)
    for k, layer in enumerate(NET):
        found = {"folder": str(tmp_path), "k": k}
        exec(code, found)  # noqa: S102
        rows, columns, values = layer.weights.to_coo()
        W = np.zeros(layer.shape)
        W[rows, columns] = values
        np.testing.assert_array_equal(found["W"], W)


def test_small_networks_are_read_at_once(tmp_path, monkeypatch):
    """And remember their store, which is what workers get."""
    net = gbdnn.radixnet(1024, 2)
    gbdnn.save(net, tmp_path)
    assert gbdnn.load(tmp_path).in_memory
    assert gbdnn.load(tmp_path, layers=1, dtype="FP64").in_memory
    assert not gbdnn.load(tmp_path, lazy=True).in_memory
    read = gbdnn.load(tmp_path, dtype="FP64")[1:]
    assert read[0] is read[0]
    for found in (read, read.astype("FP32"), pickle.loads(pickle.dumps(read))):  # noqa: S301
        again = found.source.network()
        assert (len(again), again.dtype) == (1, found.dtype)
        assert not again.in_memory
        assert again.isequal(found)
    monkeypatch.setattr("gbdnn.io.formats._SMALL", 2 * 32768 * 12 - 1)
    assert not gbdnn.load(tmp_path).in_memory
    assert gbdnn.load(tmp_path, layers=1).in_memory
    assert gbdnn.load(tmp_path, lazy=False).isequal(net)


def test_opening_a_network_reads_no_layer(tmp_path):
    """And takes no longer the more weights it has."""
    gbdnn.save(gbdnn.radixnet(1024, 60, lazy=True), tmp_path)
    for shard in tmp_path.glob("shard-*"):
        data = shard.read_bytes()
        header = 8 + int.from_bytes(data[:8], "little")
        shard.write_bytes(data[:header] + bytes(len(data) - header))
    net = gbdnn.load(tmp_path, lazy=True)
    assert (len(net), net.edges) == (60, 60 * 32768)
    with pytest.raises(FormatError, match="damaged"):
        net[59]


@pytest.mark.parametrize("package", ["safetensors", "xxhash"])
def test_a_missing_package_is_named(tmp_path, monkeypatch, package):
    gbdnn.save(NET, tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    for call in (lambda: gbdnn.save(NET, tmp_path), lambda: gbdnn.load(tmp_path)):
        with pytest.raises(gbdnn.MissingPackageError, match=r'pip install "gbdnn\[store\]"'):
            call()
