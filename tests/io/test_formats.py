"""`gbdnn.load` and `gbdnn.io.convert`: networks in any format."""

import os
import sys
from pathlib import Path

import graphblas as gb
import numpy as np
import pytest
from calls import raises
from matrices import assert_equal
from shell import python

import gbdnn
from gbdnn import errors, io
from gbdnn.io.networks import FORMATS

SUPPORT = Path(__file__).parents[1] / "support"


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"format": "hdf5"}, "format"), ({"prefix": "a"}, "prefix= .*store"),
        ({"layers": 3}, "layers=3: .*trained"), ({"layers": 0}, "layers"),
    ],
)  # fmt: skip
def test_wrong_options_of_load(trained, options, match):
    raises(errors.ArgumentError, match, gbdnn.load, trained, **options)


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


@pytest.mark.parametrize(
    "form", [pytest.param("torch", marks=pytest.mark.frameworks), "matrix-market", "tsv"]
)
def test_writers_drop_nothing_in_silence(form, tmp_path):
    if form == "torch":
        pytest.importorskip("torch")
    net = named({"clip": 6}, {"clip": 6}, {"activation": "identity"})
    path = tmp_path / ("net.pt" if form == "torch" else "files")
    with pytest.raises(errors.ArgumentError, match=r"cannot store .*clip 6.*Pass lossy=True"):
        gbdnn.save(net, path, form)
    assert not path.exists()
    gbdnn.save(net, path, form, lossy=True)
    given = {"clip": 6.0, "last_activation": "identity", "activation": "relu"}
    given |= {"bias_rule": "all", "dtype": "FP64"} | ({"bias": 0.0} if form == "tsv" else {})
    taken = {name: x for name, x in given.items() if FORMATS[form].takes(name)}
    found = gbdnn.load(path, format=form, **taken)
    assert found.isequal(net) == (form != "tsv")  # whose last layer has a ReLU, too


TOY = """
import sys
import numpy as np
import toy_format
import gbdnn
from gbdnn import errors, io
from gbdnn.io.networks import FORMATS
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
    lambda: gbdnn.save(net, folder + "/c.toy", "store"),
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
    assert "c.toy: the format toy cannot store clip 2 (layer 0)" in done.stdout
    assert "c.toy: format=store does not match the suffix, which is that of toy" in done.stdout
    assert "torch|toy" in done.stdout
    assert "toy (inf)" in " ".join(done.stdout.split())


def test_options_of_stores_do_not_apply_to_other_formats(tmp_path):
    pytest.importorskip("onnx")
    gbdnn.save(gbdnn.Network([np.eye(3)]), tmp_path / "net.onnx")
    gbdnn.save(gbdnn.gallery.radixnet(1024, 1), tmp_path / "files", "tsv")
    for name in ("net.onnx", "files"):
        for option in ({"lazy": True}, {"verify": False}):
            with pytest.raises(errors.ArgumentError, match="= does not apply to the format"):
                gbdnn.load(tmp_path / name, **option)
        gbdnn.load(tmp_path / name, lazy=False)


def test_a_training_run_is_no_network(tmp_path):
    run = gbdnn.train([np.eye(3)], np.eye(3), np.arange(3), epochs=1)
    gbdnn.training.write_run(run, path := tmp_path / "run")
    raises(errors.FormatError, r"training run; use gbdnn\.training\.read_run", gbdnn.load, path)


NET = gbdnn.Network([gbdnn.Layer(np.eye(3), clip=6)])
WRITERS = {
    "save": lambda path, form, folder: gbdnn.save(NET, path, form, lossy=True),
    "convert": lambda path, form, folder: io.convert(folder / "net", path, to=form, lossy=True),
    "write_features": lambda path, form, folder: io.write_features(np.eye(3), path, form),
    "convert features": lambda path, form, folder: io.convert(folder / "X", path, to=form),
    "write_labels": lambda path, form, folder: io.write_labels([0, 2], path, form),
    "write_categories": lambda path, form, folder: io.write_categories([0, 2], path, form),
}
NETWORKS, FEATURES = ("save", "convert"), ("write_features", "convert features")
CATEGORIES = ("write_categories",)


@pytest.mark.parametrize(
    ("name", "form", "writers", "kind"),
    [
        ("x", None, NETWORKS + FEATURES, "store"),
        ("x.5", None, NETWORKS + FEATURES, "store"),  # no suffix of a file
        ("x", None, ("write_labels", "write_categories"), "cannot infer"),
        ("x.v1", None, WRITERS, "cannot infer"),
        ("x.v1", "store", NETWORKS + FEATURES, "store"),
        ("x.onnx", None, NETWORKS, "file"),
        ("x.onnx", None, FEATURES, "cannot infer"),
        ("x.bin", "onnx", NETWORKS, "file"),
        ("x.mtx", None, NETWORKS, "a folder, not a file"),
        ("x.mtx", "matrix-market", NETWORKS, "a folder, not a file"),
        ("x", "matrix-market", NETWORKS, "folder"),
        ("x", "matrix-market", FEATURES, "file"),
        ("x.mtx", None, FEATURES, "file"),
        ("x.tsv", None, NETWORKS, "cannot infer"),
        ("x.tsv", "tsv", NETWORKS, "a folder, not a file"),
        ("x.tsv", None, (*FEATURES, *CATEGORIES, "write_labels"), "file"),
        ("x.npy", None, (*FEATURES, "write_labels"), "file"),
        ("x.npy", None, CATEGORIES, "cannot infer"),
        ("x.npy", "tsv", (*FEATURES, "write_labels"), "does not match .* npy"),
        ("x.npy", "store", NETWORKS + FEATURES, "a folder, not a file|=store does not match"),
    ],
)
def test_one_rule_of_names(tmp_path, name, form, writers, kind):
    pytest.importorskip("onnx")
    gbdnn.save(NET, tmp_path / "net")
    io.write_features(np.eye(3), tmp_path / "X")
    for k, writer in enumerate(writers):
        (tmp_path / str(k)).mkdir()
        path = tmp_path / str(k) / name
        if kind in ("store", "file", "folder"):
            WRITERS[writer](path, form, tmp_path)
            found = "file" if path.is_file() else "folder"
            assert ("store" if (path / "index.json").exists() else found) == kind, writer
        else:
            raises(errors.ArgumentError, kind, WRITERS[writer], path, form, tmp_path)
            assert not path.exists()


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz", "a.npy", "a.npz", "a.mtx", "a.mtx.gz", "a"])
@pytest.mark.parametrize("dtype", ["FP32", "FP64"])
def test_features_are_written_and_converted(tmp_path, name, dtype):
    X = np.random.default_rng(0).random((5, 3)) * (np.arange(3) > 0) - 0.5
    io.write_features(X, tmp_path / name, dtype=dtype)
    assert io.convert(tmp_path / name, tmp_path / "b", to="npy", dtype=dtype) == []
    found = io.read_features(tmp_path / "b")  # by its content
    assert_equal(found, X.astype({"FP32": "f4", "FP64": "f8"}[dtype]))


def test_one_input_a_list_and_a_vector_are_features(tmp_path):
    row = [1.0, 0.0, 2.0]
    vector = gb.Vector.from_coo([0, 2], [1.0, 2.0], size=3)
    for k, x in enumerate((row, np.array(row), [row], vector, [vector], [np.array([row])])):
        for name in (f"{k}", f"{k}.npy"):
            if k == 5 and name != "5":
                with pytest.raises(errors.ArgumentTypeError, match="only to a store"):
                    io.write_features(x, tmp_path / name)
            else:
                io.write_features(x, tmp_path / name)
                assert_equal(io.read_features(tmp_path / name), [row])


def test_matrices_are_saved_as_infer_takes_them(tmp_path):
    weights, X = [np.eye(3, dtype=int), np.full((3, 2), 0.5)], np.eye(3)
    expected = gbdnn.Network(weights)
    for k, layers in enumerate((weights, tuple(weights), list(expected), iter(expected), expected)):
        gbdnn.save(layers, tmp_path / str(k))
        assert gbdnn.load(tmp_path / str(k)).isequal(expected)
    gbdnn.save(iter(weights[1:]), tmp_path / "one")
    assert gbdnn.load(tmp_path / "one").isequal(expected[1:])
    assert gbdnn.infer(gbdnn.load(tmp_path / "0"), X).isequal(gbdnn.infer(weights, X))
