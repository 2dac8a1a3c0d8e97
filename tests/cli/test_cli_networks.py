"""`gbdnn generate`, `convert` and `info`."""

import json
import shutil

import numpy as np
import pytest
from calls import raises
from shell import fails, well

import gbdnn
from gbdnn import errors, io


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a generated network and features, each in a store."""
    root = tmp_path_factory.mktemp("made")
    printed = well("generate", root / "net", "--layers", 8, "--seed", 1)
    assert printed == f"{root / 'net'}: 8 layers of 1024 neurons, 262144 edges\n"
    well("generate", root / "X", "--features", "digits", "--inputs", 200)
    return root


def test_what_is_generated(made, tmp_path):
    net = gbdnn.gallery.radixnet(1024, 8, seed=1)
    assert gbdnn.load(made / "net").isequal(net)
    well("generate", tmp_path / "files", "--layers", 3, "--seed", 1, "--to", "tsv")
    assert gbdnn.load(tmp_path / "files").isequal(net[:3])
    X = gbdnn.gallery.features_from_images(gbdnn.gallery.digits(), 1024, inputs=200)
    assert gbdnn.io.read_features(made / "X").isequal(X)
    well("generate", tmp_path / "X.tsv.gz", "--features", "digits", "--inputs", 200)
    assert io.read_features(tmp_path / "X.tsv.gz", nrows=200, ncols=1024).isequal(X)
    well("generate", tmp_path / "X.npy", "--features", "digits", "--inputs", 200)
    np.testing.assert_array_equal(np.load(tmp_path / "X.npy"), X.to_dense(fill_value=0))


@pytest.mark.parametrize("form", ["tsv", "onnx", "store"])
def test_convert_and_back(form, made, tmp_path):
    if form == "onnx":
        pytest.importorskip("onnx")
    out = tmp_path / ("net.onnx" if form == "onnx" else "out")
    assert well("convert", made / "net", out, "--to", form) == f"{out}: written\n"
    well("convert", out, tmp_path / "again", "--from", form, "--layers", 5)
    net = gbdnn.gallery.radixnet(1024, 8, seed=1)[:5]
    if form == "onnx":  # whose layers have the bias rule "all"
        net = gbdnn.Network([gbdnn.Layer(layer.W, -0.3, clip=32) for layer in net])
    assert gbdnn.load(tmp_path / "again").isequal(net)


@pytest.mark.parametrize(
    ("form", "name"),
    [("matrix-market", "folder"), pytest.param("torch", "net.pt", marks=pytest.mark.frameworks)],
)  # fmt: skip
def test_options_supply_what_a_format_does_not_store(form, name, trained, tmp_path):
    if form == "torch":
        pytest.importorskip("torch")
    net, out = gbdnn.load(trained), tmp_path / name
    command = ["convert", trained, out, "--to", form]
    assert "clip 6 (layer 0)" in fails(*command, match="--lossy")
    assert not out.exists()
    assert "without clip 6 (layer 0)" in well(*command, "--lossy")
    known = ["--activation", "relu"] if form == "torch" else []
    if known:
        fails("convert", out, tmp_path / "again", match="pass --activation, ")
        fails("info", out, match="pass --activation (an option of gbdnn convert), ")
    well("convert", out, tmp_path / "again", *known, "--clip", 6, "--last-activation", "identity")
    assert gbdnn.load(tmp_path / "again").isequal(net)


def test_a_classifier_of_onnx(tmp_path):
    onnx = pytest.importorskip("onnx")
    net = gbdnn.Network([gbdnn.Layer(np.eye(4)[:, [2, 0, 3]], activation="identity", dtype="FP32")])
    gbdnn.save(net, tmp_path / "sums.onnx", "onnx")
    model = onnx.load(tmp_path / "sums.onnx")
    model.graph.node[-1].output[0] = "sums"
    model.graph.node.append(onnx.helper.make_node("Softmax", ["sums"], ["outputs"], name="last"))
    onnx.save(model, tmp_path / "net.onnx")
    fails("convert", tmp_path / "net.onnx", tmp_path / "net", match="pass --logits to drop it")
    fails("info", tmp_path / "net.onnx", match="pass --logits (an option of gbdnn convert) to")
    well("convert", tmp_path / "net.onnx", tmp_path / "net", "--logits")
    assert gbdnn.load(tmp_path / "net").isequal(net)


def test_info_of_a_network(made, tmp_path):
    printed = well("info", made / "net", "--check")
    assert "check       PASSED\n" in printed
    assert printed.endswith("0-7    1024 x 1024  32768  bias -0.3 (entries), relu, clip 32\n")
    facts = json.loads(well("info", made / "net", "--json", "--inputs", 1000, "--memory", "1GiB"))
    assert (facts["format"], facts["kind"], facts["layers"]) == ("store", "network", 8)
    assert (facts["edges"], facts["density"], facts["dtype"]) == (262144, 1 / 32, "float32")
    assert facts["bytes"] == sum(file.stat().st_size for file in (made / "net").iterdir())
    assert (facts["memory"]["inputs"], facts["memory"]["budget"]) == (1000, 1 << 30)
    assert facts["memory"]["groups_of_layers"] == 1
    printed = well("info", made / "net", "--memory", "1.5GiB", "--inputs", 20_000)
    words = "inputs 20,000, budget 1.5 GiB, groups of layers 1, inputs per block "
    assert f"memory      {words}" in printed
    assert "; pass --memory " in well("info", made / "net", "--memory", "1KiB")
    gbdnn.save(gbdnn.gallery.radixnet(1024, 2), tmp_path / "files", "tsv")
    facts = json.loads(well("info", tmp_path / "files", "--json"))
    assert (facts["format"], facts["edges"]) == ("tsv", 65536)
    fails("info", tmp_path / "files", "--check", match="--check needs a store")


def test_info_of_features(made, tmp_path):
    X = gbdnn.io.read_features(made / "X")
    facts = json.loads(well("info", made / "X", "--json", "--check"))
    assert (facts["kind"], facts["inputs"], facts["neurons"]) == ("features", 200, 1024)
    assert (facts["entries"], facts["check"]) == (X.nvals, "PASSED")
    io.write_features(X, tmp_path / "X.tsv.gz")
    assert "entries     31,018\n" in well("info", tmp_path / "X.tsv.gz")


def test_info_of_an_option_without_its_sign():
    fails("info", "memory=1", match="for an option, write --memory 1")


def test_info_of_the_machine():
    facts = json.loads(well("info", "--machine", "--json"))
    assert facts["machine"]["cores"] >= 1
    assert facts["compiled kernels"]
    assert "versions    python " in well("info", "--machine")


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["X.tsv", "--check"], "--check does not apply to a tsv file"),
        (["run", "--memory", "1GiB"], "--memory does not apply to a training run"),
        (["X", "--inputs", 5], "--inputs does not apply to features"),
        (["net", "--machine"], "PATH does not apply to --machine"),
        (["--machine", "--check"], "--check does not apply to --machine"),
    ],
)
def test_info_refuses_options_that_do_not_apply(arguments, match, made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("net", "X"):
        (tmp_path / name).symlink_to(made / name)
    (tmp_path / "X.tsv").write_text("1\t1\t1\n")
    net = gbdnn.training.erdos_renyi([3, 2], 1.0)
    gbdnn.training.write_run(gbdnn.train(net, np.eye(3), [0, 1, 1], epochs=1), tmp_path / "run")
    fails("info", *arguments, match=match)


def test_errors_name_what_the_caller_has(made, tmp_path, monkeypatch):
    """Options in the shell, arguments in Python."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.bin").write_text("?")
    elsewhere = "cannot infer the file format; pass --from (an option of gbdnn convert)\n"
    assert fails("info", "net.bin", match="net.bin: ").endswith(elsewhere)
    assert fails("infer", "net.bin", made / "X", "-o", "Y", match="net.bin: ").endswith(elsewhere)
    assert fails("convert", "net.bin", "net", match="net.bin: ").endswith("format; pass --from\n")
    raises(errors.FormatError, "cannot infer the file format; pass format=$", gbdnn.load, "net.bin")
    fails("convert", made / "net", "x.y", match="format; pass --to, or use one of .mtx")
    raises(errors.ArgumentError, r"pass to=, or use one of .mtx", io.convert, made / "net", "x.y")
    fails("convert", made / "net", "out", "--bias-rule", "all", match="--bias-rule does not apply")
    fails("convert", made / "net", "out", "--layers", 99, match="--layers 99: ")
    fails("convert", made / "net", "f", "--to", "matrix-market", match="Pass --lossy to drop it")
    few = ["infer", made / "net", made / "X", "-o", "Z", "--memory", 1000]
    assert "; pass --memory " in fails(*few, match="--memory 1000 is too small: ")


def test_a_damaged_store_is_found_by_check(made, tmp_path):
    shutil.copytree(made / "net", tmp_path / "net")
    [shard] = (tmp_path / "net").glob("*.safetensors")
    data = bytearray(shard.read_bytes())
    data[-100] ^= 1
    shard.write_bytes(data)
    well("info", tmp_path / "net")
    fails("info", tmp_path / "net", "--check", match=str(tmp_path / "net"))
    fails("convert", tmp_path / "net", tmp_path / "files", "--to", "tsv", match="net")
    assert [path.name for path in tmp_path.iterdir()] == ["net"]


def test_a_folder_of_two_formats(tmp_path):
    net = gbdnn.gallery.radixnet(1024, 1)
    for form in ("tsv", "matrix-market"):
        gbdnn.save(net, tmp_path / form, form, lossy=True)
        shutil.copytree(tmp_path / form, tmp_path / "both", dirs_exist_ok=True)
    fails("info", tmp_path / "both", match="tsv and matrix-market")
    well("convert", tmp_path / "both", tmp_path / "net", "--from", "matrix-market")
    assert gbdnn.load(tmp_path / "net")[0].clip is None


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (["generate", "out", "--neurons", 1000], "neurons must be one of 1024, 4096"),
        (["generate", "out", "--inputs", 3], "--inputs requires --features"),
        (["generate", "out", "--features", "digits", "--layers", 3], "cannot be combined with"),
        (["generate", "out", "--features", "no.idx"], "no.idx"),
        (["generate", "out", "--to", "onnx"], "'onnx' is not one of 'store', 'tsv'"),
        (["generate", "FULL"], "is not empty"),
        (["generate", "net.npy"], "net.npy: cannot infer the file format"),
        (["convert", "X", "out", "--bias", 1], "--bias does not apply to features"),
        (["convert", "EMPTY", "out"], "neither a finished store nor a network; expected"),
        (["convert", "full/mine", "out"], "mine"),
    ],
    ids=lambda each: " ".join(map(str, each))[:40] if isinstance(each, list) else "",
)
def test_wrong_usage(options, match, made, tmp_path, monkeypatch):
    for folder in ("full", "empty"):
        (tmp_path / folder).mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    monkeypatch.chdir(tmp_path)
    places = {"NET": made / "net", "X": made / "X", "FULL": "full", "EMPTY": "empty"}
    fails(*[places.get(option, option) for option in options], match=match)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["empty", "full", "mine"]
