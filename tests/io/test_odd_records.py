"""Indices and records with a right checksum, but missing or odd fields: an error of gbdnn."""

import json
import shutil

import numpy as np
import pytest
from odd_fields import content_of, variants

import gbdnn
from gbdnn.training import checkpoint

store = pytest.importorskip("gbdnn.io.store.folder")
safetensors = pytest.importorskip("safetensors.numpy")
pytest.importorskip("xxhash")

NET = gbdnn.Network(
    [gbdnn.Layer(np.eye(4, 5), np.arange(5.0)), gbdnn.Layer(np.eye(5, 3), 0.5, clip=2)]
)
X, LABELS = np.eye(12, 4), np.arange(12) % 3


class Stop(Exception):  # noqa: N818
    pass


@pytest.mark.parametrize("pattern", ["part-*.json", "gbdnn-run.json"])
def test_records_of_parts(tmp_path, pattern):
    def stop(done, _):
        if done >= 6:
            raise Stop

    with pytest.raises(Stop):
        gbdnn.infer_to_store(NET, X, tmp_path / "Y", batch_size=3, progress=stop)
    expected = gbdnn.infer(NET, X)
    record = sorted((tmp_path / "Y").glob(pattern))[0]
    for case, bad in enumerate(variants(content_of(record))):
        folder = tmp_path / str(case)
        shutil.copytree(tmp_path / "Y", folder)
        store.write_json(folder / record.name, bad)
        try:
            Y = gbdnn.infer_to_store(NET, X, folder, batch_size=3).matrix()
        except gbdnn.GbdnnError:
            continue
        assert Y.isequal(expected), bad


@pytest.mark.parametrize("shards", [[{}], [1], 5, None])
def test_an_odd_store_can_be_replaced(tmp_path, shards):
    gbdnn.save(NET, tmp_path)
    index = content_of(tmp_path / "index.json")
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
    refused = 0
    for bad in variants(json.loads(text)):
        text = json.dumps(bad)
        record = json.dumps([version, checkpoint._checksum(text, arrays), text])
        path.write_bytes(safetensors.save(arrays, {"gbdnn": record}))
        try:
            gbdnn.infer(gbdnn.load(path).network, X)
            gbdnn.train(gbdnn.load(path), X, LABELS, epochs=1)
        except gbdnn.GbdnnError:  # nothing else is raised
            refused += 1
    assert refused > 150
