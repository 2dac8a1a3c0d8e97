"""`gbdnn.load` and `gbdnn.io.convert`: networks in any format."""

import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from shell import python

import gbdnn
from gbdnn import errors, io

SUPPORT = Path(__file__).parents[1] / "support"


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"format": "hdf5"}, "format"),
        ({"prefix": "a"}, "prefix= .*store"),
        ({"layers": 3}, "layers=3: .*trained"),
        ({"layers": 0}, "layers"),
    ],
)
def test_wrong_options_of_load(trained, options, match):
    with pytest.raises(errors.ArgumentError, match=match):
        gbdnn.load(trained, **options)


def named(*layers):
    return gbdnn.Network([gbdnn.Layer(np.eye(3), **given) for given in layers])


def test_what_a_format_cannot_store_is_named(tmp_path):
    """With a bias of -0.3 the two bias rules agree."""
    W, clips = np.eye(3), [None, 6.0, 6.0, None, 6.0]
    gbdnn.save(gbdnn.Network([gbdnn.Layer(W, 1.0), gbdnn.Layer(W, -1.0)]), tmp_path / "biases")
    gbdnn.save(named(*({"clip": clip} for clip in clips)), tmp_path / "clips")
    gbdnn.save(named({}, {"activation": "identity"}), tmp_path / "identity")
    gbdnn.save(gbdnn.gallery.radixnet(1024, 1), tmp_path / "challenge")

    def lost(name, form):
        return io.convert(tmp_path / name, tmp_path / f"{name}-{form}", to=form, lossy=True)

    assert lost("challenge", "tsv") == []
    assert lost("challenge", "matrix-market") == ["clip 32 (layer 0)"]
    assert lost("biases", "matrix-market") == []
    assert lost("biases", "tsv") == [
        "a bias of 1 (layer 0)", "FP64 (layer 0)", "the bias rule all (layer 0)",
        "unbounded activations (layer 0)",
    ]  # fmt: skip
    assert lost("clips", "matrix-market") == ["clip 6 (layer 1)"]
    assert lost("identity", "matrix-market") == ["the activation identity (layer 1)"]


WRITERS = {
    "torch": io.write_torch, "matrix-market": io.write_matrix_market, "tsv": io.write_network,
}  # fmt: skip


@pytest.mark.parametrize(
    "form", [pytest.param(x, marks=[pytest.mark.frameworks] * (x == "torch")) for x in WRITERS]
)
@pytest.mark.parametrize(
    ("net", "restoring"),
    [
        (named({"clip": 6}, {"clip": 6}), True),
        (named({"clip": 6}, {"clip": 6}, {"activation": "identity"}), True),
        (named({"clip": 6}, {}), False),
        (named({"clip": 6}, {"clip": 5}), False),
        (named({"activation": "identity"}, {"clip": 6}), False),
    ],
)
def test_writers_drop_nothing_in_silence(form, net, restoring, tmp_path):
    """And the options of `load` that the error advises restore the whole network."""
    if form == "torch":
        pytest.importorskip("torch")
    path = tmp_path / ("net.pt" if form == "torch" else "files")
    with pytest.raises(errors.ArgumentError, match=r"cannot store .*Pass lossy=True") as error:
        WRITERS[form](net, path)
    assert not path.exists()
    advised = re.findall(r"(\w+)=", str(error.value).partition("lossy=True")[2])
    assert bool(advised) == (restoring and (form != "tsv" or len(net) == 2))
    WRITERS[form](net, path, lossy=True)
    if advised:
        given = {"clip": 6, "last_activation": net[-1].activation, "bias": 0, "dtype": "FP64"}
        given |= {"bias_rule": "all"}
        known = {"activation": "relu"} if form == "torch" else {}
        found = gbdnn.load(path, format=form, **known, **{name: given[name] for name in advised})
        X = np.diag([9.0, 1.0, -5.0])
        assert gbdnn.infer(found, X).isequal(gbdnn.infer(net, X))


TOY = """
import sys
import numpy as np
import toy_format
import gbdnn
from gbdnn import errors, io
from gbdnn.cli import main

folder = sys.argv.pop()
net = gbdnn.Network([gbdnn.Layer(np.array([[1.0, 0.0], [2.0, -1.0]]), clip=2.0)])
gbdnn.save(net, folder + "/net")
assert io.convert(folder + "/net", folder + "/a.toy", lossy=True) == ["clip 2 (layer 0)"]
assert gbdnn.load(folder + "/a.toy", clip=2.0).isequal(net)
for wrong in (
    lambda: io.convert(folder + "/net", folder + "/b.toy"),
    lambda: gbdnn.load(folder + "/a.toy", bias=1.0),
    lambda: gbdnn.save(net, folder + "/c.toy"),
):
    try:
        wrong()
    except errors.ArgumentError as error:
        print(error)
for words in (
    [folder + "/a.toy", folder + "/d", "--clip", "2"],
    [folder + "/d", folder + "/e", "--to", "toy", "--lossy"],
    [folder + "/e", folder + "/f", "--from", "toy"],
    ["--help"],
):
    sys.argv[1:] = ["convert", *words]
    try:
        main()
    except SystemExit as end:
        assert not end.code, words
assert gbdnn.load(folder + "/d").isequal(net)
assert gbdnn.load(folder + "/f").isequal(gbdnn.load(folder + "/a.toy"))
"""


def test_a_format_is_one_file(tmp_path):
    """The recipe in docs/architecture.md: `toy_format` registers an object; all calls know it."""
    path = os.pathsep.join([str(SUPPORT), *sys.path])
    done = python(TOY, tmp_path, PYTHONPATH=path, COLUMNS="200")
    assert done.returncode == 0, done.stderr
    assert "b.toy: the format toy cannot store clip 2 (layer 0)" in done.stdout
    assert "bias= does not apply to the format toy" in done.stdout
    assert "use gbdnn.io.write_toy" in done.stdout
    assert "torch|toy" in done.stdout
    assert "toy (inf)" in " ".join(done.stdout.split())


def test_options_of_stores_do_not_apply_to_other_formats(tmp_path):
    pytest.importorskip("onnx")
    io.write_onnx(gbdnn.Network([np.eye(3)]), tmp_path / "net.onnx")
    io.write_network(gbdnn.gallery.radixnet(1024, 1), tmp_path / "files")
    gbdnn.save(gbdnn.train([np.eye(3)], np.eye(3), np.arange(3), epochs=1), tmp_path / "run")
    for name in ("net.onnx", "files", "run"):
        for option in ({"lazy": True}, {"verify": False}):
            with pytest.raises(errors.ArgumentError, match="apply only to stores, not to a"):
                gbdnn.load(tmp_path / name, **option)
        gbdnn.load(tmp_path / name, lazy=False)
