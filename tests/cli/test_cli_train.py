"""gbdnn train: from files of features and labels to a store that gbdnn infer reads."""

import gzip
import re
import signal
import struct
import subprocess

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from graphblas import binary
from shell import GBDNN, as_process, fails, on_terminal, well

import gbdnn
from gbdnn.gallery import digits
from gbdnn.io import read_tsv, write_tsv

pytest.importorskip("sklearn")

EPOCH = re.compile(
    r"epoch +(\d+): loss (\d\.\d+), accuracy (\d\.\d+)"
    r"(?:, validation loss (\d\.\d+), accuracy (\d\.\d+))?, (\d+) edges, \d+\.\d+ s"
)
FEW = ["--hidden", "64", "--density", "0.3", "--nthreads", 1]


def idx(array):
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The digits in every format."""
    from sklearn.datasets import load_digits

    root = tmp_path_factory.mktemp("digits")
    images, labels = np.minimum(digits() * 16, 255), load_digits().target
    pixels = images.reshape(len(images), -1)
    (root / "images-idx3-ubyte").write_bytes(idx(images))
    (root / "images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
    (root / "labels-idx1-ubyte").write_bytes(idx(labels))
    (root / "labels.txt").write_text("".join(f"{label}\n" for label in labels))
    X = pixels.astype(np.uint8).astype(np.float32) * np.float32(1 / 255)
    np.save(root / "X.npy", X)
    np.savez(root / "X.npz", X)
    np.save(root / "y.npy", labels)
    np.savez(root / "y.npz", y=labels)
    np.savez(root / "two.npz", X=X, y=labels)
    sp.save_npz(root / "sparse.npz", sp.csr_array(X))
    scipy.io.mmwrite(root / "X.mtx", sp.csr_array(X), precision=9)
    np.save(root / "short.npy", labels[:-1])
    np.save(root / "reals.npy", labels / 2)
    np.save(root / "objects.npy", np.array([None]), allow_pickle=True)
    gbdnn.save(sp.csr_array(X), root / "store")
    gbdnn.save(gbdnn.training.erdos_renyi([64, 32, 10], 0.5), root / "begin")
    write_tsv(gbdnn.io.open_features(root / "store").matrix(), root / "X.tsv")
    return root


@pytest.fixture(scope="module")
def trained(folder, tmp_path_factory):
    """The store and standard output of a network that was trained with IDX files."""
    out = tmp_path_factory.mktemp("trained") / "net"
    said = well(
        "train", folder / "images-idx3-ubyte", folder / "labels-idx1-ubyte", "-o", out, *FEW,
        "--optimizer", "adam", "--learning-rate", 0.01, "--epochs", 12, "--validation", 0.2,
    )  # fmt: skip
    return out, said


def test_idx(trained, folder):
    out, said = trained
    *lines, last = said.splitlines()
    found = [EPOCH.fullmatch(line) for line in lines]
    assert all(found), said
    assert [int(each[1]) for each in found] == list(range(12))
    assert float(found[-1][2]) < float(found[0][2])
    assert float(found[-1][5]) > 0.9
    net = gbdnn.load(out)
    assert net.shape == (64, 10)
    assert last == f"{out}: 2 layers, {net.edges} edges"
    Y = gbdnn.infer(net, np.load(folder / "X.npy"))
    assert (gbdnn.argmax(Y) == np.load(folder / "y.npy")).mean() > 0.9
    edges = gbdnn.training.erdos_renyi([64, 64, 10], 0.3).edges
    assert edges == int(found[0][6]) == net.edges


def test_as_from_python(trained, folder):
    out, _ = trained
    X, y = np.load(folder / "X.npy"), np.load(folder / "y.npy")
    run = gbdnn.train(
        gbdnn.training.erdos_renyi([64, 64, 10], 0.3), X, y, epochs=12, validation=0.2, nthreads=2,
        optimizer=gbdnn.training.Adam(0.01),
    )  # fmt: skip
    assert run.network.isequal(gbdnn.load(out).loaded())


@pytest.mark.parametrize(
    ("features", "labels"),
    [
        ("images-idx3-ubyte.gz", "labels.txt"),
        ("X.npy", "y.npy"),
        ("X.npz", "y.npz"),
        ("sparse.npz", "labels-idx1-ubyte"),
        ("store", "labels.txt"),
        ("X.tsv", "y.npy"),
        ("X.mtx", "y.npy"),
    ],
)
def test_every_format_gives_the_same_network(features, labels, folder, tmp_path):
    # In one process, as the shell itself is tested above.
    y = gbdnn.io.read_labels(folder / labels)
    np.testing.assert_array_equal(y, np.load(folder / "y.npy"))
    X = gbdnn.io.read_features(folder / features, nrows=len(y), ncols=64)
    net = gbdnn.training.erdos_renyi([64, 32, 10], 0.3)
    found, want = (
        gbdnn.train(net, each, y, epochs=1, nthreads=1).network
        for each in (X, np.load(folder / "X.npy"))
    )
    assert found.isequal(want)


def test_infer_reads_what_train_reads(trained, folder, tmp_path):
    out, _ = trained
    for features in ("images-idx3-ubyte.gz", "sparse.npz", "X.mtx"):
        said = well("infer", out, folder / features, "-o", tmp_path / "Y.tsv", "--nthreads", 1,
                    "--force")  # fmt: skip
        assert "of 1797 inputs" in said
        Y = read_tsv(tmp_path / "Y.tsv", nrows=1797, ncols=10)
        assert (gbdnn.argmax(Y) == np.load(folder / "y.npy")).mean() > 0.9
    fails("infer", out, folder / "X.npy", "-o", tmp_path / "Y", "--inputs", 3, match="--inputs")


def test_begin_with_a_network(folder, tmp_path):
    X, y = folder / "X.npy", folder / "y.npy"
    said = well("train", X, y, "-o", tmp_path / "net", "--from", folder / "begin", "--epochs", 2,
                "--dtype", "FP64", "--input-dropout", 0.1, "--batch-size", 50)  # fmt: skip
    assert len(said.splitlines()) == 3
    net = gbdnn.load(tmp_path / "net")
    assert net.dtype == np.float64
    assert net.edges == gbdnn.load(folder / "begin").edges
    for option in ("--hidden", "--density"):
        fails("train", X, y, "-o", tmp_path / "no", "--from", folder / "begin", option, "1",
              match=f"{option} beside --from")  # fmt: skip
    np.save(tmp_path / "wide.npy", np.ones((1797, 65)))
    fails("train", tmp_path / "wide.npy", y, "-o", tmp_path / "no", "--from", folder / "begin",
          match="features are 1797 x 65 but layer 0")  # fmt: skip


@pytest.mark.parametrize("rule", ["set", "rigl"])
def test_rewiring(rule, folder, tmp_path):
    out = tmp_path / "net"
    well("train", folder / "X.npy", folder / "y.npy", "-o", out, *FEW, "--rewire", rule,
         "--epochs", 15)  # fmt: skip
    begun = gbdnn.training.erdos_renyi([64, 64, 10], 0.3)
    W, V = gbdnn.load(out)[0].W, begun[0].W
    assert 0 < binary.pair(W & V).new().nvals < W.nvals


def test_a_run_goes_on_another_day(folder, tmp_path):
    files = [folder / "X.npy", folder / "y.npy"]
    well("train", *files, "-o", tmp_path / "net", "--run", tmp_path / "run", *FEW, "--epochs", 3,
         "--optimizer", "adam", "--batch-size", 64)  # fmt: skip
    run = gbdnn.load(tmp_path / "run")
    assert run.network.isequal(gbdnn.load(tmp_path / "net"))
    said = well("train", *files, "-o", tmp_path / "more", "--from", tmp_path / "run", "--epochs", 2,
                "--run", tmp_path / "later")  # fmt: skip
    assert [int(EPOCH.fullmatch(line)[1]) for line in said.splitlines()[:-1]] == [3, 4]
    X, y = np.load(files[0]), np.load(files[1])
    expected = gbdnn.train(run, X, y, epochs=2)
    assert gbdnn.load(tmp_path / "more").isequal(expected.network)
    assert len(gbdnn.load(tmp_path / "later").history) == 5
    assert "epochs" in well("info", tmp_path / "later")
    fails("train", *files, "-o", tmp_path / "no", "--from", tmp_path / "run", "--dtype", "FP64",
          match="the run has its weights")  # fmt: skip
    fails("train", *files, "-o", tmp_path / "no", "--run", tmp_path / "run", *FEW, match="--force")


def test_a_picture(folder, tmp_path):
    pytest.importorskip("matplotlib")
    X, y, out = folder / "X.npy", folder / "y.npy", tmp_path / "net"
    well("train", X, y, "-o", out, *FEW, "--epochs", 2, "--plot", tmp_path / "run.svg")
    assert "right answers" in re.sub("<!--|-->", "", (tmp_path / "run.svg").read_text())
    fails("train", X, y, "-o", out, match="net: exists already, a store; --force")
    fails("train", X, y, "-o", tmp_path / "no", "--plot", tmp_path / "run.jpg",
          match=".png, .svg or .pdf")  # fmt: skip
    well("train", X, y, "-o", out, *FEW, "--epochs", 1, "--force")


def test_patience_keeps_the_best_epoch(folder, tmp_path):
    said = well("train", folder / "X.npy", folder / "y.npy", "-o", tmp_path / "net", *FEW,
                "--epochs", 60, "--validation", 0.2, "--patience", 2,
                "--optimizer", "adam", "--learning-rate", 0.05)  # fmt: skip
    *lines, last = said.splitlines()
    losses = [float(EPOCH.fullmatch(line)[4]) for line in lines]
    assert len(lines) < 60
    assert last.endswith(f"of epoch {np.argmin(losses)}")


def test_a_killed_command_goes_on(folder, tmp_path):
    command = [
        "train", folder / "X.npy", folder / "y.npy", "--hidden", "256", "--nthreads", 1,
        "--epochs", 60, "--batch-size", 16,
    ]  # fmt: skip
    kept = [*command, "--checkpoint", tmp_path / "run.ckpt", "-o", tmp_path / "net"]
    process = subprocess.Popen([*GBDNN, *map(str, kept)], stdout=subprocess.PIPE, text=True)
    for _ in range(3):
        assert process.stdout.readline().startswith("epoch")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "net").exists()
    said = well(*kept)
    assert 1 < len(said.splitlines()) < 60
    assert "epoch  59" in said
    well(*command, "-o", tmp_path / "whole")
    assert gbdnn.load(tmp_path / "net").loaded().isequal(gbdnn.load(tmp_path / "whole").loaded())
    fails(*kept, "--force", "--seed", 1, match="the checkpoint has seed 0, but this call has 1")


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["X.npy", "short.npy"], "has 1796 labels, {folder}/X.npy has 1797 inputs"),
        (["store", "short.npy"], "has 1796 labels"),
        (["X.npy", "reals.npy"], "labels are whole numbers from 0, not float64"),
        (["X.npy", "X.npy"], "labels have one dimension, not shape (1797, 64)"),
        (["X.npy", "sparse.npz"], "labels have one dimension"),
        (["X.npy", "two.npz"], "two.npz: holds 2 arrays (X, y), not one"),
        (["y.npy", "y.npy"], "features have two dimensions or more, not shape (1797,)"),
        (["objects.npy", "y.npy"], "objects.npy: not a file of NumPy arrays"),
        (["labels.txt", "y.npy"], "labels.txt, line 1: "),
        (["labels.txt", "X.tsv"], "X.tsv, line 1: a label is a whole number from 0, not '1\\t3"),
        (["nothing.npy", "y.npy"], "nothing.npy: no such file"),
        (["begin", "y.npy"], "begin"),
        (["X.npy", "y.npy", "--hidden", "20,x"], "'--hidden': 20,x: whole numbers"),
        (["X.npy", "y.npy", "--hidden", "0"], "sizes"),
        (["X.npy", "y.npy", "--density", "1.5"], "density is a number, more than 0"),
        (["X.npy", "y.npy", "--rewire", "rigel"], "rigel"),
        (["X.npy", "y.npy", "--optimizer", "lion"], "lion"),
        (["X.npy", "y.npy", "--learning-rate", "-1"], "learning_rate is a number"),
        (["X.npy", "y.npy", "--patience", "3"], "patience= needs validation"),
        (["X.npy", "y.npy", "--validation", "1"], "validation is a number"),
        (["X.npy", "y.npy", "--input-dropout", "1"], "input_dropout is a number"),
        (["X.npy", "y.npy", "--from", "nowhere"], "nowhere"),
        (["X.npy", "y.npy", "-o", "/dev/null/net"], "/dev/null/net"),
        (["X.npy", "y.npy", "-o", "net.onnx"], "gbdnn convert makes onnx of it"),
        (["X.npy", "y.npy", "--checkpoint", "no/run"], "no/run"),
        (["X.npy", "y.npy", "--learning-rate", "1e9", "--epochs", "3"], "epoch 0, layer"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_bad_input(arguments, match, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    features, labels, *options = arguments
    where = [] if "-o" in options else ["-o", tmp_path / "net"]
    said = fails(
        "train", folder / features, folder / labels, *where, *options,
        match=match.format(folder=folder),
    )  # fmt: skip
    assert "err.run" not in said
    assert list(tmp_path.iterdir()) == []


def test_bad_input_of_a_process(folder, tmp_path):
    fails("train", folder / "X.npy", folder / "short.npy", "-o", tmp_path / "net",
          match="has 1796 labels", run=as_process)  # fmt: skip


def test_negative_labels(folder, tmp_path):
    np.save(tmp_path / "y.npy", np.load(folder / "y.npy") - 1)
    fails("train", folder / "X.npy", tmp_path / "y.npy", "-o", tmp_path / "net",
          match="label -1 of input 0")  # fmt: skip


def test_a_terminal_has_a_bar_and_lines_above_it(folder, tmp_path):
    code, written, left = on_terminal(
        "train", folder / "X.npy", folder / "y.npy", "-o", tmp_path / "net",
        "--batch-size", 16, "--epochs", 3,
    )  # fmt: skip
    assert code == 0
    assert "training steps" in written
    assert [line[:15] for line in left[:3]] == [f"epoch {k:3}: loss" for k in range(3)]
    assert left[3].startswith(f"{tmp_path / 'net'}: ")
    assert len(left) == 4


def test_damaged_features_are_refused_without_a_crash(folder, tmp_path):
    """Texts and indices that end the process where SciPy's own code reads them unchecked."""
    A = sp.csc_array(np.eye(4, dtype=np.float32))
    broken = {"format": b"csc", "shape": A.shape, "data": A.data, "indices": A.indices}
    np.savez(tmp_path / "x.npz", **broken, indptr=np.array([0, 1, 10**6, 3, 4], np.int32))
    (tmp_path / "x.mtx").write_text("%%MatrixMarket matrix coordinate real general\n5 4 1\n5 4 2e")
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00\xff\xff{")
    for name in ("x.npz", "x.mtx", "x.npy"):
        fails("train", tmp_path / name, folder / "y.npy", "-o", tmp_path / "no",
              "--hidden", "8", match=name)  # fmt: skip
    assert not (tmp_path / "no").exists()
