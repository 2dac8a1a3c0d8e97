"""Stores: what is saved is loaded again; damage and interruptions are noticed."""

import gc
import json
import os
import pickle
import re
import stat
import tempfile
import weakref
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import graphblas as gb
import numpy as np
import pytest
from calls import raises
from hypothesis import given
from hypothesis import strategies as st
from matrices import assert_equal, dense
from networks import drawn

import gbdnn
from gbdnn import Layer, Network
from gbdnn.errors import ArgumentError, FormatError, MissingFileError, OutputError, ShapeError
from gbdnn.io.store import features, folder, shards

for package in ("safetensors", "xxhash"):
    pytest.importorskip(package)

NET = Network([
    Layer(np.arange(12.0).reshape(3, 4), bias=[0.5, 0.0, -1.0, 2.0], clip=6),
    Layer(np.eye(4)[:, :2], bias=-0.25, bias_rule="entries", activation="identity"),
])  # fmt: skip
X = np.arange(24.0).reshape(8, 3) % 5


NETWORKS = drawn(least=0, rules=["all", "entries"], bias=-0.3)


def assert_same(found, net):
    assert found.isequal(net)
    for info, layer in zip(found.infos, net, strict=True):
        assert info.difference(layer.info) is None


# Round trips


@given(NETWORKS, st.sampled_from([0, 200, shards.SHARD_BYTES]))
def test_networks_round_trip(net, most):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "SHARD_BYTES", most)
        gbdnn.save(net, folder)
        lazy = gbdnn.load(folder, lazy=True)
        for found in (lazy, lazy.loaded(), pickle.loads(pickle.dumps(lazy))):  # noqa: S301
            assert_same(found, net)
        if most == 0 and len(net):
            assert len(os.listdir(folder)) == len(net) + 1  # noqa: PTH208


def test_a_layer_without_neurons_keeps_its_bias(tmp_path):
    net = Network([Layer(np.zeros((3, 0)), bias=0.5)])
    gbdnn.save(net, tmp_path)
    assert_same(gbdnn.load(tmp_path), net)


@st.composite
def matrices(draw):
    n, m = draw(st.integers(0, 12)), draw(st.integers(0, 5))
    values = st.floats(-8, 8, width=32) if draw(st.booleans()) else st.sampled_from([0.0, 1.0])
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    return np.array(draw(st.lists(values, min_size=n * m, max_size=n * m)), dtype).reshape(n, m)


@given(matrices(), st.integers(1, 9), st.integers(1, 7))
def test_features_round_trip(array, part, batch):
    expected = gb.Matrix.from_dense(array, missing_value=0)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(features, "PART", part)
        gbdnn.io.write_features(expected, folder)
        assert gbdnn.io.read_features(folder).isequal(expected, check_dtype=True)
        blocks = [array[i : i + batch] for i in range(0, len(array), batch)]
        gbdnn.io.write_features(iter(blocks or [array]), folder, dtype=array.dtype, replace=True)
        stored = gbdnn.io.open_features(folder)
        assert (stored.shape, stored.nvals, stored.dtype, stored.largest) == (
            array.shape, expected.nvals, array.dtype, np.abs(array).max(initial=0),
        )  # fmt: skip
        assert stored.matrix().isequal(expected, check_dtype=True)
        stored = pickle.loads(pickle.dumps(stored))  # noqa: S301
        for start in range(len(array) + 1):
            for stop in (start, start + 1, start + 3, None):
                assert_equal(stored[start:stop].matrix(), array[start:stop])
        again = [dense(rows.matrix()) for rows in stored.batches(batch)]
        assert len(again) == len(blocks)
        assert all(np.array_equal(a, b) for a, b in zip(again, blocks, strict=True))


def test_column_numbers_of_more_than_32_bits(tmp_path):
    wide = gb.Matrix.from_coo([0, 3], [2**33, 1], [1.0, 2.0], nrows=5, ncols=2**34)
    gbdnn.io.write_features(wide, tmp_path)
    assert gbdnn.io.read_features(tmp_path).isequal(wide)


def test_row_pointers_of_more_than_32_bits():
    """Of more entries than tests have memory for."""
    arrays = {"indptr": np.array([0, 2**32]), "columns": np.zeros(1), "values": np.ones(1)}
    rows = SimpleNamespace(**arrays, nvals=2**32, ncols=1, is_iso=True)
    writer = SimpleNamespace(add=lambda _, arrays: arrays["indptr"].tolist())
    assert shards.write_rows(writer, "W", rows) == [0, 2**32]


def test_a_store_of_another_kind(tmp_path):
    """The error names the function that reads it."""
    gbdnn.save(NET, tmp_path / "net")
    gbdnn.io.write_features(X, tmp_path / "X")
    with pytest.raises(FormatError, match=r"contains network, not features; use gbdnn\.load$"):
        gbdnn.io.open_features(tmp_path / "net")
    with pytest.raises(FormatError, match=r"features, not network; use gbdnn\.io\.open_features"):
        gbdnn.load(tmp_path / "X")


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        ({}, TypeError, "not dict"),
        (np.eye(2), TypeError, "pass a list of matrices"),
        ([np.eye(2) * np.nan], ValueError, "nan"),
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
    ("batches", "error", "message"),
    [
        ([], ValueError, "pass at least one batch"),
        ([np.eye(2), np.eye(3)], ShapeError, "batch 1 has 3 columns but the features have 2"),
        ([np.eye(2, dtype="f4"), np.eye(2)], ValueError, "batch 1 is float64 but the first"),
    ],
)
def test_batches_that_make_no_features(tmp_path, batches, error, message):
    raises(error, message, gbdnn.io.write_features, batches, tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


# Memory


def test_layers_are_written_one_by_one(tmp_path):
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

    gc.freeze()  # what exists already need not be traversed each time
    try:
        gbdnn.save(layers(), tmp_path)
    finally:
        gc.unfreeze()
    assert most == 1
    assert_same(gbdnn.load(tmp_path), Network([Layer(np.eye(50), bias=np.arange(50.0))] * 20))


def test_shards_are_bounded(tmp_path, monkeypatch):
    """Five layers fit exactly: each has 2,001 numbers of 4 bytes and 1,000 of 8."""
    monkeypatch.setattr(shards, "SHARD_BYTES", 5 * 16_004)
    gbdnn.save([Layer(np.eye(1000))] * 40, tmp_path)
    sizes = [path.stat().st_size for path in tmp_path.glob("*.safetensors")]
    assert max(sizes) < 90_000  # with the header
    assert len(sizes) == 8


def test_opening_a_network_reads_no_shard(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "SHARD_BYTES", 0)
    gbdnn.save(NET, tmp_path)
    flip(shard(tmp_path, 1))
    net = gbdnn.load(tmp_path, lazy=True)
    assert net.edges == NET.edges
    assert net[0].isequal(NET[0])  # the second layer is in another shard
    with pytest.raises(FormatError, match="damaged"):
        net[1]


@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("batch", [1, 4, 50])
def test_parts_of_features_are_bounded(share, batch, tmp_path, monkeypatch):
    """In rows and in stored values, and filled: the next batch would not have fitted."""
    monkeypatch.setattr(features, "PART", 20)
    array = np.where(np.random.default_rng(0).random((200, 3)) < share, -2.0, 0.0)
    gbdnn.io.write_features([array[k : k + batch] for k in range(0, 200, batch)], tmp_path)
    parts = folder.read_json(tmp_path / "index.json")["parts"]
    assert all(max(part["rows"], part["nvals"]) <= 20 for part in parts)
    assert all(max(a["rows"] + b["rows"], a["nvals"] + b["nvals"]) > 20 for a, b in pairwise(parts))
    assert_equal(gbdnn.io.read_features(tmp_path), array)


def test_a_part_with_larger_values_than_the_index_says(tmp_path):
    """The largest magnitude decides whether sums are checked for overflow."""
    gbdnn.io.write_features(np.array([[-4.0, 1.0], [0.0, 3.0]]), tmp_path)
    index = folder.read_json(tmp_path / "index.json")
    del index["xxh3_64"]
    index["parts"][0]["largest"] = 3.5
    folder.write_json(tmp_path / "index.json", index)
    raises(FormatError, "part 0", gbdnn.io.read_features, tmp_path)


def test_features_are_read_part_by_part(tmp_path, monkeypatch):
    monkeypatch.setattr(features, "PART", 6)
    monkeypatch.setattr(shards, "SHARD_BYTES", 0)
    gbdnn.io.write_features(X, tmp_path)
    stored = gbdnn.io.open_features(tmp_path)
    last = shard(tmp_path, -1)
    last.unlink()
    assert_equal(stored[:4].matrix(), X[:4])
    raises(MissingFileError, f"{last.name}: part .: the shard is missing", stored.matrix)


def test_networks_of_an_eighth_of_the_memory_are_loaded_at_once(tmp_path, monkeypatch):
    gbdnn.save(gbdnn.gallery.radixnet(1024, 2), tmp_path)
    needed = 2 * 32768 * (8 + 4)
    for memory, is_loaded in ((8 * needed, True), (8 * needed - 1, False), (None, True)):
        monkeypatch.setattr("gbdnn.io.networks.machine_memory", lambda memory=memory: memory)
        assert gbdnn.load(tmp_path).in_memory == is_loaded
        assert not gbdnn.load(tmp_path, lazy=True).in_memory


def test_loaded_networks_remember_their_store(tmp_path):
    gbdnn.save(gbdnn.gallery.radixnet(1024, 2), tmp_path)
    read = gbdnn.load(tmp_path, dtype="FP64")[1:]
    for found in (read, read.astype("FP32"), pickle.loads(pickle.dumps(read))):  # noqa: S301
        again = found.source.network()
        assert (len(again), again.dtype) == (1, found.dtype)
        assert again.isequal(found)


# Damage


def shard(folder, k=0):
    """Return the k-th shard of a store."""
    return folder / json.loads((folder / "index.json").read_text())["shards"][k]["file"]


def flip(path, at=-1):
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def assert_damaged(folder, match):
    raises(FormatError, match, lambda: gbdnn.load(folder).loaded())


def test_every_flipped_byte_of_a_shard_is_an_error_that_names_it(tmp_path):
    gbdnn.save(NET, tmp_path)
    path = shard(tmp_path)
    good = path.read_bytes()
    for at in range(0, len(good), 7):
        flip(path, at)
        assert_damaged(tmp_path, f"{path.name}: layer 0: the shard is damaged: its checksum")
        path.write_bytes(good)
    assert_same(gbdnn.load(tmp_path), NET)


@pytest.mark.parametrize("left", [0, 4, 100, -1])
def test_a_missing_byte_in_a_shard_is_an_error_that_names_it(tmp_path, left):
    gbdnn.save(NET, tmp_path)
    net, path = gbdnn.load(tmp_path, lazy=True), shard(tmp_path)
    net[0]  # the shard is mapped: reading it beyond its end would end the process
    path.write_bytes(path.read_bytes()[:left])
    for found in (net, gbdnn.load(tmp_path, lazy=True)):
        with pytest.raises(FormatError, match=f"{path.name}: layer 1: the shard is damaged: .* by"):
            found[1]


def test_without_verify_values_are_checked_all_the_same(tmp_path):
    gbdnn.save([Layer(np.full((2, 2), 0.5))], tmp_path)
    path = shard(tmp_path)
    at = path.read_bytes().index(np.float64(0.5).tobytes())
    for value, what in ((np.nan, "not finite"), (0.0, "zero")):
        data = bytearray(path.read_bytes())
        data[at : at + 8] = np.float64(value).tobytes()
        path.write_bytes(data)
        assert_damaged(tmp_path, "checksum")
        with pytest.raises(FormatError, match=f"layer 0: a stored value is .*{what}"):
            gbdnn.load(tmp_path, verify=False)


def test_every_flipped_byte_of_an_index_is_an_error_that_names_it(tmp_path):
    gbdnn.save(NET, tmp_path)
    index = tmp_path / "index.json"
    good = index.read_bytes()
    for at in range(0, len(good), 3):
        flip(index, at)
        assert_damaged(tmp_path, r"index\.json")
        index.write_bytes(good)
    index.write_bytes(good[:-20])
    assert_damaged(tmp_path, r"index\.json: the file is damaged")


def test_other_versions_and_other_files(tmp_path):
    gbdnn.save(NET, tmp_path)
    index = tmp_path / "index.json"
    index.write_text(index.read_text().replace('"version": 2', '"version": 3'))
    assert_damaged(tmp_path, "version 3 of the format; this gbdnn reads version 2")
    gbdnn.save(NET, tmp_path, replace=True)  # it may be replaced
    for text in ('{"weights": 1}', "[]", "1"):
        index.write_text(text)
        assert_damaged(tmp_path, "not a file of a gbdnn store")
        raises(OutputError, "is not empty and not a store", gbdnn.save, NET, tmp_path)


def test_a_store_that_was_replaced_since_it_was_opened(tmp_path):
    gbdnn.save(NET, tmp_path)
    source = gbdnn.load(tmp_path).source
    gbdnn.save(NET[:1], tmp_path, replace=True)
    raises(FormatError, "has changed since it was", source.network)


def test_folders_without_a_store(tmp_path):
    last = r"index\.json is missing, which is written last"
    for path in (tmp_path, tmp_path / "no"):
        raises(MissingFileError, None, gbdnn.load, path)
        raises(MissingFileError, last, gbdnn.io.open_features, path)


# Interruptions


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, OSError])
@pytest.mark.parametrize("before", [True, False])
def test_a_failure_leaves_the_old_store(tmp_path, monkeypatch, error, before):
    monkeypatch.setattr(shards, "SHARD_BYTES", 0)
    folder = tmp_path / "net"
    if before:
        gbdnn.save(NET, folder)
    names = set(tmp_path.rglob("*"))

    def layers():
        yield from NET
        raise error

    raises(error, None, gbdnn.save, layers(), folder, replace=True)
    assert set(tmp_path.rglob("*")) == names
    if before:
        assert_same(gbdnn.load(folder), NET)


@pytest.mark.parametrize("after", [True, False])
def test_ctrl_c_when_the_index_is_replaced(tmp_path, monkeypatch, after):
    gbdnn.save(NET, tmp_path)
    replace = Path.replace

    def stop(path, target):
        is_index = target.name == "index.json"
        if after or not is_index:
            replace(path, target)
        if is_index:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", stop)
        raises(KeyboardInterrupt, None, gbdnn.save, NET[:1], tmp_path, replace=True)
    assert_same(gbdnn.load(tmp_path), NET[:1] if after else NET)
    assert len(list(tmp_path.iterdir())) == 2


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path):
    gbdnn.save(NET, tmp_path)
    names = "shard-0123456789abcdef-00000.safetensors", ".gbdnn-0123456789abcdef.tmp"
    left = [tmp_path / name for name in names]
    for path in left:
        path.write_bytes(b"half")
    mine = {".tmpAbCdEf", "notes.txt", "model.safetensors", "run.json"}
    for name in mine:
        (tmp_path / name).write_text("mine")
    assert_same(gbdnn.load(tmp_path), NET)
    gbdnn.save(NET[:1], tmp_path, replace=True)
    gbdnn.infer_to_store(NET[:1], X, tmp_path, replace=True)
    assert not any(path.exists() for path in left)
    assert mine < {path.name for path in tmp_path.iterdir()}


def test_the_files_of_others_do_not_make_a_folder_a_store(tmp_path):
    for name in (".tmpAbCdEf", "run.json"):
        folder = tmp_path / name[1:]
        folder.mkdir()
        (folder / name).write_text("mine")
        raises(OutputError, "is not empty and not a store", gbdnn.infer_to_store, NET, X, folder)
        assert (folder / name).read_text() == "mine"


def test_a_folder_with_shards_but_no_index_can_be_written(tmp_path):
    (tmp_path / "shard-0123456789abcdef-00000.safetensors").write_bytes(b"half")
    gbdnn.save(NET, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_network_can_be_saved_over_its_own_store(tmp_path):
    gbdnn.save(NET, tmp_path)
    gbdnn.save(gbdnn.load(tmp_path, lazy=True)[:1], tmp_path, replace=True)
    assert_same(gbdnn.load(tmp_path), NET[:1])


def test_two_writers_of_one_store(tmp_path):
    def layers():
        raises(OutputError, "another process is writing to this store", gbdnn.save, NET, tmp_path)
        yield NET[0]

    gbdnn.save(layers(), tmp_path)
    assert_same(gbdnn.load(tmp_path), NET[:1])


# Paths and permissions


def test_paths_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").write_text("mine")
    for name, match in (("file", "File exists"), ("full", "is not empty and not a store"),
                        ("file/net", "Not a directory"), ("x" * 300, "name too long")):  # fmt: skip
        raises(OutputError, match, gbdnn.save, NET, tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "full"]


@pytest.mark.parametrize("name", ["x.onnx", "x.pt", "x.mtx.gz", "x.Safetensors", "x.tsv", "x.npy"])
def test_a_store_has_no_suffix_of_a_file(name, tmp_path):
    writers = (
        lambda path: gbdnn.save(NET, path, "store"),
        lambda path: gbdnn.io.write_features(X, path, "store"),
        lambda path: gbdnn.infer_to_store(NET, X, path),
    )
    match = r"the output is a folder|format=store does not match"
    for write in writers:
        raises(ArgumentError, match, write, tmp_path / name)
    assert not list(tmp_path.iterdir())
    gbdnn.save(NET, tmp_path / "x.v2", "store")
    (tmp_path / "x.v2").rename(tmp_path / name)  # a store that has such a name is read
    assert gbdnn.load(tmp_path / name) == NET


def test_links_are_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    gbdnn.save(NET, tmp_path / "link" / "net")
    (tmp_path / "net").symlink_to("real/net")
    gbdnn.save(NET[:1], tmp_path / "net", replace=True)
    assert_same(gbdnn.load(tmp_path / "real" / "net"), NET[:1])
    assert (tmp_path / "net").is_symlink()


def modes(folder):
    return {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_new_stores_follow_the_umask_and_replaced_ones_keep_their_permissions(tmp_path, umask):
    old = os.umask(umask)
    try:
        gbdnn.save(NET, tmp_path)
        assert modes(tmp_path) == {0o666 & ~umask}
        (tmp_path / "index.json").chmod(0o640)
        gbdnn.save(NET, tmp_path, replace=True)
        assert modes(tmp_path) == {0o640}
        gbdnn.infer_to_store(NET, X, tmp_path, batch_size=3, replace=True)
        assert modes(tmp_path) == {0o640}
    finally:
        os.umask(old)


def test_a_relative_path_belongs_to_the_folder_of_that_moment(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    gbdnn.save(NET, "net")
    net = gbdnn.load("net", lazy=True)
    monkeypatch.chdir("elsewhere")
    assert_same(net, NET)


# Other programs


def test_the_page_reads_a_layer_without_gbdnn(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "store.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    gbdnn.save(NET, tmp_path)
    for k, layer in enumerate(NET):
        found = {"folder": str(tmp_path), "k": k}
        exec(code, found)  # noqa: S102
        np.testing.assert_array_equal(found["W"], dense(layer.weights))


@pytest.mark.parametrize("name", ["../secret/x.safetensors", "/x.safetensors", "a\0b", "x"])
def test_an_index_names_only_shards(tmp_path, name):
    """They are in the folder, whatever the index says."""
    gbdnn.save(NET, tmp_path / "net")
    index = folder.read_json(tmp_path / "net" / "index.json")
    del index["xxh3_64"]
    for shard in index["shards"]:
        shard["file"] = name
    folder.write_json(tmp_path / "net" / "index.json", index)
    raises(FormatError, r"the index names .*, not a shard", gbdnn.load, tmp_path / "net")


def test_a_linked_index_is_read_but_not_written(tmp_path):
    """As in the cache of the Hugging Face Hub, where the link's target belongs to all versions."""
    gbdnn.save(NET, tmp_path / "blobs")
    (tmp_path / "net").mkdir()
    for file in (tmp_path / "blobs").iterdir():
        (tmp_path / "net" / file.name).symlink_to(file)
    assert gbdnn.load(tmp_path / "net") == NET
    before = (tmp_path / "blobs" / "index.json").read_bytes()
    with pytest.raises(OutputError, match=r"index.json is a link; choose another folder"):
        gbdnn.save(NET[:1], tmp_path / "net", replace=True)
    assert (tmp_path / "blobs" / "index.json").read_bytes() == before


def test_parts_with_one_value_each(tmp_path):
    """Each is stored as one value, and their matrix has both."""
    parts = [gb.Matrix.from_coo([0, 1], [0, 1], value, nrows=2, ncols=2) for value in (1.0, 2.0)]
    gbdnn.io.write_features(parts, tmp_path / "X")
    found = gbdnn.io.open_features(tmp_path / "X").matrix()
    assert_equal(found, np.vstack([np.eye(2), 2 * np.eye(2)]))


def test_a_range_of_stored_rows_that_ends_before_it_begins(tmp_path):
    gbdnn.io.write_features(X, tmp_path)
    none = gbdnn.io.open_features(tmp_path)[3:1]
    assert (none.nrows, none.matrix().shape) == (0, (0, 3))
