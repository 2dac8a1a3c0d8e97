"""No writer replaces what exists without replace=True."""

import inspect
from functools import partial
from pathlib import Path

import graphblas as gb
import numpy as np
import pytest

import gbdnn
from gbdnn import errors, io
from gbdnn.io.files import whole_file

CHAIN = gbdnn.Network([gbdnn.Layer(np.eye(3)), gbdnn.Layer(2 * np.eye(3), activation="identity")])
X = gb.Matrix.from_dense(np.eye(3))
SAVED = {
    "network": CHAIN, "layers": [gbdnn.Layer(np.eye(2))], "features": np.eye(4, 3),
    "categories": np.arange(3), "run": gbdnn.train(CHAIN, np.eye(3), np.arange(3), epochs=1),
}  # fmt: skip
WRITERS = {
    **{f"save {name}": partial(gbdnn.save, x) for name, x in SAVED.items()},
    "infer_to_store": lambda path, **k: gbdnn.infer_to_store([np.eye(3)], X, path, **k),
    "write_categories": lambda path, **k: io.write_categories([1, 2], path, **k),
    "write_features": lambda path, **k: io.write_features([X], path, **k),
    "write_matrix_market": lambda path, **k: io.write_matrix_market(CHAIN, path, lossy=True, **k),
    "write_network": lambda path, **k: io.write_network(CHAIN, path, lossy=True, **k),
    "write_onnx": lambda path, **k: io.write_onnx(CHAIN, path, **k),
    "write_torch": lambda path, **k: io.write_torch(CHAIN, path, **k),
    "write_tsv": lambda path, **k: io.write_tsv(X, path, **k),
}
FILES = ("save run", "write_categories", "write_onnx", "write_torch", "write_tsv")
OTHER = gbdnn.Network([gbdnn.Layer(np.ones((1, 2)))])  # what is replaced


def content(path):
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return {file: file.read_bytes() for file in files}


NEEDS_TORCH = {"write_torch", "out.pt"}


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
    if name in FILES:
        path.write_bytes(b"precious")
    elif name not in ("write_network", "write_matrix_market"):
        gbdnn.save(OTHER, path, replace=True)
    before = content(path)
    with pytest.raises(errors.OutputError, match=r"pass replace=True to replace it$"):
        write(path)
    assert content(path) == before
    with pytest.raises(errors.ArgumentTypeError, match="replace must be True or False"):
        write(path, replace="yes")
    write(path, replace=True)
    assert content(path) != before or path.is_dir()
    assert name in FILES or isinstance(gbdnn.load(path), gbdnn.Network) != (
        "features" in name or "categories" in name or "infer" in name
    )


def test_every_writer_is_in_the_table():
    writers = [name for name in io.__all__ if name.startswith("write_")]
    writers += [name for name in gbdnn.__all__ if "replace" in signature(getattr(gbdnn, name))]
    assert {name.split()[0] for name in WRITERS} == {*writers}


def signature(x):
    return inspect.signature(x).parameters if inspect.isfunction(x) else ()


@pytest.mark.parametrize("name", marked(["out", "out.onnx", "out.pt", "out.mtx"]))
def test_convert_replaces_only_with_replace(tmp_path, name):
    if name in NEEDS_TORCH:
        pytest.importorskip("torch")
    source, path = tmp_path / "net", tmp_path / name
    gbdnn.save(CHAIN, source)
    to = "onnx" if name.endswith("mtx") else None  # a file of any name
    io.convert(source, path, to=to)
    before = content(path)
    with pytest.raises(errors.OutputError, match=r"pass replace=True to replace it$"):
        io.convert(source, path, to=to)
    assert content(path) == before
    io.convert(source, path, to=to, replace=True)


def test_an_empty_file_or_folder_is_not_precious(tmp_path):
    path = tmp_path / "out.tsv"
    path.touch()  # as mktemp makes it
    io.write_tsv(X, path)
    assert path.stat().st_size
    io.write_tsv(X, Path("/dev/null"))
    (tmp_path / "net").mkdir()
    gbdnn.save(CHAIN, tmp_path / "net")


@pytest.mark.parametrize("name", ["write_network", "write_matrix_market"])
@pytest.mark.parametrize("exists", [True, False])
def test_a_folder_of_files_is_as_before_after_an_error(tmp_path, name, exists):
    """A layer that cannot be read: two networks must not be mixed."""

    def layer(k):
        if k == 2:
            raise errors.ReadError("layer 2")
        return gbdnn.Layer(2 * np.eye(3), clip=32, bias_rule="entries")

    write, path = getattr(gbdnn.io, name), tmp_path / "net"
    infos = [layer(0).info] * 4
    if exists:
        write(gbdnn.Network([gbdnn.Layer(np.eye(3))] * 4), path, lossy=True)
        (path / "notes.txt").write_text("mine")
    before = content(path) if exists else {}
    with pytest.raises(errors.ReadError, match="layer 2"):
        write(gbdnn.Network.lazy(infos, layer), path, lossy=True, replace=True)
    assert content(path) == before


def test_files_of_a_folder_keep_permissions_and_links(tmp_path):
    net, real = gbdnn.Network([gbdnn.Layer(np.eye(3))] * 2), tmp_path / "real.tsv"
    gbdnn.io.write_network(net, tmp_path / "net", lossy=True)
    first, second = (tmp_path / "net" / f"n3-l{k}.tsv" for k in (1, 2))
    first.chmod(0o640)
    second.rename(real)
    second.symlink_to(real)
    before = real.read_bytes()
    net = gbdnn.Network([gbdnn.Layer(2 * np.eye(3))] * 2)
    gbdnn.io.write_network(net, tmp_path / "net", lossy=True, replace=True)
    assert first.stat().st_mode & 0o777 == 0o640
    assert second.is_symlink()
    assert real.read_bytes() == first.read_bytes() != before


@pytest.mark.parametrize("has_links", [True, False])
def test_of_two_writers_without_replace_one_succeeds(tmp_path, monkeypatch, has_links):
    """The second one begins and ends while the first one writes."""

    def fail(*_):
        raise OSError(95, "Operation not supported")

    def both(path):
        with whole_file(path, replace=False) as first:
            first.write(b"first")
            with whole_file(path, replace=False) as second:
                second.write(b"second")

    if has_links:
        with pytest.raises(errors.OutputError, match=r"Y.tsv already exists; pass replace=True"):
            both(tmp_path / "Y.tsv")
        assert (tmp_path / "Y.tsv").read_bytes() == b"second"
    else:
        monkeypatch.setattr("pathlib.Path.hardlink_to", fail)
        both(tmp_path / "Y.tsv")
        assert (tmp_path / "Y.tsv").read_bytes() == b"first"
    assert [path.name for path in tmp_path.iterdir()] == ["Y.tsv"]
