"""`gbdnn train`: from files of features and labels to a store that `gbdnn infer` reads."""

import re
import struct

import numpy as np
import pytest
from shell import fails, well

import gbdnn

pytest.importorskip("sklearn")

EPOCH = re.compile(
    r"epoch +(\d+): loss (\d\.\d+), accuracy (\d\.\d+)"
    r"(?:, validation loss (\d\.\d+), validation accuracy (\d\.\d+))?, (\d+) edges, \d+\.\d+ s"
)
FEW = ["--hidden-layer-sizes", "64", "--density", "0.3", "--nthreads", 1]


def idx(array):
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Scikit-learn's digits in every format."""
    from sklearn.datasets import load_digits

    root = tmp_path_factory.mktemp("digits")
    images, labels = np.minimum(gbdnn.gallery.digits() * 16, 255), load_digits().target
    X = images.reshape(len(images), -1).astype(np.uint8).astype(np.float32) * np.float32(1 / 255)
    (root / "images-idx3-ubyte").write_bytes(idx(images))
    (root / "labels-idx1-ubyte").write_bytes(idx(labels))
    np.save(root / "X.npy", X)
    np.save(root / "y.npy", labels)
    np.save(root / "short.npy", labels[:-1])
    np.save(root / "reals.npy", labels / 2)
    gbdnn.save(gbdnn.training.erdos_renyi([64, 32, 10], 0.5), root / "begin")
    return root


def test_as_in_python(folder, tmp_path):
    out = tmp_path / "net"
    printed = well(
        "train", folder / "images-idx3-ubyte", folder / "labels-idx1-ubyte", "-o", out, *FEW,
        "--optimizer", "adam", "--learning-rate", 0.01, "--epochs", 12, "--validation", 0.2,
    )  # fmt: skip
    *lines, last = printed.splitlines()
    epochs = [EPOCH.fullmatch(line) for line in lines]
    assert [int(each[1]) for each in epochs] == list(range(12))
    net = gbdnn.load(out)
    assert last == f"{out}: 2 layers, {net.edges} edges"
    run = gbdnn.train(
        gbdnn.training.erdos_renyi([64, 64, 10], 0.3), np.load(folder / "X.npy"),
        np.load(folder / "y.npy"), epochs=12, validation=0.2, nthreads=1, seed=0, batch_size=48,
    )  # fmt: skip
    assert run.network.isequal(net.loaded())
    for found, record in zip(epochs, run.history, strict=True):
        assert float(found[5]) == pytest.approx(record.validation_accuracy, abs=1e-4)
    assert run.history[-1].validation_accuracy > 0.9


@pytest.mark.parametrize("hidden", ["32", "100"])
def test_the_defaults_are_those_of_the_estimators(hidden, folder, tmp_path):
    printed = well(
        "train", folder / "X.npy", folder / "y.npy", "-o", tmp_path / "net", "--nthreads", 1,
        "--hidden-layer-sizes", hidden, "--validation", 0.2,
    )  # fmt: skip
    *lines, _ = printed.splitlines()
    assert float(EPOCH.fullmatch(lines[-1])[5]) > 0.95
    model = gbdnn.sklearn.SparseClassifier([int(hidden)], random_state=0)
    model.fit(np.load(folder / "X.npy"), np.load(folder / "y.npy"))
    assert len(lines) == model.n_iter_
    assert gbdnn.load(tmp_path / "net").edges == sum(len(x.edges) for x in model.run_.layers)
    assert model.run_.batch_size == gbdnn.training.defaults.batch(1797) == 48
    assert model.run_.optimizer == gbdnn.training.Adam()


def test_start_from_a_network(folder, tmp_path):
    command = ["train", folder / "X.npy", folder / "y.npy", "--from", folder / "begin", "-o"]
    well(*command, tmp_path / "net", "--epochs", 1, "--batch-size", 50)
    assert gbdnn.load(tmp_path / "net").edges == gbdnn.load(folder / "begin").edges
    message = "cannot be combined with --hidden-layer-sizes"
    fails(*command, tmp_path / "no", "--hidden-layer-sizes", 3, match=message)
    np.save(tmp_path / "wide.npy", np.ones((1797, 65)))
    command[1] = tmp_path / "wide.npy"
    fails(*command, tmp_path / "no", match="wide.npy: the shape is 1797 x 65")


@pytest.mark.parametrize("rule", ["set", "rigl"])
def test_rewiring_moves_edges(rule, folder, tmp_path):
    command = ["train", folder / "X.npy", folder / "y.npy", *FEW, "--epochs", 15, "--rewire", rule]
    well(*command, "-o", tmp_path / "net")
    W = gbdnn.load(tmp_path / "net")[0].W
    begun = gbdnn.training.erdos_renyi([64, 64, 10], 0.3)[0].W
    both = set(zip(*W.to_coo()[:2], strict=True)) & set(zip(*begun.to_coo()[:2], strict=True))
    assert 0 < len(both) < W.nvals


def test_a_plot(folder, tmp_path):
    pytest.importorskip("matplotlib")
    command = ["train", folder / "X.npy", folder / "y.npy", *FEW, "--epochs", 1, "-o"]
    well(*command, tmp_path / "net", "--plot", tmp_path / "run.svg")
    assert "<svg" in (tmp_path / "run.svg").read_text()
    fails(*command, tmp_path / "net", match="net already exists; pass --force to replace it")
    fails(*command, tmp_path / "no", "--plot", tmp_path / "run.jpg", match=".png, .svg or .pdf")


def test_patience_keeps_the_best_epoch(folder, tmp_path):
    printed = well(
        "train", folder / "X.npy", folder / "y.npy", "-o", tmp_path / "net", *FEW, "--epochs", 60,
        "--validation", 0.2, "--patience", 2, "--optimizer", "adam", "--learning-rate", 0.05,
    )  # fmt: skip
    *lines, last = printed.splitlines()
    losses = [float(EPOCH.fullmatch(line)[4]) for line in lines]
    assert len(lines) < 60
    assert last.endswith(f"of epoch {np.argmin(losses)}")


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["X.npy", "short.npy"], "X.npy: the shape is 1797 x 64, not 1796 rows"),
        (["X.npy", "reals.npy"], "reals.npy: "), (["X.npy", "X.npy"], "must have one dimension"),
        (["y.npy", "y.npy"], "must have two dimensions"), (["begin", "y.npy"], "begin"),
        (["X.npy", "y.npy", "--hidden-layer-sizes", "20,x"], "sizes 20,x: expected integers"),
        (["X.npy", "y.npy", "--hidden-layer-sizes", "0"], "sizes"),
        (["X.npy", "y.npy", "--patience", "3"], "patience"),
        (["X.npy", "y.npy", "--from", "nowhere"], "nowhere"),
        (["X.npy", "y.npy", "-o", "/dev/null/net"], "/dev/null/net"),
        (["X.npy", "y.npy", "-o", "net.onnx"], "net.onnx: the output is a folder"),
        (["X.npy", "y.npy", "--optimizer", "sgd", "--learning-rate", "1e9"], "epoch 0, layer"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)  # fmt: skip
def test_wrong_input(arguments, match, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    features, labels, *options = arguments
    where = [] if "-o" in options else ["-o", tmp_path / "net"]
    line = fails("train", folder / features, folder / labels, *where, *options, match=match)
    assert "err.run" not in line
    assert list(tmp_path.iterdir()) == []
