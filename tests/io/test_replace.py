"""No writer replaces what exists without replace=True."""

import inspect
from functools import partial
from pathlib import Path

import graphblas as gb
import numpy as np
import pytest
from calls import raises

import gbdnn
from gbdnn import errors, io

CHAIN = gbdnn.Network([gbdnn.Layer(np.eye(3)), gbdnn.Layer(2 * np.eye(3), activation="identity")])
X = gb.Matrix.from_dense(np.eye(3))
RUN = gbdnn.train(CHAIN, np.eye(3), np.arange(3), epochs=1)


WRITERS = {
    "save": lambda path, **k: gbdnn.save(CHAIN, path, **k),
    "save layers": lambda path, **k: gbdnn.save([gbdnn.Layer(np.eye(2))], path, **k),
    "save onnx": lambda path, **k: gbdnn.save(CHAIN, path, "onnx", **k),
    "save torch": lambda path, **k: gbdnn.save(CHAIN, path, "torch", lossy=True, **k),
    "infer_to_store": lambda path, **k: gbdnn.infer_to_store([np.eye(3)], X, path, **k),
    "write_categories": lambda path, **k: io.write_categories([1, 2], path, "tsv", **k),
    "write_labels": lambda path, **k: io.write_labels([1, 2], path, "npy", **k),
    "write_labels tsv": lambda path, **k: io.write_labels([1, 2], path, "tsv", **k),
    "write_features": lambda path, **k: io.write_features([X], path, **k),
    **{
        f"write_features {form}": partial(io.write_features, X, format=form)
        for form in ("tsv", "npy", "npz", "matrix-market")
    },
    "write_run": lambda path, **k: gbdnn.training.write_run(RUN, path, **k),
}  # fmt: skip
FOLDERS = ("save", "save layers", "infer_to_store", "write_features")
OTHER = gbdnn.Network([gbdnn.Layer(np.ones((1, 2)))])  # what is replaced


def content(path):
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return {file: file.read_bytes() for file in files}


NEEDS_TORCH = {"save torch", "out.pt"}


def marked(names):
    """The names, with the mark of those that need PyTorch."""
    mark = pytest.mark.frameworks
    return [pytest.param(x, marks=mark) if x in NEEDS_TORCH else x for x in names]


@pytest.mark.parametrize("name", marked(WRITERS))
def test_a_writer_replaces_only_with_replace(tmp_path, name):
    if name in NEEDS_TORCH:
        pytest.importorskip("torch")
    path, write = tmp_path / "out", WRITERS[name]
    write(path)
    if name in FOLDERS:
        gbdnn.save(OTHER, path, replace=True)
    else:
        path.write_bytes(b"precious")
    before = content(path)
    raises(errors.OutputError, r"pass replace=True to replace it$", write, path)
    assert content(path) == before
    raises(errors.ArgumentTypeError, "replace must be True or False", write, path, replace="yes")
    write(path, replace=True)
    assert content(path) != before
    assert path.is_dir() == (name in FOLDERS)


def test_every_writer_is_in_the_table():
    writers = [name for name in io.__all__ if name.startswith("write_")]
    writers += [name for name in gbdnn.training.__all__ if name.startswith("write_")]
    writers += [name for name in gbdnn.__all__ if "replace" in signature(getattr(gbdnn, name))]
    assert {name.split()[0] for name in WRITERS} == {*writers}


def signature(x):
    return inspect.signature(x).parameters if inspect.isfunction(x) else ()


@pytest.mark.parametrize("name", marked(["out", "out.onnx", "out.pt"]))
def test_convert_replaces_only_with_replace(tmp_path, name):
    if name in NEEDS_TORCH:
        pytest.importorskip("torch")
    source, path = tmp_path / "net", tmp_path / name
    gbdnn.save(CHAIN, source)
    io.convert(source, path)
    before = content(path)
    raises(errors.OutputError, r"pass replace=True to replace it$", io.convert, source, path)
    assert content(path) == before
    io.convert(source, path, replace=True)


def test_an_empty_file_or_folder_is_not_precious(tmp_path):
    path = tmp_path / "out.tsv"
    path.touch()  # as mktemp makes it
    io.write_features(X, path)
    assert path.stat().st_size
    io.write_features(X, Path("/dev/null"))
    (tmp_path / "net").mkdir()
    gbdnn.save(CHAIN, tmp_path / "net")


@pytest.mark.parametrize("form", ["tsv", "matrix-market"])
def test_an_error_leaves_no_folder_of_files(tmp_path, form):
    """A layer that cannot be read: a part of a network is not a network."""

    def layer(k):
        if k == 2:
            raise errors.ReadError("layer 2")
        return gbdnn.Layer(2 * np.eye(3), clip=32, bias_rule="entries")

    net = gbdnn.Network.lazy([layer(0).info] * 4, layer)
    raises(errors.ReadError, "layer 2", gbdnn.save, net, tmp_path / "net", form, lossy=True)
    assert not list(tmp_path.iterdir())
