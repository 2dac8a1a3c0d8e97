"""`gbdnn infer`: its inputs, options and outputs, and what no command replaces."""

import json
import os
import subprocess
from importlib.util import find_spec

import numpy as np
import pytest
from calls import raising
from shell import GBDNN, as_process, fails, run, well

import gbdnn
from gbdnn import io


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A network and features, in stores and in the challenge's files."""
    root = tmp_path_factory.mktemp("made")
    net = gbdnn.gallery.radixnet(1024, 8, seed=1)
    X = gbdnn.gallery.features_from_images(gbdnn.gallery.digits()[:200], 1024)
    gbdnn.save(net, root / "net")
    gbdnn.io.write_features(X, root / "X")
    gbdnn.save(net, root / "files" / "neuron1024", "tsv")
    io.write_features(X, root / "X.tsv")
    return root


@pytest.fixture(scope="module")
def answer(made):
    Y = gbdnn.infer(gbdnn.load(made / "net"), gbdnn.io.read_features(made / "X"))
    assert 0 < len(gbdnn.categories(Y)) < 200
    return Y


@pytest.mark.parametrize(("net", "X"), [("net", "X"), ("files", "X.tsv")])
def test_activations(net, X, made, answer, tmp_path):
    command = ["infer", made / net, made / X]
    printed = well(*command, "-o", tmp_path / "Y")
    found = f"activations of 200 inputs, {answer.nvals} entries"
    assert printed.startswith(f"{tmp_path / 'Y'}: {found}\nengine: auto, kernels ")
    assert gbdnn.io.read_features(tmp_path / "Y").isequal(answer)
    full = well(*command, "-o", tmp_path / "full", "--engine", "full")
    assert "engine: full, kernels full 100%" in full
    for name, options in (("Y.tsv.gz", []), ("lines", ["--to", "tsv"])):
        assert found in well(*command, "-o", tmp_path / name, *options)
        assert io.read_features(tmp_path / name, nrows=200, ncols=1024).isequal(answer)


@pytest.mark.parametrize("name", ["Y.npy", "Y.npz", "Y.mtx.gz"])
def test_formats_of_features(name, made, answer, tmp_path):
    command = ["infer", made / "net", made / "X", "-o", out := tmp_path / name]
    well(*command)
    assert io.read_features(out, dtype="FP32").select("valuene", 0).isequal(answer)
    fails("convert", made / "X", out, match="already exists; pass --force to replace it")
    assert well("convert", made / "X", out, "--force") == f"{out}: written\n"
    assert io.read_features(out).select("valuene", 0).isequal(io.read_features(made / "X"))
    fails("convert", made / "X", tmp_path / "Z.tsv", "--bias", 1, match="not apply to features")
    fails(*command, "--to", "tsv", match="--to tsv does not match the suffix, which is that of")
    fails(*command, "--categories", "--force", match=name)


def test_categories(made, answer, tmp_path):
    ids = gbdnn.categories(answer)
    command = ["infer", made / "net", made / "X", "--categories", "-o"]
    found = f"{len(ids)} of 200 inputs have a category"
    assert found in well(*command, tmp_path / "ids.tsv")
    np.testing.assert_array_equal(io.read_categories(tmp_path / "ids.tsv"), ids)
    fails(*command, tmp_path / "ids", match="cannot infer the file format; pass --to, or use one")
    assert found in well(*command, tmp_path / "ids", "--to", "tsv")
    assert (tmp_path / "ids").read_bytes() == (tmp_path / "ids.tsv").read_bytes()


def test_labels(tmp_path):
    rng = np.random.default_rng(1)
    W = rng.normal(size=(4, 3)).astype(np.float32)
    X = rng.normal(size=(50, 4)).astype(np.float32)
    gbdnn.save(gbdnn.Network([gbdnn.Layer(W, activation="identity")]), tmp_path / "net")
    np.save(tmp_path / "X.npy", X)
    command = ["infer", tmp_path / "net", tmp_path / "X.npy", "--argmax", "-o"]
    assert "labels of 50 inputs\n" in well(*command, tmp_path / "labels.tsv")
    expected = (X.astype(np.float64) @ W).argmax(axis=1)
    assert len(np.unique(expected)) == 3
    np.testing.assert_array_equal(io.read_labels(tmp_path / "labels.tsv"), expected)
    for name in ("labels.csv", "labels.npy"):
        well(*command, tmp_path / name)
        np.testing.assert_array_equal(io.read_labels(tmp_path / name), expected)
    assert np.load(tmp_path / "labels.npy").dtype == np.int64
    fails(*command, tmp_path / "labels", match="cannot infer the file format; pass --to, or")
    fails(*command, tmp_path / "labels.npz", match="one of .tsv, .tsv.gz, .csv, .npy")
    fails(*command, tmp_path / "y.tsv", "--categories",
          match="--argmax and --categories are mutually exclusive")  # fmt: skip


@pytest.fixture
def small(tmp_path):
    """A network of two layers of 3 neurons, each passed on times 10, and 2 inputs."""
    for k in (1, 2):
        lines = "".join(f"{i}\t{i}\t10\n" for i in (1, 2, 3))
        (tmp_path / f"n3-l{k}.tsv").write_text(lines)
    (tmp_path / "X.tsv").write_text("1\t1\t1\n2\t3\t0.1\n")
    return tmp_path


@pytest.mark.parametrize(
    ("options", "dtype", "expected"),
    [
        ([], "FP32", [[32, 0, 0], [0, 0, 10]]),
        (["--clip", 50], "FP32", [[50, 0, 0], [0, 0, 10]]),
        (["--clip", "inf", "--bias", 1], "FP32", [[111, 0, 0], [0, 0, 21]]),
        (["--dtype", "FP64"], "FP64", [[32, 0, 0], [0, 0, 0.1 * 10 * 10]]),
        (["--inputs", 3], "FP32", [[32, 0, 0], [0, 0, 10], [0, 0, 0]]),
    ],
)
def test_options_supply_what_text_does_not_store(options, dtype, expected, small):
    well("infer", small, small / "X.tsv", "-o", small / "Y", *options)
    Y = gbdnn.io.read_features(small / "Y")
    assert Y.dtype == dtype
    assert Y.to_dense(fill_value=0).tolist() == expected


def test_faults_of_the_run_are_one_line(small):
    def refused(match, *options, features="X.tsv"):
        fails("infer", small, small / features, "-o", small / "Y.tsv", *options, match=match)
        assert not (small / "Y.tsv").exists()

    refused("clip: 1e+39 does not fit into float32", "--clip", "1e39")
    refused("nthreads must be at most", "--nthreads", 2**31)
    refused("'much' is not a size", "--memory", "much")
    (small / "wide.tsv").write_text("1\t5\t1\n")
    refused("wide.tsv, line 1", features="wide.tsv")
    (small / "big.tsv").write_text("1\t1\t3e38\n")
    refused("layer 0", "--clip", "inf", features="big.tsv")
    gbdnn.io.write_features(np.eye(3), small / "X")
    refused("--scheduler and --pipeline are", "--scheduler", "tcp://a:1", "--pipeline")
    refused("3", "--inputs", 4, features="X")
    # An output that cannot be written is reported first.
    (small / "n3-l1.tsv").write_text("nonsense\n")
    fails("infer", small, small / "X", "-o", small / "no" / "Y.tsv", match="does not exist")
    fails("infer", small, small / "X", "-o", small / "Y.csv", match="Y.csv")


def test_memory_that_runs_out_is_one_line(small, monkeypatch):
    monkeypatch.setattr(gbdnn, "infer", raising(MemoryError))
    fails("infer", small, small / "X.tsv", "-o", small / "Y.tsv", match="out of memory; ")


# Outputs


def test_only_force_replaces_what_exists(made, tmp_path):
    (tmp_path / "file.tsv").write_text("mine\n")
    (tmp_path / "net.onnx").write_text("mine\n")
    gbdnn.io.write_features(np.eye(3), tmp_path / "store")
    commands = [
        ["generate", tmp_path / "store", "--layers", 2],
        ["generate", tmp_path / "store", "--features", "digits", "--inputs", 5],
        ["convert", made / "net", tmp_path / "store"],
        ["infer", made / "net", made / "X", "-o", tmp_path / "file.tsv"],
        ["infer", made / "net", made / "X", "-o", tmp_path / "store"],
    ]
    few = ["challenge", "--layers", 2, "--inputs", 20]
    commands.append([*few, "--json", tmp_path / "file.tsv"])
    if find_spec("matplotlib"):
        (tmp_path / "run.svg").write_text("mine\n")
        np.save(tmp_path / "X.npy", np.eye(4))
        np.save(tmp_path / "y.npy", np.arange(4) % 2)
        options = ["--hidden-layer-sizes", 4, "--epochs", 1]
        train = ["train", tmp_path / "X.npy", tmp_path / "y.npy", *options]
        commands += [
            [*few, "--plot", tmp_path / "run.svg"],
            [*train, "-o", tmp_path / "store", "--plot", tmp_path / "run.svg"],
            [*train, "-o", tmp_path / "new", "--plot", tmp_path / "run.svg"],
        ]

    def held():
        return {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}

    for command in commands:
        before = held()
        fails(*command, match="already exists; pass --force to replace it")
        assert held() == before
        well(*command, "--force")
        assert held() != before
    fails("convert", made / "net", tmp_path / "net.onnx", match="already exists; pass --force")


def test_a_command_says_what_an_earlier_run_has_written(made, answer, tmp_path):
    def interrupt(done, _):
        if done:
            raise KeyboardInterrupt

    net, X, out = gbdnn.load(made / "net"), io.open_features(made / "X"), tmp_path / "Y"
    with pytest.raises(KeyboardInterrupt):
        gbdnn.infer_to_store(net, X, out, batch_size=50, progress=interrupt)
    done = well("infer", made / "net", made / "X", "-o", out)
    assert "; 50 inputs were there from an earlier run" in done
    assert io.read_features(out).isequal(answer)
    assert "earlier" not in well("infer", made / "net", made / "X", "-o", out, "--force")


@pytest.mark.parametrize("out", ["-", "/dev/stdout"])
def test_an_answer_on_standard_output(out, made, answer, tmp_path):
    """Only the data: the summary is printed to standard error."""
    command = ["infer", made / "net", made / "X", "-o", out]
    done = as_process(*command, cwd=tmp_path)
    assert done.returncode == 0
    (tmp_path / "Y.tsv").write_text(done.stdout)
    assert io.read_features(tmp_path / "Y.tsv", nrows=200, ncols=1024).isequal(answer)
    assert done.stderr.startswith(f"/dev/stdout: activations of 200 inputs, {answer.nvals} ")
    assert len(done.stderr.splitlines()) == 2
    ids = as_process(*command, "--categories", cwd=tmp_path).stdout
    assert ids.split() == [str(each) for each in gbdnn.categories(answer) + 1]
    assert [path.name for path in tmp_path.iterdir()] == ["Y.tsv"]


def test_other_commands_write_to_standard_output(made, tmp_path):
    """A minus means standard output for each command that writes one stream."""
    done = as_process("generate", "-", "--features", "digits", "--inputs", 5, cwd=tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (0, 1)
    assert all(len(line.split("\t")) == 3 for line in done.stdout.splitlines())
    done = as_process("challenge", "--layers", 4, "--inputs", 20, "--json", "-", cwd=tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout)["check"] == "PASSED"
    assert "check       PASSED" in done.stderr
    with (tmp_path / "net.onnx").open("wb") as file:
        command = [*GBDNN, "convert", made / "net", "-", "--to", "onnx"]
        subprocess.run([*map(str, command)], stdout=file, check=True, cwd=tmp_path)
    assert gbdnn.load(tmp_path / "net.onnx").edges == gbdnn.load(made / "net").edges
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]
    for command in (
        ["convert", made / "net", "-"],
        ["infer", made / "net", made / "X", "-o", "-", "--to", "store"],
        ["train", made / "X", made / "X", "-o", "-"],
    ):
        fails(*command, match="a store is a folder; it cannot be")


def test_a_reader_that_ends_first_ends_the_command(made, tmp_path):
    """Silently, with the exit code of a program that SIGPIPE ends; 1 is that of a failed check."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [*GBDNN, "infer", made / "net", made / "X", "-o", "-"]
    done = subprocess.run([*map(str, command)], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("kind", [KeyError, RuntimeError])
def test_a_fault_of_gbdnn_has_its_own_exit_code(kind, made, tmp_path, monkeypatch):
    monkeypatch.setattr(gbdnn, "infer", raising(kind("it is broken")))
    done = run("infer", made / "net", made / "X", "-o", tmp_path / "Y.tsv")
    assert (done.returncode, done.stdout) == (3, "")
    assert "Traceback" in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"gbdnn: internal error in gbdnn {gbdnn.__version__}: {kind.__name__}: ")
