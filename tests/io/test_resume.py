"""infer_to_store: whole parts are skipped, and different runs are refused."""

import json
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from calls import raises, raising

import gbdnn
from gbdnn import io
from gbdnn.errors import ArgumentTypeError, MissingFileError, OutputError
from gbdnn.io.store import features
from gbdnn.io.store import parts as store_parts

for package in ("safetensors", "xxhash"):
    pytest.importorskip(package)

NET = gbdnn.gallery.radixnet(1024, 2)
X = np.random.default_rng(1).choice([0.0, 1.0], (60, 1024), p=[0.9, 0.1]).astype(np.float32)
EXPECTED = gbdnn.infer(NET, X)


class Stop(Exception):  # noqa: N818
    pass


def stopped(out, done, net=NET, inputs=X, **options):
    """Run in parts of 10 inputs until `done` of them are in whole parts."""

    def stop(found, _):
        if found >= done:
            raise Stop

    with pytest.raises(Stop):
        gbdnn.infer_to_store(net, inputs, out, batch_size=10, progress=stop, **options)


def counted(out, net=NET, inputs=X, **options):
    """Return the answer of a call that finishes, and the inputs done at its first report."""
    done = []
    Y = gbdnn.infer_to_store(net, inputs, out, progress=lambda k, _: done.append(k), **options)
    assert done[-1] == 60
    return Y.matrix(), done[0]


def continued(out, first, *given, **options):
    """Require that a call finds `first` inputs done, and finishes with the right answer."""
    Y, done = counted(out, *given, **options)
    assert done == first
    assert Y.isequal(EXPECTED)


def parts(out):
    return sorted(out.glob("part-*.json"))


def shards_of(part):
    return [part.parent / each["file"] for each in json.loads(part.read_text())["shards"]]


def test_ctrl_c_after_the_index_of_a_part_keeps_the_part(tmp_path, monkeypatch):
    write = store_parts.write_json

    def interrupted(path, content):
        write(path, content)
        if path.name.startswith("part-"):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store_parts, "write_json", interrupted)
        raises(KeyboardInterrupt, None, gbdnn.infer_to_store, NET, X, tmp_path / "Y", batch_size=10)
    continued(tmp_path / "Y", 10, batch_size=10)


@pytest.mark.parametrize("size", [1 << 22, 7])
def test_an_answer_is_written_part_by_part(tmp_path, monkeypatch, size):
    monkeypatch.setattr(features, "PART", size)
    continued(tmp_path / "Y", 0, batch_size=10)
    names = {path.suffix for path in (tmp_path / "Y").iterdir()}
    assert len(list((tmp_path / "Y").glob("*.json"))) == 1
    assert names == {".json", ".safetensors"}


def test_a_finished_run_is_not_computed_again(tmp_path):
    gbdnn.infer_to_store(NET, X, tmp_path)
    before = {path.name for path in tmp_path.iterdir()}
    continued(tmp_path, 60)
    assert {path.name for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("damage", ["bit", "cut", "shard", "index", "cut index"])
def test_a_damaged_part_is_computed_again(tmp_path, damage):
    out = tmp_path / "Y"
    stopped(out, 30)
    part = parts(out)[1]
    file = part if "index" in damage else shards_of(part)[0]
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "shard":
        file.unlink()
    else:
        file.write_bytes(content[:-1] if "cut" in damage else content)
    continued(out, 20)


def test_an_unfinished_store_cannot_be_read_or_replaced_by_save(tmp_path):
    stopped(tmp_path, 30)
    for read in (gbdnn.load, io.open_features):
        raises(MissingFileError, "unfinished: 30 of 60 inputs; repeat the call", read, tmp_path)
    raises(OutputError, "unfinished", gbdnn.save, NET, tmp_path)
    assert len(parts(tmp_path)) == 3


OTHERS = {
    "network": {"net": gbdnn.gallery.radixnet(1024, 3)},
    "features": {"inputs": X[::-1].copy()},
    "engine auto, not sparse": {"engine": "sparse"},
    "deduplicate auto, not False": {"deduplicate": False},
}


@pytest.mark.parametrize("what", OTHERS)
@pytest.mark.parametrize("finished", [True, False])
def test_a_different_run_is_refused_and_replace_discards_it(tmp_path, what, finished):
    if finished:
        gbdnn.infer_to_store(NET, X, tmp_path, batch_size=10)
    else:
        stopped(tmp_path, 30)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    other = OTHERS[what]
    raises(OutputError, f"{what}.*replace=True", counted, tmp_path, **other)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    Y, done = counted(tmp_path, **other, replace=True)
    assert done == 0
    expected = {"net": NET, "inputs": X, **other}
    assert Y.isequal(gbdnn.infer(expected.pop("net"), expected.pop("inputs"), **expected))


def test_another_size_of_parts_is_refused(tmp_path):
    stopped(tmp_path, 30)
    raises(OutputError, "its parts have 10 inputs, not 20", counted, tmp_path, batch_size=20)
    assert counted(tmp_path, batch_size=10)[1] == 30


def test_a_store_of_something_else_is_refused_and_replace_replaces_it_at_the_end(tmp_path):
    gbdnn.save(NET, tmp_path)
    raises(OutputError, r"contains a finished store; .*replace=True", counted, tmp_path)
    stopped(tmp_path, 30, replace=True)
    assert gbdnn.load(tmp_path).isequal(NET)
    continued(tmp_path, 30)  # the unfinished run is this one


def test_a_part_of_an_earlier_run_that_is_finished_late_is_not_taken(tmp_path):
    """Workers of an interrupted call may still be computing when another run begins."""
    stopped(tmp_path, 30, net=gbdnn.gallery.radixnet(1024, 3))
    late = {path: path.read_bytes() for path in tmp_path.iterdir() if path.name != "gbdnn-run.json"}
    stopped(tmp_path, 10, replace=True)
    for path, written in late.items():
        path.write_bytes(written)
    continued(tmp_path, 10)


def test_replace_continues_the_same_run(tmp_path):
    """The call that was interrupted, repeated, computes the missing parts only."""
    gbdnn.infer_to_store(NET, X, tmp_path)
    stopped(tmp_path, 30, replace=True)
    continued(tmp_path, 30, replace=True)
    assert counted(tmp_path, replace=True)[1] == 0  # what is finished is computed again
    stopped(tmp_path, 30, replace=True)
    assert counted(tmp_path, batch_size=20, replace=True)[1] == 0  # parts of another size


def test_a_run_that_failed_before_its_first_part_leaves_nothing(tmp_path):
    stopped(tmp_path / "Y", 0)
    assert not (tmp_path / "Y").exists()
    (tmp_path / "Z").mkdir()
    stopped(tmp_path / "Z", 0)
    assert counted(tmp_path / "Z", engine="sparse")[1] == 0


def test_stores_are_known_by_their_content(tmp_path):
    """They may have been moved or saved again in the meantime."""
    for name in ("old", "new"):
        gbdnn.save(NET, tmp_path / name / "net")
        gbdnn.io.write_features(X, tmp_path / name / "X")
    nets = [gbdnn.load(tmp_path / name / "net", lazy=name == "new") for name in ("old", "new")]
    inputs = [io.open_features(tmp_path / name / "X") for name in ("old", "new")]
    stopped(tmp_path / "Y", 20, nets[0], inputs[0])
    continued(tmp_path / "Y", 20, nets[1], inputs[1])
    gbdnn.infer_to_store(NET, inputs[0][:30], tmp_path / "rows")
    for rows in (inputs[1][30:], inputs[1][:29]):  # of the same content
        raises(OutputError, "finished store", gbdnn.infer_to_store, NET, rows, tmp_path / "rows")


def test_threads_and_processes_continue_a_run(tmp_path):
    gbdnn.save(NET, tmp_path / "net")
    net = gbdnn.load(tmp_path / "net")
    for name, pool in (
        ("threads", ThreadPoolExecutor(2)),
        ("processes", ProcessPoolExecutor(1, get_context("spawn"))),
    ):
        stopped(tmp_path / name, 30, net=net)
        with pool:
            continued(tmp_path / name, 30, net=net, executor=pool)


def test_a_worker_that_cannot_write(tmp_path):
    """Whole parts stay, and the next call finishes."""
    out = tmp_path / "Y"

    def gone(done, _):
        if done == 20:
            out.rename(tmp_path / "moved")

    with pytest.raises(OutputError, match=r"batch 2: .*cannot be written"):
        gbdnn.infer_to_store(NET, X, out, batch_size=10, progress=gone)
    (tmp_path / "moved").rename(out)
    assert counted(out)[1] == 20


def test_a_part_without_an_index_leaves_no_shard(tmp_path, monkeypatch):
    monkeypatch.setattr(store_parts, "write_json", raising(OSError(28, "No space left on device")))
    raises(OutputError, "No space", store_parts.write_part, tmp_path / "part.json", EXPECTED.dup())
    assert not list(tmp_path.iterdir())


def test_a_network_without_layers_stores_nothing(tmp_path):
    with pytest.raises(ArgumentTypeError, match=r"no layers; use gbdnn\.io\.write_features"):
        gbdnn.infer_to_store([], X, tmp_path / "Y")
    assert not (tmp_path / "Y").exists()


def test_the_same_values_in_another_kind_of_matrix_are_other_features(tmp_path):
    """Their sums may round differently."""
    sparse = pytest.importorskip("scipy.sparse").csr_array(X)
    stopped(tmp_path / "Y", 20)
    message = "different features: other values, dtype or kind of matrix"
    raises(OutputError, message, gbdnn.infer_to_store, NET, sparse, tmp_path / "Y", batch_size=10)
