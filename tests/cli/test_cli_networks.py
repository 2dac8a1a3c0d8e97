"""`gbdnn generate`, `convert` and `info`: networks from format to format, and what is told."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import typer
from shell import fails, run, well

import gbdnn
from gbdnn import io
from gbdnn.cli.options import size
from gbdnn.io.conversion import losses


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a generated network and features, each in a store."""
    root = tmp_path_factory.mktemp("made")
    told = well("generate", root / "net", "--layers", 8, "--seed", 1)
    assert "8 layers, 1024 inputs to 1024 outputs, 262144 edges" in told
    well("generate", root / "X", "--features", "digits", "--inputs", 200)
    return root


@pytest.fixture
def trained(tmp_path):
    """A store with a network of biases, a clip and no last activation."""
    rng = np.random.default_rng(0)
    net = gbdnn.Network(
        [
            gbdnn.Layer(rng.normal(size=(4, 3)), rng.normal(size=3), clip=6),
            gbdnn.Layer(rng.normal(size=(3, 2)), rng.normal(size=2), activation="identity"),
        ]
    )
    gbdnn.save(net, tmp_path / "trained")
    return tmp_path / "trained"


def test_round_trip(made, tmp_path):
    net, X = gbdnn.load(made / "net"), gbdnn.load(made / "X")
    assert net.isequal(gbdnn.radixnet(1024, 8, seed=1))
    expected = gbdnn.categories(gbdnn.infer(net, X))
    assert 0 < len(expected) < 200
    well("convert", made / "net", tmp_path / "files", "--to", "tsv")
    well("convert", tmp_path / "files", tmp_path / "again")
    assert gbdnn.load(tmp_path / "again").isequal(net)
    for network in (made / "net", tmp_path / "files", tmp_path / "again"):
        told = well("infer", network, made / "X", "-o", tmp_path / "ids.tsv", "--categories",
                    "--force")  # fmt: skip
        assert f"{len(expected)} of 200 inputs have a category" in told
        np.testing.assert_array_equal(io.read_categories(tmp_path / "ids.tsv"), expected)


def test_answers_in_a_store(made, tmp_path):
    Y = gbdnn.infer(gbdnn.load(made / "net"), gbdnn.load(made / "X"))
    out = tmp_path / "Y"
    well("infer", made / "net", made / "X", "-o", out, "--to", "store", "--memory", "64MiB")
    assert gbdnn.load(out).isequal(Y)
    # A store stays one.
    well("infer", made / "net", made / "X", "-o", out, "--categories", "--force")
    np.testing.assert_array_equal(gbdnn.load(out), gbdnn.categories(Y))


def test_labels(tmp_path):
    trained = tmp_path / "net"
    W = np.random.default_rng(1).normal(size=(4, 3))
    gbdnn.save(gbdnn.Network([gbdnn.Layer(W, activation="identity", dtype="FP32")]), trained)
    X = np.random.default_rng(3).normal(size=(50, 4)).astype(np.float32)
    np.save(tmp_path / "X.npy", X)
    out = tmp_path / "labels.tsv"
    told = well("infer", trained, tmp_path / "X.npy", "-o", out, "--argmax")
    expected = gbdnn.infer(gbdnn.load(trained), X).to_dense(fill_value=0).argmax(axis=1)
    assert len(np.unique(expected)) == 3
    assert told.startswith(f"{out}: labels of 50 inputs, 3 different ones\n")
    np.testing.assert_array_equal(io.read_labels(out), expected)
    fails("infer", trained, tmp_path / "X.npy", "-o", tmp_path / "Y", "--argmax",
          match="--argmax writes lines")  # fmt: skip
    fails("infer", trained, tmp_path / "X.npy", "-o", out, "--argmax", "--categories", "--force",
          match="one of them")  # fmt: skip
    np.testing.assert_array_equal(io.read_labels(out), expected)


def test_a_result_that_is_larger_is_told(made, tmp_path):
    out = tmp_path / "net.onnx"
    pytest.importorskip("onnx")
    told = well("convert", made / "net", out)
    factor = out.stat().st_size / sum(file.stat().st_size for file in (made / "net").iterdir())
    assert factor > 5
    assert f"\n{out}: 32 MiB, {factor:.3g} times {made / 'net'}; it has all zeros, too\n" in told
    again = well("convert", out, tmp_path / "again")
    assert again == f"{tmp_path / 'again'}: store, from onnx\n"


def test_a_classifier_of_onnx(tmp_path):
    """With a Softmax at the end."""
    onnx = pytest.importorskip("onnx")
    net = gbdnn.Network([gbdnn.Layer(np.eye(4)[:, [2, 0, 3]], activation="identity", dtype="FP32")])
    io.write_onnx(net, tmp_path / "sums.onnx")
    model = onnx.load(tmp_path / "sums.onnx")
    model.graph.node[-1].output[0] = "sums"
    model.graph.node.append(onnx.helper.make_node("Softmax", ["sums"], ["outputs"], name="last"))
    onnx.save(model, tmp_path / "net.onnx")
    np.save(tmp_path / "X.npy", np.eye(4, dtype=np.float32))
    command = ["infer", tmp_path / "net.onnx", tmp_path / "X.npy", "-o", tmp_path / "y.tsv"]
    fails(*command, "--argmax", match="--logits) leaves it out")
    well(*command, "--argmax", "--logits")
    assert io.read_labels(tmp_path / "y.tsv").tolist() == [1, 0, 0, 2]
    fails("info", tmp_path / "net.onnx", match="unsupported ONNX operator Softmax")
    assert json.loads(well("info", tmp_path / "net.onnx", "--logits", "--json"))["layers"] == 1


def test_info_of_a_network(made):
    told = well("info", made / "net", "--check")
    assert told.endswith("0-7    1024 x 1024  32768  bias -0.3 (entries), relu, clip 32\n")
    facts = json.loads(well("info", made / "net", "--json", "--inputs", 1000, "--memory", "1GiB"))
    assert (facts["format"], facts["kind"], facts["layers"]) == ("store", "network", 8)
    assert (facts["edges"], facts["density"], facts["dtype"]) == (262144, 1 / 32, "float32")
    assert facts["bytes"] == sum(file.stat().st_size for file in (made / "net").iterdir())
    assert [(run["first"], run["last"]) for run in facts["runs"]] == [(0, 7)]
    needed = gbdnn.memory_needed(gbdnn.load(made / "net", lazy=True), 1000, memory=1 << 30)
    assert facts["memory"]["inputs"] == 1000
    assert facts["memory"]["total"] == needed.total


def test_info_of_others(made, tmp_path):
    facts = json.loads(well("info", made / "X", "--json", "--check"))
    X = gbdnn.load(made / "X")
    assert (facts["kind"], facts["inputs"], facts["neurons"]) == ("features", 200, 1024)
    assert (facts["entries"], facts["check"]) == (X.nvals, "PASSED")
    gbdnn.save(np.arange(3), tmp_path / "ids")
    facts = json.loads(well("info", tmp_path / "ids", "--json"))
    assert (facts["kind"], facts["categories"]) == ("categories", 3)
    net = gbdnn.radixnet(1024, 2)
    io.write_network(net, tmp_path / "files")
    facts = json.loads(well("info", tmp_path / "files", "--json"))
    assert (facts["format"], facts["edges"]) == ("tsv", net.edges)
    assert facts["memory"]["weights"] == gbdnn.memory_needed(net, 60_000).weights > 0


def test_info_of_files_makes_no_network_without_layers(tmp_path):
    io.write_network(gbdnn.radixnet(1024, 2), tmp_path)
    code = """
import gbdnn, gbdnn.cli
def refuse(cls, *arguments, **options):
    raise AssertionError("a Network was made")
gbdnn.Network.__new__ = refuse
gbdnn.cli.main()
"""
    command = [sys.executable, "-c", code, "info", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "0-1    1024 x 1024  32768  bias -0.3 (entries), relu, clip 32" in done.stdout


def test_info_reads_no_layer_unless_it_checks(made, tmp_path):
    shutil.copytree(made / "net", tmp_path / "net")
    [shard] = (tmp_path / "net").glob("*.safetensors")
    data = bytearray(shard.read_bytes())
    data[-100] ^= 1
    shard.write_bytes(data)
    well("info", tmp_path / "net")
    fails("info", tmp_path / "net", "--check", match="is damaged")
    # Neither is anything written of what is damaged, and what stood there still does.
    fails("convert", tmp_path / "net", tmp_path / "files", "--to", "tsv", match="is damaged")
    well("generate", tmp_path / "old", "--layers", 1)
    fails("convert", tmp_path / "net", tmp_path / "old", "--force", match="is damaged")
    assert len(gbdnn.load(tmp_path / "old").loaded()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net", "old"]


def test_every_format_but_torch(trained, tmp_path):
    net = gbdnn.load(trained)
    well("convert", trained, tmp_path / "net.onnx")
    assert io.read_onnx(tmp_path / "net.onnx").isequal(net)
    out, to = tmp_path / "folder", ["--to", "matrix-market"]
    lost = fails("convert", trained, out, *to, match="has no place for")
    assert "clip 6 (layer 0)" in lost
    assert "the activation identity (layer 1)" in lost
    assert not out.exists()
    told = well("convert", trained, out, *to, "--lossy")
    assert "without clip 6 (layer 0)" in told
    options = ["--clip", 6, "--last-activation", "identity"]
    well("convert", out, tmp_path / "again", *options)
    assert gbdnn.load(tmp_path / "again").isequal(net)
    # Its own format is told by its ending.
    well("convert", tmp_path / "again", tmp_path / "net.onnx", "--layers", 1, "--force")
    assert len(io.read_onnx(tmp_path / "net.onnx")) == 1


@pytest.mark.frameworks
def test_torch(trained, tmp_path):
    torch = pytest.importorskip("torch")
    net = gbdnn.load(trained)
    file = tmp_path / "net.pt"
    fails("convert", trained, file, match="clip 6 (layer 0)")
    well("convert", trained, file, "--lossy")
    well("convert", file, tmp_path / "again", "--clip", 6)
    assert gbdnn.load(tmp_path / "again").isequal(net)
    torch.save(torch.nn.Linear(2, 2), file)
    fails("info", file, match="save model.state_dict() and not the model")
    file.write_bytes(b"nonsense")
    fails("info", file, match="net.pt")
    fails("info", tmp_path / "no.pt", match="no such file")


@pytest.mark.frameworks
def test_torch_files_from_python(tmp_path):
    torch = pytest.importorskip("torch")
    W = np.random.default_rng(0).normal(size=(4, 3))
    net = gbdnn.Network([gbdnn.Layer(W), gbdnn.Layer(W.T, 0.5, activation="identity")])
    io.write_torch(net, tmp_path / "net.pt")
    found = io.read_torch(tmp_path / "net.pt")
    assert found[0].isequal(net[0])
    assert found[1].weights.isequal(net[1].weights)
    torch.save({"epoch": 3}, tmp_path / "other.pt")
    with pytest.raises(gbdnn.FormatError, match=r"other\.pt: .*no state_dict: 'epoch' is int"):
        io.read_torch(tmp_path / "other.pt")


def test_load_and_convert_know_every_format(trained, tmp_path):
    net = gbdnn.load(trained)
    assert io.convert(trained, tmp_path / "net.onnx") == []
    assert gbdnn.load(tmp_path / "net.onnx").isequal(net)
    assert gbdnn.load(str(tmp_path / "net.onnx"), layers=1, dtype="FP32")[0].dtype == np.float32
    with pytest.raises(gbdnn.ArgumentError, match=r"clip 6 .layer 0., the activation"):
        io.convert(trained, tmp_path / "files", to="matrix-market")
    lost = io.convert(trained, tmp_path / "files", to="matrix-market", lossy=True)
    assert lost == ["clip 6 (layer 0)", "the activation identity (layer 1)"]
    options = {"clip": 6, "last_activation": "identity", "format": "matrix-market"}
    assert gbdnn.load(tmp_path / "files", **options).isequal(net)
    challenge, seen = gbdnn.radixnet(1024, 3), []
    io.write_network(challenge, tmp_path / "challenge")
    assert gbdnn.load(tmp_path / "challenge", progress=lambda *k: seen.append(k)).isequal(challenge)
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert gbdnn.load(tmp_path / "challenge", clip=None, bias=-1)[0].clip is None
    seen.clear()
    io.convert(tmp_path / "challenge", tmp_path / "again", progress=lambda *k: seen.append(k))
    assert gbdnn.load(tmp_path / "again").isequal(challenge)
    assert seen == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"format": "hdf5"}, "format is 'store', "),
        ({"prefix": "a"}, "prefix= .* has no meaning for the format store"),
        ({"layers": 3}, "layers=3 .*trained has 2"),
        ({"layers": 0}, "layers"),
    ],
)
def test_options_of_load(trained, options, match):
    with pytest.raises(gbdnn.ArgumentError, match=match):
        gbdnn.load(trained, **options)


def test_losses_are_those_of_the_answers():
    W = np.eye(3)
    challenge = gbdnn.radixnet(1024, 1)
    assert losses(challenge, "tsv") == losses(challenge, "onnx") == []
    # At a bias of -0.3 the rules are equal.
    assert losses(challenge, "matrix-market") == ["clip 32 (layer 0)"]
    net = gbdnn.Network([gbdnn.Layer(W, 1.0), gbdnn.Layer(W, -1.0)])
    assert losses(net, "matrix-market") == []
    assert losses(net, "tsv") == [
        "a bias of 1 (layer 0; others in 1 more)",
        "FP64 (all layers)",
        "the bias rule all (layer 0)",
        "unbounded activations (all layers)",
    ]
    assert losses(net, "torch") == ["the activation relu (layer 1)"]
    clips = [None, 6.0, 6.0, None, 6.0]
    net = gbdnn.Network([gbdnn.Layer(W, clip=clip) for clip in clips])
    assert losses(net[:3], "matrix-market") == ["clip 6 (layers 1 to 2)"]
    assert losses(net, "matrix-market") == ["clip 6 (layer 1 and 2 more)"]


def test_other_radix_nets(tmp_path):
    net, systems = tmp_path / "net", ["--radices", "2,3", "--radices", "6"]
    well("generate", net, *systems, "--widths", "1,2,2,1")
    expected = gbdnn.gallery.radix_layers([(2, 3), (6,)], widths=[1, 2, 2, 1])
    found = gbdnn.load(net)
    assert all(layer.weights.isequal(W) for layer, W in zip(found, expected, strict=True))


def test_features_as_lines(tmp_path):
    file = tmp_path / "X.tsv.gz"
    well("generate", file, "--features", "digits", "--inputs", 3, "--neurons", 4096)
    X = io.read_tsv(file, ncols=4096)
    assert X.nrows == 3
    assert X.isequal(gbdnn.images.features_from_images(gbdnn.images.digits(), 4096, inputs=3))


def test_ambiguous_and_unknown(tmp_path):
    both = tmp_path / "both"
    net = gbdnn.radixnet(1024, 1)
    io.write_network(net, both)
    io.write_matrix_market(net, both)
    fails("info", both, match="matrix-market; format= (in the shell --from) says")
    well("info", both, "--from", "matrix-market")
    (tmp_path / "file").write_text("")
    fails("convert", tmp_path / "file", tmp_path / "out", match="of which format?")
    fails("convert", both, tmp_path / "out", "--from", "hdf5", match="hdf5")
    fails("convert", both, tmp_path / "out", "--from", "tsv", "--to", "hdf5", match="hdf5")
    fails("convert", tmp_path, tmp_path / "out", match="no network; expected")
    fails("info", both, "--from", "matrix-market", "--check", match="no checksums")
    fails("info", "x" * 300, match="File name too long")
    assert not (tmp_path / "out").exists()


def test_what_stands_there_stays(made, tmp_path):
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").write_text("mine")
    for options in (["--to", "store"], ["--to", "tsv"]):
        fails("convert", made / "net", full, *options, match="is not empty")
        fails("generate", full, *options, match="is not empty")
    fails("infer", made / "net", made / "X", "-o", full, "--to", "store", match="is not empty")
    fails("convert", made / "net", tmp_path / "no" / "net", "--to", "tsv", match="does not exist")
    fails("convert", made / "net", full / "mine", "--to", "tsv", match="is not a folder")
    assert [path.name for path in tmp_path.iterdir()] == ["full"]
    assert [path.name for path in full.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (["generate", "out", "--neurons", 1000], "the challenge has 1024, 4096"),
        (["generate", "out", "--radices", "2,x"], "whole numbers with commas"),
        (["generate", "out", "--radices", "2,2", "--layers", 3], "--layers beside --radices"),
        (["generate", "out", "--widths", "1,2"], "--widths beside"),
        (["generate", "out", "--inputs", 3], "--inputs beside a network"),
        (["generate", "out", "--features", "no.idx"], "no.idx"),
        (["generate", "out", "--features", "digits", "--to", "onnx"], "features have the formats"),
        (["generate", "out", "--radices", "2,2", "--to", "tsv"], "has no place for"),
        (["convert", "NET", "out", "--bias", 1], "--bias) has no meaning for the format store"),
        (["convert", "NET", "out", "--bias", 0], "--bias) has no meaning for the format store"),
        (["convert", "NET", "out", "--no-clip"], "--clip) has no meaning for the format store"),
        (["convert", "NET", "out", "--layers", 9], "--layers 9"),
        (["convert", "NET", "out", "--clip", 1, "--no-clip"], "--no-clip beside --clip"),
        (["convert", "X", "out"], "the store holds no network"),
        (["infer", "NET", "NET", "-o", "out"], "not features"),
        (["infer", "NET", "X", "-o", "out", "--inputs", 3], "tells how many it has"),
        (["infer", "NET", "X", "-o", "out", "--memory", "much"], "'--memory': 'much'"),
        (["challenge", "--memory", "1XB"], "'--memory': '1XB'"),
    ],
)
def test_misuse(options, match, made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    places = {"NET": made / "net", "X": made / "X"}
    fails(*[places.get(option, option) for option in options], match=match)
    assert list(tmp_path.iterdir()) == []


def test_sizes():
    assert size("1000") == size("1kB") == size("1000 B") == 1000
    assert size("8GiB") == size("8gib") == 8 << 30
    assert size("1.5MiB") == 3 << 19
    with pytest.raises(typer.BadParameter):
        size("-1")


def test_help_names_the_formats():
    told = " ".join(run("convert", "--help").stdout.split())
    assert "store, tsv, matrix-market, onnx and torch" in told
