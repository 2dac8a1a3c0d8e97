"""Runs that survive: killed, out of disk, out of memory, with files that vanish or are damaged."""

import contextlib
import errno
import io
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from fuzz_networks import signed
from fuzz_resume import signed_record
from oracles import case
from shell import fails, well

import gbdnn
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.distributed.executors import checkpoint
from gbdnn.engine.queues import SavedState
from gbdnn.io import conversion
from gbdnn.io.store import require_storable, resumed, store_kind, writer
from gbdnn.io.store.index import read_index

safetensors = pytest.importorskip("safetensors")

KILLS = Path(__file__).parents[1] / "support" / "kills.py"
CASE = case(5, sizes=(48, 64, 40, 32), inputs=2000, bias="mixed vector", exact=False)
INPUTS, BATCH = 2000, 250


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder with a network of 12 layers, features, and the answer."""
    root = tmp_path_factory.mktemp("resume")
    net = gbdnn.radixnet(1024, 12)
    X = gbdnn.gallery.features_from_images(gbdnn.gallery.digits(), 1024, inputs=INPUTS)
    gbdnn.save(net, root / "net")
    gbdnn.save(X, root / "X")
    gbdnn.save(gbdnn.infer(net, X, engine="full"), root / "Y")
    (root / "files").mkdir()
    gbdnn.io.write_network(net, root / "files")
    return root


@pytest.fixture
def net(root):
    return gbdnn.load(root / "net", lazy=True)


@pytest.fixture
def X(root):
    return gbdnn.io.open_features(root / "X")


@pytest.fixture(scope="module")
def small():
    """A network of four layers, and features."""
    random = np.random.default_rng(1)
    layers = random.normal(size=(4, 30, 30)) * (random.random((4, 30, 30)) < 0.3)
    net = gbdnn.Network([gbdnn.Layer(W, -0.1, clip=3) for W in layers])
    return net, random.random((40, 30))


@pytest.fixture
def small_shards(monkeypatch):
    """A shard for every layer."""
    monkeypatch.setattr(writer, "SHARD_BYTES", 0)


def stopped(after, records=None):
    """A callback that is interrupted after so many calls."""
    seen = [] if records is None else records

    def stop(record):
        seen.append(record)
        if len(seen) == after:
            raise KeyboardInterrupt

    return stop


def half_done(net, X, path, parts=3, **options):
    """Leave a store of which some parts are complete."""
    options = {"engine": "full", "batch": BATCH} | options
    with pytest.raises(KeyboardInterrupt):
        gbdnn.infer_to_store(net, X, path, stats=stopped(parts), **options)


def flip(path, at=-1):
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def parts_of(path):
    return sorted(each for each in path.glob(".gbdnn-*/part-*") if each.suffix != ".run")


# Kills at random moments


@pytest.mark.slow
def test_kills_at_random_moments():
    arguments = ("30", "1")
    done = subprocess.run(
        [sys.executable, KILLS, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = re.fullmatch(r"(\d+) kills of \d+ runs, (\d+) resumed, 0 faults\n", done.stdout)
    assert told, done.stdout
    assert int(told[1]) >= int(arguments[0])
    assert int(told[2]) > 0, "no kill has left anything to go on with"


# What is gone on with, and what is refused


def test_it_says_where_it_goes_on(root, net, X, tmp_path):
    out = tmp_path / "Y"
    half_done(net, X, out)
    told = well("infer", root / "net", root / "X", "-o", out, "--to", "store", "--engine", "full")
    assert told.startswith(f"{out}: resumes at input 750 of 2,000\n{out}: ")
    assert gbdnn.load(out).isequal(gbdnn.load(root / "Y"))
    again = well("infer", root / "net", root / "X", "-o", out, "--engine", "full")
    assert again.startswith(f"{out}: is complete: nothing was left to compute\n")
    anew = well("infer", root / "net", root / "X", "-o", out, "--engine", "full", "--restart",
                "--force")  # fmt: skip
    assert anew == told.split("\n", 1)[1]


def test_workers_go_on_as_well(root, net, X, tmp_path):
    out = tmp_path / "Y"
    half_done(net, X, out)
    told = well("infer", root / "net", root / "X", "-o", out, "--to", "store", "--engine", "full",
                "--workers", 1)  # fmt: skip
    assert "resumes at input 750 of 2,000" in told
    assert "5 batches on 1 worker" in told
    assert gbdnn.load(out).isequal(gbdnn.load(root / "Y"))


@pytest.mark.parametrize("other", ["network", "features", "engine", "memory", "version"])
def test_another_run_is_refused_and_keeps_what_is_done(root, net, X, tmp_path, monkeypatch, other):
    out = tmp_path / "Y"
    half_done(net, X, out)
    options = {"engine": "full"}
    if other == "network":
        net = net[:-1]
    elif other == "features":
        X = X[: INPUTS - 1]
    elif other == "engine":
        options = {"engine": "sparse"}
    elif other == "memory":
        options["memory"] = 1 << 30
    else:
        monkeypatch.setattr("gbdnn.io.store.unfinished.__version__", "9.9")
    match = rf"Y: holds 750 of 2,000 inputs of another run \({other}: .*, here .*restart=True"
    with pytest.raises(gbdnn.OutputError, match=match):
        gbdnn.infer_to_store(net, X, out, **options)
    monkeypatch.undo()
    records = []
    net, X = gbdnn.load(root / "net", lazy=True), gbdnn.io.open_features(root / "X")
    Y = gbdnn.infer_to_store(net, X, out, stats=records.append, engine="full")
    assert len(records) == 5
    assert Y.matrix().isequal(gbdnn.load(root / "Y"))


def test_names_and_times_of_files_do_not_count(root, net, X, tmp_path):
    """The network is saved anew, the features are moved and touched: the run is the same."""
    half_done(net, X, tmp_path / "Y")
    gbdnn.save(net.loaded(), tmp_path / "other")
    shutil.copytree(root / "X", tmp_path / "moved")
    os.utime(tmp_path / "moved" / "index.json", (0, 0))
    records = []
    gbdnn.infer_to_store(
        gbdnn.load(tmp_path / "other", lazy=True), gbdnn.io.open_features(tmp_path / "moved"),
        tmp_path / "Y", stats=records.append, engine="full", nthreads=1,
    )  # fmt: skip
    assert len(records) == 5


def test_progress_goes_on_from_where_it_is(net, X, tmp_path):
    half_done(net, X, tmp_path / "Y")
    seen = []
    for _ in range(2):
        gbdnn.infer_to_store(
            net, X, tmp_path / "Y", engine="full", progress=lambda *each: seen.append(each)
        )
    assert seen == [(done, INPUTS) for done in (750, 1000, 1250, 1500, 1750, 2000, 2000)]


def test_info_of_what_is_unfinished(root, net, X, tmp_path):
    out = tmp_path / "Y"
    assert gbdnn.io.find_unfinished(out) is None
    half_done(net, X, out)
    told = well("info", out)
    for line in ("inputs      2,000", "done        750", "parts       8", "parts done  3"):
        assert line in told
    assert "the same call again" in told
    facts = json.loads(well("info", out, "--json"))
    assert facts["made from"]["engine"] == "full"
    assert str(root / "net") in facts["made from"]["network"]
    fails("info", out, "--check", match="is not complete: 750 of 2,000 inputs")
    gbdnn.save(np.arange(3), tmp_path / "Z")
    half_done(net, X, tmp_path / "Z", parts=1)
    assert "unfinished  250 of 2,000 inputs" in well("info", tmp_path / "Z")
    assert gbdnn.load(tmp_path / "Z").tolist() == [0, 1, 2]


def test_no_reader_takes_it_for_finished(net, X, tmp_path, small_shards):
    half_done(net, X, tmp_path / "Y")
    for read in (gbdnn.load, gbdnn.io.open_features, store_kind):
        with pytest.raises(gbdnn.MissingFileError, match=r"never finished"):
            read(tmp_path / "Y")
    (run,) = (tmp_path / "Y").glob(".gbdnn-*")
    with pytest.raises(gbdnn.MissingFileError):
        gbdnn.load(run)
    fails("infer", tmp_path / "Y", tmp_path / "Y", "-o", tmp_path / "Z", match="no network")


def test_options_that_have_no_place(root, tmp_path):
    for option in (["--restart"], ["--batch", 5]):
        fails("infer", root / "net", root / "X", "-o", tmp_path / "Y.tsv", *option,
              match="goes with activations in a store")  # fmt: skip
    match = "(in the shell --restart): "
    fails("generate", tmp_path / "net.onnx", "--layers", 1, "--restart", match=match)
    fails("convert", root / "net", tmp_path / "f", "--to", "tsv", "--restart", match=match)


# Networks, layer by layer


def commands(root):
    return {
        "generate": ["generate", "OUT", "--layers", 12],
        "convert": ["convert", root / "net", "OUT"],
        "convert tsv": ["convert", root / "files", "OUT"],
    }


def run_here(arguments, monkeypatch):
    from gbdnn.cli import entry

    monkeypatch.setattr(sys, "argv", ["gbdnn", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        entry.main()
    return end.value.code


@pytest.mark.parametrize("name", ["generate", "convert", "convert tsv"])
def test_what_a_kill_after_the_index_left_is_removed(root, tmp_path, name):
    out = tmp_path / "net"
    arguments = [out if each == "OUT" else each for each in commands(root)[name]]
    well(*arguments)
    there = sorted(out.iterdir())
    left = out / ".gbdnn-0123456789abcdef.tmp"
    left.mkdir()
    (left / "shard-0123456789abcdef-00000.safetensors").write_bytes(b"old")
    assert "is complete" in well(*arguments)
    assert sorted(out.iterdir()) == there
    assert len(gbdnn.load(out)) == 12


@pytest.mark.parametrize("name", ["generate", "convert", "convert tsv"])
def test_layers_that_are_written_are_kept(root, tmp_path, monkeypatch, capsys, small_shards, name):
    out = tmp_path / "net"
    arguments = [out if each == "OUT" else each for each in commands(root)[name]]
    written = []
    write = resumed.LayerWriter.write

    def stop(self, layer):
        written.append(layer)
        if len(written) == 8:
            raise KeyboardInterrupt
        return write(self, layer)

    monkeypatch.setattr(resumed.LayerWriter, "write", stop)
    assert run_here(arguments, monkeypatch) == 130
    left = gbdnn.io.find_unfinished(out)
    assert (left.kind, left.done, left.total) == ("network", 6, 12)
    assert "done        6" in well("info", out)
    capsys.readouterr()
    assert not run_here(arguments, monkeypatch)
    assert f"{out}: resumes at layer 6 of 12" in capsys.readouterr().out
    assert len(written) == 8 + 6
    assert gbdnn.load(out).isequal(gbdnn.load(root / "net"))
    assert {each.name for each in out.iterdir()} == {
        "index.json", *(each["file"] for each in read_index(out)["shards"])
    }  # fmt: skip


def half_written(net, path, layers=8, **source):
    """Leave a store in which some layers are complete."""
    whole = conversion.of_layers(net)

    def some(k):
        for at in range(k, layers):
            yield net[at]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resumed.save_layers(
            resumed.LayerSource(origin=whole.origin, count=whole.count, layers=some, **source), path
        )
    return whole


@pytest.mark.parametrize("damage", ["bit", "cut", "gone", "record"])
def test_a_damaged_shard_is_written_again(net, tmp_path, small_shards, damage):
    whole = half_written(net, tmp_path)
    (run,) = tmp_path.glob(".gbdnn-*")
    shard = sorted(run.glob("shard-*"))[3]
    if damage == "bit":
        flip(shard)
    elif damage == "cut":
        os.truncate(shard, 100)
    elif damage == "gone":
        shard.unlink()
    else:
        flip(run / "run.json")
    seen = []
    resumed.save_layers(whole, tmp_path, progress=lambda k, _: seen.append(k))
    assert seen[0] == (0 if damage == "record" else 3)
    assert gbdnn.load(tmp_path).isequal(net)


def rewrite(run, change):
    """Change the fields of a run's record, under a checksum that is right."""
    head, text = (run / "run.json").read_bytes().splitlines()
    fields = json.loads(text)
    change(fields)
    (run / "run.json").write_bytes(signed_record(fields, json.loads(head)))


def first_layer(**fields):
    return lambda run: run["layers"][0].update(fields)


@pytest.mark.parametrize(
    "change",
    [
        lambda run: run.clear(),
        lambda run: run.update(kind=["network"]),
        lambda run: run.update(kind="categories"),
        lambda run: run.update(words={"files": 3}),
        lambda run: run["fingerprints"].update(layers="12"),
        lambda run: run.update(count="12"),
        lambda run: run.update(count=3),
        lambda run: run.update(layers=3),
        lambda run: run.update(layers={}),
        lambda run: run["layers"].pop(),
        lambda run: run["layers"].append(run["layers"][0]),
        lambda run: run["layers"].reverse(),
        lambda run: run["marks"].pop(),
        lambda run: run.update(marks=[3] * 3),
        lambda run: run.update(shards=[3]),
        lambda run: run["shards"][0].update(file="../../net/index.json"),
        lambda run: run["shards"].append(run["shards"][0]),
        first_layer(shard="elsewhere.safetensors"),
        first_layer(tensors={}),
        first_layer(bias=[3]),
        first_layer(clip=-1),
        first_layer(gain=1e-3),
        first_layer(activation=[3]),
        first_layer(bias_rule="some"),
        lambda run: run["layers"][0]["binsparse"].update(shape=[30, 31]),
        lambda run: run["layers"][0]["binsparse"].update(shape=[29, 30]),
        lambda run: run["layers"][-1]["binsparse"].update(shape=[4]),
        lambda run: run["layers"][0]["binsparse"].update(number_of_stored_values=7),
        lambda run: run["layers"][0]["binsparse"]["data_types"].update(values="float32"),
        lambda run: run["layers"][-1]["binsparse"]["data_types"].update(values=""),
    ],
)
def test_a_record_that_was_written_by_others(small, tmp_path, small_shards, change):
    net, _ = small
    whole = half_written(net, tmp_path, layers=3)
    (run,) = tmp_path.glob(".gbdnn-*")
    rewrite(run, lambda run: None)
    assert gbdnn.io.find_unfinished(tmp_path).done == 2
    rewrite(run, change)
    gbdnn.io.find_unfinished(tmp_path)
    resumed.save_layers(whole, tmp_path)
    assert gbdnn.load(tmp_path).isequal(net)


@pytest.mark.parametrize("error", [MemoryError, OSError(errno.EMFILE, "Too many open files")])
def test_an_error_of_the_system_is_none_of_the_layers(
    net, tmp_path, monkeypatch, small_shards, error
):
    whole = half_written(net, tmp_path)
    shards = sorted(tmp_path.glob(".gbdnn-*/shard-*"))

    def fail(*_):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("gbdnn.io.store.shards.Shards._mapped", fail)
        with pytest.raises((gbdnn.ReadError, gbdnn.TooLargeError)):
            resumed.save_layers(whole, tmp_path)
    assert sorted(tmp_path.glob(".gbdnn-*/shard-*")) == shards
    assert gbdnn.io.find_unfinished(tmp_path).done == 7


@pytest.mark.parametrize("error", ["rename", "index"])
def test_an_error_at_the_very_end_keeps_all_layers(net, tmp_path, monkeypatch, small_shards, error):
    whole = conversion.of_layers(net)
    with monkeypatch.context() as patch:
        if error == "rename":
            rename, calls = Path.rename, []

            def fail(path, target):
                calls.append(path)
                if len(calls) == 5:
                    raise OSError(errno.ENOSPC, "No space left on device")
                return rename(path, target)

            patch.setattr(Path, "rename", fail)
        else:

            @contextlib.contextmanager
            def full(_):
                raise gbdnn.OutputError("No space left on device")
                yield

            patch.setattr(writer, "whole_file", full)
        with pytest.raises(OSError, match="No space"):
            resumed.save_layers(whole, tmp_path)
    assert gbdnn.io.find_unfinished(tmp_path).done == 12
    seen = []
    resumed.save_layers(whole, tmp_path, progress=lambda k, _: seen.append(k))
    assert seen == [12]
    assert gbdnn.load(tmp_path).isequal(net)


def test_what_a_finished_store_has_is_not_taken_from_it(net, tmp_path, monkeypatch, small_shards):
    """Killed when the index was there, and the record of the run as well."""
    whole = conversion.of_layers(net)
    monkeypatch.setattr(writer, "_remove", lambda _: None)
    resumed.save_layers(whole, tmp_path)
    assert list(tmp_path.glob(".gbdnn-*/run.json"))
    monkeypatch.undo()
    assert gbdnn.io.find_unfinished(tmp_path) is None
    monkeypatch.setattr(resumed, "finished_key", lambda _: None)  # of another run
    with pytest.raises(KeyboardInterrupt):
        resumed.save_layers(whole, tmp_path, progress=stopped_at(0))
    assert gbdnn.load(tmp_path).isequal(net)


def stopped_at(count):
    def stop(k, _):
        if k == count:
            raise KeyboardInterrupt

    return stop


@pytest.mark.parametrize(
    "starts",
    [
        [0, 40], [0, 20, 40], [0, 10, 10, 40], [0, 20, 10, 40], [10, 20, 40], [-10, 0, 40],
        [0, 50, 40], [0, True, 40], [0.0, 40], ["0", "40"], [0], [], {}, 40, [[0], 40],
        [0, None, 40], [0, 2**70, 40],
    ],
)  # fmt: skip
def test_starts_that_were_written_by_others(small, tmp_path, starts):
    net, X = small
    half_done(net, X, tmp_path, parts=2, batch=10)
    assert gbdnn.io.find_unfinished(tmp_path).done == 20
    (run,) = tmp_path.glob(".gbdnn-*")
    rewrite(run, lambda run: run.update(starts=starts))
    gbdnn.io.find_unfinished(tmp_path)
    gbdnn.infer_to_store(net, X, tmp_path, engine="full")
    want = gbdnn.infer(net, X, engine="full").to_dense(fill_value=0)
    np.testing.assert_array_equal(gbdnn.load(tmp_path).to_dense(fill_value=0), want)


def test_parts_of_a_finished_store_are_cleared_away(net, X, tmp_path, monkeypatch):
    """Killed when the index was there, and all parts as well."""
    out = tmp_path / "Y"
    half_done(net, X, out)
    with monkeypatch.context() as patch:
        patch.setattr(writer, "_remove", lambda _: None)
        gbdnn.infer_to_store(net, X, out, engine="full")
    assert len(parts_of(out)) == 8
    assert gbdnn.io.find_unfinished(out) is None
    records = []
    Y = gbdnn.infer_to_store(net, X, out, engine="full", stats=records.append)
    assert not records
    assert Y.matrix().isequal(gbdnn.infer(net, X, engine="full"))
    named = {each["file"] for each in read_index(out)["shards"]}
    assert {each.name for each in out.iterdir()} == named | {"index.json"}


def test_files_that_have_changed_are_refused(root, tmp_path, monkeypatch, capsys, small_shards):
    shutil.copytree(root / "files", tmp_path / "files")
    source = conversion.of_tsv(tmp_path / "files", {})
    with pytest.raises(KeyboardInterrupt):
        resumed.save_layers(source, tmp_path / "net", progress=stopped_at(5))
    flip(tmp_path / "files" / "n1024-l2.tsv", at=0)
    arguments = ["convert", tmp_path / "files", tmp_path / "net"]
    fails(*arguments, match="the file of layer 1 (counted from 0) has another content")
    flip(tmp_path / "files" / "n1024-l2.tsv", at=0)
    with (tmp_path / "files" / "n1024-l9.tsv").open("a") as file:
        file.write("\n")
    fails(*arguments, match="holds 4 of 12 layers of another run (files: ")
    fails(*arguments, "--bias", "-1", match="of another run (files: ")
    assert "resumes" not in well("generate", tmp_path / "net", "--layers", 2, "--restart")
    assert len(gbdnn.load(tmp_path / "net")) == 2


# Networks that are streamed


@pytest.fixture
def every_window(monkeypatch):
    monkeypatch.setattr(checkpoint, "_WORTH", 0)


MEMORY = 21 << 20  # windows of 5 of the 12 layers


def counted(net, reads, stop=None):
    def read(k):
        reads.append(k)
        if len(reads) == stop:
            raise KeyboardInterrupt
        return net[k]

    return gbdnn.Network.lazy(net.infos, read, reopen=net.source.reopen)


@pytest.mark.parametrize(
    ("engine", "compress"), [("full", True), ("full", False), ("auto", "auto"), ("sparse", "auto")]
)
def test_a_streamed_run_goes_on_between_two_windows(
    net, X, tmp_path, every_window, engine, compress
):
    options = {"memory": MEMORY, "engine": engine, "compress": compress}
    want = gbdnn.infer(net, X, **options)
    reads = []
    with pytest.raises(KeyboardInterrupt):
        gbdnn.infer_to_store(counted(net, reads, 12), X, tmp_path / "Y", **options)
    left = gbdnn.io.find_unfinished(tmp_path / "Y")
    assert left.done == 0
    assert left.layer >= 5
    assert left.layers == 12
    reads = []
    Y = gbdnn.infer_to_store(counted(net, reads), X, tmp_path / "Y", **options)
    assert min(reads) == left.layer // 5 * 5
    assert Y.matrix().isequal(want)
    assert not list((tmp_path / "Y").glob(".gbdnn-*"))


def test_which_input_follows_which_is_kept(net, X, tmp_path, every_window):
    """Equal inputs are merged before the checkpoint, and have their answers behind it."""
    some = X[0:1000].matrix()
    gbdnn.io.write_features([some, some], tmp_path / "twice")
    twice = gbdnn.io.open_features(tmp_path / "twice")
    options = {"memory": MEMORY, "engine": "full", "compress": True}
    with pytest.raises(KeyboardInterrupt):
        gbdnn.infer_to_store(counted(net, [], 12), twice, tmp_path / "Y", **options)
    (point,) = tmp_path.glob("Y/.gbdnn-*/part-*.run")
    parents, _ = checkpoint.Checkpoint(point).restore().followed
    assert (parents != np.arange(2000)).any()
    Y = gbdnn.infer_to_store(net, twice, tmp_path / "Y", **options)
    assert Y.matrix().isequal(gbdnn.infer(net, twice, **options))
    assert Y[0:1000].matrix().isequal(Y[1000:2000].matrix())


def test_dense_features_and_workers_stream_as_well(net, X, tmp_path, every_window, monkeypatch):
    monkeypatch.setattr("gbdnn.distributed.executors.worker._LOADED", 0)
    dense = X.matrix().to_dense(fill_value=0)
    want = gbdnn.infer(net, dense, memory=MEMORY, engine="full")
    for features, workers in ((dense, 0), (dense, 2), (X, 2)):
        reads, out = [], tmp_path / f"Y{workers}{type(features).__name__}"
        options = {"memory": MEMORY, "engine": "full", "batch": 1000}
        with contextlib.ExitStack() as stack:
            if workers:
                options["executor"] = stack.enter_context(ThreadPoolExecutor(workers))
            first = counted(net, reads, 20)
            first._source = None if workers else first._source
            with pytest.raises(KeyboardInterrupt):
                gbdnn.infer_to_store(first, features, out, **options)
        again = counted(net, reads := [])
        again._source = first._source
        with contextlib.ExitStack() as stack:
            if workers:
                options["executor"] = stack.enter_context(ThreadPoolExecutor(workers))
            Y = gbdnn.infer_to_store(again, features, out, **options)
        assert Y.matrix().isequal(want)


def test_a_damaged_checkpoint_is_not_taken(net, X, tmp_path, every_window):
    options = {"memory": MEMORY, "engine": "full"}
    with pytest.raises(KeyboardInterrupt):
        gbdnn.infer_to_store(counted(net, [], 12), X, tmp_path / "Y", **options)
    (shard,) = tmp_path.glob("Y/.gbdnn-*/part-*.run/shard-*")
    flip(shard)
    reads = []
    Y = gbdnn.infer_to_store(counted(net, reads), X, tmp_path / "Y", **options)
    assert min(reads) == 0
    assert Y.matrix().isequal(gbdnn.infer(net, X, **options))


@pytest.mark.parametrize(
    "change",
    [
        lambda index: index["queued"][0].update(layer=99),
        lambda index: index["queued"].append(index["queued"][0]),
        lambda index: index["queued"][0]["tensors"].pop("ids"),
        lambda index: index["unread"].append([0, 1990, 2010]),
        lambda index: index.update(followed=None),
    ],
)
def test_a_checkpoint_that_was_written_by_others(root, net, X, tmp_path, every_window, change):
    options = {"memory": MEMORY, "engine": "full", "compress": True}
    with pytest.raises(KeyboardInterrupt):
        gbdnn.infer_to_store(counted(net, [], 12), X, tmp_path / "Y", **options)
    (index,) = tmp_path.glob("Y/.gbdnn-*/part-*.run/index.json")
    fields = json.loads(index.read_text())
    change(fields)
    index.write_bytes(signed(fields))
    reads = []
    Y = gbdnn.infer_to_store(counted(net, reads), X, tmp_path / "Y", **options)
    assert min(reads) == 0
    assert Y.matrix().isequal(gbdnn.load(root / "Y"))


def test_a_checkpoint_is_no_store_to_load(net, X, tmp_path, every_window):
    with pytest.raises(KeyboardInterrupt):
        gbdnn.infer_to_store(counted(net, [], 12), X, tmp_path / "Y", memory=MEMORY, engine="full")
    (point,) = tmp_path.glob("Y/.gbdnn-*/part-*.run")
    for read in (gbdnn.load, store_kind, gbdnn.io.open_features):
        with pytest.raises(gbdnn.FormatError, match="holds 'checkpoint', "):
            read(point)
    fails("info", point, match="the same call goes on with it")


def rows_at(*ids, ncols=3, dtype=float):
    n = len(ids)
    return SparseRows(
        np.arange(n + 1, dtype=np.uint64), np.zeros(n, np.uint64), np.ones(n, dtype), ncols,
        np.array(ids),
    )  # fmt: skip


ROWS = [(0, range(2)), (1, rows_at(3, 4)), (1, rows_at(5))]
PARENTS, WEIGHTS = [0, 1, 1, 3, 4, 5, 2], [1, 3, 2, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("is_sound", "queued", "finished", "parents", "weights"),
    [
        (True, ROWS, [], PARENTS, WEIGHTS),
        (True, [], [rows_at(0, 1, ncols=2)], PARENTS, WEIGHTS),
        (True, [], [], [0] * 7, [7, 1, 1, 1, 1, 1, 1]),
        (False, [*ROWS, (1, rows_at(5))], [], PARENTS, WEIGHTS),
        (False, [*ROWS, (0, range(1, 2))], [], PARENTS, WEIGHTS),
        (False, ROWS, [rows_at(1, ncols=2)], PARENTS, WEIGHTS),
        (False, [(2, rows_at(1, ncols=2))], [], PARENTS, WEIGHTS),
        (False, [(1, range(2))], [], PARENTS, WEIGHTS),
        (False, [(0, range(5, 8))], [], PARENTS, WEIGHTS),
        (False, [(0, range(-1, 2))], [], PARENTS, WEIGHTS),
        (False, [(1, rows_at(7))], [], PARENTS, WEIGHTS),
        (False, [(1, rows_at(-1))], [], PARENTS, WEIGHTS),
        (False, [(1, rows_at(3, 3))], [], PARENTS, WEIGHTS),
        (False, [(1, rows_at(3, ncols=2))], [], PARENTS, WEIGHTS),
        (False, [(1, rows_at(3, dtype="f4"))], [], PARENTS, WEIGHTS),
        (False, [], [rows_at(3)], PARENTS, WEIGHTS),
        (False, [(1, rows_at(2))], [], PARENTS, WEIGHTS),  # which follows another input
        (False, [], [], [0, 1, 1, 3, 4, 5, 7], WEIGHTS),
        (False, [], [], [0, 1, 1, 3, 4, 5, -1], WEIGHTS),
        (False, [], [], [1, 2, 0, 3, 4, 5, 6], [1] * 7),  # in a circle
        (False, [], [], PARENTS[:-1], WEIGHTS[:-1]),
        (False, [], [], PARENTS, [1] * 7),
    ],
)  # fmt: skip
def test_states_that_a_run_cannot_have(is_sound, queued, finished, parents, weights):
    infos = gbdnn.Network([gbdnn.Layer(np.ones((4, 3))), gbdnn.Layer(np.ones((3, 2)))]).infos
    state = SavedState(queued, finished, (np.array(parents), np.array(weights)))
    assert state.is_sound(infos, 7, merges=True) == is_sound
    assert not state.is_sound(infos, 7, merges=False)
    alone = state._replace(followed=None)
    assert not alone.is_sound(infos, 7, merges=True)


def test_the_shell_says_at_which_layer(root, net, X, tmp_path, every_window):
    options = {"memory": MEMORY, "engine": "full"}
    with pytest.raises(KeyboardInterrupt):
        gbdnn.infer_to_store(counted(net, [], 12), X, tmp_path / "Y", **options)
    layer = gbdnn.io.find_unfinished(tmp_path / "Y").layer
    assert f"\nlayer       {layer}\n" in well("info", tmp_path / "Y")
    told = well("infer", root / "net", root / "X", "-o", tmp_path / "Y", "--to", "store",
                "--memory", "21MiB", "--engine", "full")  # fmt: skip
    assert f"resumes at input 0 of 2,000, layer {layer} of 12\n" in told
    assert gbdnn.load(tmp_path / "Y").isequal(gbdnn.load(root / "Y"))


def test_a_checkpoint_takes_its_share_of_the_time_at_most(tmp_path, monkeypatch):
    """Written when the time since the last one is fifty times what it takes."""
    now, written = [0.0], []
    monkeypatch.setattr(checkpoint, "monotonic", lambda: now[0])
    monkeypatch.setattr(
        checkpoint, "_write", lambda *_: (written.append(now[0]), now.__setitem__(0, now[0] + 0.5))
    )

    class State:
        nbytes = 10_000_000

        def saved(self):
            return None

    point = checkpoint.Checkpoint(tmp_path / "part.run")
    for _ in range(1000):
        now[0] += 0.1
        point.offer(3, State())
    assert written
    assert 0.5 * len(written) <= 0.02 * now[0] + 0.5


# Writes that fail


@pytest.fixture
def full_disk(tmp_path):
    """A folder on a disk that is soon full; None where nothing may be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = os.geteuid() == 0 and not subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", folder],
        check=False, capture_output=True,
    ).returncode  # fmt: skip
    if not mounted:
        pytest.skip("no tmpfs may be mounted")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def grow(folder):
    subprocess.run(["mount", "-o", "remount,size=64m", folder], check=True)


def test_a_full_disk_keeps_the_parts_that_are_done(root, net, X, full_disk):
    out, records = full_disk / "Y", []
    options = {"engine": "full", "batch": 25}
    with pytest.raises(gbdnn.OutputError, match=r"^batch \d+: .*disk/Y.*No space left") as caught:
        gbdnn.infer_to_store(net, X, out, stats=records.append, **options)
    assert isinstance(caught.value, OSError)
    assert 0 < len(records) < 80
    assert gbdnn.io.find_unfinished(out).parts_done == len(records)
    grow(full_disk)
    Y = gbdnn.infer_to_store(net, X, out, stats=records.append, **options)
    assert len(records) == 80
    assert Y.matrix().isequal(gbdnn.load(root / "Y"))


def test_a_full_disk_keeps_the_layers_that_are_done(net, full_disk, monkeypatch, small_shards):
    # A layer takes 130 kB.
    with pytest.raises(gbdnn.OutputError, match=r"disk/net: .*No space left"):
        resumed.save_layers(conversion.of_layers(net), full_disk / "net")
    assert gbdnn.io.find_unfinished(full_disk / "net").done >= 2
    grow(full_disk)
    seen = []
    resumed.save_layers(
        conversion.of_layers(net), full_disk / "net", progress=lambda k, _: seen.append(k)
    )
    assert seen[0] >= 2
    assert gbdnn.load(full_disk / "net").isequal(net)


LIMITED = """
import resource, signal, sys
import gbdnn
net, X = gbdnn.load(sys.argv[1] + "/net", lazy=True), gbdnn.io.open_features(sys.argv[1] + "/X")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
try:
    gbdnn.infer_to_store(net, X, sys.argv[2], engine="full", batch=250)
except gbdnn.OutputError as err:
    print(err)
"""


@pytest.mark.parametrize(
    "limit", [100, 2000, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 10_000))]
)
def test_files_that_may_not_grow(root, tmp_path, limit):
    out = tmp_path / "Y"
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, root, out, str(limit)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "cannot be written" in done.stdout
    assert "File too large" in done.stdout
    assert not (out / "index.json").exists()
    records = []
    gbdnn.infer_to_store(
        gbdnn.load(root / "net", lazy=True), gbdnn.io.open_features(root / "X"), out, engine="full",
        batch=250, stats=records.append,
    )  # fmt: skip
    assert len(records) <= 8
    assert gbdnn.load(out).isequal(gbdnn.load(root / "Y"))


def test_a_folder_that_may_not_be_written(net, X, tmp_path, monkeypatch):
    """Root may write everywhere: the system's answer is another's."""
    half_done(net, X, tmp_path / "Y")
    mkdir = Path.mkdir

    def refuse(path, *args, **options):
        if path.name.startswith("part-"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return mkdir(path, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", refuse)
        with pytest.raises(gbdnn.OutputError, match=r"batch 3: .*Y/.*part-.*Permission denied"):
            gbdnn.infer_to_store(net, X, tmp_path / "Y", engine="full")
    assert gbdnn.io.find_unfinished(tmp_path / "Y").parts_done == 3
    records = []
    gbdnn.infer_to_store(net, X, tmp_path / "Y", engine="full", stats=records.append)
    assert len(records) == 5


# What is read vanishes, or is damaged


@pytest.mark.parametrize("what", ["features vanish", "features flip", "network vanishes", "flips"])
def test_input_that_fails_in_the_middle(root, tmp_path, monkeypatch, what):
    monkeypatch.setattr("gbdnn.io.store.features.PART", 20_000)
    for name in ("net", "X"):
        shutil.copytree(root / name, tmp_path / name)
    monkeypatch.setattr(writer, "SHARD_BYTES", 0)
    gbdnn.save(gbdnn.load(root / "net"), tmp_path / "net")
    gbdnn.io.write_features(
        (rows.matrix() for rows in gbdnn.io.open_features(root / "X").batches(100)), tmp_path / "X"
    )
    X = gbdnn.io.open_features(tmp_path / "X")
    net = gbdnn.load(tmp_path / "net", lazy=True)
    folder = tmp_path / ("X" if "features" in what else "net")
    shard = sorted(folder.glob("shard-*"))[-1]
    saved = shard.read_bytes()
    streamed = "features" not in what
    options = {"engine": "full", "batch": BATCH}
    options |= {"memory": MEMORY, "batch": 1000} if streamed else {}
    records = []

    def strike(record):
        records.append(record)
        if len(records) > 1:
            return
        if "vanish" in what:
            shard.unlink()
        else:
            flip(shard)

    if streamed and "vanish" in what:
        # A mapped file lives on without its name: the second part would read it.
        strike(None)
        error, match = gbdnn.MissingFileError, "the shard is missing"
    else:
        error = gbdnn.MissingFileError if "vanish" in what else gbdnn.FormatError
        match = "the shard is missing" if "vanish" in what else "is damaged"
    where = "layer 11" if streamed else r"part \d+"
    with pytest.raises(error, match=rf"batch \d: .*{shard.name}: {where}: .*{match}"):
        gbdnn.infer_to_store(net, X, tmp_path / "Y", stats=strike, **options)
    left = gbdnn.io.find_unfinished(tmp_path / "Y")
    assert (left.parts_done if left else 0) == len([each for each in records if each])
    shard.write_bytes(saved)
    net, X = gbdnn.load(tmp_path / "net", lazy=True), gbdnn.io.open_features(tmp_path / "X")
    Y = gbdnn.infer_to_store(net, X, tmp_path / "Y", **options)
    assert Y.matrix().isequal(gbdnn.load(root / "Y"))


@pytest.mark.parametrize("damage", ["bit", "index", "gone"])
def test_a_damaged_part_is_computed_again(root, net, X, tmp_path, damage):
    half_done(net, X, tmp_path / "Y")
    part = parts_of(tmp_path / "Y")[1]
    if damage == "bit":
        flip(next(part.glob("shard-*")))
    elif damage == "index":
        flip(part / "index.json", at=40)
    else:
        next(part.glob("shard-*")).unlink()
    records = []
    Y = gbdnn.infer_to_store(net, X, tmp_path / "Y", engine="full", stats=records.append)
    assert sorted(each.batch for each in records) == [1, 3, 4, 5, 6, 7]
    assert Y.matrix().isequal(gbdnn.load(root / "Y"))


# What is kept, and what the system refuses


def refusing(patch, name, error):
    """Let no file with this in its path be opened."""

    def refused(function):
        def call(path, *args, **kwargs):
            if isinstance(path, str | os.PathLike) and name in os.fspath(path):
                raise error
            return function(path, *args, **kwargs)

        return call

    for module, function in ((os, "open"), (io, "open"), (safetensors, "safe_open")):
        patch.setattr(module, function, refused(getattr(module, function)))


REFUSED = {
    "EMFILE": OSError(errno.EMFILE, "Too many open files"),
    "EIO": OSError(errno.EIO, "Input/output error"),
    "memory": MemoryError(),
    "Ctrl-C": KeyboardInterrupt(),
}


@pytest.mark.parametrize("error", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("file", ["run.json", "-00000.safetensors"])
def test_layers_that_cannot_be_read_now_are_kept(
    net, tmp_path, monkeypatch, small_shards, file, error
):
    whole = half_written(net, tmp_path)
    before = contents(tmp_path)
    with monkeypatch.context() as patch:
        refusing(patch, file, error)
        with pytest.raises((gbdnn.ReadError, MemoryError, KeyboardInterrupt)):
            resumed.save_layers(whole, tmp_path)
    assert contents(tmp_path) == before
    seen = []
    resumed.save_layers(whole, tmp_path, progress=lambda k, _: seen.append(k))
    assert seen[0] == 7
    assert gbdnn.load(tmp_path).isequal(net)


@pytest.mark.parametrize("error", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("file", ["run.json", "000500/index.json", "000500/shard-"])
def test_parts_that_cannot_be_read_now_are_kept(root, net, X, tmp_path, monkeypatch, file, error):
    out = tmp_path / "Y"
    half_done(net, X, out)
    before = contents(out)
    with monkeypatch.context() as patch:
        refusing(patch, file, error)
        with pytest.raises((gbdnn.ReadError, MemoryError, KeyboardInterrupt)):
            gbdnn.infer_to_store(net, X, out, engine="full")
    assert contents(out) == before
    records = []
    Y = gbdnn.infer_to_store(net, X, out, engine="full", stats=records.append)
    assert len(records) == 5
    assert Y.matrix().isequal(gbdnn.load(root / "Y"))


@pytest.mark.parametrize("error", REFUSED.values(), ids=REFUSED)
def test_a_checkpoint_that_cannot_be_read_now_is_kept(
    net, X, tmp_path, monkeypatch, every_window, error
):
    options = {"memory": MEMORY, "engine": "full"}
    with pytest.raises(KeyboardInterrupt):
        gbdnn.infer_to_store(counted(net, [], 12), X, tmp_path / "Y", **options)
    left = gbdnn.io.find_unfinished(tmp_path / "Y")
    with monkeypatch.context() as patch:
        refusing(patch, ".run/shard-", error)
        with pytest.raises((gbdnn.ReadError, MemoryError, KeyboardInterrupt)):
            gbdnn.infer_to_store(net, X, tmp_path / "Y", **options)
    assert gbdnn.io.find_unfinished(tmp_path / "Y") == left
    reads = []
    gbdnn.infer_to_store(counted(net, reads), X, tmp_path / "Y", **options)
    assert min(reads) == left.layer // 5 * 5


def test_an_index_that_cannot_be_read_now_is_no_reason_to_remove_shards(
    root, net, X, tmp_path, monkeypatch
):
    """The store is complete, and a folder is left: what the index names is not known."""
    out = tmp_path / "Y"
    gbdnn.infer_to_store(net, X, out, engine="full")
    (out / ".gbdnn-0123456789abcdef.tmp").mkdir()
    before = contents(out)
    with monkeypatch.context() as patch:
        refusing(patch, "Y/index.json", REFUSED["EMFILE"])
        with pytest.raises(gbdnn.ReadError):
            gbdnn.infer_to_store(net, X, out, engine="full")
    assert contents(out) == before


def contents(path):
    return {
        str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()
    }


def test_two_that_write_the_same(root, net, tmp_path, small_shards):
    """The second is refused, and removes nothing of the first, which has no shard yet."""
    whole = conversion.of_layers(net)

    def layers(k):
        with pytest.raises(gbdnn.OutputError, match="another process is writing"):
            resumed.save_layers(whole, tmp_path)
        return net[k:]

    source = resumed.LayerSource(origin=whole.origin, count=whole.count, layers=layers)
    resumed.save_layers(source, tmp_path)
    assert gbdnn.load(tmp_path).isequal(net)


@pytest.mark.parametrize("name", ["generate", "convert", "convert tsv"])
def test_shards_that_a_kill_has_left_without_their_folder_are_removed(root, tmp_path, name):
    out = tmp_path / "net"
    arguments = [out if each == "OUT" else each for each in commands(root)[name]]
    well(*arguments)
    there = sorted(out.iterdir())
    (out / "shard-0123456789abcdef-00000.safetensors").write_bytes(b"old")
    assert "is complete" in well(*arguments)
    assert sorted(out.iterdir()) == there


def test_a_complete_run_leaves_another_one_what_it_has_done(root, net, tmp_path, small_shards):
    """Written over a finished network, and killed: both can be called again."""
    out = tmp_path / "net"
    well("generate", out, "--layers", 12)
    whole = half_written(net.astype("FP64"), out)
    before = contents(out)
    assert "is complete" in well("generate", out, "--layers", 12)
    assert contents(out) == before
    resumed.save_layers(whole, out)
    assert gbdnn.load(out).dtype == np.float64


def test_a_complete_answer_leaves_another_one_what_it_has_done(net, X, tmp_path):
    out = tmp_path / "Y"
    gbdnn.infer_to_store(net, X, out, engine="full")
    half_done(net[:4], X, out)
    before = contents(out)
    records = []
    gbdnn.infer_to_store(net, X, out, engine="full", stats=records.append)
    assert not records
    assert contents(out) == before


def test_what_cannot_go_on_there_does_not_throw_it_away(root, net, X, tmp_path):
    out = tmp_path / "Y"
    half_done(net, X, out)
    before = contents(out)
    match = "holds 750 of 2,000 inputs of an unfinished run. That run can go on; removing "
    for write in (gbdnn.save, gbdnn.io.write_features):
        with pytest.raises(gbdnn.OutputError, match=match):
            write([np.eye(3)] if write is gbdnn.io.write_features else np.eye(3), out)
    with pytest.raises(gbdnn.OutputError, match=match):
        require_storable(out)
    require_storable(out, resumes=True)
    fails("infer", root / "net", root / "X", "-o", out, "--to", "store", "--categories",
          match=match)  # fmt: skip
    assert contents(out) == before


def test_a_full_disk_where_files_cannot_be_linked(root, net, X, tmp_path, monkeypatch):
    """The parts are complete, and the index of the whole cannot be written."""
    out, replace = tmp_path / "Y", os.replace

    def full(source, target, **options):
        if Path(target) == out / "index.json":
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target, **options)

    def refuse(*args, **options):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse)
        patch.setattr(os, "replace", full)
        with pytest.raises(gbdnn.OutputError, match="No space left"):
            gbdnn.infer_to_store(net, X, out, engine="full", batch=BATCH)
    assert gbdnn.io.find_unfinished(out).parts_done == 8
    records = []
    Y = gbdnn.infer_to_store(net, X, out, engine="full", stats=records.append)
    assert not records
    assert Y.matrix().isequal(gbdnn.load(root / "Y"))


def test_a_source_that_cannot_be_read_is_told_as_the_source(
    root, tmp_path, monkeypatch, small_shards
):
    source = conversion.of_tsv(root / "files", {})
    with pytest.raises(KeyboardInterrupt):
        resumed.save_layers(source, tmp_path / "net", progress=stopped_at(5))
    with monkeypatch.context() as patch:
        refusing(patch, "n1024-l2.tsv", PermissionError(errno.EACCES, "Permission denied"))
        told = fails(
            "convert", root / "files", tmp_path / "net", match="n1024-l2.tsv: cannot be read"
        )
    assert "cannot be written" not in told
    assert gbdnn.io.find_unfinished(tmp_path / "net").done == 4


# Memory that is refused

STEPS = """
import resource, sys
import gbdnn, graphblas as gb
from gbdnn.errors import GbdnnError
root, out, more = sys.argv[1], sys.argv[2], int(sys.argv[3]) << 20
net, X = gbdnn.load(root + "/net", lazy=True), gbdnn.io.open_features(root + "/X")
gbdnn.infer(net[:1], X[:10], engine="full")
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + more, resource.RLIM_INFINITY))
try:
    if sys.argv[4] == "infer":
        gbdnn.infer_to_store(net, X, out, engine="full", batch=250, nthreads=1)
    else:
        gbdnn.save(gbdnn.radixnet(16384, 4, lazy=True), out)
    print("done")
except (MemoryError, GbdnnError, gb.exceptions.OutOfMemory) as err:
    print(type(err).__name__)
"""


@pytest.mark.parametrize("what", ["infer", "save"])
@pytest.mark.parametrize(
    "more", [0, *(pytest.param(mib, marks=pytest.mark.slow) for mib in (4, 16, 64, 256))]
)
def test_allocations_that_fail(root, tmp_path, what, more):
    if sys.platform != "linux":
        pytest.skip("RLIMIT_AS is Linux's")
    out = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-c", STEPS, root, out, str(more), what],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    if done.stdout == "done\n":
        assert gbdnn.load(out) is not None
    else:
        with pytest.raises(gbdnn.MissingFileError):
            gbdnn.load(out)
    if what == "infer":
        net, X = gbdnn.load(root / "net", lazy=True), gbdnn.io.open_features(root / "X")
        Y = gbdnn.infer_to_store(net, X, out, engine="full", batch=250)
        assert Y.matrix().isequal(gbdnn.load(root / "Y"))
