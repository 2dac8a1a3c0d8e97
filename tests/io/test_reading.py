"""What all readers of files share: regular files only, and errors that name the file."""

import bz2
import contextlib
import errno
import gzip
import importlib.util
import lzma
import os
from functools import partial

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from calls import raises, raising

import gbdnn
from gbdnn import io
from gbdnn.errors import FormatError, MissingFileError, ReadError
from gbdnn.io.array_files import read_idx
from gbdnn.io.challenge.table import Index, read_columns
from gbdnn.io.challenge.tsv import read_tsv
from gbdnn.io.frameworks.matrix_market import parse
from gbdnn.io.networks import FORMATS
from gbdnn.io.reading import read_unzipped

READERS = {
    "idx": read_idx, "tsv": partial(read_tsv, dtype=np.dtype("f4")),
    "categories": lambda path: read_columns(path, [Index("category")]),
    "matrix-market": lambda path: parse(read_unzipped(path), path),
    "torch": FORMATS["torch"].read, "onnx": FORMATS["onnx"].read,
}  # fmt: skip


NAMES = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.frameworks] * (name == "torch")) for name in READERS],
)


def reader(name):
    if name in ("torch", "onnx"):
        pytest.importorskip(name)
    return READERS[name]


@NAMES
def test_only_regular_files_are_read(tmp_path, name):
    read = reader(name)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "endless").symlink_to("/dev/zero")
    for file in ("fifo", "endless"):
        raises(FormatError, f"{file} is not a regular file", read, tmp_path / file)
    raises(FormatError, "is a folder, not a file", read, tmp_path)
    for missing in ("nothing", "x" * 300, "a\0b"):
        raises(MissingFileError, None, read, tmp_path / missing)


@contextlib.contextmanager
def no_descriptors():
    """Reach the limit of open files."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_too_many_open_files_are_not_a_fault_of_the_file(tmp_path):
    (tmp_path / "x.tsv").write_text("1\t1\t1\n")
    np.save(tmp_path / "x.npy", np.eye(4))
    for read, name in ((io.read_features, "x.tsv"), (io.read_features, "x.npy"), (gbdnn.load, ".")):
        with no_descriptors(), pytest.raises(ReadError) as caught:
            read(tmp_path / name)
        assert caught.value.errno == errno.EMFILE


def test_damaged_onnx(tmp_path):
    pytest.importorskip("onnx")
    path = tmp_path / "net.onnx"
    gbdnn.save(gbdnn.Network([gbdnn.Layer(np.eye(4), 0.5)]), path, "onnx")
    data = path.read_bytes()
    for bad in (data[: len(data) // 2], b"\x80\x02" + data, bytes(100)):
        path.write_bytes(bad)
        raises(FormatError, r"net\.onnx: is not a valid ONNX model", gbdnn.load, path, "onnx")


EYE = gbdnn.Network([gbdnn.Layer(np.eye(4), -0.5)])
READ = {
    "x.npy": io.read_features, "run": gbdnn.training.read_run,
    "net.pt": partial(gbdnn.load, activation="relu"),
}  # fmt: skip


def saved_run(path):
    gbdnn.training.write_run(gbdnn.train(EYE, np.eye(4), [0, 1, 2, 3], epochs=1), path)


@pytest.mark.parametrize(
    ("package", "name", "write", "inner"),
    [
        ("numpy", "x.npy", lambda path: np.save(path, np.eye(4)), "io.array_files._numbers"),
        ("onnx", "x.onnx", lambda path: gbdnn.save(EYE, path), "io.frameworks.onnx.read_graph"),
        pytest.param(
            "torch", "net.pt", lambda path: gbdnn.save(EYE, path, "torch", lossy=True),
            "io.frameworks.torch._state_of", marks=pytest.mark.frameworks,
        ),
        ("safetensors", "store", lambda path: gbdnn.save(EYE, path), "io.store.shards._size"),
        ("safetensors", "run", saved_run, "training.checkpoint._checksum"),
    ],
)  # fmt: skip
def test_a_fault_in_gbdnn_is_not_a_damaged_file(tmp_path, monkeypatch, package, name, write, inner):
    pytest.importorskip(package)
    path, read = tmp_path / name, READ.get(name, gbdnn.load)
    write(path)
    read(path)
    monkeypatch.setattr(f"gbdnn.{inner}", raising(TypeError("a fault of gbdnn")))
    raises(TypeError, r"^a fault of gbdnn$", read, path)


# gzip


def damaged_streams():
    good = gzip.compress(b"1\t1\t1\n" * 100, mtime=0)
    flipped = bytearray(good)
    flipped[12] ^= 0xFF
    return [bytes(flipped), good[:6], good[:-3], good[:-8] + bytes(8), good + b"more", b"\x1f\x8b"]


@pytest.mark.parametrize("data", damaged_streams(), ids=range(6))
@pytest.mark.parametrize("name", ["idx", "tsv", "categories", "matrix-market"])
def test_damaged_gzip(tmp_path, name, data):
    (tmp_path / "x.gz").write_bytes(data)
    raises(FormatError, r"x\.gz: the gzip stream is damaged", READERS[name], tmp_path / "x.gz")


# Other files that are small on disk and large in memory


@pytest.mark.parametrize("name", ["coo.npz", "csc.npz", "x.mtx"])
def test_far_more_rows_than_entries(tmp_path, name):
    rows, path = 1 << 40, tmp_path / name
    A = sp.coo_array(([2.0], ([rows - 1], [3])), shape=(rows, 4))
    if name == "x.mtx":
        scipy.io.mmwrite(path, A)
    else:
        sp.save_npz(path, A.asformat(path.stem))
    X = io.read_features(path)
    assert (X.shape, X.nvals) == ((rows, 4), 1)


NOT_WHAT_THEY_SAY = {
    "pull": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "git lfs pull"),
    "html": (b"\n<!DOCTYPE html><html>", "an HTML page"),
    "bzip2": (bz2.compress(b"1\t1\t1\n"), "compressed with bzip2"),
    "xz": (lzma.compress(b"1\t1\t1\n"), "compressed with xz"),
    "hdf5": (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    "matlab": (b"MATLAB 5.0 MAT-file, Platform", "a MATLAB file"),
    "parquet": (b"PAR1\0\0", "a Parquet file"),
    "tar": (b"n4-l1.tsv".ljust(257, b"\0") + b"ustar\x0000", "a tar archive; unpack it"),
    "empty": (b"", "the file is empty"),
}


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("kind", NOT_WHAT_THEY_SAY)
def test_files_that_are_not_what_their_names_say(tmp_path, kind, compressed):
    data, words = NOT_WHAT_THEY_SAY[kind]
    readers = {
        "x.tsv": io.read_features, "x.idx": io.read_features, "x": io.read_features,
        "labels": io.read_labels,
        "x.npy": io.read_features, "x.mtx": io.read_features, "net.mtx": gbdnn.load,
        "ids.tsv": io.read_categories, "y.npz": io.read_labels,
        "model.safetensors": gbdnn.load, "net": gbdnn.load,
    }  # fmt: skip
    readers |= {"x.onnx": gbdnn.load} if importlib.util.find_spec("onnx") else {}
    readers |= {"x.pt": gbdnn.load} if importlib.util.find_spec("torch") else {}
    for name, read in readers.items():
        path = tmp_path / name
        path.write_bytes(gzip.compress(data) if compressed else data)
        raises(FormatError, rf"{name}: .*{words}", read, path)


@pytest.mark.parametrize("name", ["x.csv", "x.CSV.gz", "x.parquet"])
def test_tables_of_other_libraries_are_refused_by_name(tmp_path, name):
    (tmp_path / name).write_bytes(b"a,b\n1,2\n")
    for read in (io.read_features, io.read_labels, gbdnn.load):
        raises(FormatError, "read the table with pandas and pass its values", read, tmp_path / name)


def test_a_sparse_array_beyond_the_largest_matrix(tmp_path):
    sparse, path = pytest.importorskip("scipy.sparse"), tmp_path / "x.npz"
    sparse.save_npz(path, sparse.coo_array(([1.0], ([0], [0])), shape=(2**60, 3)))
    assert io.read_features(path).shape == (2**60, 3)
    sparse.save_npz(path, sparse.coo_array(([1.0], ([0], [0])), shape=(2**60 + 1, 3)))
    raises(FormatError, r"x\.npz: shape .* exceeds the maximum", io.read_features, path)
