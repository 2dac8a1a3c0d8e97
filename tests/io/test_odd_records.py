"""Indices and records with a right checksum, but missing or odd fields: an error of gbdnn."""

import copy
import json
import shutil

import numpy as np
import pytest

import gbdnn
from gbdnn.training import checkpoint

store = pytest.importorskip("gbdnn.io.store.folder")
safetensors = pytest.importorskip("safetensors.numpy")
pytest.importorskip("xxhash")

NET = gbdnn.Network(
    [gbdnn.Layer(np.eye(4, 5), np.arange(5.0)), gbdnn.Layer(np.eye(5, 3), 0.5, clip=2)]
)
X, LABELS = np.eye(12, 4), np.arange(12) % 3
ODD = [None, True, -1, 0, 1, 7, 2**31, 2**70, 0.5, "x", "float64", [], [1], {}, {"a": 1}]


def changed(record, rng):
    """Return a JSON document in which one or two fields are missing, repeated or odd."""
    record = copy.deepcopy(record)
    for _ in range(rng.integers(1, 3)):
        places = [
            (inner, key)
            for inner in _containers(record)
            for key in (inner if isinstance(inner, dict) else range(len(inner)))
        ]
        inner, key = places[rng.integers(len(places))]
        match rng.integers(4):
            case 0:
                del inner[key]
            case 1 if isinstance(inner, list):
                inner.append(inner[key])
            case _:
                inner[key] = copy.deepcopy(ODD[rng.integers(len(ODD))])
    return record


def _containers(x):
    if isinstance(x, dict | list):
        yield x
        for each in x.values() if isinstance(x, dict) else x:
            yield from _containers(each)


def tried(call):
    """Return 1 if the call raises an error of gbdnn; other exceptions pass."""
    try:
        call()
    except gbdnn.GbdnnError:
        return 1
    return 0


class Stop(Exception):  # noqa: N818
    pass


@pytest.mark.parametrize("pattern", ["part-*.json", "gbdnn-run.json"])
def test_records_of_parts(tmp_path, pattern):
    def stop(done, _):
        if done >= 6:
            raise Stop

    with pytest.raises(Stop):
        gbdnn.infer_to_store(NET, X, tmp_path / "Y", batch=3, progress=stop)
    expected, rng = gbdnn.infer(NET, X), np.random.default_rng(1)
    for case in range(40):
        folder = tmp_path / str(case)
        shutil.copytree(tmp_path / "Y", folder)
        path = sorted(folder.glob(pattern))[0]
        store.write_json(path, changed(store.read_json(path), rng))
        try:
            Y = gbdnn.infer_to_store(NET, X, folder, batch=3)
        except gbdnn.GbdnnError:
            continue
        assert Y.matrix().isequal(expected)


@pytest.mark.parametrize("shards", [[{}], [1], 5, None])
def test_an_odd_store_can_be_replaced(tmp_path, shards):
    gbdnn.save(NET, tmp_path)
    index = store.read_json(tmp_path / "index.json")
    store.write_json(tmp_path / "index.json", index | {"shards": shards})
    with pytest.raises(gbdnn.GbdnnError, match="finished store"):
        gbdnn.infer_to_store(NET, X, tmp_path)
    Y = gbdnn.infer_to_store(NET, X, tmp_path, replace=True)
    assert Y.matrix().isequal(gbdnn.infer(NET, X))
    assert len(list(tmp_path.iterdir())) == 2


def test_descriptions_of_training_runs(tmp_path):
    path = tmp_path / "run"
    options = {"y": LABELS, "batch_size": 6, "validation": 0.25, "patience": 2}
    gbdnn.train(NET, X, epochs=1, checkpoint=path, **options)
    content = path.read_bytes()
    arrays = safetensors.load(content)
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    version, _, text = json.loads(header["__metadata__"]["gbdnn"])
    known, rng, refused = json.loads(text), np.random.default_rng(2), 0
    for _ in range(300):
        text = json.dumps(changed(known, rng))
        record = json.dumps([version, checkpoint._checksum(text, arrays), text])
        path.write_bytes(safetensors.save(arrays, {"gbdnn": record}))
        refused += tried(lambda: gbdnn.infer(gbdnn.load(path).network, X))
        tried(lambda: gbdnn.train(gbdnn.load(path), X, LABELS, epochs=1))
    assert refused > 150
